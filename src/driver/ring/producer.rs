//! The side of a ring that fills slots.
//!
//! # Safety
//! As in the page of [`super`]: a [`Slot`] is given out only for a slot that belongs to this side, and borrows the ring until it is
//! filled.

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use zerocopy::{Immutable, IntoBytes};

use super::{Geometry, Ring, copy};
use crate::kernel::mapping::Mapping;

/// A slot that is being filled. It begins with a `W`.
#[derive(Debug)]
pub(crate) struct Slot<'a, W> {
    at: NonNull<u8>,
    /// Size in bytes of the memory behind the `W`.
    room: usize,
    of: PhantomData<&'a mut W>,
}

impl<W> Slot<'_, W> {
    /// The slot at this address, with `room` bytes behind its `W`.
    ///
    /// # Safety
    /// As long as this is used, the memory is a slot of that size at a multiple of eight, which only the holder of this writes.
    #[inline]
    pub(super) unsafe fn at(at: NonNull<u8>, room: usize) -> Self {
        Self { at, room, of: PhantomData }
    }

    /// Lends the slot, to be passed on: a value that is passed by value is not stored in memory here.
    #[inline]
    pub(crate) fn lend(&mut self) -> Slot<'_, W> {
        Slot { at: self.at, room: self.room, of: PhantomData }
    }

    /// Writes `value` over the field of `W` that begins at byte `AT`, and over the following fields if `value` is longer.
    #[inline(always)]
    pub(crate) fn put<const AT: usize, T: IntoBytes + Immutable>(&mut self, value: T) {
        const {
            assert!(AT + size_of::<T>() <= size_of::<W>());
            assert!(AT.is_multiple_of(align_of::<T>()) && align_of::<T>() <= 8);
        }
        // SAFETY: inside the `W` at the start of the slot, aligned, and the slot is ours (third point).
        unsafe { self.at.add(AT).cast::<T>().write(value) }
    }

    /// Copies an item behind `W`, as the one with this index. False if it does not fit into the slot.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put_item<T: IntoBytes + Immutable>(&mut self, index: usize, item: &T) -> bool {
        if index >= self.items::<T>() {
            return false;
        }
        // SAFETY: the index is below the number that fits.
        unsafe { self.put_item_unchecked(index, item) };
        true
    }

    /// Copies items behind `W`, one after the other, and tells `each` of them. Returns their number, or `None` if there are more than fit
    /// into the slot.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put_items<T: IntoBytes + Immutable>(
        &mut self,
        items: impl ExactSizeIterator<Item: Borrow<T>>,
        mut each: impl FnMut(&T),
    ) -> Option<usize> {
        let count = items.len();
        if count > self.items::<T>() {
            return None;
        }
        // No more than were counted, whatever the iterator returns.
        for (index, item) in (0..count).zip(items) {
            each(item.borrow());
            // SAFETY: the index is below the number that fits.
            unsafe { self.put_item_unchecked(index, item.borrow()) };
        }
        Some(count)
    }

    /// Number of items that fit behind `W`.
    #[inline(always)]
    fn items<T>(&self) -> usize {
        self.room / size_of::<T>()
    }

    /// Copies an item behind `W`, as the one with this index.
    ///
    /// # Safety
    /// The index is less than [`Slot::items`].
    #[inline(always)]
    unsafe fn put_item_unchecked<T: IntoBytes + Immutable>(&mut self, index: usize, item: &T) {
        const {
            assert!(size_of::<W>().is_multiple_of(align_of::<T>()) && align_of::<T>() <= 8);
            assert!(size_of::<T>().is_multiple_of(align_of::<T>()) && size_of::<T>() > 0);
        }
        // SAFETY: inside the slot, as the caller promises, aligned, and the slot is ours (third point) and so is not where the item is.
        unsafe {
            let to = self.at.add(size_of::<W>() + index * size_of::<T>());
            to.cast::<T>().copy_from_nonoverlapping(NonNull::from(item), 1);
        }
    }

    /// Writes bytes behind `W`, from byte `at` on. False if they do not fit into the slot.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put_bytes(&mut self, at: usize, bytes: &[u8]) -> bool {
        if at > self.room || bytes.len() > self.room - at {
            return false;
        }
        // SAFETY: inside the slot, which is ours (third point) and so is not where the bytes are.
        unsafe {
            let to = self.at.add(size_of::<W>() + at);
            copy(to, bytes);
        }
        true
    }
}

