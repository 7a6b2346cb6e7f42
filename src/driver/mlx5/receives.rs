//! The receive ring of an mlx5 queue pair.
//!
//! A place holds as many data segments as the queue pair was created for; if a request has fewer, an invalid key marks the end. The
//! device may use the places before the receive counter in the doorbell record.
//!
//! The receive queue of a raw packet queue pair is active from the state INIT on, but frames should be received only from "ready to
//! receive" on. Until then, the counter is not updated.

use std::borrow::Borrow;
use std::mem::offset_of;
use std::sync::Arc;

use uverbs_abi::mlx5::wqe::{INLINE_SEG, INVALID_LKEY};
use uverbs_abi::types::qp_state;

use super::shape::Queues;
#[cfg(feature = "raw")]
use super::sizes::SEGMENT;
use super::track::{Entry, Track};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::{self, Units, Word};
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{FillReceives, LowerReceive, Plains, ReceiveBatch, ReceiveRing};

/// The receive ring; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    units: Units,
    counter: Word,
    /// Number of places, a power of two, and of segments in each.
    places: u32,
    segments: u32,
    next: Next,
    /// Counter of the place after the last one that was published.
    published: u32,
    /// Whether the counter may be shown to the device.
    ready: bool,
    /// The program uses the ring directly, and has its own counter.
    #[cfg(feature = "raw")]
    is_handed_over: bool,
    track: Arc<Track>,
    queues: Arc<Queues>,
}

/// Counter of the next place, and how many places from there on are known to be free, up to the end of the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Next {
    head: u32,
    room: u32,
}

/// A piece of memory in the device's format: its length and its key in one word, and its address.
#[inline(always)]
pub(super) const fn data_segment(addr: u64, length: u32, lkey: u32) -> [u64; 2] {
    [((length as u64) << 32 | lkey as u64).to_be(), addr.to_be()]
}

/// The segment of a piece of memory, in the device's format. `None` for a piece of zero bytes, which needs none: a length of zero means 2
/// GiB; and for 2 GiB and more, because the length has no more bits.
// The length and the key are read as one word, because they were written as one.
#[inline(always)]
pub(super) fn segment(piece: &Sge) -> Option<[u64; 2]> {
    const { assert!(offset_of!(Sge, length) == 8 && offset_of!(Sge, lkey) == 12) }
    let &[addr, rest]: &[u64; 2] = zerocopy::transmute_ref!(piece);
    let [a, b, c, d, e, f, g, h] = rest.to_ne_bytes();
    let (length, lkey) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
    let is_usual = length.wrapping_sub(1) < INLINE_SEG - 1;
    is_usual.then(|| data_segment(addr, length, lkey))
}

/// The segment after the last piece, if there is room for more.
pub(super) const END: [u64; 2] = data_segment(0, 0, INVALID_LKEY);

/// Fills a place with one segment. The place has `segments` segments, of which `first` is the first.
#[inline(always)]
pub(super) fn put_segment(units: &mut units::Writing<'_>, first: usize, segments: u32, segment: [u64; 2]) {
    units.put(first, segment);
    if segments > 1 {
        units.put(first.wrapping_add(1), END);
    }
}

/// Fills a place with any number of pieces of memory.
#[inline(always)]
pub(super) fn put_pieces<P>(
    mut units: units::Writing<'_>,
    first: usize,
    segments: u32,
    mut pieces: P,
) -> Result<(), Refused>
where
    P: ExactSizeIterator<Item: Borrow<Sge>>,
{
    // Usually there is one piece.
    let one = if pieces.len() == 1 { pieces.next() } else { None };
    match one {
        Some(piece) => match segment(piece.borrow()) {
            Some(segment) => {
                put_segment(&mut units, first, segments, segment);
                Ok(())
            }
            None => put_others(units, first, segments, std::iter::once(piece)),
        },
        None => put_others(units, first, segments, pieces),
    }
}

/// Fills a place with another number of pieces than one, or with one of an unusual length.
#[cold]
#[inline(never)]
fn put_others(
    mut units: units::Writing<'_>,
    first: usize,
    segments: u32,
    pieces: impl Iterator<Item: Borrow<Sge>>,
) -> Result<(), Refused> {
    let mut count = 0;
    for piece in pieces {
        let piece = piece.borrow();
        if piece.length == 0 {
            continue;
        }
        let segment = segment(piece).filter(|_| count < segments).ok_or(Refused::TooLarge)?;
        units.put(first.wrapping_add(count as usize), segment);
        count += 1;
    }
    if count < segments {
        units.put(first.wrapping_add(count as usize), END);
    }
    Ok(())
}

/// A receive ring, borrowed to be written, with copies of the fields that each request needs.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    units: units::Writing<'a>,
    segments: u32,
    places: u32,
    head: u32,
    /// The places from here on that are known to be free, up to the end of the ring.
    run: &'a [Entry],
    next: &'a mut Next,
    track: &'a Arc<Track>,
}

impl LowerReceive for Writing<'_> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.head & self.places.wrapping_sub(1)
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        self.put_as(wr_id, |units, first, segments| put_pieces(units, first, segments, pieces))
    }
}

