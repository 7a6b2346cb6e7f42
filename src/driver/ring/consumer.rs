//! The side of a ring that empties slots.
//!
//! # Safety
//! As in the page of [`super`]: a [`Filled`] is given out only for a slot that belongs to this side, and is not kept longer than that.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
#[cfg(any(feature = "raw", test))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use zerocopy::{FromBytes, IntoBytes};

use super::{Geometry, Ring};
use crate::kernel::mapping::Mapping;

/// A filled slot that is to be emptied.
#[derive(Debug)]
pub(crate) struct Filled<'a, W> {
    at: NonNull<u8>,
    of: PhantomData<(&'a (), W)>,
}

impl<W> Clone for Filled<'_, W> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Filled<'_, W> {}

impl<W> Filled<'_, W> {
    /// The contents of the slot at this address.
    ///
    /// # Safety
    /// As long as this is used, the memory begins with a `W`, at a multiple of eight, and nothing writes it.
    #[inline]
    pub(super) unsafe fn at(at: NonNull<u8>) -> Self {
        Self { at, of: PhantomData }
    }
}

impl<W: FromBytes> Filled<'_, W> {
    /// The field of `W` that begins at byte `AT`.
    #[inline(always)]
    pub(crate) fn field<const AT: usize, F: FromBytes>(&self) -> F {
        const { assert!(AT + size_of::<F>() <= size_of::<W>() && AT.is_multiple_of(align_of::<F>())) }
        const { assert!(align_of::<F>() <= 8) }
        // SAFETY: as in `get`, of a part of it.
        unsafe { self.at.byte_add(AT).cast::<F>().read() }
    }

    /// Copies the contents to `place`.
    #[inline(always)]
    pub(crate) fn copy_to(&self, place: &mut MaybeUninit<W>) {
        // SAFETY: as in `get`; and the place is not in the ring.
        unsafe { place.as_mut_ptr().copy_from_nonoverlapping(self.at.cast().as_ptr(), 1) }
    }

    /// The contents.
    #[inline(always)]
    pub(crate) fn get(&self) -> W {
        // SAFETY: a `W` at the start of the slot, aligned, of any bytes; the slot is ours (third point).
        unsafe { self.at.cast::<W>().read() }
    }
}

/// The side of a ring that empties slots. Its position is stored only in the ring, in the index that only this side writes. A [`Window`]
/// can therefore continue where this stopped, and this where the window stopped.
#[derive(Debug)]
pub(crate) struct Consumer<W> {
    ring: Ring<W>,
}

impl<W> Consumer<W> {
    /// Continues at the position in the ring. `None` if the ring is malformed.
    pub(crate) fn open(map: Mapping) -> Option<Self> {
        Ring::new(map).map(|ring| Self { ring })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.ring.geometry
    }

    /// The index of the next slot to be emptied.
    #[inline(always)]
    fn index(&self) -> u32 {
        self.ring.consumer().load(Ordering::Relaxed) & self.ring.geometry.mask
    }

    /// Number of filled slots from that one on.
    #[inline(always)]
    fn filled_from(&self, index: u32) -> u32 {
        let producer = self.ring.producer().load(Ordering::Acquire);
        producer.wrapping_sub(index) & self.ring.geometry.mask
    }

    /// Number of filled slots.
    #[inline(always)]
    pub(crate) fn available(&self) -> u32 {
        self.filled_from(self.index())
    }

    /// Gives every slot before this index back to the other side.
    #[inline(always)]
    fn release(&mut self, index: u32) {
        self.ring.consumer().store(index & self.ring.geometry.mask, Ordering::Release);
    }

    /// Passes the next filled slots to `each`, at most as many as there are `places`, gives them back to the other side, and returns
    /// their number. `may_take` is called before the first one is taken: if it returns false, nothing is taken, and the result says so.
    #[inline(always)]
    pub(crate) fn take_if<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut each: impl FnMut(&mut T, Filled<'_, W>),
    ) -> Option<usize> {
        let index = self.index();
        let available = self.filled_from(index) as usize;
        if available == 0 {
            return Some(0);
        }
        if !may_take() {
            return None;
        }
        let Ring { slots, size, bits, .. } = self.ring;
        let (mut at, count) = (self.ring.place(index), available.min(places.len()));
        let _done = Done { consumer: self, index: index.wrapping_add(count as u32) };
        for place in &mut places[..count] {
            // SAFETY: as in `Ring::slot`. The address, the size and the mask are those of the ring.
            each(place, Filled { at: unsafe { slots.add(at) }, of: PhantomData });
            at = (at + size) & bits;
        }
        Some(count)
    }

