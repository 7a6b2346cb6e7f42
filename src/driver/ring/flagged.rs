//! Slots in memory that this process shares with the kernel. A flag in each slot says which side owns it (siw).
//!
//! A send or a receive belongs to the kernel while its flag is set; a completion belongs to this side while its flag is set. The side
//! that fills a slot stores the word with the flag last (release), and the other side loads it first (acquire).
//!
//! # Safety
//! - The place and the number of the slots were checked once, when [`Flagged`] was created (`memory`): all of them are inside the
//!   mapping, which lives as long as it does, and at multiples of eight. Their number is a power of two, so every request number is
//!   masked to a slot.
//! - A slot has room for a `W` at its start. The word with the flag is at [`FLAG`] in it.
//! - That word is only ever accessed as an atomic of 32 bits while the slot may belong to the other side. The rest is accessed by plain
//!   loads and stores, through pointers, while the slot belongs to this side: a [`Free`] is given out only for a slot whose flag, loaded
//!   with acquire, is not set, and a [`Taken`] only for one whose flag is. Both borrow the slots, and are consumed by the function that
//!   gives the slot to the other side.
//! - Nothing else in this process accesses the memory, except tests that act as the kernel: by atomics, on the same thread.
//! - The kernel is outside of this process. If it broke the rule, that would be a race of values there, whose bytes are numbers of any
//!   value here.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::consumer::Filled;
use super::producer::Slot;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The offset of the word with the flag in a slot.
pub(crate) const FLAG: usize = 8;
/// The flag: the lowest bit of the first byte of that word.
pub(crate) const IS_SET: u32 = u32::from_ne_bytes([1, 0, 0, 0]);

/// No queue has more slots: a power of two beyond what any kernel creates.
const MOST: u32 = 1 << 24;

/// An array of slots of `SIZE` bytes each, which begin with a `W`.
#[derive(Debug)]
pub(crate) struct Flagged<W, const SIZE: usize> {
    /// Keeps the memory.
    map: Mapping,
    slots: NonNull<u8>,
    mask: u32,
    of: PhantomData<fn(W)>,
}

// SAFETY: the pointer is into the mapping, which any thread may use.
unsafe impl<W, const SIZE: usize> Send for Flagged<W, SIZE> {}
// SAFETY: as above; by a shared reference slots are only read, but for their words with the flag, which are atomics (third point).
unsafe impl<W, const SIZE: usize> Sync for Flagged<W, SIZE> {}

impl<W, const SIZE: usize> Flagged<W, SIZE> {
    /// The first `count` slots of memory that `map` creates for a given size: the size of the slots, and of the `behind` bytes after
    /// them.
    ///
    /// # Errors
    /// That of `map`; [`Malformed`](crate::ErrorKind::Malformed) if no queue can have this number, or if the slots are not inside the
    /// memory.
    pub(crate) fn new(
        op: &'static str,
        count: u32,
        behind: usize,
        ask: &dyn Fn(usize) -> Result<Mapping>,
    ) -> Result<Self> {
        const { assert!(SIZE.is_multiple_of(8) && SIZE >= size_of::<W>() && align_of::<W>() <= 8) }
        const { assert!(size_of::<W>() >= FLAG + 4) }
        let (map, slots) = memory(op, count, SIZE, behind, ask)?;
        Ok(Self { map, slots, mask: count - 1, of: PhantomData })
    }

    /// The memory that contains them.
    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    /// Number of slots.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.mask + 1
    }

    /// Size of all slots in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.count() as usize * SIZE
    }

    /// Number of slots, minus one.
    #[inline]
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// Borrows the slots to fill several of them.
    #[inline]
    pub(crate) fn writing(&mut self) -> Writing<'_, W, SIZE> {
        Writing { slots: self.slots, mask: self.mask, of: PhantomData }
    }

    /// Borrows the slots to empty several of them.
    #[inline]
    pub(crate) fn reading(&mut self) -> Reading<'_, W, SIZE> {
        Reading { slots: self.slots, mask: self.mask, of: PhantomData }
    }

    /// Loads a word with a flag. What the other side wrote before it is read after it.
    #[inline(always)]
    pub(crate) fn load(&self, number: u32) -> u32 {
        // SAFETY: a slot of these, whose mask it is, and whose mapping is kept (`word`).
        unsafe { word(place::<SIZE>(self.slots, self.mask, number)) }.load(Ordering::Acquire)
    }

    /// Stores a word with a flag. The other side sees what was written before.
    #[inline(always)]
    pub(crate) fn store(&mut self, number: u32, value: u32) {
        // SAFETY: as in `load`.
        unsafe { word(place::<SIZE>(self.slots, self.mask, number)) }.store(value, Ordering::Release);
    }
}

