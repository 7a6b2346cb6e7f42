//! A seqlock of two places, for values that one writes and many read.
//!
//! The number of the newest publication, its epoch, says which of the two places holds it; the writer fills the other
//! one and then raises the number. So a reader never waits, not even for a writer that was put to sleep in the middle
//! of its work, and a writer never waits for readers. A reader that was overtaken by two publications may have met the
//! second in its place: it sees that the number is another, and reads again. The kernel knows this as `seqcount_latch`.
//!
//! There is no data race: all words are atomic. The order (after Boehm, "Can seqlocks get along with programming language
//! memory models?", 2012):
//! - A reader that sees epoch `e` (acquire) sees all that its writer wrote before (release).
//! - The place of `e` is written again for `e + 2`, after `e + 1` was published. In between stands a release fence. If a
//!   reader's load of a value meets what was written for `e + 2`, that fence and the acquire fence behind the loads
//!   make `e + 1` visible to the reader's second look at the number, which is then not `e`: the values are not taken.
//! - The number is one atomic that only grows, so a reader never sees an older one than it saw before.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The two places and the number of the newest publication.
#[derive(Debug)]
pub(super) struct Latch {
    /// Zero before the first publication.
    epoch: AtomicU64,
    places: [Place; 2],
}

#[derive(Debug)]
struct Place {
    ticks: AtomicU64,
    ns: AtomicU64,
    values: Values,
}

/// The values of a publication, which may be overwritten while they are copied.
#[derive(Debug)]
pub(super) struct Values(Box<[AtomicU64]>);

impl Values {
    /// All values, if they are `N`.
    #[inline]
    pub(super) fn array<const N: usize>(&self) -> Option<[u64; N]> {
        let all: &[AtomicU64; N] = (*self.0).try_into().ok()?;
        Some(std::array::from_fn(|i| all[i].load(Ordering::Relaxed)))
    }

    /// Copies all values out, if they are as many as there is room for.
    #[inline]
    pub(super) fn copy(&self, values: &mut [u64]) -> Option<()> {
        let fits = self.0.len() == values.len();
        fits.then(|| {
            for (to, from) in values.iter_mut().zip(&self.0) {
                *to = from.load(Ordering::Relaxed);
            }
        })
    }
}

/// What a publication says beside its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When the values were read, by the CPU's counter.
    pub(super) ticks: u64,
    /// The same by the clock.
    pub(super) ns: u64,
}

impl Latch {
    /// Room for `len` values; `first` is what is read before the first publication.
    pub(super) fn new(len: usize, first: Entry) -> Self {
        let place = || Place {
            ticks: AtomicU64::new(first.ticks),
            ns: AtomicU64::new(first.ns),
            values: Values((0..len).map(|_| AtomicU64::new(0)).collect()),
        };
        Self { epoch: AtomicU64::new(0), places: [place(), place()] }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.places[0].values.0.len()
    }

    /// The newest publication: its epoch, what it says, and what `take` makes of its values. None when publications
    /// overtook the reader, or when `take` wants none of it.
    #[inline]
    pub(super) fn try_read<T>(&self, take: impl FnOnce(&Values) -> Option<T>) -> Option<(u64, Entry, T)> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let place = &self.places[epoch as usize & 1];
        let taken = take(&place.values)?;
        let entry =
            Entry { ticks: place.ticks.load(Ordering::Relaxed), ns: place.ns.load(Ordering::Relaxed) };
        fence(Ordering::Acquire);
        (self.epoch.load(Ordering::Relaxed) == epoch).then_some((epoch, entry, taken))
    }

    /// Publishes values, of which there are [`Latch::len`]. Only one may do so at a time.
    pub(super) fn publish(&self, entry: Entry, values: &[u64]) {
        let epoch = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        let place = &self.places[epoch as usize & 1];
        fence(Ordering::Release);
        place.ticks.store(entry.ticks, Ordering::Relaxed);
        place.ns.store(entry.ns, Ordering::Relaxed);
        for (to, from) in place.values.0.iter().zip(values) {
            to.store(*from, Ordering::Relaxed);
        }
        self.epoch.store(epoch, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