    /// Passes the next filled slots to `put` if there are one or two, as most polls find, gives them back to the other side, and returns
    /// their number. `None`, with nothing done, if there are more and as many places, if there is no place, if `may_take` returns false, or
    /// if one is not put.
    ///
    /// There is no loop, because its variables would need registers that have to be saved for the caller.
    #[cfg(any(feature = "raw", test))]
    #[inline(always)]
    pub(crate) fn take_few_if<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        put: impl Fn(&mut T, Filled<'_, W>) -> bool,
    ) -> Option<usize> {
        let index = self.index();
        let available = self.filled_from(index);
        if available == 0 {
            return Some(0);
        }
        if !may_take() {
            return None;
        }
        let (first, next) = (self.at_masked(index), index.wrapping_add(1) & self.ring.geometry.mask);
        if let (1, [place, ..]) | (_, [place]) = (available, &mut *places) {
            if !put(place, first) {
                return None;
            }
            self.ring.consumer().store(next, Ordering::Release);
            return Some(1);
        }
        if let (2, [place, other, ..]) | (_, [place, other]) = (available, places) {
            if !put(place, first) || !put(other, self.at_masked(next)) {
                return None;
            }
            self.release(next.wrapping_add(1));
            return Some(2);
        }
        None
    }

    /// Passes the next filled slot to `put`, gives it back to the other side, and returns whether there was one. `None`, with nothing
    /// done, if it may not be taken or is not put.
    #[inline(always)]
    pub(crate) fn take_one(
        &mut self,
        may_take: impl Fn() -> bool,
        put: impl FnOnce(Filled<'_, W>) -> bool,
    ) -> Option<usize> {
        let index = self.index();
        if self.filled_from(index) == 0 {
            return Some(0);
        }
        if !may_take() || !put(self.at(index)) {
            return None;
        }
        self.release(index.wrapping_add(1));
        Some(1)
    }

    #[inline(always)]
    fn at(&self, index: u32) -> Filled<'_, W> {
        Filled { at: self.ring.slot(self.ring.place(index)), of: PhantomData }
    }

    /// The filled slot at an index that is already masked.
    #[cfg(any(feature = "raw", test))]
    #[inline(always)]
    fn at_masked(&self, index: u32) -> Filled<'_, W> {
        debug_assert!(index <= self.ring.geometry.mask);
        // SAFETY: a masked index, below the number of slots, which have this size (first point of the page of `ring.rs`).
        let at = unsafe { self.ring.slots.add(index as usize * self.ring.size) };
        Filled { at, of: PhantomData }
    }

    /// A window, which shows filled slots one after the other.
    #[cfg(any(feature = "raw", test))]
    pub(crate) fn window(&self) -> Opening<W> {
        let Ring { map, slots, producer, consumer, geometry, size, bits, .. } = &self.ring;
        // SAFETY: the last slot (first point of `ring.rs`).
        let last = unsafe { slots.add(*bits) }.cast();
        Opening(Window {
            _map: Some(map.clone()),
            slots: *slots,
            last,
            producer: *producer,
            consumer: *consumer,
            size: *size,
            mask: geometry.mask,
            next: 0,
            left: 0,
            at: nothing(),
        })
    }

    /// Empties the filled slots for which `keep` is false. The others keep their order. They move towards the newest slot, because the
    /// other side fills what is behind it.
    pub(crate) fn retain(&mut self, keep: impl Fn(&W) -> bool)
    where
        W: FromBytes + IntoBytes,
    {
        let first = self.index();
        let newest = first.wrapping_add(self.available());
        let mut kept = newest;
        for back in 1..=newest.wrapping_sub(first) {
            let value = self.at(newest.wrapping_sub(back)).get();
            if keep(&value) {
                kept = kept.wrapping_sub(1);
                // SAFETY: a filled slot, which is ours (third point), at its start.
                unsafe { self.ring.slot(self.ring.place(kept)).cast::<W>().write(value) }
            }
        }
        self.release(kept);
    }
}

/// Gives slots back, also if the code that receives one panics: no slot is passed on twice.
struct Done<'a, W> {
    consumer: &'a mut Consumer<W>,
    index: u32,
}

impl<W> Drop for Done<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.release(self.index);
    }
}

