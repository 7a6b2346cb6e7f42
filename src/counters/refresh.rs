//! Who asks the device for the values of snapshots: one at a time, for all who wait.
//!
//! The three parts, for whoever has another way to read counters (one command for many, say):
//! - a [`Source`] reads the device with one command, and owns a [`Publisher`] for each snapshot that it feeds;
//! - a [`Refresher`] owns the source, and sees to it that commands do not pile up;
//! - `Snapshot::new` puts the reading end of one publisher ([`Cell`]) and the refresher together. A stale read through any of these
//!   snapshots refreshes all of them, and a `Sampler` that was given several of them sends one command for all.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::latch::{Entry, Latch};
use crate::counters::clock::{Clock, Moment, NEVER, Rate};
use crate::device::context::Context;
use crate::kernel::command::READ_OP;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::process::Origin;

/// Reads the device for one snapshot or for many.
pub(crate) trait Source: fmt::Debug + Send {
    /// Asks the device, and publishes what it answers as of `at`, the moment before it was asked: values are never older
    /// than they are said to be. On failure nothing is published.
    ///
    /// # Errors
    /// Those of the device. After [`Disassociated`](ErrorKind::Disassociated) it is not called again, but dropped.
    fn refresh(&mut self, at: Moment) -> Result<()>;
}

/// What a publication without values says of its moment.
pub(super) const NONE: u64 = 0;
const NOTHING: Entry = Entry { ticks: NEVER, ns: NONE };

/// What readers of a snapshot look at.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(super) latch: Latch,
    pub(super) origin: Origin,
    pub(super) rate: Rate,
    ended: AtomicBool,
}

impl Cell {
    /// Whether no values will come any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// The writing end of one snapshot. When it is dropped the snapshot has ended, and every read says so.
#[derive(Debug)]
pub(crate) struct Publisher(Arc<Cell>);

impl Publisher {
    /// Of a snapshot of `len` values.
    pub(crate) fn new(context: &Context, len: usize) -> Self {
        let latch = Latch::new(len, NOTHING);
        let (origin, rate) = (context.origin(), Rate::of_counter());
        Self(Arc::new(Cell { latch, origin, rate, ended: AtomicBool::new(false) }))
    }

    /// The reading end.
    pub(crate) fn cell(&self) -> Arc<Cell> {
        self.0.clone()
    }

    /// Publishes values that were read at a moment: as many as the snapshot has.
    pub(crate) fn publish(&mut self, at: Moment, values: &[u64]) {
        self.0.latch.publish(Entry { ticks: at.ticks, ns: at.ns }, values);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        // What is published last is never young, so that the fresh path need not ask for the end.
        self.0.latch.publish(NOTHING, &[]);
    }
}

/// Owns a source, and lets one at a time refresh from it.
#[derive(Debug)]
pub(crate) struct Refresher {
    origin: Origin,
    /// How many commands have been begun.
    begun: AtomicU64,
    /// One more than the moment before the last one that succeeded, by the clock of who sent it; zero before.
    refreshed: AtomicU64,
    /// None when there is nothing to read any more.
    source: Mutex<Option<Box<dyn Source>>>,
    /// Whether the last command failed.
    has_failed: AtomicBool,
    /// Why, if it did.
    failure: Mutex<Option<Error>>,
}

impl Refresher {
    pub(crate) fn new(context: &Context, source: Box<dyn Source>) -> Self {
        Self {
            origin: context.origin(),
            begun: AtomicU64::new(0),
            refreshed: AtomicU64::new(0),
            source: Mutex::new(Some(source)),
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Has the device asked, unless `is_enough` finds that another has just done it.
    ///
    /// Whoever comes while a command is under way waits for it. If its values will not do, one of those who
    /// wait sends the next command, and its result is that of all of them: it was begun after they came.
    ///
    /// # Errors
    /// Those of the device, and of snapshots that have ended.
    pub(crate) fn refresh(&self, clock: Clock, is_enough: impl FnOnce() -> bool) -> Result<()> {
        self.refresh_at(|| clock.now(), is_enough)
    }

    /// The same by a clock that `now` looks at, right before the device is asked.
    ///
    /// # Errors
    /// As [`Refresher::refresh`].
    #[inline]
    pub(crate) fn refresh_at(
        &self,
        now: impl FnOnce() -> Moment,
        is_enough: impl FnOnce() -> bool,
    ) -> Result<()> {
        self.origin.check(READ_OP)?;
        let before = self.begun.load(Ordering::Acquire);
        let mut source = lock(&self.source);
        if self.begun.load(Ordering::Relaxed) != before {
            return self.result_of_another();
        }
        if is_enough() {
            return Ok(());
        }
        let Some(reads) = source.as_mut() else { return Err(self.why_it_ended()) };
        self.begun.store(before.wrapping_add(1), Ordering::Release);
        let at = now();
        match reads.refresh(at) {
            Ok(()) => {
                self.refreshed.store(at.ns.saturating_add(1), Ordering::Relaxed);
                self.has_failed.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.fail(&mut source, &error);
                Err(error)
            }
        }
    }

    /// Keeps the error of a command, and drops the source when that was the last one.
    #[cold]
    #[inline(never)]
    fn fail(&self, source: &mut Option<Box<dyn Source>>, error: &Error) {
        if error.kind() == ErrorKind::Disassociated {
            *source = None;
        }
        *lock(&self.failure) = Some(error.clone());
        self.has_failed.store(true, Ordering::Release);
    }

    /// What came of the command that was waited for.
    #[cold]
    #[inline(never)]
    fn result_of_another(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Whether there are values that were read at `ns` or later.
    pub(super) fn is_refreshed_since(&self, ns: u64) -> bool {
        self.refreshed.load(Ordering::Relaxed) > ns
    }

    /// Why the last command failed; none if it did not.
    pub(crate) fn failure(&self) -> Option<Error> {
        let kept = || self.has_failed.load(Ordering::Acquire).then(|| lock(&self.failure).clone()).flatten();
        self.origin.check(READ_OP).err().or_else(kept)
    }

    /// Destroys what the source reads, with no command under way, and ends the snapshots if that went well.
    pub(crate) fn end_with(&self, destroy: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.origin.is_here() {
            // The lock may have been held by a thread that a child of `fork` does not have.
            return destroy();
        }
        let mut source = lock(&self.source);
        destroy()?;
        *source = None;
        Ok(())
    }

    /// The error of snapshots that have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn why_it_ended(&self) -> Error {
        let ended = || {
            let hint = "the snapshot has ended: the last flow that counts has gone";
            Error::refused(READ_OP, Errno::EINVAL, hint)
        };
        self.failure().filter(|error| error.kind() == ErrorKind::Disassociated).unwrap_or_else(ended)
    }

    /// Whether there is nothing to read any more, or not for this process.
    pub(super) fn has_ended(&self) -> bool {
        !self.origin.is_here() || lock(&self.source).is_none()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