/// The memory, and the beginning of its slots, which are inside. The first slot is at a multiple of eight, and their number is a power of
/// two.
#[inline(never)]
fn memory(
    op: &'static str,
    count: u32,
    size: usize,
    behind: usize,
    ask: &dyn Fn(usize) -> Result<Mapping>,
) -> Result<(Mapping, NonNull<u8>)> {
    let nonsense = || Error::malformed(op, "a queue that does not fit its size");
    if !count.is_power_of_two() || count > MOST {
        return Err(nonsense());
    }
    let bytes = count as usize * size;
    let map = ask(bytes + behind)?;
    let slots = map.place(0, bytes + behind).filter(|slots| slots.addr().get().is_multiple_of(8));
    Ok((map, slots.ok_or_else(nonsense)?))
}

/// The address of the slot for the request with this number.
///
/// # Safety
/// These are the slots and the mask of a [`Flagged`] with slots of this size.
#[inline(always)]
unsafe fn place<const SIZE: usize>(slots: NonNull<u8>, mask: u32, number: u32) -> NonNull<u8> {
    // SAFETY: masked, so one of the slots, which are inside (first point).
    unsafe { slots.add((number & mask) as usize * SIZE) }
}

/// The word with the flag of a slot.
///
/// # Safety
/// This is a slot of a [`Flagged`], whose mapping is kept for as long as the word is used.
#[inline(always)]
unsafe fn word<'a>(slot: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: inside a slot, and aligned, since slots are at multiples of eight (first two points). Only the owner of the slot accesses
    // it otherwise (third point), and none does while this is used.
    unsafe { AtomicU32::from_ptr(slot.add(FLAG).cast().as_ptr()) }
}

/// Borrowed slots, with a copy of their place and number: a compiler keeps these in registers, and would otherwise load them again after
/// each store.
#[derive(Debug)]
pub(crate) struct Writing<'a, W, const SIZE: usize> {
    slots: NonNull<u8>,
    mask: u32,
    of: PhantomData<&'a mut Flagged<W, SIZE>>,
}

impl<W, const SIZE: usize> Writing<'_, W, SIZE> {
    /// Number of slots, minus one.
    #[inline]
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// The slot for the request with this number, to be filled, if it belongs to this side: its flag is not set.
    #[inline(always)]
    pub(crate) fn free(&mut self, number: u32) -> Option<Free<'_, W, SIZE>> {
        // SAFETY: the place and the mask are those of the borrowed slots.
        let at = unsafe { place::<SIZE>(self.slots, self.mask, number) };
        // SAFETY: a slot of the borrowed slots.
        let is_free = unsafe { word(at) }.load(Ordering::Acquire) & IS_SET == 0;
        is_free.then_some(Free { at, of: PhantomData })
    }
}

impl<W, const SIZE: usize> Writing<'_, W, SIZE> {
    /// Clears the flag of a slot. The caller knows that the other side does not read it at that moment. Returns the previous value of the
    /// word.
    pub(crate) fn take_back(&mut self, number: u32) -> u32 {
        // SAFETY: the place and the mask are those of the borrowed slots, and so is the slot.
        unsafe { word(place::<SIZE>(self.slots, self.mask, number)) }.swap(0, Ordering::AcqRel)
    }
}

/// A slot that belongs to this side and is to be filled.
#[derive(Debug)]
pub(crate) struct Free<'a, W, const SIZE: usize> {
    at: NonNull<u8>,
    of: PhantomData<&'a mut W>,
}

impl<W, const SIZE: usize> Free<'_, W, SIZE> {
    /// The slot to be filled. The other side does not read its word with the flag before [`Free::end`].
    #[inline(always)]
    pub(crate) fn slot(&mut self) -> Slot<'_, W> {
        // SAFETY: a slot of this size that is ours (third point), and borrowed; behind its `W` is the rest of it.
        unsafe { Slot::at(self.at, SIZE - size_of::<W>()) }
    }

    /// Stores the word, with or without the flag. The other side sees what was written before.
    #[inline(always)]
    pub(crate) fn end(self, value: u32) {
        // SAFETY: a slot, whose slots are borrowed.
        unsafe { word(self.at) }.store(value, Ordering::Release);
    }
}

/// Borrowed slots that are emptied, with a copy of their place and number: see [`Writing`].
#[derive(Debug)]
pub(crate) struct Reading<'a, W, const SIZE: usize> {
    slots: NonNull<u8>,
    mask: u32,
    of: PhantomData<&'a mut Flagged<W, SIZE>>,
}