/// The side of a ring that fills slots.
#[derive(Debug)]
pub(crate) struct Producer<W> {
    ring: Ring<W>,
    /// Index of the next slot. It is ahead of the shared index by the slots that are not yet published. Always masked, as the next two
    /// are.
    next: u32,
    /// The value of the shared index, and its value before that.
    published: u32,
    before: u32,
    /// Number of slots from `next` on that are known to be free.
    free: u32,
    /// Size in bytes of the part of a slot behind its `W`.
    room: usize,
}

impl<W> Producer<W> {
    /// Continues at the position in the ring. `None` if the ring is malformed.
    pub(crate) fn open(map: Mapping) -> Option<Self> {
        let ring = Ring::new(map)?;
        let next = ring.producer().load(Ordering::Relaxed) & ring.geometry.mask;
        let room = ring.size - size_of::<W>();
        Some(Self { ring, next, published: next, before: next, free: 0, room })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.ring.geometry
    }

    /// Index of the slot that is filled next.
    #[inline]
    pub(crate) fn next_slot(&self) -> u32 {
        self.next
    }

    /// Number of slots that can be filled now.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.free_from(self.next)
    }

    #[inline]
    fn slot(&mut self, index: u32) -> Slot<'_, W> {
        Slot { at: self.place(index), room: self.room, of: PhantomData }
    }

    #[inline(always)]
    fn place(&self, index: u32) -> NonNull<u8> {
        // SAFETY: a masked index, below the number of slots, which have this size (first point of the page of `ring.rs`).
        unsafe { self.ring.slots.add(index as usize * self.ring.size) }
    }

    #[inline(always)]
    fn free_from(&self, next: u32) -> u32 {
        let consumer = self.ring.consumer().load(Ordering::Acquire);
        // All but one of the slots, less those between the two.
        consumer.wrapping_sub(next).wrapping_sub(1) & self.ring.geometry.mask
    }

    /// Begins a batch.
    #[inline(always)]
    pub(crate) fn batch(&mut self) -> Batch<'_, W> {
        let Ring { slots, geometry: Geometry { mask, .. }, size, .. } = self.ring;
        Batch { slots, mask, size, next: self.next, free: self.free, room: self.room, of: self }
    }

    /// Access to one slot, without copies of the ring's fields. Unless it `LOOKS` at the other side's position, only slots that are known
    /// to be free count as free.
    #[inline]
    pub(crate) fn one<const LOOKS: bool>(&mut self) -> One<'_, W, LOOKS> {
        One(self)
    }

    /// Whether there are filled slots that are not published.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.next != self.published
    }

    /// Discards the slots that were filled and not published.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.next = self.published;
        // It is determined again.
        self.free = 0;
    }

    /// Takes back what was published last: the other side has refused to read it.
    pub(crate) fn retract(&mut self) {
        self.next = self.before;
        self.publish();
        self.free = 0;
    }

    /// Shows the other side every slot that was filled.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        (self.before, self.published) = (self.published, self.next);
        self.ring.producer().store(self.next, Ordering::Release);
    }
}

/// A source of slots, one after the other.
pub(crate) trait Slots<W> {
    /// Index of the slot that is filled next.
    fn next_slot(&self) -> u32;

    /// The next slot, to be filled now; `None` if the ring is full. It counts as filled only after [`Slots::filled`], so a write that
    /// stops halfway has no effect. The other side sees it after [`Producer::publish`].
    fn next(&mut self) -> Option<Slot<'_, W>>;

