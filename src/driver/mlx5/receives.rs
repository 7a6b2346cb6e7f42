//! The receive ring of an mlx5 queue pair.
//!
//! A place holds as many data segments as the queue pair was made for; fewer end with a key that is none. The
//! device may use what is before the receive counter in the doorbell record.
//!
//! The receive queue of a raw packet queue pair runs from the state INIT on; frames are to come in from "ready to
//! receive" on only. So until then the counter is held back.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::mlx5::wqe::{INLINE_SEG, INVALID_LKEY, WqeDataSeg};

use super::shape::Queues;
use super::track::Track;
use crate::driver::queues::LowerReceive;
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::{Units, Word};

/// The receive ring; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    units: Units,
    counter: Word,
    /// Number of places, a power of two, and how many segments each has.
    places: u32,
    segments: u32,
    /// Counter of the next place, and of the first one behind it that is not known to be free.
    head: u32,
    limit: u32,
    /// Counter of the place behind the last that was published.
    published: u32,
    /// Whether the device may be told.
    ready: bool,
    track: Arc<Track>,
    queues: Arc<Queues>,
}

/// A piece of memory, as the device reads it.
#[inline(always)]
pub(super) fn data_segment(addr: u64, length: u32, lkey: u32) -> WqeDataSeg {
    WqeDataSeg { byte_count: length.into(), lkey: lkey.into(), addr: addr.into() }
}

impl LowerReceive for &mut Receives {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        Receives::next_slot(self)
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        Receives::put(self, wr_id, pieces.map(|piece| *piece.borrow()))
    }
}

impl Receives {
    /// With so many places of so many segments in `units`.
    pub(super) fn new(units: Units, counter: Word, places: u32, segments: u32, queues: Arc<Queues>) -> Self {
        let track = queues.track().clone();
        let (head, limit, published, ready) = (0, 0, 0, false);
        Self { units, counter, places, segments, head, limit, published, ready, track, queues }
    }

    /// Number of places.
    pub(crate) fn slots(&self) -> usize {
        self.places as usize
    }

    /// Requests that can be posted now.
    pub(crate) fn free(&self) -> u32 {
        self.track.receives.free(self.head)
    }

    /// The place that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & self.places.wrapping_sub(1)
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<(), Refused> {
        let free = self.free();
        self.limit = self.head.wrapping_add(free);
        if free == 0 { Err(Refused::Full) } else { Ok(()) }
    }

    /// Fills the next place.
    #[inline(always)]
    pub(crate) fn put(&mut self, wr_id: u64, pieces: impl Iterator<Item = Sge>) -> Result<(), Refused> {
        if self.limit == self.head {
            self.look_for_room()?;
        }
        let (head, segments) = (self.head, self.segments);
        let first = head.wrapping_mul(segments) as usize;
        let segment = |piece: Sge| data_segment(piece.addr, piece.length, piece.lkey);
        let mut count = 0;
        for piece in pieces {
            // Zero stands for 2 GiB, and no more bits than those are the length.
            if piece.length.wrapping_sub(1) >= INLINE_SEG - 1 {
                if piece.length == 0 {
                    continue;
                }
                return Err(Refused::TooLarge);
            }
            if count == segments {
                return Err(Refused::TooLarge);
            }
            self.units.put(first.wrapping_add(count as usize), segment(piece));
            count += 1;
        }
        if count < segments {
            self.units.put(first.wrapping_add(count as usize), data_segment(0, 0, INVALID_LKEY));
        }
        self.head = head.wrapping_add(1);
        self.track.receives.post(head, self.head, wr_id);
        Ok(())
    }

    /// Goes back to what was published: requests filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        // Whether places are free is looked at again.
        (self.head, self.limit) = (self.published, self.published);
    }

    /// Shows the device every place filled so far, as soon as it may see them.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.published = self.head;
        if self.ready {
            self.counter.tell(self.head & 0xffff);
        }
    }

    /// The queue pair is ready to receive.
    pub(crate) fn start(&mut self) {
        self.ready = true;
        self.publish();
    }

    /// The queue pair was reset: everything posted is forgotten, and so are its completions.
    pub(crate) fn reset(&mut self) {
        self.ready = false;
        (self.head, self.limit, self.published) = (0, 0, 0);
        self.queues.reset_receives();
        self.counter.tell(0);
    }
}
