//! Memory of a queue that a device reads and writes itself, as a ring, and words outside of the ring in which each side stores its
//! position for the other.
//!
//! # Safety
//! - The place of the memory was checked once, when [`Units`] or a [`Word`] was created: it is inside the mapping, which lives as long as
//!   they do, and at a multiple of `MOST`, or of four for a word. Its size is a power of two, and at least `MOST`. An item whose size is
//!   a power of two, and at most `MOST`, is therefore inside and aligned at every multiple of its size, after masking. It may be memory
//!   of the device that combines writes: then only whole items are written to it, and nothing is read.
//! - In this process only the holder of `&mut` writes it, and only the holder of a reference reads it: the creator of [`Units`] creates
//!   one for each part of a mapping, and accesses that part in no other way. Tests do, where they act as the device: by atomics, on the
//!   same thread, or on another thread that is waited for.
//! - The device is outside of this process. A slot belongs to one side at a time: to this side until it stores a counter or a doorbell
//!   (release) that gives the slot to the device, and again after it has loaded the word that names the owner (acquire). Plain loads and
//!   stores are therefore sufficient. A device that broke the rule would cause a race of values outside of this process, whose bytes are
//!   numbers of any value here; there is no reference to them.
//! - A word that names the owner is loaded as an atomic, and a [`Word`] is only ever accessed as one.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::copy;
use crate::kernel::mapping::Mapping;
use crate::kernel::mapping::barrier::{
    after_doorbell, after_owner, before_doorbell, before_record, before_return,
};

/// The alignment of most memory, and the size of the largest item there.
const LINE: usize = 64;
/// The alignment of memory with small entries, which may be smaller, and the size of the largest item there.
const HALF: usize = 32;

/// Memory of a queue, in items of any size up to `MOST`. The item after the last one is the first.
#[derive(Debug)]
pub(crate) struct Units<const MOST: usize = LINE> {
    /// Keeps the memory.
    map: Mapping,
    place: Place<MOST>,
}

/// [`Units`] of small entries.
pub(crate) type SmallUnits = Units<HALF>;

/// The place of the memory. The places in [`Units`] satisfy the first point above.
#[derive(Clone, Copy, Debug)]
struct Place<const MOST: usize> {
    base: NonNull<u8>,
    /// Size in bytes, minus one.
    mask: usize,
}

impl<const MOST: usize> Place<MOST> {
    /// The address of the item with this index, if items of this type follow one another from the beginning.
    #[inline(always)]
    fn item<T>(self, index: usize) -> NonNull<T> {
        const { assert!(size_of::<T>().is_power_of_two() && size_of::<T>() <= MOST) }
        const { assert!(align_of::<T>() <= size_of::<T>()) }
        let at = index.wrapping_mul(size_of::<T>()) & self.mask;
        // SAFETY: a multiple of its size, masked, so inside (first point).
        unsafe { self.base.add(at).cast() }
    }
}

// SAFETY: the pointer is into the mapping, which any thread may use.
unsafe impl<const MOST: usize> Send for Units<MOST> {}
// SAFETY: as above; by a shared reference it is only read (second point).
unsafe impl<const MOST: usize> Sync for Units<MOST> {}

impl Units {
    /// The `bytes` from `at` on, which nothing else in this process accesses. `None` if they are not inside, or do not satisfy the first
    /// point.
    pub(crate) fn new(map: &Mapping, at: usize, bytes: usize) -> Option<Self> {
        Self::of(map, at, bytes)
    }
}

impl SmallUnits {
    /// The `bytes` from `at` on, for small entries, which nothing else in this process accesses. `None` if they are not inside, or do not
    /// satisfy the first point.
    pub(crate) fn small(map: &Mapping, at: usize, bytes: usize) -> Option<Self> {
        Self::of(map, at, bytes)
    }
}

impl<const MOST: usize> Units<MOST> {
    fn of(map: &Mapping, at: usize, bytes: usize) -> Option<Self> {
        let base = map.place(at, bytes)?;
        let is_right = bytes.is_power_of_two() && bytes >= MOST && base.addr().get().is_multiple_of(MOST);
        is_right.then(|| Self { map: map.clone(), place: Place { base, mask: bytes - 1 } })
    }

    /// The mapping of which it is a part.
    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    /// The address of its first item.
    #[cfg(feature = "raw")]
    pub(crate) fn address(&self) -> u64 {
        self.place.base.as_ptr().expose_provenance() as u64
    }

