//! What threads share: the standard library's, or loom's, which tries every order of events.

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

/// loom has no clock: a thread that waits with a limit waits for somebody else.
#[cfg(all(test, uverbs_loom))]
pub(super) fn park_timeout(_limit: std::time::Duration) {
    loom::thread::yield_now();
}

/// Takes a lock. A thread that panicked with it in its hand has left nothing half done: each change under these locks
/// is whole before anything in it can panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
