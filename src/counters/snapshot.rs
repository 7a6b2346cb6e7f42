//! Values of counters that are kept in user space, with their age.

use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::cached::{Cached, Seen, Stamp};
use super::latch::Values;
use super::refresh::{Cell, NONE, Publisher, Refresher, Source};
use super::{Counters, check_slots};
use crate::counters::clock::{self, Clock, Moment};
use crate::device::context::Context;
use crate::kernel::command::{CountersRead, READ_OP};
use crate::kernel::error::{Error, Result};

/// A cache of one counters object: all its values, from one read of the device, and the time of that read. Created by
/// [`Flow::snapshot`](crate::Flow::snapshot) or [`Counters::snapshot`].
///
/// If the values are fresh enough, a read costs about 30 instructions: no system call, no lock, no allocation. Otherwise one thread
/// reads the device, for all threads that wait. Any number of threads may read at the same time; they do not delay each other or
/// the thread that refreshes, which is a reader that found the values too old, or a [`Sampler`](crate::Sampler).
///
/// Guarantees:
/// - The values of one read belong together: they come from one read of the device.
/// - Values do not go back: no later read has an older [epoch](Stamp::epoch).
/// - Values are never older than reported, except for one part in 500 and a microsecond: the age counts from the time just before
///   the device was read. Like `CLOCK_MONOTONIC`, it excludes the time in which the machine was suspended.
/// - Only `max_age` decides whether cached values are returned. If the device cannot be read, the error is stored
///   ([`Snapshot::last_error`]) and the values become older. Callers that accept values of this age still get them; others try to
///   read the device and get the error of that attempt.
/// - When the last flow that counts, or the device, has gone, every read returns an error. So does every read in a child of `fork`.
///   A snapshot keeps neither the flow nor the counters alive.
///
/// Cheap to clone; clones are the same snapshot.
///
/// ```
/// # use std::time::Duration;
/// # use uverbs::{FlowRule, Point, SoftDevice};
/// # fn main() -> uverbs::Result<()> {
/// # let device = SoftDevice::default();
/// # let context = device.open()?;
/// # let cq = context.create_cq(16)?;
/// # let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
/// # let counters = context.create_counters()?;
/// # counters.attach(Point::Packets, 0)?;
/// # counters.attach(Point::Bytes, 1)?;
/// let flow = qp.create_flow(&FlowRule::normal(1).count(&counters))?;
/// let snapshot = counters.snapshot()?;
/// device.inject(&[0; 60]);
/// let seen = snapshot.read_cached::<2>(Duration::from_secs(60))?; // reads the device, because nothing has been read yet
/// assert_eq!(*seen, [1, 60]);
///
/// device.inject(&[0; 60]);
/// let seen = snapshot.read_cached::<2>(Duration::from_secs(60))?; // does not read the device
/// assert_eq!((*seen, seen.stamp().epoch()), ([1, 60], 1));
/// assert!(seen.age() < Duration::from_secs(60));
/// let seen = snapshot.read_cached::<2>(Duration::ZERO)?; // no value is young enough: reads the device
/// assert_eq!((*seen, seen.stamp().epoch()), ([2, 120], 2));
///
/// drop(flow);
/// assert!(snapshot.read_cached::<2>(Duration::from_secs(60)).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    cell: Arc<Cell>,
    refresher: Arc<Refresher>,
}

/// Reads one counters object.
#[derive(Debug)]
struct Single {
    command: CountersRead,
    values: Box<[u64]>,
    context: Context,
    publisher: Publisher,
}

impl Source for Single {
    fn refresh(&mut self, at: Moment) -> Result<()> {
        self.context.read_counters(&mut self.command, &mut self.values)?;
        self.publisher.publish(at, &self.values);
        Ok(())
    }
}

impl Counters {
    /// The cache of these counters. All callers get the same one while flows count into the counters.
    ///
    /// It sends no command before its first read.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) while no flow uses the counters.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.context().check_origin(READ_OP)?;
        let mut binding = self.binding();
        let kernel = self.kernel();
        let Some(needed) = kernel.slots else {
            return Err(Error::refused(
                READ_OP,
                Errno::EINVAL,
                "no flow uses these counters: create a flow that counts into them first",
            ));
        };
        let snapshot = binding.snapshot.get_or_insert_with(|| {
            let context = self.context().clone();
            let publisher = Publisher::new(&context, needed);
            let cell = publisher.cell();
            let source = Single {
                command: CountersRead::new(context.driver_id(), kernel.object.id(), 0),
                values: vec![0; needed].into(),
                publisher,
                context: context.clone(),
            };
            Snapshot::new(cell, Arc::new(Refresher::new(&context, Box::new(source))))
        });
        Ok(snapshot.clone())
    }
}

