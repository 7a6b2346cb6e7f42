//! Rings in memory that this process shares with the kernel (rxe) or with the soft device.
//!
//! A ring has one producer and one consumer. Each side owns one index and only reads the other's:
//! the producer fills slots and then stores its index with release; the consumer loads that index with
//! acquire, so it sees the slots filled, and stores its own index with release when it is done with
//! them; the producer's acquire load of that index makes the slots its own again. Indices are kept
//! masked, and one slot is never used, so that full and empty differ.
//!
//! Layout: `struct rxe_queue_buf`, include/uapi/rdma/rdma_user_rxe.h; order of accesses: rxe_queue.h,
//! Linux 6.1.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(any(feature = "soft", test))]
use nix::errno::Errno;

use crate::mapping::Mapping;

const LOG2_ELEM_SIZE: usize = 0;
const INDEX_MASK: usize = 4;
const PRODUCER_INDEX: usize = 128;
const CONSUMER_INDEX: usize = 256;
const SLOTS: usize = 384;

/// Number and size of slots, checked once against the mapping and then kept out of its reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    mask: u32,
    log2_size: u32,
}

impl Geometry {
    /// What the header in `map` says, if the mapping is large enough for it.
    pub(crate) fn of(map: &Mapping) -> Option<Self> {
        let mask = map.load(INDEX_MASK, Ordering::Relaxed);
        let log2_size = map.load(LOG2_ELEM_SIZE, Ordering::Relaxed);
        let geometry = Self { mask, log2_size };
        // A ring of one slot has room for nothing.
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
        slots.checked_shl(self.log2_size)?.checked_add(SLOTS)
    }

    /// Number of slots.
    pub(crate) fn slots(self) -> usize {
        self.mask as usize + 1
    }

    /// How many elements the ring can hold: one slot is never used.
    pub(crate) fn capacity(self) -> u32 {
        self.mask
    }

    /// Size of one slot in bytes.
    #[inline]
    pub(crate) fn slot_size(self) -> usize {
        1 << self.log2_size
    }

    /// Where in the mapping `offset` bytes into slot `index` are.
    #[inline]
    fn place(self, index: u32, offset: usize) -> usize {
        SLOTS + (((index & self.mask) as usize) << self.log2_size) + offset
    }
}

/// A device that sees by itself neither rings nor what is put into them. Kernels do.
pub(crate) trait Watcher: Debug + Send + Sync {
    /// The producer has published.
    fn look(&self);
}

/// A slot that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a>(&'a [AtomicU32]);

