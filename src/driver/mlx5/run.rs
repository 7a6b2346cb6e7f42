//! Consecutive completions of successful requests.
//!
//! A loop over such completions has few checks for each, and copies of everything that the checks need. All others are taken by the
//! longer path, [`Completions::next_if`].

use std::mem::offset_of;

use uverbs_abi::mlx5::wqe::{CQE_RESP_SEND, Cqe64, OPCODE_UMR};
use uverbs_abi::write::Wc;
use zerocopy::big_endian::U16;

use super::completions::{Completions, index_of};
use super::entry::{
    FRAMES, MESSAGES, PLAIN, PLAIN_SHARED, SENT, SHARED, Sent, frame, is_of, message, number_of,
};
use super::track::Track;
use crate::driver::completion::Extended;
use crate::driver::ring::units::Item;

/// The completion in an entry of this kind at `position`, if its request was posted since the last reset of this queue pair. The request
/// is then done. `None` for a change of a key, because its opcode does not say which.
#[inline(always)]
fn take<const KIND: u8>(cqe: &Item<'_, Cqe64>, track: &Track, position: u64) -> Option<Extended> {
    let opcode = cqe.field::<{ offset_of!(Cqe64, sop_drop_qpn) }, u8>();
    if KIND == SENT && opcode == OPCODE_UMR {
        return None;
    }
    let counter = cqe.field::<{ offset_of!(Cqe64, wqe_counter) }, U16>().get();
    let (wr_id, qp_num) = match KIND {
        SENT => (track.sends.complete(counter, position)?, track.number()),
        SHARED | PLAIN_SHARED => track.complete_shared(counter, position, number_of(cqe))?,
        _ => (track.receives.complete(counter, position)?, track.number()),
    };
    let (mut cqe, wc) = (cqe.read(), Wc { wr_id, qp_num, ..Wc::default() });
    if matches!(KIND, PLAIN | PLAIN_SHARED) {
        // Known, but not to the compiler, which then leaves out what other messages have.
        cqe.op_own = CQE_RESP_SEND << 4;
    }
    let wc = match KIND {
        FRAMES => return Some(frame(&cqe, wc)),
        SENT => Sent::of(cqe.sop_drop_qpn.get()).said(&cqe, wc),
        _ => message(&cqe, wc),
    };
    Some(Extended { wc, vlan: 0, timestamp: cqe.timestamp.get() })
}

/// Why a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// There is no place left.
    Full,
    /// The device has written no further completion.
    Empty,
    /// There may be more: the ring continues at its beginning, or a completion was skipped.
    More,
    /// The next completion may not be taken.
    Refused,
    /// The next completion needs the longer path.
    Other,
}

impl Completions {
    /// Fills `places` with completions of successful requests, if `may_take` returns true, up to the first that needs the longer path.
    /// Returns their number; their entries are not given back.
    ///
    /// If there is `ONE` place, less has to be found out. First it counts the entries that the device has written. What could forbid to take them is checked once after that, and everything
    /// that changed before their requests were posted is seen.
    #[inline(always)]
    pub(super) fn run<const ONE: bool, T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> (usize, Ended) {
        let (ring, begin, wanted) = (self.ring.reading(), self.position, places.len());
        let (filled, mut ended) = match ONE {
            true if ring.filled(begin).is_some() => (1, Ended::Full),
            true => (0, Ended::Empty),
            false => ring.filled_from(begin, wanted),
        };
        let places = match places.get_mut(..filled) {
            Some(places @ [_, ..]) => places,
            _ => return (0, if wanted == 0 { Ended::Full } else { Ended::Empty }),
        };
        if self.shared.is_armed() || self.shared.changes() != self.changes {
            return (0, Ended::Other);
        }
        if !may_take() {
            return (0, Ended::Refused);
        }
        let (known, mut place, mut at) = (&self.known, ring.place(begin), begin);
        let Some(mut track) = known.get(index_of(&ring.entry_at(place))) else { return (0, Ended::Other) };
        let mut skipped = 0;
        for to in places {
            let cqe = ring.entry_at(place);
            let index = index_of(&cqe);
            if !track.is_of(index) {
                let Some(other) = known.get(index) else {
                    ended = Ended::Other;
                    break;
                };
                track = other;
            }
            let said = if is_of::<SENT>(&cqe) {
                take::<SENT>(&cqe, track, at).map(|said| fill(to, &said))
            } else if track.is_plain && is_of::<PLAIN>(&cqe) {
                take::<PLAIN>(&cqe, track, at).map(|said| fill(to, &said))
            } else if track.has_frames {
                let is_frame = is_of::<FRAMES>(&cqe);
                if is_frame { take::<FRAMES>(&cqe, track, at).map(|said| fill(to, &said)) } else { None }
            } else if !is_of::<MESSAGES>(&cqe) {
                None
            } else if !track.is_sharing() {
                take::<MESSAGES>(&cqe, track, at).map(|said| fill(to, &said))
            } else {
                let is_plain = is_of::<PLAIN>(&cqe);
                let taken = if is_plain {
                    take::<PLAIN_SHARED>(&cqe, track, at).map(|said| fill(to, &said))
                } else {
                    take::<SHARED>(&cqe, track, at).map(|said| fill(to, &said))
                };
                if taken.is_none() {
                    // It must not be taken again, because its request was given back to the shared queue.
                    (at, skipped, ended) = (at + 1, 1, Ended::More);
                    break;
                }
                taken
            };
            if said.is_none() {
                ended = Ended::Other;
                break;
            }
            at += 1;
            place = ring.behind(place);
        }
        self.position = at;
        ((at - begin) as usize - skipped, ended)
    }

    /// The next completion if it is of a message that was received into an entry of a shared queue. `None`, and the completion is
    /// skipped, if its queue pair does not exist any more.
    #[inline(always)]
    pub(super) fn next_shared(&mut self, may_take: impl Fn() -> bool) -> Option<Extended> {
        let at = self.position;
        let cqe = self.ring.reading().filled(at)?;
        if self.shared.is_armed() || self.shared.changes() != self.changes || !may_take() {
            return None;
        }
        let track =
            self.known.get(index_of(&cqe)).filter(|track| track.is_sharing() && is_of::<MESSAGES>(&cqe))?;
        let said = take::<SHARED>(&cqe, track, at);
        self.position = at + 1;
        said
    }
}
