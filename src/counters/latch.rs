//! A seqlock of two places, for values that one writes and many read.
//!
//! The number of the newest publication, its epoch, says which of the two places holds it; the writer fills the other
//! one and then raises the number. So a reader never waits, not even for a writer that was put to sleep in the middle
//! of its work, and a writer never waits for readers. A reader that finds another number when it is done may have met
//! what was published later in its place, and reads again. The kernel knows this as `seqcount_latch`.
//!
//! There is no data race: all words are atomic. The order (after Boehm, "Can seqlocks get along with programming language
//! memory models?", 2012):
//! - A reader that sees epoch `e` (acquire) sees all that its writer wrote before (release).
//! - The place of `e` is written again for `e + 2`, after `e + 1` was published. In between stands a release fence. If a
//!   reader's load of a value meets what was written for `e + 2`, that fence and the acquire fence behind the loads
//!   make `e + 1` visible to the reader's second look at the number, which is then not `e`: the values are not taken.
//! - The number is one atomic that only grows, so a reader never sees an older one than it saw before.

#[cfg(all(test, uverbs_loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, uverbs_loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of the newest publication, and two places of everything.
#[derive(Debug)]
pub(super) struct Latch {
    /// Zero before the first publication. Its lowest bit names the place.
    epoch: AtomicU64,
    ticks: [AtomicU64; 2],
    ns: [AtomicU64; 2],
    /// The places of each value are side by side, so that its address needs no multiplication.
    values: Box<[[AtomicU64; 2]]>,
}

/// What a publication says beside its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When the values were read, by the CPU's counter.
    pub(super) ticks: u64,
    /// The same by the clock.
    pub(super) ns: u64,
}

/// The values of one publication, which may be overwritten while they are copied.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    values: &'a [[AtomicU64; 2]],
    place: usize,
}

impl Values<'_> {
    /// All values, if they are `N`.
    #[inline]
    pub(super) fn array<const N: usize>(self) -> Option<[u64; N]> {
        let all: &[_; N] = self.values.try_into().ok()?;
        Some(std::array::from_fn(|i| all[i][self.place & 1].load(Ordering::Relaxed)))
    }

    /// Copies all values out, if they are as many as there is room for.
    #[inline]
    pub(super) fn copy(self, values: &mut [u64]) -> Option<()> {
        (self.values.len() == values.len()).then(|| {
            for (to, from) in values.iter_mut().zip(self.values) {
                *to = from[self.place & 1].load(Ordering::Relaxed);
            }
        })
    }
}

fn both<T>(make: impl Fn() -> T) -> [T; 2] {
    [make(), make()]
}

impl Latch {
    /// Room for `len` values; `first` is what is read before the first publication.
    pub(super) fn new(len: usize, first: Entry) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            ticks: both(|| AtomicU64::new(first.ticks)),
            ns: both(|| AtomicU64::new(first.ns)),
            values: (0..len).map(|_| both(|| AtomicU64::new(0))).collect(),
        }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The newest publication: its epoch, what it says, and what `take` makes of its values. None when publications
    /// overtook the reader, or when `take` wants none of it.
    #[inline]
    pub(super) fn try_read<T>(&self, take: impl FnOnce(Values<'_>) -> Option<T>) -> Option<(u64, Entry, T)> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let place = epoch as usize & 1;
        let taken = take(Values { values: &self.values, place })?;
        let entry = Entry {
            ticks: self.ticks[place].load(Ordering::Relaxed),
            ns: self.ns[place].load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.epoch.load(Ordering::Relaxed) == epoch).then_some((epoch, entry, taken))
    }

    /// Publishes values, of which there are [`Latch::len`]. Only one may do so at a time.
    pub(super) fn publish(&self, entry: Entry, values: &[u64]) {
        let epoch = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        let place = epoch as usize & 1;
        fence(Ordering::Release);
        self.ticks[place].store(entry.ticks, Ordering::Relaxed);
        self.ns[place].store(entry.ns, Ordering::Relaxed);
        for (to, from) in self.values.iter().zip(values) {
            to[place].store(*from, Ordering::Relaxed);
        }
        self.epoch.store(epoch, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
