//! Rings in memory that this process shares with the kernel (rxe) or with the soft device: this process's side.
//!
//! A ring has one producer and one consumer. Each side owns one index and only reads the other's. The producer fills slots and then
//! stores its index with release. The consumer loads that index with acquire, so it sees the filled slots, and stores its own index with
//! release when it has finished with them. The producer loads that index with acquire, and then owns the slots again. Indices are stored
//! masked, and one slot is never used, so that a full ring differs from an empty one.
//!
//! Layout: `struct rxe_queue_buf`, include/uapi/rdma/rdma_user_rxe.h; order of accesses: rxe_queue.h,
//! Linux 6.1.
//!
//! # Safety
//! - The place, number and size of the slots were checked once, when the ring was opened ([`Geometry::of`], [`Ring::new`]): all of them
//!   are inside the mapping, which lives as long as the ring does, and at multiples of eight. The header is never read again for this.
//! - A slot has room for a `W` at its start. Accesses behind it are checked against the size of a slot.
//! - A slot belongs to one side at a time, so it is accessed by plain loads and stores, through pointers; there is no
//!   reference to it. A [`Slot`] is given out only for a slot that the consumer's index, loaded with acquire, has freed and that
//!   is not published; a [`Filled`] only for one that the producer's index, loaded with acquire, has shown and that is not
//!   released. Both borrow the ring, which is needed to publish or release.
//! - The other side has to keep to the same rule, which is part of the contract of [`Transport`](crate::kernel::transport::Transport):
//!   the kernel's driver does (rxe_queue.h), and the soft device does (`soft/ring.rs`), which Miri checks in the tests here. A device
//!   that broke it would cause a race of values outside of this process, whose bytes are numbers of any value here.
//! - The two indices are accessed as atomics of 32 bits by both sides, always.

#![allow(unsafe_code)]

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(any(feature = "soft", test))]
use nix::errno::Errno;

use crate::kernel::mapping::Mapping;

mod consumer;
pub(crate) mod flagged;
mod producer;
pub(crate) mod units;

#[cfg(feature = "raw")]
pub(crate) use self::consumer::Opening;
#[cfg(any(feature = "raw", test))]
pub(crate) use self::consumer::Window;
pub(crate) use self::consumer::{Consumer, Filled};
pub(crate) use self::producer::{Producer, Slot, Slots};

const LOG2_ELEM_SIZE: usize = 0;
const INDEX_MASK: usize = 4;
pub(crate) const PRODUCER_INDEX: usize = 128;
pub(crate) const CONSUMER_INDEX: usize = 256;
const SLOTS: usize = 384;

/// Number and size of slots, checked once against the mapping and then kept where the other side cannot change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    mask: u32,
    log2_size: u32,
}

impl Geometry {
    /// The values in the header of `map`; `None` if the mapping is too small for them.
    pub(crate) fn of(map: &Mapping) -> Option<Self> {
        let mask = map.load(INDEX_MASK, Ordering::Relaxed);
        let log2_size = map.load(LOG2_ELEM_SIZE, Ordering::Relaxed);
        let geometry = Self { mask, log2_size };
        // A ring of one slot cannot hold anything.
        let is_mask = mask.checked_add(1)?.is_power_of_two();
        (is_mask && log2_size < 16 && geometry.bytes()? <= map.len()).then_some(geometry)
    }

    /// A new ring with room for at least `entries` elements of `size` bytes.
    #[cfg(any(feature = "soft", test))]
    pub(crate) fn create(entries: u32, size: usize) -> Result<(Self, Mapping), Errno> {
        let slots = entries.checked_add(1).and_then(u32::checked_next_power_of_two).ok_or(Errno::ENOMEM)?;
        let log2_size = size.next_power_of_two().max(64).trailing_zeros();
        let geometry = Self { mask: slots - 1, log2_size };
        let map = Mapping::block(geometry.bytes().ok_or(Errno::ENOMEM)?)?;
        map.store(LOG2_ELEM_SIZE, log2_size, Ordering::Relaxed);
        map.store(INDEX_MASK, geometry.mask, Ordering::Relaxed);
        Ok((geometry, map))
    }

    fn bytes(self) -> Option<usize> {
        let slots = usize::try_from(self.mask).ok()?.checked_add(1)?;
        slots.checked_mul(1_usize.checked_shl(self.log2_size)?)?.checked_add(SLOTS)
    }

    /// Number of slots.
    pub(crate) fn slots(self) -> usize {
        self.mask as usize + 1
    }

    /// Number of elements that the ring can hold: one slot is never used. The same number is the mask of an index.
    #[inline]
    pub(crate) fn capacity(self) -> u32 {
        self.mask
    }

