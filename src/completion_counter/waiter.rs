//! Somebody who waits for a counter: a thread, a task, or a thread that sleeps on files.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use nix::sys::eventfd::EventFd;

use super::sync::{AtomicU8, Mutex, Ordering, Thread, lock, park, park_timeout};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The counter has come to the threshold.
    Reached,
    /// The error value has changed.
    Failed,
}

const OPEN: u8 = 0;
const REACHED: u8 = 1;
const FAILED: u8 = 2;

/// One who waits. The outcome is written once, under the counter's lock, when the waiter is taken from its list; so
/// whoever is in the list is still waiting.
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
    /// The thread that calls this.
    pub(super) fn thread(threshold: u64) -> Arc<Self> {
        Self::new(threshold, Sleeper::Thread(super::sync::current()))
    }

    /// A task; [`Waiter::watch`] says how it is woken.
    pub(super) fn task(threshold: u64) -> Arc<Self> {
        Self::new(threshold, Sleeper::Task(Mutex::new(None)))
    }

    /// Whoever watches a file.
    pub(super) fn file(threshold: u64, file: Arc<EventFd>) -> Arc<Self> {
        Self::new(threshold, Sleeper::File(file))
    }

    fn new(threshold: u64, sleeper: Sleeper) -> Arc<Self> {
        Arc::new(Self { threshold, outcome: AtomicU8::new(OPEN), sleeper })
    }

    /// How the wait ended, if it has.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.outcome.load(Ordering::Acquire) {
            REACHED => Some(Outcome::Reached),
            FAILED => Some(Outcome::Failed),
            _ => None,
        }
    }

    pub(super) fn finish(&self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Reached => REACHED,
            Outcome::Failed => FAILED,
        };
        self.outcome.store(outcome, Ordering::Release);
    }

    /// Wakes it, after [`Waiter::finish`].
    pub(super) fn wake(&self) {
        match &self.sleeper {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => {
                // Taken out first: a waker is foreign code.
                let waker = lock(waker).take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            // It is written once, so it has room.
            Sleeper::File(file) => {
                let _ = file.write(1);
            }
        }
    }

    /// A task: `waker` wakes it from now on. The outcome must be looked at after this.
    pub(super) fn watch(&self, waker: &Waker) {
        if let Sleeper::Task(known) = &self.sleeper {
            *lock(known) = Some(waker.clone());
        }
    }

    /// A thread: sleeps until there is an outcome, or until the deadline.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> Option<Outcome> {
        loop {
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            // Somebody else may unpark this thread: then it looks, and sleeps for what is left.
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
