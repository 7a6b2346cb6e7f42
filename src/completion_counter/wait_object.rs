//! Wait objects: ways to be notified that a counter has reached the value for which it is armed.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::cancel::{Cancel, Canceller, Cancels};
use crate::kernel::error::{Error, Result};
use crate::kernel::process::Origin;

/// How threads wait for a [`CompletionCounter`](super::CompletionCounter) to reach a threshold.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[doc(alias = "fi_wait_obj")]
pub enum WaitObject {
    /// No waiting: the counter is only read.
    #[default]
    #[doc(alias = "FI_WAIT_NONE")]
    None,
    /// Threads wait with the counter's own calls; the crate chooses the method.
    #[doc(alias = "FI_WAIT_UNSPEC")]
    Unspecified,
    /// A set of counters for which one thread waits.
    #[doc(alias = "FI_WAIT_SET")]
    Set(WaitSet),
    /// A file descriptor that becomes readable, for `select(2)`, `poll(2)` and `epoll(7)`.
    #[doc(alias = "FI_WAIT_FD")]
    FileDescriptor,
    /// A mutex and a condition variable, which is notified.
    #[doc(alias = "FI_WAIT_MUTEX_COND")]
    MutexCondvar,
    /// A waiting thread reads the value repeatedly and yields the processor in between.
    #[doc(alias = "FI_WAIT_YIELD")]
    Yield,
}

/// The object behind a wait object, for use with other calls; see
/// [`CompletionCounter::wait_handle`](super::CompletionCounter::wait_handle).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WaitHandle<'a> {
    /// For [`WaitObject::FileDescriptor`]: readable when the counter has reached the value for which it is armed.
    FileDescriptor(BorrowedFd<'a>),
    /// For [`WaitObject::MutexCondvar`]: the variable is notified, with the mutex held, when the counter reaches the value for
    /// which it is armed.
    MutexCondvar(&'a Mutex<()>, &'a Condvar),
    /// For [`WaitObject::Set`]: the set.
    Set(&'a WaitSet),
}

/// The object that is signalled.
#[derive(Debug)]
pub(super) enum Signal {
    None,
    Unspecified,
    Yield,
    File(EventFd),
    Pair(Mutex<()>, Condvar),
    Set(WaitSet),
}

impl Signal {
    pub(super) fn new(op: &'static str, object: WaitObject) -> Result<Self> {
        Ok(match object {
            WaitObject::None => Self::None,
            WaitObject::Unspecified => Self::Unspecified,
            WaitObject::Yield => Self::Yield,
            WaitObject::Set(set) => Self::Set(set),
            WaitObject::MutexCondvar => Self::Pair(Mutex::default(), Condvar::new()),
            WaitObject::FileDescriptor => Self::File(event_file(op)?),
        })
    }

    /// Whether the signal is set.
    pub(super) fn is_signalled(&self) -> bool {
        matches!(self, Self::File(_) | Self::Pair(..) | Self::Set(_))
    }

    /// Clears the signal.
    pub(super) fn clear(&self) {
        if let Self::File(file) = self {
            // An empty file is not an error.
            let _ = file.read();
        }
    }

    /// Sets the signal, under the counter's lock, so that this and [`Signal::clear`] are ordered.
    pub(super) fn raise(&self) {
        match self {
            // It is cleared before it is armed again, so the write cannot block.
            Self::File(file) => {
                let _ = file.write(1);
            }
            Self::Set(set) => set.raise(),
            _ => {}
        }
    }

    /// Notifies waiters. Not under the counter's lock, because a thread that holds the mutex may arm the counter.
    pub(super) fn notify(&self) {
        if let Self::Pair(mutex, condvar) = self {
            let _held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            condvar.notify_all();
        }
    }

    pub(super) fn handle(&self) -> Option<WaitHandle<'_>> {
        match self {
            Self::File(file) => Some(WaitHandle::FileDescriptor(file.as_fd())),
            Self::Pair(mutex, condvar) => Some(WaitHandle::MutexCondvar(mutex, condvar)),
            Self::Set(set) => Some(WaitHandle::Set(set)),
            _ => None,
        }
    }
}

/// A file that can be made readable.
pub(crate) fn event_file(op: &'static str) -> Result<EventFd> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    EventFd::from_flags(flags).map_err(|errno| Error::kernel(op, errno))
}

/// A set of counters for which one thread waits.
///
/// A counter belongs to the set that it was created with, as its [`WaitObject::Set`]. When it reaches the value for which it is
/// [armed](super::CompletionCounter::arm), the set is signalled. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use uverbs::{CompletionCounter, ErrorKind, WaitObject, WaitSet};
/// # fn main() -> uverbs::Result<()> {
/// let set = WaitSet::new();
/// let [sent, received] = [(); 2].map(|()| CompletionCounter::new(WaitObject::Set(set.clone())));
/// let (sent, received) = (sent?, received?);
/// sent.arm(10)?;
/// received.arm(2)?;
/// let refused = set.wait(Some(Duration::ZERO)).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::TimedOut);
/// received.add(2)?;
/// set.wait(None)?;
/// assert_eq!((sent.read(), received.read()), (0, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "fi_wait_open")]
#[doc(alias = "fid_wait")]
pub struct WaitSet(Arc<WaitSetCore>);

impl Default for WaitSet {
    fn default() -> Self {
        Self(Arc::new(WaitSetCore {
            origin: Origin::here(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }))
    }
}

#[derive(Debug)]
struct WaitSetCore {
    /// Checked before the lock, for which a child of `fork` must not wait.
    origin: Origin,
    waiting: Mutex<SetWaits>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SetWaits {
    is_signalled: bool,
    cancels: Cancels,
}

impl Cancel for WaitSetCore {
    fn cancel(&self) {
        if self.origin.is_here() {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).cancels.cancel();
            self.changed.notify_all();
        }
    }
}

impl WaitSet {
    /// A set without counters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until a counter of the set has reached the value for which it is armed, or its error value has changed while it was
    /// armed; without a `timeout`, forever. Signals since the last wait count. Each signal ends one wait, so only one thread
    /// should wait for a set.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut) after `timeout`; [`Cancelled`](crate::ErrorKind::Cancelled) if a
    /// [canceller](Self::canceller) has ended the wait; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    #[doc(alias = "fi_wait")]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        self.0.origin.check("wait_set.wait")?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut waiting.is_signalled) {
            return Ok(());
        }
        let Some(cancels) = waiting.cancels.enter() else { return Err(cancelled()) };
        let end = loop {
            if std::mem::take(&mut waiting.is_signalled) {
                break Ok(());
            }
            if waiting.cancels.count() != cancels {
                break Err(cancelled());
            }
            waiting = match deadline {
                None => self.0.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        let hint = "no counter of the set has reached the value for which it is armed";
                        break Err(Error::refused("wait_set.wait", Errno::ETIMEDOUT, hint));
                    }
                    let waited = self.0.changed.wait_timeout(waiting, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        waiting.cancels.leave();
        end
    }

    /// A handle that ends waits for this set from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.0.clone())
    }

    fn raise(&self) {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_signalled = true;
        self.0.changed.notify_one();
    }
}

#[cold]
fn cancelled() -> Error {
    Error::refused("wait_set.wait", Errno::ECANCELED, "the wait was cancelled")
}