impl Writing<'_> {
    /// Fills the next place, which begins at a unit and has so many, by `how`.
    #[inline(always)]
    pub(super) fn put_as(
        &mut self,
        wr_id: u64,
        how: impl FnOnce(units::Writing<'_>, usize, u32) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let head = self.head;
        if self.run.is_empty() {
            self.run = self.track.receives.free_run(head);
        }
        let [entry, rest @ ..] = self.run else { return Err(Refused::Full) };
        let first = head.wrapping_mul(self.segments) as usize;
        let end = head.wrapping_add(1);
        how(self.units.lend(), first, self.segments)?;
        entry.set(end, wr_id);
        (self.head, self.run) = (end, rest);
        Ok(())
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.next = Next { head: self.head, room: self.run.len() as u32 };
    }
}

impl Receives {
    /// With `places` places of `segments` segments each, in `units`.
    pub(super) fn new(units: Units, counter: Word, places: u32, segments: u32, queues: Arc<Queues>) -> Self {
        let track = queues.track().clone();
        Self {
            units,
            counter,
            places,
            segments,
            next: Next::default(),
            published: 0,
            ready: false,
            #[cfg(feature = "raw")]
            is_handed_over: false,
            track,
            queues,
        }
    }

    /// Number of segments of a place.
    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    /// Number of requests that can be posted now.
    pub(crate) fn free(&self) -> u32 {
        self.track.receives.free(self.next.head)
    }

    /// Sets the counters as if this many requests had been posted and were done. For tests.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, counter: u32) {
        (self.next, self.published) = (Next { head: counter, room: 0 }, counter);
        self.track.receives.start_at(counter);
    }

    /// Borrows the ring for a batch.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Writing<'_> {
        let Self { units, track, next, segments, places, .. } = self;
        let (lane, head) = (&track.receives, next.head);
        let run = lane.run(head, next.room).unwrap_or_else(|| lane.free_run(head));
        Writing { units: units.writing(), segments: *segments, places: *places, head, run, next, track }
    }

    /// Fills the next place.
    #[cfg(test)]
    pub(crate) fn put(
        &mut self,
        wr_id: u64,
        pieces: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), Refused> {
        self.writing().put(wr_id, pieces)
    }

    /// Shows the device every place that was filled, as soon as the device may see them.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.published = self.next.head;
        if self.ready {
            self.counter.tell(self.published & 0xffff);
        }
    }

    /// The queue pair has become ready to receive.
    pub(super) fn start(&mut self) {
        self.ready = true;
        #[cfg(feature = "raw")]
        if self.is_handed_over {
            return;
        }
        self.publish();
    }

    /// The queue pair was reset: everything posted is discarded, and so are its completions.
    pub(super) fn reset(&mut self) {
        self.ready = false;
        let begin = self.queues.reset_receives();
        (self.next, self.published) = (Next { head: begin, room: 0 }, begin);
        self.counter.tell(begin & 0xffff);
    }
}

impl ReceiveRing for Receives {
    fn slots(&self) -> usize {
        self.places as usize
    }

    #[inline]
    fn next_slot(&self) -> u32 {
        self.next.head & self.places.wrapping_sub(1)
    }

    #[inline(always)]
    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(self.writing(), pieces));
        if F::is_kept(&answer) {
            self.publish();
        } else {
            self.rewind();
        }
        answer
    }

    fn rewind(&mut self) {
        // The number of free places is determined again.
        self.next = Next { head: self.published, room: 0 };
    }

    fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            self.reset();
        } else if state >= qp_state::RTR {
            self.start();
        }
    }

    /// A reset sets the counter to zero, with which the device begins, also after this.
    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        self.is_handed_over = true;
        Some(OwnRing {
            address: self.units.address(),
            entry_size: self.segments * SEGMENT,
            entries: self.places,
            record: self.counter.address(),
            numbers: self.queues.told.receives,
            ..OwnRing::default()
        })
    }

    const HAS_FAST: bool = true;

    #[inline(always)]
    fn post_fast(&mut self, wr_id: u64, piece: &Sge) -> Option<u32> {
        let slot = self.next_slot();
        self.post_list_fast(std::iter::once(Some((wr_id, piece)))).then_some(slot)
    }

    #[inline(always)]
    fn post_list_fast<'p>(&mut self, requests: impl Plains<'p>) -> bool {
        let Self { units, track, next, segments, published, .. } = self;
        let (count, head) = (requests.len(), next.head);
        // What was filled and not published would be published with these.
        let Some(run) = track.receives.run(head, next.room).and_then(|run| run.get(..count)) else {
            return false;
        };
        if head != *published {
            return false;
        }
        let (mut units, mut at) = (units.writing(), head);
        for (entry, request) in run.iter().zip(requests) {
            let Some((wr_id, piece)) = request else { return false };
            let Some(segment) = segment(piece) else { return false };
            put_segment(&mut units, at.wrapping_mul(*segments) as usize, *segments, segment);
            at = at.wrapping_add(1);
            entry.set(at, wr_id);
        }
        *next = Next { head: at, room: next.room - count as u32 };
        self.publish();
        true
    }
}

#[cfg(test)]
mod tests;
