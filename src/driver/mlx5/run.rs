//! Consecutive completions of successful requests of one queue pair, all of the same kind.
//!
//! A loop over such completions has few checks for each, and copies of everything that the checks need. All others are taken by the
//! longer path, [`Completions::next_if`].

use std::mem::offset_of;

use uverbs_abi::mlx5::wqe::{Cqe64, OPCODE_UMR};
use uverbs_abi::write::Wc;
use zerocopy::big_endian::U16;

use super::completion_ring::Entries;
use super::completions::{CompletionSide, Completions, index_of};
use super::entry::{FRAMES, MESSAGES, SENT, SHARED, Sent, frame, is_of, message, number_of};
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
        SHARED => track.complete_shared(counter, position, number_of(cqe))?,
        _ => (track.receives.complete(counter, position)?, track.number()),
    };
    let (cqe, wc) = (cqe.read(), Wc { wr_id, qp_num, ..Wc::default() });
    let wc = match KIND {
        FRAMES => return Some(frame(&cqe, wc)),
        SENT => Sent::of(cqe.sop_drop_qpn.get()).said(&cqe, wc),
        _ => message(&cqe, wc),
    };
    Some(Extended { wc, vlan: 0, timestamp: cqe.timestamp.get() })
}

/// The completions of one queue pair, beginning with one that is known to exist, while they are taken.
struct Run<'a, May> {
    ring: Entries<'a>,
    track: &'a Track,
    shared: &'a CompletionSide,
    /// The number of changes to the list of queue pairs that the poller has seen.
    changes: u32,
    may_take: May,
}

/// A run, and the entry of its first completion.
type Begun<'a, May> = (Run<'a, May>, Item<'a, Cqe64>);

impl<'a, May: Fn() -> bool> Run<'a, May> {
    /// The entry at `position`, at this place in the ring, if the device has written it and it is of this kind.
    #[inline(always)]
    fn next<const KIND: u8>(&self, place: usize, position: u64) -> Option<Item<'a, Cqe64>> {
        let cqe = self.ring.filled_at(place, position)?;
        let is_changed = self.shared.changes() != self.changes;
        let is_next =
            !is_changed && self.track.is_of(index_of(&cqe)) && is_of::<KIND>(&cqe) && (self.may_take)();
        is_next.then_some(cqe)
    }

    /// Fills `places` from this entry on, which is at `position`, with consecutive completions of this kind. Returns their number.
    #[inline(always)]
    fn take<const KIND: u8, T>(
        self,
        mut cqe: Item<'a, Cqe64>,
        position: u64,
        places: &mut [T],
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> usize {
        let (mut at, mut rest) = (position, places);
        let mut in_ring = self.ring.place(position);
        while let [place, behind @ ..] = rest {
            let Some(said) = take::<KIND>(&cqe, self.track, at) else { break };
            fill(place, &said);
            at += 1;
            rest = behind;
            if rest.is_empty() {
                break;
            }
            in_ring = self.ring.behind(in_ring);
            let Some(next) = self.next::<KIND>(in_ring, at) else { break };
            cqe = next;
        }
        (at - position) as usize
    }

    /// The same for messages that were received into entries of a shared queue. The second value is the number of completions, including
    /// those without a queue pair. They must not be taken again, because their entries were given back to the shared queue.
    #[inline(always)]
    fn take_shared<T>(
        self,
        mut cqe: Item<'a, Cqe64>,
        position: u64,
        places: &mut [T],
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> (usize, u64) {
        let (mut count, mut at) = (0, position);
        while let Some(place) = places.get_mut(count) {
            if let Some(said) = take::<SHARED>(&cqe, self.track, at) {
                fill(place, &said);
                count += 1;
            }
            at += 1;
            if count == places.len() {
                break;
            }
            let Some(next) = self.next::<SHARED>(self.ring.place(at), at) else { break };
            cqe = next;
        }
        (count, at - position)
    }
}

impl Completions {
    /// Fills `places` with such completions from the next one on, as long as they are of one kind and `may_take` returns true. Returns
    /// their number; their entries are not given back. If none may be taken, the error says whether the device has written none.
    #[inline(always)]
    pub(super) fn run<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        fill: impl FnMut(&mut T, &Extended),
    ) -> Result<usize, bool> {
        let at = self.position;
        let Some((run, cqe)) = self.begin_run(may_take)? else { return Ok(0) };
        let count = if is_of::<SENT>(&cqe) {
            run.take::<SENT, T>(cqe, at, places, fill)
        } else if run.track.has_frames && is_of::<FRAMES>(&cqe) {
            run.take::<FRAMES, T>(cqe, at, places, fill)
        } else if !run.track.has_frames && is_of::<MESSAGES>(&cqe) {
            run.take::<MESSAGES, T>(cqe, at, places, fill)
        } else {
            0
        };
        self.position = at + count as u64;
        Ok(count)
    }

    /// As [`Completions::run`], for the other completions: several from a shared queue, or one of any kind.
    // A separate function, because inside the other one it would make all loops longer.
    #[inline(never)]
    pub(super) fn run_others<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> Result<usize, bool> {
        let at = self.position;
        if let Some((run, cqe)) = self.begin_shared(&may_take)? {
            let (count, passed) = run.take_shared(cqe, at, places, &mut fill);
            self.position = at + passed;
            if count > 0 {
                return Ok(count);
            }
        }
        let said = self.next_other(may_take)?;
        places.first_mut().into_iter().for_each(|place| fill(place, &said));
        Ok(1)
    }

    /// The next completion if it is of a message that was received into an entry of a shared queue. `None`, and the completion is
    /// skipped, if its queue pair does not exist any more.
    #[inline(always)]
    pub(super) fn next_shared(&mut self, may_take: impl Fn() -> bool) -> Option<Extended> {
        let at = self.position;
        let (run, cqe) = self.begin_shared(may_take).ok()??;
        let said = take::<SHARED>(&cqe, run.track, at);
        self.position = at + 1;
        said
    }

    /// As [`Completions::begin_run`], if the completion is of a message that was received into an entry of a shared queue.
    #[inline(always)]
    fn begin_shared<May: Fn() -> bool>(&self, may_take: May) -> Result<Option<Begun<'_, May>>, bool> {
        let begun = self.begin_run(may_take)?;
        Ok(begun.filter(|(run, cqe)| run.track.is_sharing() && is_of::<MESSAGES>(cqe)))
    }

    /// The next completion and what has to be known about its queue pair, if this path can take it.
    #[inline(always)]
    fn begin_run<May: Fn() -> bool>(&self, may_take: May) -> Result<Option<Begun<'_, May>>, bool> {
        let (ring, shared, changes) = (self.ring.reading(), &*self.shared, self.changes);
        let cqe = ring.filled(self.position).ok_or(true)?;
        if shared.is_armed() || shared.changes() != changes {
            return Ok(None);
        }
        if !may_take() {
            return Err(false);
        }
        let track = self.known.get(index_of(&cqe));
        Ok(track.map(|track| (Run { ring, track, shared, changes, may_take }, cqe)))
    }
}
