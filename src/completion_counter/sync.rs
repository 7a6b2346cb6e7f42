//! Types for synchronization: those of the standard library, or those of loom, which tries every order of events.

#[cfg(all(test, uverbs_loom))]
pub(super) use loom::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park},
};
#[cfg(not(all(test, uverbs_loom)))]
pub(super) use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park},
};

#[cfg(not(all(test, uverbs_loom)))]
pub(super) use std::thread::park_timeout;

/// loom has no clock: a thread that waits with a time limit only yields to the other threads.
#[cfg(all(test, uverbs_loom))]
pub(super) fn park_timeout(_limit: std::time::Duration) {
    loom::thread::yield_now();
}

/// Takes a lock, even if a thread has panicked while it held it. The data is consistent in that case: every change under these
/// locks is complete before anything in it can panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
