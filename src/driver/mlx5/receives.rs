//! The receive ring of an mlx5 queue pair.
//!
//! A place holds as many data segments as the queue pair was made for; fewer end with a key that is none. The
//! device may use what is before the receive counter in the doorbell record.
//!
//! The receive queue of a raw packet queue pair runs from the state INIT on; frames are to come in from "ready to
//! receive" on only. So until then the counter is held back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::mlx5::wqe::{INVALID_LKEY, RCV_DBR, WqeDataSeg};
use uverbs_abi::rxe::Sge;
use zerocopy::IntoBytes;

use super::shape::Queues;
use super::track::Track;
use crate::mapping::Mapping;

/// The receive ring; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    pub(super) memory: Mapping,
    /// Where the doorbell record is.
    pub(super) record: usize,
    /// Number of places, a power of two, and how many segments each has.
    pub(super) places: u32,
    pub(super) segments: u32,
    /// Counter of the next place.
    pub(super) head: u32,
    /// Counter of the place behind the last that was published.
    pub(super) published: u32,
    /// Whether the device may be told.
    pub(super) ready: bool,
    pub(super) track: Arc<Track>,
    pub(super) queues: Arc<Queues>,
}

/// A piece of memory, as the device reads it.
pub(super) fn data_segment(piece: &Sge) -> WqeDataSeg {
    WqeDataSeg { byte_count: piece.length.into(), lkey: piece.lkey.into(), addr: piece.addr.into() }
}

impl Receives {
    /// Number of places.
    pub(crate) fn slots(&self) -> usize {
        self.places as usize
    }

    /// Requests that can be posted now.
    pub(crate) fn free(&self) -> u32 {
        self.places - self.head.wrapping_sub(self.track.receives.done())
    }

    /// The place that is filled next.
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & self.places.wrapping_sub(1)
    }

    /// Fills the next place; false when the pieces do not fit into it.
    #[inline(never)]
    #[must_use]
    pub(crate) fn put(&mut self, wr_id: u64, pieces: impl ExactSizeIterator<Item = Sge>) -> bool {
        let size = size_of::<WqeDataSeg>();
        let start = self.next_slot() as usize * self.segments as usize * size;
        let count = pieces.len();
        if self.places == 0 || count > self.segments as usize {
            return false;
        }
        let written = pieces
            .enumerate()
            .all(|(i, piece)| self.memory.write(start + i * size, data_segment(&piece).as_bytes()));
        let end = WqeDataSeg { byte_count: 0.into(), lkey: INVALID_LKEY.into(), addr: 0.into() };
        let ended =
            count == self.segments as usize || self.memory.write(start + count * size, end.as_bytes());
        if !written || !ended {
            return false;
        }
        self.track.receives.post(self.head, self.head.wrapping_add(1), wr_id);
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Goes back to what was published: requests filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        self.head = self.published;
    }

    /// Shows the device every place filled so far, as soon as it may see them.
    pub(crate) fn publish(&mut self) {
        self.published = self.head;
        if self.ready {
            let counter = (self.head & 0xffff).to_be();
            self.memory.store(self.record + 4 * RCV_DBR, counter, Ordering::Release);
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
        (self.head, self.published) = (0, 0);
        self.queues.reset_receives();
        self.memory.store(self.record + 4 * RCV_DBR, 0, Ordering::Release);
    }
}
