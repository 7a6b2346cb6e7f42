//! A seqlock with two places, for values with one writer and many readers.
//!
//! The number of the newest publication, its epoch, determines which of the two places contains it. The writer fills the other place and
//! then increases the number. A reader therefore never waits, not even for a writer that is suspended in the middle of a publication, and
//! a writer never waits for readers. If a reader finds another number at the end, its place may have been overwritten by a later
//! publication, and it reads again. The kernel calls this `seqcount_latch`.
//!
//! There is no data race, because all words are atomic. The order (after Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012):
//! - A reader that sees epoch `e` (acquire) sees everything that the writer wrote before it (release).
//! - The place of `e` is written again for `e + 2`, after `e + 1` was published, with a release fence in between. If a reader's load
//!   returns a value that was written for `e + 2`, that fence and the acquire fence after the loads make `e + 1` visible to the reader's
//!   second read of the number, which is then not `e`: the values are discarded.
//! - The number is one atomic that only increases, so a reader never sees an older one than before.

#[cfg(all(test, uverbs_loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, uverbs_loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of the newest publication, and two places of everything.
#[derive(Debug)]
pub(super) struct Latch {
    /// Zero before the first publication. Its lowest bit selects the place.
    epoch: AtomicU64,
    ticks: [AtomicU64; 2],
    ns: [AtomicU64; 2],
    /// The two places of each value are adjacent, so that its address needs no multiplication.
    values: Box<[[AtomicU64; 2]]>,
}

/// The times of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When the values were read, by the CPU's counter.
    pub(super) ticks: u64,
    /// When the values were read, by the clock.
    pub(super) ns: u64,
}

/// The values of one publication. They may be overwritten while they are copied.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    values: &'a [[AtomicU64; 2]],
    place: usize,
}

impl Values<'_> {
    /// All values, if there are `N`.
    #[inline]
    pub(super) fn array<const N: usize>(self) -> Option<[u64; N]> {
        let all: &[_; N] = self.values.try_into().ok()?;
        Some(std::array::from_fn(|i| all[i][self.place & 1].load(Ordering::Relaxed)))
    }

    /// Copies all values, if their number is that of `values`.
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
    /// Room for `len` values. `first` is returned before the first publication.
    pub(super) fn new(len: usize, first: Entry) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            ticks: both(|| AtomicU64::new(first.ticks)),
            ns: both(|| AtomicU64::new(first.ns)),
            values: (0..len).map(|_| both(|| AtomicU64::new(0))).collect(),
        }
    }

    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The newest publication: its epoch, its times, and what `take` returns for its values. `None` if publications overtook the reader,
    /// or if `take` returns `None`.
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

    /// Publishes [`Latch::len`] values. Only one thread may do this at a time.
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
