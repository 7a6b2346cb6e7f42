//! A waiter for a counter: a thread, a task, or a thread that sleeps on files.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use nix::sys::eventfd::EventFd;

use super::sync::{AtomicU8, Mutex, Ordering, Thread, lock, park, park_timeout};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The counter has reached the threshold.
    Reached,
    /// The error value has changed.
    Failed,
    /// The wait was cancelled.
    Cancelled,
}

const OPEN: u8 = 0;
const REACHED: u8 = 1;
const FAILED: u8 = 2;
const CANCELLED: u8 = 3;

/// One waiter. The outcome is written once, under the counter's lock, when the waiter is removed from the list. A waiter in the
/// list is therefore still waiting.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) threshold: u64,
    outcome: AtomicU8,
    sleeper: Sleeper,
}

/// How the waiter is woken.
#[derive(Debug)]
enum Sleeper {
    Thread(Thread),
    Task(Mutex<Option<Waker>>),
    /// The file becomes readable.
    File(Arc<EventFd>),
}

impl Waiter {
    /// A waiter for the current thread.
    pub(super) fn thread(threshold: u64) -> Arc<Self> {
        Self::new(threshold, Sleeper::Thread(super::sync::current()))
    }

    /// A waiter for a task; see [`Waiter::watch`].
    pub(super) fn task(threshold: u64) -> Arc<Self> {
        Self::new(threshold, Sleeper::Task(Mutex::new(None)))
    }

    /// A waiter that makes a file readable.
    pub(super) fn file(threshold: u64, file: Arc<EventFd>) -> Arc<Self> {
        Self::new(threshold, Sleeper::File(file))
    }

    fn new(threshold: u64, sleeper: Sleeper) -> Arc<Self> {
        Arc::new(Self { threshold, outcome: AtomicU8::new(OPEN), sleeper })
    }

    /// The outcome, if the wait has ended.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.outcome.load(Ordering::Acquire) {
            REACHED => Some(Outcome::Reached),
            FAILED => Some(Outcome::Failed),
            CANCELLED => Some(Outcome::Cancelled),
            _ => None,
        }
    }

    pub(super) fn finish(&self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Reached => REACHED,
            Outcome::Failed => FAILED,
            Outcome::Cancelled => CANCELLED,
        };
        self.outcome.store(outcome, Ordering::Release);
    }

    /// Wakes the waiter, after [`Waiter::finish`].
    pub(super) fn wake(&self) {
        match &self.sleeper {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => {
                // The lock is released first, because a waker runs other code.
                let waker = lock(waker).take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            // The file is written only once, so the write cannot block.
            Sleeper::File(file) => {
                let _ = file.write(1);
            }
        }
    }

    /// Sets the waker of a task. The outcome must be checked after this call.
    pub(super) fn watch(&self, waker: &Waker) {
        if let Sleeper::Task(known) = &self.sleeper {
            *lock(known) = Some(waker.clone());
        }
    }

    /// Sleeps until there is an outcome, or until the deadline. For threads.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> Option<Outcome> {
        loop {
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            // Other code may unpark this thread. It then checks the outcome and sleeps for the time that remains.
            match deadline {
                None => park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    park_timeout(left);
                }
            }
        }
    }
}
