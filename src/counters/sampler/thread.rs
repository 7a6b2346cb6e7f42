//! A thread that samples.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;

use super::{Sampler, SamplerReport, Set};
use crate::counters::Snapshot;
use crate::counters::clock::Clock;
use crate::kernel::error::{Error, Result};

impl Sampler {
    /// Starts a thread that ticks until its handle is dropped.
    ///
    /// # Errors
    /// That of `pthread_create`.
    pub fn spawn(mut self) -> Result<SamplerThread> {
        let (set, stop) = (self.set.clone(), Arc::new(Stop::default()));
        let until = stop.clone();
        let builder = std::thread::Builder::new().name("uverbs-sampler".into());
        let work = move || {
            let mut wait = Duration::ZERO;
            while !until.after(wait) {
                wait = self.step(Clock::Monotonic, || !until.is_said.load(Ordering::Relaxed)).wait;
            }
        };
        let thread = builder.spawn(work).map_err(|error| {
            Error::kernel("sampler.spawn", error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw))
        })?;
        Ok(SamplerThread { set, stop, thread: Some(thread) })
    }
}

/// The request that the thread end.
#[derive(Debug, Default)]
struct Stop {
    /// Whether the end is requested, as `now` says too, for callers that do not wait.
    is_said: AtomicBool,
    now: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Whether to end: returns after `wait`, or immediately when the end is requested.
    fn after(&self, wait: Duration) -> bool {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if wait.is_zero() {
            return *now;
        }
        let (now, _) =
            self.changed.wait_timeout_while(now, wait, |now| !*now).unwrap_or_else(PoisonError::into_inner);
        *now
    }

    fn say(&self) {
        self.is_said.store(true, Ordering::Relaxed);
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// A thread that refreshes snapshots. It ends when this handle is dropped: immediately, or after the command in progress.
///
/// Snapshots can be read, added and removed at any time. A child of `fork` has this handle, but not the thread: adding and
/// removing have no effect there, and the report is empty.
#[derive(Debug)]
pub struct SamplerThread {
    set: Arc<Set>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl SamplerThread {
    /// Adds a snapshot, which is refreshed from the next round on; no effect if it was added already.
    pub fn add(&self, snapshot: &Snapshot) {
        self.set.add(snapshot);
    }

    /// Removes a snapshot and returns whether it was there.
    pub fn remove(&self, snapshot: &Snapshot) -> bool {
        self.set.remove(snapshot)
    }

    /// What was done so far, and how late.
    pub fn report(&self) -> SamplerReport {
        self.set.report()
    }
}

impl Drop for SamplerThread {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // In a child of `fork` the thread does not exist, and what it had locked stays locked.
        if self.set.origin.is_here() {
            self.stop.say();
            // The thread does not panic; if it did, it has ended.
            let _ = thread.join();
        } else {
            std::mem::forget(thread);
        }
    }
}
