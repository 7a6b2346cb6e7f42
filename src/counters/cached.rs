//! The results of cached reads: values, the read of the device from which they come, and their age.

use std::ops::Deref;
use std::time::Duration;

/// Identifies the read of the device from which values come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(super) epoch: u64,
    pub(super) taken_ns: u64,
}

impl Stamp {
    /// The number of the read; the first is 1.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The time just before the device was read, in nanoseconds of `CLOCK_MONOTONIC`, or of the caller's clock after
    /// [`Snapshot::read_at`](crate::Snapshot::read_at).
    #[inline]
    pub fn taken_ns(&self) -> u64 {
        self.taken_ns
    }

    /// The age of the values at `now_ns` of the same clock.
    #[inline]
    pub fn age_at(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.taken_ns))
    }
}

/// The read of the device from which values come, and their age when they were returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub(super) stamp: Stamp,
    pub(super) age_ns: u64,
}

impl Seen {
    /// The read of the device from which they come.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The maximum age. It is less than `max_age`, or, if the device was read, the time that this took. If the kernel's clock is
    /// coarse, one step of it is added.
    #[inline]
    pub fn age(&self) -> Duration {
        Duration::from_nanos(self.age_ns)
    }

    /// The maximum age in nanoseconds, for hot loops.
    #[inline]
    pub fn age_ns(&self) -> u64 {
        self.age_ns
    }
}

/// Values of one read of the device, and their age when they were returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached<const N: usize> {
    pub(super) values: [u64; N],
    pub(super) seen: Seen,
}

impl<const N: usize> Cached<N> {
    /// The values, by index; zero at indices without a point.
    #[inline]
    pub fn values(&self) -> [u64; N] {
        self.values
    }

    /// The read of the device from which they come.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.seen.stamp
    }

    /// Their age; see [`Seen::age`].
    #[inline]
    pub fn age(&self) -> Duration {
        self.seen.age()
    }

    /// Their age in nanoseconds, for hot loops; see [`Seen::age`].
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
