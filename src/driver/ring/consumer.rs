//! The side of a ring that empties slots.
//!
//! # Safety
//! As in the page of [`super`]: a [`Filled`] is given out only for a slot that is this side's, and not kept beyond that.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use zerocopy::{FromBytes, IntoBytes};

use super::{Geometry, Ring};
use crate::mapping::Mapping;

/// A filled slot that waits to be emptied.
#[derive(Debug)]
pub(crate) struct Filled<'a, W> {
    at: NonNull<u8>,
    of: PhantomData<(&'a (), W)>,
}

impl<W> Clone for Filled<'_, W> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Filled<'_, W> {}

impl<W: FromBytes> Filled<'_, W> {
    /// Copies it to where it goes.
    #[inline(always)]
    pub(crate) fn copy_to(&self, place: &mut MaybeUninit<W>) {
        // SAFETY: as in `get`; and the place is not in the ring.
        unsafe { place.as_mut_ptr().copy_from_nonoverlapping(self.at.cast().as_ptr(), 1) }
    }

    /// What it begins with.
    #[inline(always)]
    pub(crate) fn get(&self) -> W {
        // SAFETY: a `W` at the start of the slot, aligned, of any bytes; the slot is ours (third point).
        unsafe { self.at.cast::<W>().read() }
    }
}

/// The side of a ring that empties slots.
#[derive(Debug)]
pub(crate) struct Consumer<W> {
    ring: Ring<W>,
    index: u32,
}

impl<W> Consumer<W> {
    /// Goes on where the ring stands; none if the ring makes no sense.
    pub(crate) fn open(map: Mapping) -> Option<Self> {
        let ring = Ring::new(map)?;
        let index = ring.consumer().load(Ordering::Relaxed) & ring.geometry.mask;
        Some(Self { ring, index })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.ring.geometry
    }

    /// Filled slots that wait to be emptied.
    #[inline(always)]
    pub(crate) fn available(&self) -> u32 {
        let producer = self.ring.producer().load(Ordering::Acquire);
        producer.wrapping_sub(self.index) & self.ring.geometry.mask
    }

    /// The next filled slot, to be emptied now; it stays this side's until [`Consumer::release`].
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Filled<'_, W>> {
        if self.available() == 0 {
            return None;
        }
        let index = self.index;
        self.index = (index + 1) & self.ring.geometry.mask;
        Some(self.at(index))
    }

    /// Gives every emptied slot back to the other side.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        self.ring.consumer().store(self.index, Ordering::Release);
    }

    /// Hands the next filled slots on, as many as there are `places`, and gives them back to the other side; says how many. Before
    /// the first one is taken, `may_take` is asked: if not, nothing is.
    #[inline(always)]
    pub(crate) fn take<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        each: impl FnMut(&mut T, Filled<'_, W>),
    ) -> usize {
        let available = self.available();
        if available == 0 || !may_take() { 0 } else { self.take_of(available, places, each) }
    }

    /// The same of so many that were [available](Consumer::available) just before: that many at most are.
    #[inline(always)]
    pub(crate) fn take_of<T>(
        &mut self,
        available: u32,
        places: &mut [T],
        mut each: impl FnMut(&mut T, Filled<'_, W>),
    ) -> usize {
        let available = available as usize;
        let Ring { slots, size, bits, .. } = self.ring;
        let (mut at, count) = (self.ring.place(self.index), available.min(places.len()));
        // Should `each` panic, none is handed on twice.
        self.index = self.index.wrapping_add(count as u32) & self.ring.geometry.mask;
        for place in &mut places[..count] {
            // SAFETY: as in `Ring::slot`, from which all of these numbers are.
            each(place, Filled { at: unsafe { slots.add(at) }, of: PhantomData });
            at = (at + size) & bits;
        }
        self.release();
        count
    }

    /// Hands the next filled slot on and gives it back to the other side; says whether there was one. None if it may not be taken, or
    /// is not put: nothing has happened then.
    #[inline(always)]
    pub(crate) fn take_one(
        &mut self,
        may_take: impl Fn() -> bool,
        put: impl FnOnce(Filled<'_, W>) -> bool,
    ) -> Option<usize> {
        if self.available() == 0 {
            return Some(0);
        }
        if !may_take() || !put(self.at(self.index)) {
            return None;
        }
        self.index = (self.index + 1) & self.ring.geometry.mask;
        self.release();
        Some(1)
    }

    /// The next filled slot if `may_take`, as [`Consumer::next`]; without it whether there is none.
    #[inline(always)]
    pub(crate) fn next_if(&mut self, may_take: impl Fn() -> bool) -> Result<Filled<'_, W>, bool> {
        if self.available() == 0 {
            return Err(true);
        }
        if !may_take() {
            return Err(false);
        }
        let index = self.index;
        self.index = (index + 1) & self.ring.geometry.mask;
        Ok(self.at(index))
    }

    #[inline(always)]
    fn at(&self, index: u32) -> Filled<'_, W> {
        Filled { at: self.ring.slot(self.ring.place(index)), of: PhantomData }
    }

    /// Empties the filled slots that are not to be kept; the others stay in their order. They move towards the newest, since
    /// the other side fills what is behind it.
    pub(crate) fn retain(&mut self, keep: impl Fn(&W) -> bool)
    where
        W: FromBytes + IntoBytes,
    {
        let first = self.index;
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
        self.index = kept & self.ring.geometry.mask;
        self.release();
    }
}
