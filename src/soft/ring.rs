//! The soft device's side of the rings that it shares with its user; the other side is `driver/ring.rs`.
//!
//! A program may write anything to a ring (`soft::RawConnection`), at any time. All of it is therefore copied through [`Mapping`], whose
//! accesses are atomic, and a slot is accessed only while it belongs to this side.

use std::sync::atomic::Ordering;

use crate::driver::ring::{CONSUMER_INDEX, Geometry, PRODUCER_INDEX};
use crate::kernel::mapping::Mapping;

/// The side of a ring that fills slots.
#[derive(Debug)]
pub(crate) struct Producer {
    map: Mapping,
    geometry: Geometry,
    /// Our index. It is ahead of the shared one by the slots that are not yet published.
    index: u32,
}

impl Producer {
    pub(crate) fn new(map: Mapping, geometry: Geometry) -> Self {
        let index = map.load(PRODUCER_INDEX, Ordering::Relaxed) & geometry.capacity();
        Self { map, geometry, index }
    }

    /// Number of slots that can be filled now.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.geometry.capacity() - self.waiting()
    }

    /// Number of slots that were filled and are not emptied yet.
    pub(crate) fn waiting(&self) -> u32 {
        let consumer = self.map.load(CONSUMER_INDEX, Ordering::Acquire);
        self.index.wrapping_sub(consumer) & self.geometry.capacity()
    }

    /// Writes part of the slot that is filled next. False if it does not fit into a slot.
    #[must_use]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        offset + bytes.len() <= self.geometry.slot_size()
            && self.map.write(self.geometry.place(self.index, offset), bytes)
    }

    /// Finishes this slot. The other side sees it after [`Producer::publish`].
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.index = (self.index + 1) & self.geometry.capacity();
    }

    /// Shows the other side every slot that was filled.
    #[inline]
    pub(crate) fn publish(&self) {
        self.map.store(PRODUCER_INDEX, self.index, Ordering::Release);
    }

    /// Continues in a new ring, which begins with the elements that the other side has not taken yet. False, with nothing done, if they
    /// do not fit. All filled slots must be published.
    #[must_use]
    pub(crate) fn move_to(&mut self, map: Mapping, geometry: Geometry) -> bool {
        let waiting = self.waiting();
        let size = self.geometry.slot_size().min(geometry.slot_size());
        if waiting > geometry.capacity() {
            return false;
        }
        let oldest = self.index.wrapping_sub(waiting);
        let mut new = Self::new(map, geometry);
        let mut element = vec![0; size];
        for i in 0..waiting {
            let place = self.geometry.place(oldest.wrapping_add(i), 0);
            if !self.map.read(place, &mut element) || !new.write(0, &element) {
                return false;
            }
            new.advance();
        }
        new.publish();
        // The part that the other side still reads is empty.
        self.map.store(CONSUMER_INDEX, self.index, Ordering::Release);
        *self = new;
        true
    }
}

/// The side of a ring that empties slots.
#[derive(Debug)]
pub(crate) struct Consumer {
    map: Mapping,
    geometry: Geometry,
    index: u32,
}

impl Consumer {
    pub(crate) fn new(map: Mapping, geometry: Geometry) -> Self {
        let index = map.load(CONSUMER_INDEX, Ordering::Relaxed) & geometry.capacity();
        Self { map, geometry, index }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of filled slots.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        let producer = self.map.load(PRODUCER_INDEX, Ordering::Acquire);
        producer.wrapping_sub(self.index) & self.geometry.capacity()
    }

    /// Reads part of the oldest filled slot. False if it is not inside the slot. Only if [`Consumer::available`] is not zero.
    #[must_use]
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        self.read_behind(0, offset, bytes)
    }

    /// Reads part of the slot that was filled `slots` after the oldest. False if it is not inside the slot. `slots` must be less than
    /// [`Consumer::available`].
    #[must_use]
    pub(crate) fn read_behind(&self, slots: u32, offset: usize, bytes: &mut [u8]) -> bool {
        offset + bytes.len() <= self.geometry.slot_size()
            && self.map.read(self.geometry.place(self.index.wrapping_add(slots), offset), bytes)
    }

    /// Finishes the oldest slot. The other side sees it after [`Consumer::release`].
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.index = (self.index + 1) & self.geometry.capacity();
    }

    /// Gives every emptied slot back to the other side.
    #[inline]
    pub(crate) fn release(&self) {
        self.map.store(CONSUMER_INDEX, self.index, Ordering::Release);
    }
}