    /// Borrows the memory to write several items.
    #[inline]
    pub(crate) fn writing(&mut self) -> Writing<'_, MOST> {
        Writing { place: self.place, of: PhantomData }
    }

    /// Writes an item.
    #[inline(always)]
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, index: usize, value: T) {
        self.writing().put(index, value);
    }

    /// Writes bytes from byte `at` on, continuing at the beginning after the end; at most as many as the memory has.
    #[inline(always)]
    pub(crate) fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        let Place { base, mask } = self.place;
        let at = at & mask;
        if bytes.len() <= mask + 1 - at {
            // SAFETY: inside, as was just checked; ours to write as in `Writing::put`, and so not where `bytes` are.
            unsafe { copy(base.add(at), bytes) }
        } else {
            self.put_round(at, bytes);
        }
    }

    #[cold]
    fn put_round(&mut self, at: usize, bytes: &[u8]) {
        let size = self.place.mask + 1;
        let (now, rest) = bytes.split_at((size - at).min(bytes.len()));
        self.put_bytes(at, now);
        self.put_bytes(0, &rest[..rest.len().min(size)]);
    }

    /// Borrows the memory to read several items.
    #[inline]
    pub(crate) fn reading(&self) -> Reading<'_, MOST> {
        Reading { place: self.place, of: PhantomData }
    }
}

/// Memory of a queue, borrowed to be read. It contains a copy of the place, as [`Writing`] does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a, const MOST: usize = LINE> {
    place: Place<MOST>,
    of: PhantomData<&'a Units<MOST>>,
}

impl<'a, const MOST: usize> Reading<'a, MOST> {
    /// An item, whose fields are read one by one.
    #[inline]
    pub(crate) fn get<T>(self, index: usize) -> Item<'a, T> {
        Item { at: self.place.item(index), of: PhantomData }
    }

    /// Loads a word that names the owner of a slot. What the device wrote to the slot before is read after it.
    #[inline(always)]
    pub(crate) fn load(self, index: usize) -> u32 {
        // SAFETY: inside and aligned (first point); the device may write it at any time, so it is loaded as an atomic (last point).
        let word =
            unsafe { AtomicU32::from_ptr(self.place.item::<u32>(index).as_ptr()) }.load(Ordering::Acquire);
        after_owner();
        word
    }
}

/// Memory of a queue, borrowed to be written. It contains a copy of the place: a compiler keeps that in registers, and would otherwise
/// load it again after each item.
#[derive(Debug)]
pub(crate) struct Writing<'a, const MOST: usize = LINE> {
    place: Place<MOST>,
    of: PhantomData<&'a mut Units<MOST>>,
}

impl<const MOST: usize> Writing<'_, MOST> {
    /// Lends the memory, to be passed on: a value that is passed by value is not stored in memory here.
    #[inline]
    pub(crate) fn lend(&mut self) -> Writing<'_, MOST> {
        Writing { place: self.place, of: PhantomData }
    }

    /// Writes an item.
    #[inline(always)]
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, index: usize, value: T) {
        // SAFETY: inside and aligned (first point), by the only one who may write (second), in a slot of this side (third).
        unsafe { self.place.item::<T>(index).write(value) }
    }
}

/// An item in memory. Nothing writes it as long as it is borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a, T> {
    at: NonNull<T>,
    of: PhantomData<&'a [T]>,
}

impl<T: FromBytes> Item<'_, T> {
    /// The field of `T` that begins at byte `AT`.
    #[inline(always)]
    pub(crate) fn field<const AT: usize, F: FromBytes>(&self) -> F {
        const { assert!(AT + size_of::<F>() <= size_of::<T>() && AT.is_multiple_of(align_of::<F>())) }
        const { assert!(align_of::<F>() <= align_of::<T>()) }
        // SAFETY: inside the item, aligned as it is (first point), of any bytes; nothing writes it while the memory is borrowed (second),
        // nor does the device, since the slot belongs to this side (third).
        unsafe { self.at.byte_add(AT).cast::<F>().read() }
    }

    /// All of it.
    #[inline]
    pub(crate) fn read(&self) -> T {
        self.field::<0, T>()
    }
}

/// A word of a doorbell record, in which the device reads the position of this side; or a doorbell, which is only written.
#[derive(Debug)]
pub(crate) struct Word {
    /// Keeps the memory.
    map: Mapping,
    at: NonNull<AtomicU32>,
}

// SAFETY: the pointer is into the mapping, which any thread may use.
unsafe impl Send for Word {}
// SAFETY: as above; it is only ever an atomic (last point).
unsafe impl Sync for Word {}

impl Word {
    /// The word at byte `at`; `None` if it is not inside, or not aligned.
    pub(crate) fn new(map: &Mapping, at: usize) -> Option<Self> {
        let place = map.place(at, 4).filter(|place| place.addr().get().is_multiple_of(4))?;
        Some(Self { map: map.clone(), at: place.cast() })
    }

    /// The mapping of which it is a part.
    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    /// Its address.
    #[cfg(feature = "raw")]
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Rings a doorbell: a register of a device that reads little-endian numbers. The device sees everything that was written before, and
    /// what was written to memory that combines writes has left the processor.
    #[inline(always)]
    pub(crate) fn ring(&self, value: u32) {
        before_doorbell();
        // SAFETY: inside, aligned and alive (first point), and only ever an atomic (last point).
        unsafe { self.at.as_ref() }.store(value.to_le(), Ordering::Relaxed);
        after_doorbell();
    }