impl Snapshot {
    /// The reading end of a publisher. The owner of the publisher refreshes it.
    pub(crate) fn new(cell: Arc<Cell>, refresher: Arc<Refresher>) -> Self {
        Self { cell, refresher }
    }

    /// No more values will be published.
    pub(super) fn end(&self) {
        // Nothing is destroyed, so nothing fails.
        self.refresher.end_with(|| Ok(())).unwrap_or_default();
    }

    /// Identifies this snapshot.
    pub(super) fn key(&self) -> usize {
        Arc::as_ptr(&self.cell).addr()
    }

    pub(super) fn refresher(&self) -> &Arc<Refresher> {
        &self.refresher
    }

    /// The number of values: one more than the highest index with a point.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.cell.latch.len()
    }

    /// Returns the values. If they are older than `max_age`, it reads the device first.
    ///
    /// With a `max_age` of zero each call reads the device, like [`Counters::read`], but simultaneous calls share one command.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the last flow that counts has gone, and if `N` has no room for the
    /// highest index; [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and in a child of `fork`; errors
    /// of the device's firmware.
    #[inline]
    #[doc(alias = "ibv_read_counters")]
    pub fn read_cached<const N: usize>(&self, max_age: Duration) -> Result<Cached<N>> {
        let limit = clock::nanoseconds(max_age);
        match self.young(limit, |all| all.array()) {
            Some((seen, values)) => Ok(Cached { values, seen }),
            None => self.read_slowly(Clock::Monotonic, limit),
        }
    }

    /// Copies the values into a slice. If they are older than `max_age`, it reads the device first; see [`read_cached`](Self::read_cached).
    /// Elements beyond the highest index are set to zero. After an error the contents are unspecified.
    ///
    /// # Errors
    /// As [`Snapshot::read_cached`].
    #[inline]
    pub fn read_cached_into(&self, max_age: Duration, values: &mut [u64]) -> Result<Seen> {
        let limit = clock::nanoseconds(max_age);
        match self.young(limit, |all| all.copy(values)) {
            Some((seen, ())) => Ok(seen),
            None => self.read_slowly_into(Clock::Monotonic, limit, values),
        }
    }

    /// Returns the values, whose age is measured by the caller's own clock, which shows `now_ns`. If they are older than `max_age`, it
    /// reads the device first. The clock must be `CLOCK_MONOTONIC`, unless this snapshot is only ever read and sampled with this clock.
    /// Values that were read later than `now_ns` have age zero.
    ///
    /// For loops that read the time anyway, and for tests.
    ///
    /// # Errors
    /// As [`Snapshot::read_cached`].
    #[inline]
    pub fn read_at<const N: usize>(&self, now_ns: u64, max_age: Duration) -> Result<Cached<N>> {
        let limit = clock::nanoseconds(max_age);
        match self.young_at(now_ns, limit, |all| all.array()) {
            Some((seen, values)) => Ok(Cached { values, seen }),
            None => self.read_slowly(Clock::At(now_ns), limit),
        }
    }

    /// Copies the values into a slice, as [`read_cached_into`](Self::read_cached_into) does, with the clock of [`read_at`](Self::read_at).
    ///
    /// # Errors
    /// As [`Snapshot::read_cached`].
    #[inline]
    pub fn read_at_into(&self, now_ns: u64, max_age: Duration, values: &mut [u64]) -> Result<Seen> {
        let limit = clock::nanoseconds(max_age);
        match self.young_at(now_ns, limit, |all| all.copy(values)) {
            Some((seen, ())) => Ok(seen),
            None => self.read_slowly_into(Clock::At(now_ns), limit, values),
        }
    }

    /// The latest values, whatever their age. It reads no clock and never reads the device.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if nothing has been read yet, and those of [`Snapshot::read_cached`] except for
    /// errors of the firmware.
    #[inline]
    pub fn latest<const N: usize>(&self) -> Result<([u64; N], Stamp)> {
        match self.published(|all| all.array()) {
            Some((stamp, _, values)) if stamp.taken_ns != NONE => Ok((values, stamp)),
            _ => self.latest_slowly(),
        }
    }

    /// Copies the latest values into a slice, whatever their age; see [`latest`](Self::latest). Elements beyond the highest index are set
    /// to zero.
    ///
    /// # Errors
    /// As [`Snapshot::latest`].
    pub fn latest_into(&self, values: &mut [u64]) -> Result<Stamp> {
        self.newest(values)?.ok_or_else(nothing_yet)
    }

    /// The last publication, and its moment by the CPU's counter. `None` in a child of `fork`, if publications overtake the read, and if
    /// `take` returns `None`.
    #[inline]
    fn published<T>(&self, take: impl FnOnce(Values<'_>) -> Option<T>) -> Option<(Stamp, u64, T)> {
        if !self.cell.origin.is_here() {
            return None;
        }
        let (epoch, entry, taken) = self.cell.latch.try_read(take)?;
        Some((Stamp { epoch, taken_ns: entry.ns }, entry.ticks, taken))
    }

    /// The last values, if they are younger than `limit` by the CPU's counter.
    #[inline]
    fn young<T>(&self, limit: u64, take: impl FnOnce(Values<'_>) -> Option<T>) -> Option<(Seen, T)> {
        let (stamp, ticks, taken) = self.published(take)?;
        let age_ns = self.cell.rate.younger_than(limit, ticks)?;
        Some((Seen { stamp, age_ns }, taken))
    }

    /// The last values, if they are younger than `limit` at `now_ns`.
    #[inline]
    fn young_at<T>(
        &self,
        now_ns: u64,
        limit: u64,
        take: impl FnOnce(Values<'_>) -> Option<T>,
    ) -> Option<(Seen, T)> {
        let (stamp, _, taken) = self.published(take)?;
        let age_ns = now_ns.saturating_sub(stamp.taken_ns);
        (stamp.taken_ns != NONE && age_ns < limit).then_some((Seen { stamp, age_ns }, taken))
    }

    /// Reads the device now, unless another thread has started to do so since the call.
    ///
    /// # Errors
    /// As [`Snapshot::read_cached`].
    pub fn refresh(&self) -> Result<()> {
        self.refresher.refresh(Clock::Monotonic, || false)
    }

    /// The error of the last read of the device; `None` if it succeeded. The snapshot remains usable. In a child of `fork`, the
    /// error that the snapshot belongs to the parent.
    pub fn last_error(&self) -> Option<Error> {
        self.refresher.failure()
    }

    /// Whether no further values will arrive, because the last flow that counts, or the device, has gone.
    pub fn has_ended(&self) -> bool {
        self.cell.has_ended()
    }

    #[cold]
    fn read_slowly<const N: usize>(&self, clock: Clock, limit: u64) -> Result<Cached<N>> {
        let mut values = [0; N];
        let seen = self.read_slowly_into(clock, limit, &mut values)?;
        Ok(Cached { values, seen })
    }

    #[cold]
    fn latest_slowly<const N: usize>(&self) -> Result<([u64; N], Stamp)> {
        let mut values = [0; N];
        let stamp = self.latest_into(&mut values)?;
        Ok((values, stamp))
    }

    #[cold]
    fn read_slowly_into(&self, clock: Clock, limit: u64, values: &mut [u64]) -> Result<Seen> {
        let aged = |stamp: Stamp| Seen { stamp, age_ns: clock.age(stamp.taken_ns) };
        let is_young = |seen: &Seen| seen.age_ns < limit;
        if let Some(seen) = self.newest(values)?.map(aged).filter(is_young) {
            return Ok(seen);
        }
        let is_enough = || matches!(self.newest(values), Ok(Some(stamp)) if is_young(&aged(stamp)));
        self.refresher.refresh(clock, is_enough)?;
        self.newest(values)?.map(aged).ok_or_else(nothing_yet)
    }

    /// The newest publication, if there is one.
    fn newest(&self, values: &mut [u64]) -> Result<Option<Stamp>> {
        self.cell.origin.check(READ_OP)?;
        check_slots(READ_OP, values.len(), self.len())?;
        let (values, rest) = values.split_at_mut(self.len());
        rest.fill(0);
        let (epoch, entry) = loop {
            if let Some((epoch, entry, ())) = self.cell.latch.try_read(|all| all.copy(values)) {
                break (epoch, entry);
            }
            std::hint::spin_loop();
        };
        if self.has_ended() {
            return Err(self.refresher.why_it_ended());
        }
        Ok((epoch > 0).then_some(Stamp { epoch, taken_ns: entry.ns }))
    }
}

fn nothing_yet() -> Error {
    Error::refused(
        READ_OP,
        Errno::ENODATA,
        "nothing has been read yet: call `refresh`, or add the snapshot to a sampler",
    )
}