impl<W, const SIZE: usize> Reading<'_, W, SIZE> {
    /// The slot with this number, if it belongs to this side: its flag is set.
    #[inline(always)]
    pub(crate) fn taken(&mut self, number: u32) -> Option<Taken<'_, W>> {
        // SAFETY: the place and the mask are those of the borrowed slots.
        let at = unsafe { place::<SIZE>(self.slots, self.mask, number) };
        // SAFETY: a slot of the borrowed slots.
        let value = unsafe { word(at) }.load(Ordering::Acquire);
        (value & IS_SET != 0).then_some(Taken { at, word: value, of: PhantomData })
    }
}

/// A slot that belongs to this side and is to be emptied.
#[derive(Debug)]
pub(crate) struct Taken<'a, W> {
    at: NonNull<u8>,
    word: u32,
    of: PhantomData<&'a mut W>,
}

impl<W> Taken<'_, W> {
    /// Its word with the flag.
    #[inline]
    pub(crate) fn word(&self) -> u32 {
        self.word
    }

    /// Its contents.
    #[inline(always)]
    pub(crate) fn filled(&self) -> Filled<'_, W> {
        // SAFETY: a slot, which begins with a `W` and is ours (second and third point) until it is given back, for which this is taken.
        unsafe { Filled::at(self.at) }
    }

    /// Gives the slot back: its word becomes zero. What was read before is not read after it.
    #[inline(always)]
    pub(crate) fn give_back(self) {
        // SAFETY: a slot, whose slots are borrowed.
        unsafe { word(self.at) }.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kernel::error::ErrorKind;

    type Three = Flagged<[u64; 2], 24>;

    fn three(count: u32) -> Three {
        Three::new("test", count, 0, &|_| Ok(Mapping::block(4096).unwrap())).unwrap()
    }

    #[test]
    fn a_slot_is_filled_while_its_flag_is_not_set_and_emptied_while_it_is() {
        let mut slots = three(4);
        let memory = slots.map().clone();
        for number in [0, 3, 4 + 2, u32::MAX - 2] {
            let at = (number % 4) as usize * 24;
            assert!(slots.reading().taken(number).is_none());
            let mut writing = slots.writing();
            let mut free = writing.free(number).unwrap();
            free.slot().put::<0, _>(u64::from(number));
            assert!(
                free.slot().put_bytes(0, &[7; 8]) && !free.slot().put_bytes(1, &[7; 8]),
                "eight bytes are behind"
            );
            free.end(IS_SET | 0x500);
            assert!(writing.free(number).is_none());
            let mut reading = slots.reading();
            let taken = reading.taken(number).unwrap();
            assert_eq!((taken.filled().field::<0, u64>(), taken.word()), (number.into(), IS_SET | 0x500));
            assert_eq!(memory.load(at + FLAG, Ordering::Relaxed), IS_SET | 0x500);
            assert_eq!(memory.load(at + 20, Ordering::Relaxed), u32::from_ne_bytes([7; 4]));
            if number % 2 == 0 {
                slots.store(number, 0)
            } else {
                slots.reading().taken(number).unwrap().give_back()
            }
            assert_eq!(slots.load(number), 0);
            assert!(slots.reading().taken(number).is_none() && slots.writing().free(number).is_some());
        }
    }

    #[test]
    fn slots_that_are_not_inside_or_no_power_of_two_are_refused() {
        for count in [0, 3, 256, 1 << 25, u32::MAX] {
            let error = Three::new("test", count, 0, &|_| Ok(Mapping::block(4096).unwrap())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{count}");
        }
        let mut bytes = vec![0_u64; 64];
        let base = NonNull::new(bytes.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: alive until the end of this function, and used by nothing else.
        let map = |at: usize, len| unsafe { Mapping::from_raw(base.add(at), len) };
        let fits = |at, len, behind| {
            let asked = Cell::new(0);
            let slots = Three::new("test", 2, behind, &|bytes| {
                asked.set(bytes);
                Ok(map(at, len))
            });
            assert_eq!(asked.get(), 48 + behind);
            slots.is_ok()
        };
        assert!(fits(0, 48, 0) && fits(0, 52, 4));
        assert!(!fits(4, 48, 0), "not aligned");
        assert!(!fits(0, 47, 0) && !fits(0, 48, 4), "too short");
    }

    #[test]
    fn the_memory_lives_as_long_as_its_slots() {
        let mut slots = three(2);
        let mut writing = slots.writing();
        let mut free = writing.free(1).unwrap();
        free.slot().put::<0, _>(5_u64);
        free.end(IS_SET);
        assert_eq!(slots.reading().taken(1).unwrap().filled().field::<0, u64>(), 5);
        assert_eq!((slots.count(), slots.mask()), (2, 1));
    }
}
