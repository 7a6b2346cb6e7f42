//! Memory of a queue that a device reads and writes itself, round and round, and words beside it by which the two sides tell each
//! other how far they are.
//!
//! # Safety
//! - Where the memory is was checked once, when [`Units`] or a [`Word`] was made: inside the mapping, which lives as long as they do,
//!   and at a multiple of `MOST`, or of four. Its size is a power of two, `MOST` at least. So an item whose size is a power of two, `MOST` at
//!   most, is inside and aligned wherever a multiple of its size is masked to. It may be memory of the device's that combines writes: then
//!   whole items are written to it, and nothing is read.
//! - In this process nobody writes it but the holder of `&mut`, nor reads it but who has a reference: whoever makes [`Units`] has one
//!   for each part of a mapping, and reaches that part in no other way. Tests do, which play the device: by atomics, on the same
//!   thread, or on another that is waited for.
//! - The device is outside of this process. A slot belongs to one side at a time: to this one until a counter or a doorbell was
//!   stored (release) that hands it over, and again when the word with its owner was loaded (acquire). So plain loads and stores
//!   do. A device that broke the rule would be a race of values outside of this process, whose bytes are numbers of any value
//!   here; there is no reference to them.
//! - A word with an owner is loaded as an atomic, and a [`Word`] only ever accessed as one.

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

/// What most memory begins at a multiple of, and the largest item there.
const LINE: usize = 64;
/// The same where entries are small, and may begin between.
const HALF: usize = 32;

/// Memory of a queue, in items of whichever size up to `MOST`. An item behind the last is the first again.
#[derive(Debug)]
pub(crate) struct Units<const MOST: usize = LINE> {
    /// Keeps the memory.
    map: Mapping,
    place: Place<MOST>,
}

/// [`Units`] of small entries.
pub(crate) type SmallUnits = Units<HALF>;

/// Where it is. Those that [`Units`] lends out are as the first point says.
#[derive(Clone, Copy, Debug)]
struct Place<const MOST: usize> {
    base: NonNull<u8>,
    /// Bytes, less one.
    mask: usize,
}

impl<const MOST: usize> Place<MOST> {
    /// Where the item of this type is, if there is one behind the other from the begin on.
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
    /// The `bytes` from `at` on, which nothing else in this process accesses; none if they are not inside, or not such as the
    /// first point says.
    pub(crate) fn new(map: &Mapping, at: usize, bytes: usize) -> Option<Self> {
        Self::of(map, at, bytes)
    }
}

impl SmallUnits {
    /// The same of small entries.
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

    /// The mapping that it is a part of.
    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    /// The memory while items are written, one behind the other.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Writing<'_, MOST> {
        Writing { place: self.place, of: PhantomData }
    }

    /// Writes an item.
    #[inline(always)]
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, index: usize, value: T) {
        self.writing().put(index, value);
    }

    /// Writes bytes from byte `at` on, round the end; as many as there is memory.
    #[inline(always)]
    pub(crate) fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        let Place { base, mask } = self.place;
        let at = at & mask;
        if bytes.len() <= mask + 1 - at {
            // SAFETY: inside, as was just asked; ours to write as in `Writing::put`, and so not where `bytes` are.
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

    /// The memory while items are read, one behind the other.
    #[inline(always)]
    pub(crate) fn reading(&self) -> Reading<'_, MOST> {
        Reading { place: self.place, of: PhantomData }
    }
}

/// Memory of a queue while it is read: borrowed, and at hand, as with [`Writing`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a, const MOST: usize = LINE> {
    place: Place<MOST>,
    of: PhantomData<&'a Units<MOST>>,
}

impl<'a, const MOST: usize> Reading<'a, MOST> {
    /// An item, whose fields are read one by one.
    #[inline(always)]
    pub(crate) fn get<T>(self, index: usize) -> Item<'a, T> {
        Item { at: self.place.item(index), of: PhantomData }
    }

    /// Loads a word that says whose a slot is. What the device wrote to the slot before it is read after it.
    #[inline(always)]
    pub(crate) fn load(self, index: usize) -> u32 {
        // SAFETY: inside and aligned (first point); the device may write it at any time, so it is loaded as an atomic (last point).
        let word =
            unsafe { AtomicU32::from_ptr(self.place.item::<u32>(index).as_ptr()) }.load(Ordering::Acquire);
        after_owner();
        word
    }
}

/// Memory of a queue while it is written. It is borrowed, and where it is is at hand: a compiler keeps that in registers, where it would
/// have to look it up again after each item.
#[derive(Debug)]
pub(crate) struct Writing<'a, const MOST: usize = LINE> {
    place: Place<MOST>,
    of: PhantomData<&'a mut Units<MOST>>,
}

impl<const MOST: usize> Writing<'_, MOST> {
    /// The same, to be handed on: what is handed on by value stays out of memory here.
    #[inline(always)]
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

/// An item in memory; nobody writes it as long as it is borrowed.
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
        // SAFETY: inside the item, aligned as it is (first point), of any bytes; nobody writes it while the memory is borrowed
        // (second), nor the device, since the slot is of this side (third).
        unsafe { self.at.byte_add(AT).cast::<F>().read() }
    }

    /// All of it.
    #[inline(always)]
    pub(crate) fn read(&self) -> T {
        self.field::<0, T>()
    }
}

/// A word of a doorbell record, in which the device looks up how far this side is; or a doorbell itself, which is only ever written.
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
    /// The word at byte `at`; none if it is not inside, or not aligned.
    pub(crate) fn new(map: &Mapping, at: usize) -> Option<Self> {
        let place = map.place(at, 4).filter(|place| place.addr().get().is_multiple_of(4))?;
        Some(Self { map: map.clone(), at: place.cast() })
    }

    /// The mapping that it is a part of.
    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    /// Where it is.
    #[cfg(feature = "raw")]
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Rings it, as the register of a device that reads little-endian numbers. What was written before is seen first, and what was written to
    /// memory that combines writes has left the processor.
    #[inline(always)]
    pub(crate) fn ring(&self, value: u32) {
        before_doorbell();
        // SAFETY: inside, aligned and alive (first point), and only ever an atomic (last point).
        unsafe { self.at.as_ref() }.store(value.to_le(), Ordering::Relaxed);
        after_doorbell();
    }

    /// The same where nothing that was written is handed over: room is given back, of which all that stood there was read before. The page combines
    /// no writes.
    #[inline(always)]
    pub(crate) fn ring_back(&self, value: u32) {
        before_return();
        // SAFETY: inside, aligned and alive (first point), and only ever an atomic (last point).
        unsafe { self.at.as_ref() }.store(value.to_le(), Ordering::Release);
    }

    /// Tells the device, in its order of bytes. What was written before is seen first.
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
        // Of too many nothing leaves it.
        units.put_bytes(1, &[7; 200]);
        units.put_bytes(0, &[8; 65]);
        assert_eq!((bytes(&map, 1, 63), bytes(&map, 64, 64)), (vec![8; 63], vec![0; 64]));
        units.put_bytes(64, &[]);
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