    /// Rings a doorbell that gives room back, when nothing that was written has to become visible. Everything in that room was read before.
    /// The page does not combine writes, and the device reads little-endian numbers.
    #[inline(always)]
    pub(crate) fn ring_back(&self, value: u32) {
        before_return();
        // SAFETY: inside, aligned and alive (first point), and only ever an atomic (last point).
        unsafe { self.at.as_ref() }.store(value.to_le(), Ordering::Release);
    }

    /// Stores a word in the byte order of the device. The device sees everything that was written before.
    #[inline(always)]
    pub(crate) fn tell(&self, value: u32) {
        before_record();
        // SAFETY: inside, aligned and alive (first point), and only ever an atomic (last point).
        unsafe { self.at.as_ref() }.store(value.to_be(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(map: &Mapping, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(map.read(at, &mut bytes));
        bytes
    }

    #[test]
    fn items_go_round_and_stay_in_their_part() {
        let map = Mapping::block(4096).unwrap();
        let mut units = Units::new(&map, 64, 128).unwrap();
        for index in 0..20_u8 {
            units.put(index.into(), [index; 16]);
        }
        assert_eq!(units.reading().get::<[u8; 16]>(3).read(), [19; 16]);
        assert_eq!(units.reading().get::<[u8; 16]>(usize::MAX).read(), [15; 16], "any index is inside");
        assert_eq!(units.reading().get::<[u8; 64]>(7).read()[..17], [[12; 16].as_slice(), &[13]].concat());
        assert_eq!(units.reading().get::<[u8; 64]>(7).field::<15, [u8; 2]>(), [12, 13]);
        assert_eq!(units.reading().load(4), u32::from_ne_bytes([17; 4]));
        assert_eq!((bytes(&map, 0, 64), bytes(&map, 192, 64)), (vec![0; 64], vec![0; 64]));
    }

    #[test]
    fn bytes_go_round_the_end() {
        let map = Mapping::block(4096).unwrap();
        let mut units = Units::new(&map, 0, 64).unwrap();
        units.put_bytes(64 + 60, &[1, 2, 3, 4, 5, 6]);
        assert_eq!((bytes(&map, 60, 8), bytes(&map, 0, 3)), (vec![1, 2, 3, 4, 0, 0, 0, 0], vec![5, 6, 0]));
        // If there are too many bytes, none leaves the memory.
        units.put_bytes(1, &[7; 200]);
        units.put_bytes(0, &[8; 65]);
        assert_eq!((bytes(&map, 1, 63), bytes(&map, 64, 64)), (vec![8; 63], vec![0; 64]));
        units.put_bytes(64, &[]);
    }

    #[test]
    fn bytes_are_copied_whatever_their_number_and_nothing_behind_them() {
        let map = Mapping::block(4096).unwrap();
        let mut units = Units::new(&map, 0, 512).unwrap();
        let from: Vec<u8> = (1..=200).collect();
        for len in 0..=from.len() {
            units.put_bytes(0, &[0; 512]);
            units.put_bytes(3, &from[..len]);
            assert_eq!(bytes(&map, 3, len), from[..len], "{len}");
            let around = [bytes(&map, 0, 3), bytes(&map, 3 + len, 512 - 3 - len)].concat();
            assert!(around.iter().all(|byte| *byte == 0), "{len}");
        }
    }

    #[test]
    fn what_is_no_power_of_two_or_not_inside_is_refused() {
        let map = Mapping::block(4096).unwrap();
        for (at, len) in [(0, 0), (0, 32), (0, 96), (32, 64), (4096, 64), (2048, 4096), (usize::MAX, 64)] {
            assert!(Units::new(&map, at, len).is_none(), "{len} bytes at {at}");
        }
        for (at, len) in [(0, 0), (0, 16), (0, 96), (16, 32), (4096, 32), (4080, 32), (usize::MAX, 32)] {
            assert!(Units::small(&map, at, len).is_none(), "{len} bytes at {at}");
        }
        assert!(Units::small(&map, 4064, 32).is_some());
        for at in [2, 4094, 4096, usize::MAX - 3] {
            assert!(Word::new(&map, at).is_none(), "a word at {at}");
        }
        assert!(Units::new(&map, 0, 4096).is_some());
        Word::new(&map, 4092).unwrap().tell(1);
        assert_eq!(bytes(&map, 4092, 4), [0, 0, 0, 1]);
        Word::new(&map, 4092).unwrap().ring(0x0102_0304);
        assert_eq!(bytes(&map, 4088, 8), [0, 0, 0, 0, 4, 3, 2, 1]);
    }

    #[test]
    fn the_memory_lives_as_long_as_a_part_of_it_is_used() {
        let map = Mapping::block(4096).unwrap();
        let (mut units, word) = (Units::new(&map, 0, 64).unwrap(), Word::new(&map, 64).unwrap());
        drop(map);
        units.put(0, [3_u8; 16]);
        assert_eq!(units.reading().get::<u8>(15).read(), 3);
        let again = units.map().clone();
        drop(units);
        word.tell(5);
        assert_eq!(
            (again.address(), again.load(64, Ordering::Relaxed)),
            (word.map().address(), 5_u32.to_be())
        );
    }
}