    /// The slot that [`Slots::next`] returned is filled.
    fn filled(&mut self);

    /// Copies these bytes behind the `W` of the slot that [`Slots::next`] returned, as the last part of it; the slot is then filled. False,
    /// and the slot does not count as filled, if they do not fit.
    #[must_use]
    fn filled_with(&mut self, bytes: &[u8]) -> bool;

    /// The slot that was filled last, if it is not published.
    fn last(&mut self) -> Option<Slot<'_, W>>;
}

/// A producer that fills one slot.
#[derive(Debug)]
pub(crate) struct One<'a, W, const LOOKS: bool>(&'a mut Producer<W>);

impl<W, const LOOKS: bool> Slots<W> for One<'_, W, LOOKS> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Slot<'_, W>> {
        let ring = &mut *self.0;
        if ring.free == 0 {
            if LOOKS {
                ring.free = ring.free_from(ring.next);
            }
            if ring.free == 0 {
                return None;
            }
        }
        Some(ring.slot(ring.next))
    }

    #[inline(always)]
    fn filled(&mut self) {
        let ring = &mut *self.0;
        if let Some(free) = ring.free.checked_sub(1) {
            ring.free = free;
            ring.next = (ring.next + 1) & ring.ring.geometry.mask;
        }
    }

    #[inline(always)]
    fn filled_with(&mut self, bytes: &[u8]) -> bool {
        let ring = &*self.0;
        let mut slot = Slot::<W> { at: ring.place(ring.next), room: ring.room, of: PhantomData };
        if ring.free == 0 || bytes.len() > slot.room {
            return false;
        }
        // It is not published, so it still belongs to this side. The bytes are copied last, so nothing has to be saved during the call
        // that copies them.
        self.filled();
        slot.put_bytes(0, bytes)
    }

    #[inline(always)]
    fn last(&mut self) -> Option<Slot<'_, W>> {
        let ring = &mut *self.0;
        let last = ring.next.wrapping_sub(1) & ring.ring.geometry.mask;
        ring.has_more().then(|| ring.slot(last))
    }
}

/// A producer with copies of the ring's fields: a compiler keeps these in registers, and would otherwise load them again after each store
/// to a slot.
#[derive(Debug)]
pub(crate) struct Batch<'a, W> {
    slots: NonNull<u8>,
    mask: u32,
    size: usize,
    /// Always masked.
    next: u32,
    free: u32,
    room: usize,
    of: &'a mut Producer<W>,
}

impl<W> Batch<'_, W> {
    #[inline(always)]
    fn slot(&mut self, index: u32) -> Slot<'_, W> {
        // SAFETY: as in `Producer::place`. The address, the size and the mask are those of its ring.
        let at = unsafe { self.slots.add(index as usize * self.size) };
        Slot { at, room: self.room, of: PhantomData }
    }
}

impl<W> Slots<W> for Batch<'_, W> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.next
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Slot<'_, W>> {
        if self.free == 0 {
            self.free = self.of.free_from(self.next);
            if self.free == 0 {
                return None;
            }
        }
        Some(self.slot(self.next))
    }

    #[inline(always)]
    fn filled(&mut self) {
        if let Some(free) = self.free.checked_sub(1) {
            self.free = free;
            self.next = (self.next + 1) & self.mask;
        }
    }

    #[inline(always)]
    fn filled_with(&mut self, bytes: &[u8]) -> bool {
        if self.free == 0 || !self.slot(self.next).put_bytes(0, bytes) {
            return false;
        }
        self.filled();
        true
    }

    #[inline(always)]
    fn last(&mut self) -> Option<Slot<'_, W>> {
        let is_there = self.next != self.of.published;
        is_there.then(|| self.slot(self.next.wrapping_sub(1) & self.mask))
    }
}

impl<W> Drop for Batch<'_, W> {
    #[inline]
    fn drop(&mut self) {
        (self.of.next, self.of.free) = (self.next, self.free);
    }
}
