//! Reads the device for snapshots: one thread at a time, on behalf of all that wait.
//!
//! The three parts, for code that reads counters in another way (many with one command, for example):
//! - a [`Source`] reads the device with one command, and owns a [`Publisher`] for each snapshot that it feeds;
//! - a [`Refresher`] owns the source, and prevents commands from piling up;
//! - `Snapshot::new` combines the reading end of one publisher ([`Cell`]) with the refresher. A stale read through any of these snapshots
//!   refreshes all of them, and a `Sampler` that was given several of them sends one command for all.

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
    /// Reads the device, and publishes the values with the time `at`, the moment before the read: values are never older than reported.
    /// If the read fails, nothing is published.
    ///
    /// # Errors
    /// Those of the device. After [`Disassociated`](ErrorKind::Disassociated) the source is dropped and not called again.
    fn refresh(&mut self, at: Moment) -> Result<()>;
}

/// The moment of a publication without values.
pub(super) const NONE: u64 = 0;
const NOTHING: Entry = Entry { ticks: NEVER, ns: NONE };

/// The part of a snapshot that readers use.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(super) latch: Latch,
    pub(super) origin: Origin,
    pub(super) rate: Rate,
    ended: AtomicBool,
}

impl Cell {
    /// Whether no more values will be published.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// The writing end of one snapshot. When it is dropped, the snapshot has ended, and every read reports this.
#[derive(Debug)]
pub(crate) struct Publisher(Arc<Cell>);

impl Publisher {
    /// For a snapshot of `len` values.
    pub(crate) fn new(context: &Context, len: usize) -> Self {
        let latch = Latch::new(len, NOTHING);
        let (origin, rate) = (context.origin(), Rate::of_counter());
        Self(Arc::new(Cell { latch, origin, rate, ended: AtomicBool::new(false) }))
    }

    /// The reading end.
    pub(crate) fn cell(&self) -> Arc<Cell> {
        self.0.clone()
    }

    /// Publishes the values that were read at this moment. Their number is that of the snapshot.
    pub(crate) fn publish(&mut self, at: Moment, values: &[u64]) {
        self.0.latch.publish(Entry { ticks: at.ticks, ns: at.ns }, values);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        // The last publication is never fresh, so the fast path does not have to check for the end.
        self.0.latch.publish(NOTHING, &[]);
    }
}

/// Owns a source, and lets one thread at a time refresh from it.
#[derive(Debug)]
pub(crate) struct Refresher {
    origin: Origin,
    /// Number of commands that were begun.
    begun: AtomicU64,
    /// The moment before the last command that succeeded, plus one, by the clock of its caller; zero before that.
    refreshed: AtomicU64,
    /// `None` if there is nothing more to read.
    source: Mutex<Option<Box<dyn Source>>>,
    /// Whether the last command failed.
    has_failed: AtomicBool,
    /// The error, if it failed.
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

    /// Reads the device, unless `is_enough` finds that another thread has just done it.
    ///
    /// A thread that arrives while a command is in progress waits for it. If the values are not good enough, one of the waiting threads
    /// sends the next command, and its result is that of all of them, because it was begun after they arrived.
    ///
    /// # Errors
    /// Those of the device, and of snapshots that have ended.
    pub(crate) fn refresh(&self, clock: Clock, is_enough: impl FnOnce() -> bool) -> Result<()> {
        self.refresh_at(|| clock.now(), is_enough)
    }

    /// Reads the device as [`Refresher::refresh`] does, with a clock that `now` reads immediately before the device is read.
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

    /// Keeps the error of a command, and drops the source if no more commands are possible.
    #[cold]
    fn fail(&self, source: &mut Option<Box<dyn Source>>, error: &Error) {
        if error.kind() == ErrorKind::Disassociated {
            *source = None;
        }
        *lock(&self.failure) = Some(error.clone());
        self.has_failed.store(true, Ordering::Release);
    }

    /// The result of the command for which this thread has waited.
    #[cold]
    fn result_of_another(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Whether there are values that were read at `ns` or later.
    pub(super) fn is_refreshed_since(&self, ns: u64) -> bool {
        self.refreshed.load(Ordering::Relaxed) > ns
    }

    /// Why the last command failed; `None` if it did not.
    pub(crate) fn failure(&self) -> Option<Error> {
        let kept = || self.has_failed.load(Ordering::Acquire).then(|| lock(&self.failure).clone()).flatten();
        self.origin.check(READ_OP).err().or_else(kept)
    }

    /// Destroys the object that the source reads, while no command is in progress, and ends the snapshots if this succeeds.
    pub(crate) fn end_with(&self, destroy: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.origin.is_here() {
            // In a child of `fork`, the lock may be held by a thread that does not exist there.
            return destroy();
        }
        let mut source = lock(&self.source);
        destroy()?;
        *source = None;
        Ok(())
    }

    /// The error for snapshots that have ended.
    #[cold]
    pub(super) fn why_it_ended(&self) -> Error {
        let ended = || {
            let hint = "the snapshot has ended: the last flow that counts has gone";
            Error::refused(READ_OP, Errno::EINVAL, hint)
        };
        self.failure().filter(|error| error.kind() == ErrorKind::Disassociated).unwrap_or_else(ended)
    }

    /// Whether there is nothing more to read, or not in this process.
    pub(super) fn has_ended(&self) -> bool {
        !self.origin.is_here() || lock(&self.source).is_none()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
