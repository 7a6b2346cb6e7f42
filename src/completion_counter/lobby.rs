//! Those who wait for a counter.

use std::sync::Arc;

use super::cancel::{Cancel, Cancels};
use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use super::waiter::{Outcome, Waiter};
use crate::kernel::process::Origin;

/// Value of [`Waiting::lowest`] when there are no waiters. A waiter with just this threshold is woken too, because the value reaches it.
const NOBODY: u64 = u64::MAX;

/// The list, and who else waits. It is apart from the counter, because a canceller keeps it and not the counter.
#[derive(Debug)]
pub(super) struct Lobby {
    /// The process that owns the counter. It is checked before the lock is taken, because a child of `fork` must not wait for
    /// that lock, and because the wait object belongs to the parent.
    pub(super) origin: Origin,
    waiting: Mutex<Waiting>,
    /// The number of cancels, for those who look without the lock. Written only under it.
    cancels: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) list: Vec<Arc<Waiter>>,
    /// The threshold for which the wait object is armed.
    pub(super) armed: Option<u64>,
    pub(super) cancels: Cancels,
}

impl Waiting {
    pub(super) fn lowest(&self) -> u64 {
        let thresholds = self.list.iter().map(|waiter| waiter.threshold).chain(self.armed);
        thresholds.min().unwrap_or(NOBODY)
    }

    /// Removes a waiter. Returns false if it is no longer in the list.
    pub(super) fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        let before = self.list.len();
        self.list.retain(|known| !Arc::ptr_eq(known, waiter));
        self.list.len() < before
    }
}

impl Lobby {
    pub(super) fn new(armed: Option<u64>) -> Arc<Self> {
        let waiting = Waiting { armed, ..Waiting::default() };
        Arc::new(Self { origin: Origin::here(), waiting: Mutex::new(waiting), cancels: AtomicU64::new(0) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Whether a wait that began after so many cancels was ended by another one.
    pub(super) fn has_ended(&self, cancels: u64) -> bool {
        self.cancels.load(Ordering::Acquire) != cancels
    }
}

impl Cancel for Lobby {
    fn cancel(&self) {
        if !self.origin.is_here() {
            return;
        }
        let mut waiting = self.lock();
        waiting.cancels.cancel();
        self.cancels.store(waiting.cancels.count(), Ordering::Release);
        let told = std::mem::take(&mut waiting.list);
        for waiter in &told {
            waiter.finish(Outcome::Cancelled);
        }
        // The counter's own copy of the lowest threshold stays: an adder that reaches it finds nobody, and writes the right one.
        drop(waiting);
        for waiter in told {
            waiter.wake();
        }
    }
}

/// A wait in progress, from its beginning to its end, whether or not it is in the list.
#[derive(Debug)]
pub(super) struct Presence<'a> {
    pub(super) lobby: &'a Lobby,
    /// Number of changes of the error value, and of cancels, when the wait began.
    pub(super) failures: u64,
    pub(super) cancels: u64,
}

impl Presence<'_> {
    /// Makes failures count from an earlier time.
    pub(super) fn since(mut self, failures: u64) -> Self {
        self.failures = failures;
        self
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if self.lobby.origin.is_here() {
            self.lobby.lock().cancels.leave();
        }
    }
}