    /// Size of one slot in bytes.
    #[inline]
    pub(crate) fn slot_size(self) -> usize {
        1 << self.log2_size
    }

    /// The offset in the mapping of byte `offset` of slot `index`.
    #[cfg(feature = "soft")]
    pub(crate) fn place(self, index: u32, offset: usize) -> usize {
        SLOTS + (((index & self.mask) as usize) << self.log2_size) + offset
    }
}

/// A device that does not notice by itself what is put into a ring. Kernels do not need this.
pub(crate) trait RingDevice: Debug + Send + Sync {
    /// The producer has published slots.
    fn look(&self);
}

/// A ring whose slots begin with a `W`.
#[derive(Debug)]
struct Ring<W> {
    /// Keeps the memory.
    #[cfg_attr(not(any(feature = "raw", test)), expect(dead_code))]
    map: Mapping,
    slots: NonNull<u8>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    geometry: Geometry,
    /// Size of a slot in bytes, and the mask of the places of slots, counted from the first.
    size: usize,
    bits: usize,
    of: PhantomData<fn(W)>,
}

// SAFETY: the pointers are into the mapping, which may be used by any thread; slots are accessed only through `&mut`.
unsafe impl<W> Send for Ring<W> {}
// SAFETY: as above; through a shared reference only the indices are accessed, which are atomics.
unsafe impl<W> Sync for Ring<W> {}

impl<W> Ring<W> {
    /// The ring in `map`; `None` if its header does not fit the mapping, or a `W` does not fit into a slot.
    fn new(map: Mapping) -> Option<Self> {
        const { assert!(align_of::<W>() <= 8) }
        let geometry = Geometry::of(&map)?;
        let slots = map.place(SLOTS, geometry.bytes()? - SLOTS)?;
        let index = |at: usize| map.place(at, 4).map(NonNull::cast);
        let (producer, consumer) = (index(PRODUCER_INDEX)?, index(CONSUMER_INDEX)?);
        let is_aligned = slots.addr().get().is_multiple_of(8);
        let has_room = geometry.slot_size() >= size_of::<W>();
        let (size, bits) = (geometry.slot_size(), (geometry.mask as usize) << geometry.log2_size);
        let of = PhantomData;
        let ring = Self { map, slots, producer, consumer, geometry, size, bits, of };
        (is_aligned && has_room).then_some(ring)
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned as the slots are, and only ever an atomic (last point).
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// The place of a slot, from its index.
    #[inline]
    fn place(&self, index: u32) -> usize {
        ((index as usize) << self.geometry.log2_size) & self.bits
    }

    /// The slot at this place.
    #[inline(always)]
    fn slot(&self, place: usize) -> NonNull<u8> {
        // SAFETY: places of slots are multiples of their size, below that of all of them, which is a power of two (first point).
        unsafe { self.slots.add(place & self.bits) }
    }
}

/// Copies bytes into a slot. Those of most inline messages are copied without a call; a loop over requests would have to save its variables
/// in memory around a call.
///
/// # Safety
/// There is room for them at `to`, which belongs to this side to write, and does not overlap them.
#[inline(always)]
unsafe fn copy(to: NonNull<u8>, bytes: &[u8]) {
    let (from, len) = (NonNull::from(bytes).cast::<u8>(), bytes.len());
    // SAFETY: as the caller promises; `N` is at most `len`.
    unsafe {
        // In this order: most messages take one comparison.
        if len.wrapping_sub(16) <= 16 {
            ends::<16>(to, from, len);
        } else if len.wrapping_sub(33) < 32 {
            ends::<32>(to, from, len);
        } else if len > 128 {
            to.copy_from_nonoverlapping(from, len);
        } else if len > 64 {
            ends::<64>(to, from, len);
        } else {
            match len {
                8.. => ends::<8>(to, from, len),
                4.. => ends::<4>(to, from, len),
                2.. => ends::<2>(to, from, len),
                1 => ends::<1>(to, from, len),
                0 => {}
            }
        }
    }
}

/// Copies the first `N` and the last `N` of up to twice as many bytes. Those in the middle may be copied twice.
///
/// # Safety
/// As for [`copy`], of `len` bytes, which are at least `N`.
#[inline]
unsafe fn ends<const N: usize>(to: NonNull<u8>, from: NonNull<u8>, len: usize) {
    for at in [0, len - N] {
        // SAFETY: `N` bytes at `at` are below `len`.
        unsafe { to.add(at).cast::<[u8; N]>().write(from.add(at).cast::<[u8; N]>().read()) }
    }
}

#[cfg(test)]
mod tests;