/// The slot of a window that is at no slot.
#[cfg(any(feature = "raw", test))]
#[derive(Debug)]
#[repr(align(64))]
struct Nothing(#[expect(dead_code)] [u8; 64]);

#[cfg(any(feature = "raw", test))]
static NOTHING: Nothing = Nothing([0; 64]);

#[cfg(any(feature = "raw", test))]
#[inline(always)]
fn nothing<W>() -> NonNull<W> {
    const { assert!(size_of::<W>() <= size_of::<Nothing>() && align_of::<W>() <= align_of::<Nothing>()) }
    NonNull::from(&NOTHING).cast()
}

/// The index of a ring without slots.
#[cfg(any(feature = "raw", test))]
static EMPTY: AtomicU32 = AtomicU32::new(0);

/// Goes through filled slots one by one. Each is read in the ring. They are given back at the end, and when the window looks for more.
///
/// Each call gets a word that is combined with the slots it shows: if the word is zero, there are none.
///
/// # Safety
/// - `at` is [`NOTHING`], or a slot that was filled when [`Window::begin`] or [`Window::next`] looked, and is not given back: by the
///   promise of the caller of [`Opening::open`] nothing else gives it back, and [`Window::end`] resets `at` first.
/// - `slots`, `last`, `mask` and `size` are those of a ring whose mapping is kept; or there is one slot, of size zero, which is
///   [`NOTHING`].
#[cfg(any(feature = "raw", test))]
#[derive(Debug)]
pub(crate) struct Window<W> {
    /// Keeps the memory.
    _map: Option<Mapping>,
    slots: NonNull<u8>,
    last: NonNull<W>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    size: usize,
    mask: u32,
    /// The index behind the current slot, not masked; and the number of slots that are known to be filled, including it: zero if there is
    /// no current slot.
    next: u32,
    left: u32,
    at: NonNull<W>,
}

// SAFETY: as for `Ring`, and the current slot may be read from any thread.
#[cfg(any(feature = "raw", test))]
unsafe impl<W> Send for Window<W> {}

/// The window of a ring that is always empty.
#[cfg(any(feature = "raw", test))]
impl<W> Default for Window<W> {
    fn default() -> Self {
        let (slots, at) = (nothing::<W>().cast(), nothing());
        let [producer, consumer] = [NonNull::from(&EMPTY); 2];
        Self { _map: None, slots, last: at, producer, consumer, size: 0, mask: 0, next: 0, left: 0, at }
    }
}

/// A window for which nothing has been promised yet.
#[cfg(any(feature = "raw", test))]
#[derive(Debug)]
pub(crate) struct Opening<W>(Window<W>);

#[cfg(any(feature = "raw", test))]
impl<W> Opening<W> {
    /// Opens it.
    ///
    /// # Safety
    /// From a [`Window::begin`] that returned true to the [`Window::end`] after it, nothing else empties slots of the ring.
    pub(crate) unsafe fn open(self) -> Window<W> {
        self.0
    }

    /// Opens it in a test, in which nothing else empties the ring.
    #[cfg(test)]
    pub(super) fn opened(self) -> Window<W> {
        self.0
    }
}

#[cfg(any(feature = "raw", test))]
impl<W: FromBytes> Window<W> {
    /// Moves to the first filled slot, if there is one.
    #[inline(always)]
    pub(crate) fn begin(&mut self, word: impl Fn() -> u32) -> bool {
        // SAFETY: in the mapping that is kept, or static; only ever atomics (`ring.rs`).
        let (producer, consumer) = unsafe { (self.producer.as_ref(), self.consumer.as_ref()) };
        let index = consumer.load(Ordering::Relaxed);
        let filled = producer.load(Ordering::Acquire).wrapping_sub(index) & self.mask & word();
        if filled == 0 {
            return false;
        }
        (self.next, self.left) = (index.wrapping_add(1), filled);
        let place = (index & self.mask) as usize * self.size;
        // SAFETY: a slot of the ring (second point).
        self.at = unsafe { self.slots.add(place) }.cast();
        true
    }

    /// Moves to the next of the slots that were filled when the window last looked.
    #[inline(always)]
    pub(crate) fn next(&mut self, word: u32) -> bool {
        // Less than the number of slots, so that it can be signed.
        let left = (self.left & word) as i32 - 1;
        if left <= 0 {
            return false;
        }
        self.left = left as u32;
        self.next = self.next.wrapping_add(1);
        self.at = if self.at == self.last {
            self.slots.cast()
        } else {
            // SAFETY: not the last slot, so that there is one behind it (both points: `left` was two at least, so it is at one).
            unsafe { self.at.byte_add(self.size) }
        };
        true
    }

    /// If the window is at a slot, looks for more filled slots, and gives back those that it has passed. Otherwise the ring would become
    /// full when a program reads more slots than the ring has, while the other side fills as fast.
    pub(crate) fn look(&mut self) {
        if self.left > 0 {
            // SAFETY: as in `begin`.
            let (producer, consumer) = unsafe { (self.producer.as_ref(), self.consumer.as_ref()) };
            consumer.store(self.next.wrapping_sub(1) & self.mask, Ordering::Release);
            self.left = (producer.load(Ordering::Acquire).wrapping_sub(self.next) & self.mask) + 1;
        }
    }

    /// Gives back the current slot and those before it. False if there is no current slot.
    #[inline(always)]
    pub(crate) fn end(&mut self, word: u32) -> bool {
        if self.left & word == 0 {
            return false;
        }
        self.at = nothing();
        self.left = 0;
        let index = self.next & self.mask;
        // SAFETY: as in `begin`.
        unsafe { self.consumer.as_ref() }.store(index, Ordering::Release);
        true
    }

    /// The field at byte `AT` of the current slot; zeros if there is none.
    #[inline(always)]
    pub(crate) fn field<const AT: usize, F: FromBytes>(&self) -> F {
        const { assert!(AT + size_of::<F>() <= size_of::<W>() && AT.is_multiple_of(align_of::<F>())) }
        const { assert!(align_of::<F>() <= align_of::<W>()) }
        // SAFETY: inside a `W`, which may be read (first point).
        unsafe { self.at.byte_add(AT).cast::<F>().read() }
    }
}
