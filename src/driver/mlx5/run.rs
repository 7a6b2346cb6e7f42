//! Completions that come one behind the other: of requests of one queue pair that succeeded, all sent or all received.
//!
//! A loop over those has little to ask of each, and all that it asks is at hand. Whatever is something else is taken by the longer way,
//! [`Completions::next_if`].

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

/// What an entry of this kind says, which stands at `position`, if its request is of this life of this queue pair; it is done then. None of a change
/// of keys, whose opcode does not say which.
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

/// Completions of one queue pair, from one on that is known to be there, while they are taken.
struct Run<'a, May> {
    ring: Entries<'a>,
    track: &'a Track,
    shared: &'a CompletionSide,
    /// What is known of who completes here.
    changes: u32,
    may_take: May,
}

/// A run and the first of its completions.
type Begun<'a, May> = (Run<'a, May>, Item<'a, Cqe64>);

impl<'a, May: Fn() -> bool> Run<'a, May> {
    /// The entry at `position`, which has this place in the ring, if it is there and of this kind.
    #[inline(always)]
    fn next<const KIND: u8>(&self, place: usize, position: u64) -> Option<Item<'a, Cqe64>> {
        let cqe = self.ring.filled_at(place, position)?;
        let is_changed = self.shared.changes() != self.changes;
        let is_next =
            !is_changed && self.track.is_of(index_of(&cqe)) && is_of::<KIND>(&cqe) && (self.may_take)();
        is_next.then_some(cqe)
    }

    /// Fills `places` from this one on, which is at `position`, as far as they are of this kind, and says how many.
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

    /// The same of messages into entries of a shared queue; the second answer is how many completions there were, of which some may be
    /// nobody's. They are not to be taken again: their entries went back to the queue.
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
    /// Fills `places` with such completions from the next one on, as far as they are of one kind and `may_take` lets, and says how many;
    /// their own places are not given back. If none may be taken, whether the device has written none.
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

    /// As [`Completions::run`], of what is no such completion: several from a shared queue, or one of any kind.
    // A function of its own: within the other, all of its loops are longer.
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

    /// The next completion if it is of a message into an entry of a shared queue. None, and the completion is passed, if it is nobody's.
    #[inline(always)]
    pub(super) fn next_shared(&mut self, may_take: impl Fn() -> bool) -> Option<Extended> {
        let at = self.position;
        let (run, cqe) = self.begin_shared(may_take).ok()??;
        let said = take::<SHARED>(&cqe, run.track, at);
        self.position = at + 1;
        said
    }

    /// As [`Completions::poll`]; none if there is one that may not be taken.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn short_poll<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        fill: impl FnMut(&mut T, &Extended),
    ) -> Option<usize> {
        let count = self.poll(places, may_take, fill);
        (count > 0 || self.is_empty()).then_some(count)
    }

    /// As [`Completions::begin_run`], if it is of a message into an entry of a shared queue.
    #[inline(always)]
    fn begin_shared<May: Fn() -> bool>(&self, may_take: May) -> Result<Option<Begun<'_, May>>, bool> {
        let begun = self.begin_run(may_take)?;
        Ok(begun.filter(|(run, cqe)| run.track.is_sharing() && is_of::<MESSAGES>(cqe)))
    }

    /// The next completion and what is to be known of its queue pair, if it may be one of those that are taken in this way.
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