impl Slot<'_> {
    /// Writes words, the first of them at word `at`; false when they do not fit.
    #[inline]
    #[must_use]
    pub(crate) fn put<const N: usize>(self, at: usize, words: &[u32; N]) -> bool {
        let places = self.0.get(at..).and_then(<[_]>::first_chunk::<N>);
        places.is_some_and(|places| {
            places.iter().zip(words).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
            true
        })
    }

    /// Writes bytes, the first of them at word `at`; the last word is filled up with zeros. False when they do not fit.
    #[inline]
    #[must_use]
    pub(crate) fn put_bytes(self, at: usize, bytes: &[u8]) -> bool {
        let Some(places) = self.0.get(at..).and_then(|places| places.get(..bytes.len().div_ceil(4))) else {
            return false;
        };
        let (words, rest) = bytes.as_chunks();
        for (place, word) in places.iter().zip(words) {
            place.store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
        if let (Some(place), false) = (places.last(), rest.is_empty()) {
            let mut word = [0; 4];
            word[..rest.len()].copy_from_slice(rest);
            place.store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
        true
    }
}

/// The side of a ring that fills slots.
#[derive(Debug)]
pub(crate) struct Producer {
    map: Mapping,
    geometry: Geometry,
    /// Our index, ahead of the shared one by what is not yet published.
    index: u32,
}

impl Producer {
    pub(crate) fn new(map: Mapping, geometry: Geometry) -> Self {
        let index = map.load(PRODUCER_INDEX, Ordering::Relaxed) & geometry.mask;
        Self { map, geometry, index }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Index of the slot that is filled next.
    #[inline]
    pub(crate) fn next_slot(&self) -> u32 {
        self.index
    }

    /// Slots that can be filled now.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.geometry.mask - self.waiting()
    }

    /// Slots that were filled and not emptied yet.
    pub(crate) fn waiting(&self) -> u32 {
        let consumer = self.map.load(CONSUMER_INDEX, Ordering::Acquire);
        self.index.wrapping_sub(consumer) & self.geometry.mask
    }

    /// Writes part of the slot that is filled next; false when it does not fit into a slot.
    #[cfg(any(feature = "soft", test))]
    #[must_use]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        offset + bytes.len() <= self.geometry.slot_size()
            && self.map.write(self.geometry.place(self.index, offset), bytes)
    }

    /// The slot that is filled next; none if the other side has made the mapping smaller than it said.
    #[inline]
    pub(crate) fn slot(&self) -> Option<Slot<'_>> {
        let place = self.geometry.place(self.index, 0);
        self.map.many_words(place, self.geometry.slot_size() / 4).map(Slot)
    }

    /// Done with this slot, on to the next; the other side sees it after [`Producer::publish`].
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.index = (self.index + 1) & self.geometry.mask;
    }

    /// Goes back to what the other side has seen: slots filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        self.index = self.map.load(PRODUCER_INDEX, Ordering::Relaxed) & self.geometry.mask;
    }

    /// Takes back slots that the other side has seen but refused to look at.
    pub(crate) fn retract(&mut self, slot: u32) {
        self.index = slot & self.geometry.mask;
        self.publish();
    }

    /// Shows the other side every slot filled so far.
    #[inline]
    pub(crate) fn publish(&self) {
        self.map.store(PRODUCER_INDEX, self.index, Ordering::Release);
    }

    /// Goes on in a new ring, which begins with the elements that the other side has not taken yet. False and
    /// nothing done when they do not fit; only when every slot filled so far is published.
    #[cfg(feature = "soft")]
    #[must_use]
    pub(crate) fn move_to(&mut self, map: Mapping, geometry: Geometry) -> bool {
        let waiting = self.waiting();
        let size = self.geometry.slot_size().min(geometry.slot_size());
        if waiting > geometry.mask {
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
        // What the other side still looks at is empty.
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
        let index = map.load(CONSUMER_INDEX, Ordering::Relaxed) & geometry.mask;
        Self { map, geometry, index }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Filled slots that wait to be emptied.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        let producer = self.map.load(PRODUCER_INDEX, Ordering::Acquire);
        producer.wrapping_sub(self.index) & self.geometry.mask
    }

    /// Reads part of the oldest filled slot; false when it leaves the slot. Only when
    /// [`Consumer::available`] is not zero.
    #[cfg(any(feature = "soft", test))]
    #[must_use]
    #[cfg_attr(not(any(feature = "soft", test)), expect(dead_code))]
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        offset + bytes.len() <= self.geometry.slot_size()
            && self.map.read(self.geometry.place(self.index, offset), bytes)
    }

    /// The first words of the oldest filled slot; none when they leave the slot. Only when
    /// [`Consumer::available`] is not zero.
    #[inline]
    pub(crate) fn words<const N: usize>(&self) -> Option<&[AtomicU32; N]> {
        self.at(self.index)
    }

    #[inline]
    fn at<const N: usize>(&self, index: u32) -> Option<&[AtomicU32; N]> {
        if 4 * N > self.geometry.slot_size() {
            return None;
        }
        self.map.words(self.geometry.place(index, 0))
    }

    /// Done with the oldest slot; the other side sees it after [`Consumer::release`].
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.index = (self.index + 1) & self.geometry.mask;
    }

    /// Gives every emptied slot back to the other side.
    #[inline]
    pub(crate) fn release(&self) {
        self.map.store(CONSUMER_INDEX, self.index, Ordering::Release);
    }

    /// Empties the filled slots whose first words are not to be kept; the others stay in their order. They move towards
    /// the newest, since the other side fills what is behind it.
    #[cfg(feature = "raw")]
    pub(crate) fn retain<const N: usize>(&mut self, keep: impl Fn(&[AtomicU32; N]) -> bool) {
        let first = self.index;
        let newest = first.wrapping_add(self.available());
        let mut kept = newest;
        for back in 1..=newest.wrapping_sub(first) {
            let from = self.at::<N>(newest.wrapping_sub(back));
            let Some(words) = from.filter(|words| keep(words)) else { continue };
            kept = kept.wrapping_sub(1);
            for (to, word) in self.at::<N>(kept).into_iter().flatten().zip(words) {
                to.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        self.index = kept & self.geometry.mask;
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order_across_threads() {
        let (geometry, map) = Geometry::create(7, 8).unwrap();
        assert_eq!(Geometry::of(&map), Some(geometry));
        assert_eq!((geometry.capacity(), geometry.slot_size()), (7, 64));
        let mut producer = Producer::new(map.clone(), geometry);
        let mut consumer = Consumer::new(map, geometry);
        let count = if cfg!(miri) { 50 } else { 10_000_u64 };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for value in 0..count {
                    while producer.free() == 0 {
                        std::thread::yield_now();
                    }
                    assert!(producer.write(0, &value.to_ne_bytes()));
                    producer.advance();
                    producer.publish();
                }
            });
            for value in 0..count {
                while consumer.available() == 0 {
                    std::thread::yield_now();
                }
                let mut bytes = [0; 8];
                assert!(consumer.read(0, &mut bytes));
                assert_eq!(u64::from_ne_bytes(bytes), value);
                consumer.advance();
                consumer.release();
            }
        });
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let (_, map) = Geometry::create(7, 8).unwrap();
        for (mask, log2_size) in [(6, 6), (u32::MAX, 6), (0xffff, 6), (7, 64), (7, 31)] {
            map.store(INDEX_MASK, mask, Ordering::Relaxed);
            map.store(LOG2_ELEM_SIZE, log2_size, Ordering::Relaxed);
            assert_eq!(Geometry::of(&map), None, "{mask} {log2_size}");
        }
    }

    #[test]
    fn a_ring_for_nothing_is_full() {
        let (geometry, map) = Geometry::create(0, 64).unwrap();
        assert_eq!(Geometry::of(&map), Some(geometry));
        let (producer, consumer) = (Producer::new(map.clone(), geometry), Consumer::new(map, geometry));
        assert_eq!((geometry.capacity(), producer.free(), consumer.available()), (0, 0, 0));
    }

    #[test]
    fn a_full_ring_takes_no_more_and_a_rewound_one_forgets() {
        let (geometry, map) = Geometry::create(3, 64).unwrap();
        let mut producer = Producer::new(map.clone(), geometry);
        let consumer = Consumer::new(map, geometry);
        assert!(!producer.write(60, &[0; 5]));
        for free in (0..3).rev() {
            producer.advance();
            assert_eq!(producer.free(), free);
        }
        assert_eq!(consumer.available(), 0);
        producer.rewind();
        assert_eq!(producer.free(), 3);
        producer.advance();
        producer.publish();
        assert_eq!(consumer.available(), 1);
    }

    #[test]
    #[cfg(feature = "raw")]
    fn what_is_not_kept_leaves_from_among_what_waits() {
        let (geometry, map) = Geometry::create(7, 8).unwrap();
        let mut producer = Producer::new(map.clone(), geometry);
        let mut consumer = Consumer::new(map, geometry);
        let mut put = |value: u32| {
            assert!(producer.write(0, &value.to_ne_bytes()));
            producer.advance();
            producer.publish();
            producer.free()
        };
        let take = |consumer: &mut Consumer| {
            let waiting = consumer.available();
            let taken = (0..waiting).map(|_| {
                let [word] = consumer.words().unwrap();
                let value = word.load(Ordering::Relaxed);
                consumer.advance();
                value
            });
            let taken = taken.collect::<Vec<_>>();
            consumer.release();
            taken
        };
        let is_odd = |[word]: &[AtomicU32; 1]| word.load(Ordering::Relaxed) % 2 == 1;
        // Once around the end of the ring.
        for round in 0..4 {
            consumer.retain(is_odd);
            assert_eq!(consumer.available(), 0);
            for value in 0..6 {
                put(10 * round + value);
            }
            consumer.retain(is_odd);
            assert_eq!(put(10 * round + 6), 3, "the slots are free at once");
            assert_eq!(take(&mut consumer), [1, 3, 5, 6].map(|value| 10 * round + value));
        }
    }
}
