//! The wait objects, and how one waits with each.

use std::hint::spin_loop;
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use uverbs::{CompletionCounter, WaitHandle, WaitObject, WaitSet};

use crate::Outcome;
use crate::failure::Failure;

/// What a thread waits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Object {
    /// The counter's own call, which sleeps.
    Unspecified,
    /// Arm the counter, then poll its file descriptor.
    Fd,
    /// Arm the counter, then sleep on its condition variable.
    MutexCond,
    /// The counter's own call, which looks again and again and gives the processor away in between.
    Yield,
    /// Arm the counter, then wait for the set that it belongs to.
    WaitSet,
    /// No wait at all: read again and again. What no wait can be below, if each thread has a processor.
    Busy,
    /// Each of the others.
    All,
}

impl Object {
    /// What `all` stands for.
    const EACH: [Self; 6] =
        [Self::Unspecified, Self::Fd, Self::MutexCond, Self::Yield, Self::WaitSet, Self::Busy];

    /// The objects that are meant, each once.
    pub(super) fn meant(objects: &[Self]) -> Vec<Self> {
        let all = objects.contains(&Self::All);
        Self::EACH.into_iter().filter(|object| all || objects.contains(object)).collect()
    }

    /// The name, as on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Fd => "fd",
            Self::MutexCond => "mutex-cond",
            Self::Yield => "yield",
            Self::WaitSet => "wait-set",
            Self::Busy => "busy",
            Self::All => "all",
        }
    }

    /// A counter to wait for in this way.
    pub(super) fn counter(self) -> Outcome<CompletionCounter> {
        let object = match self {
            Self::Unspecified => WaitObject::Unspecified,
            Self::Fd => WaitObject::FileDescriptor,
            Self::MutexCond => WaitObject::MutexCondvar,
            Self::Yield => WaitObject::Yield,
            Self::WaitSet => WaitObject::Set(WaitSet::new()),
            Self::Busy | Self::All => WaitObject::None,
        };
        Ok(CompletionCounter::new(object)?)
    }

    /// How one waits for such a counter.
    pub(super) fn waiter(self, counter: &CompletionCounter) -> Outcome<Waiter<'_>> {
        let how = match self {
            Self::Unspecified | Self::Yield => How::Call,
            Self::Busy | Self::All => How::Read,
            Self::Fd | Self::MutexCond | Self::WaitSet => match counter.wait_handle()? {
                WaitHandle::FileDescriptor(file) => How::File(file),
                WaitHandle::MutexCondvar(mutex, condvar) => How::Pair(mutex, condvar),
                WaitHandle::Set(set) => How::Set(set),
                other => return Err(Failure::Other(format!("no way to wait for {other:?}"))),
            },
        };
        Ok(Waiter { counter, how })
    }
}

/// Waits for a counter.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    counter: &'a CompletionCounter,
    how: How<'a>,
}

#[derive(Debug)]
enum How<'a> {
    Call,
    Read,
    File(BorrowedFd<'a>),
    Pair(&'a Mutex<()>, &'a Condvar),
    Set(&'a WaitSet),
}

impl Waiter<'_> {
    /// Returns when the counter has reached the threshold.
    #[inline]
    pub(super) fn wait(&self, threshold: u64) -> Outcome {
        let counter = self.counter;
        match &self.how {
            How::Call => counter.wait(threshold, None)?,
            How::Read => {
                while counter.read() < threshold {
                    spin_loop();
                }
            }
            How::File(file) => {
                if !counter.arm(threshold)? {
                    while counter.read() < threshold {
                        readable(*file)?;
                    }
                }
            }
            How::Pair(mutex, condvar) => {
                // Whoever notifies has the mutex, so nothing is missed after `arm`.
                let mut held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                if !counter.arm(threshold)? {
                    while counter.read() < threshold {
                        held = condvar.wait(held).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
            How::Set(set) => {
                // The set is signalled also if the threshold is reached already, and each signal must be taken.
                counter.arm(threshold)?;
                set.wait(None)?;
                while counter.read() < threshold {
                    set.wait(None)?;
                }
            }
        }
        Ok(())
    }
}

/// Waits until a file can be read.
fn readable(file: BorrowedFd<'_>) -> Outcome {
    let mut files = [PollFd::new(file, PollFlags::POLLIN)];
    loop {
        match poll(&mut files, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            result => return result.map(drop).map_err(|errno| Failure::Other(format!("poll: {errno}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn all_is_each_of_the_others_once() {
        let others: Vec<_> =
            Object::value_variants().iter().copied().filter(|object| *object != Object::All).collect();
        assert_eq!(Object::meant(&[Object::All]), others);
        assert_eq!(Object::meant(&[Object::Busy, Object::Fd, Object::Busy]), [Object::Fd, Object::Busy]);
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for object in Object::value_variants() {
            assert_eq!(object.to_possible_value().unwrap().get_name(), object.name());
            assert_eq!(serde_json::to_value(object).unwrap(), object.name());
        }
    }

    #[test]
    fn each_wait_ends_at_its_threshold_whether_it_is_there_before_or_not() {
        for object in Object::meant(&[Object::All]) {
            let counter = object.counter().unwrap();
            let waiter = object.waiter(&counter).unwrap();
            counter.add(2).unwrap();
            waiter.wait(1).unwrap();
            waiter.wait(2).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| (3..1000).for_each(|_| counter.add(1).unwrap()));
                for threshold in [3, 500, 999] {
                    waiter.wait(threshold).unwrap();
                    assert!(counter.read() >= threshold, "{object:?}");
                }
            });
        }
    }
}
