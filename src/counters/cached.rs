//! What cached reads return: values, which read of the device they are of, and how old they are.

use std::ops::Deref;
use std::time::Duration;

/// Which read of the device values are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(super) epoch: u64,
    pub(super) taken_ns: u64,
}

impl Stamp {
    /// The number of the read: 1 for the first, and one more each time.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The moment before the device was asked, in nanoseconds of `CLOCK_MONOTONIC`; or of the caller's clock, after
    /// [`Snapshot::read_at`](crate::Snapshot::read_at).
    #[inline]
    pub fn taken_ns(&self) -> u64 {
        self.taken_ns
    }

    /// How old the values are at `now_ns` of the same clock.
    #[inline]
    pub fn age_at(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.taken_ns))
    }
}

/// Which read of the device values are of, and how old they were when they were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub(super) stamp: Stamp,
    pub(super) age_ns: u64,
}

impl Seen {
    /// Which read of the device they are of.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// How old they were at most. That is less than `max_age`, or as long as the device took if it was asked. Where the clock of
    /// the kernel is a coarse one, a step of it is added.
    #[inline]
    pub fn age(&self) -> Duration {
        Duration::from_nanos(self.age_ns)
    }

    /// The same in nanoseconds, for hot loops.
    #[inline]
    pub fn age_ns(&self) -> u64 {
        self.age_ns
    }
}

/// Values of one read of the device, and how old they were when they were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached<const N: usize> {
    pub(super) values: [u64; N],
    pub(super) seen: Seen,
}

impl<const N: usize> Cached<N> {
    /// The values, by index; zero where there is no point.
    #[inline]
    pub fn values(&self) -> [u64; N] {
        self.values
    }

    /// Which read of the device they are of.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.seen.stamp
    }

    /// How old they were; see [`Seen::age`].
    #[inline]
    pub fn age(&self) -> Duration {
        self.seen.age()
    }

    /// The same in nanoseconds, for hot loops.
    #[inline]
    pub fn age_ns(&self) -> u64 {
        self.seen.age_ns
    }
}

impl<const N: usize> Deref for Cached<N> {
    type Target = [u64; N];

    #[inline]
    fn deref(&self) -> &[u64; N] {
        &self.values
    }
}
