//! Completion counters: how many operations have completed, and waiting for a number of them.

mod cancel;
mod future;
mod hardware;
mod ledger;
mod lobby;
mod log;
mod on_device;
mod registry;
mod state;
mod sync;
#[cfg(test)]
mod tests;
mod wait_object;
mod waiter;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use uverbs_abi::types::comp_cntr_entry;

pub(crate) use self::cancel::Cancel;
pub use self::cancel::Canceller;
pub use self::future::Wait;
pub(crate) use self::hardware::{Attached, insist};
pub use self::ledger::Counted;
use self::lobby::Presence;
pub(crate) use self::log::{Kind, Posted};
pub use self::on_device::CompletionCounterCaps;
pub(crate) use self::registry::{Bound, Registry, Tally};
use self::state::State;
pub(crate) use self::state::told;
use self::wait_object::Signal;
pub(crate) use self::wait_object::event_file;
pub use self::wait_object::{WaitHandle, WaitObject, WaitSet};
pub(crate) use self::waiter::{Outcome, Waiter};
pub(crate) use self::watch::{Seen, Watch, Watching};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Value;

/// What a counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "fi_cntr_events")]
pub enum CounterEvents {
    /// Operations that completed successfully: one each.
    #[default]
    #[doc(alias = "FI_CNTR_EVENTS_COMP")]
    Completions,
    /// The bytes of their messages. A failed operation adds one to the error value, as with `Completions`.
    #[doc(alias = "FI_CNTR_EVENTS_BYTES")]
    Bytes,
}

/// Where a completion counter is counted and where its values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CounterSource {
    /// The process counts when it takes completions from the queue.
    Software,
    /// The device counts and writes the values to memory of the process. Reading them needs no system call.
    DeviceInMemory,
    /// The device counts, and the kernel queries the values: each read is a command.
    DeviceByCommand,
}

/// A counter of completed operations: a 64-bit value of successes and one of errors.
///
/// It needs no device. After [`QueuePair::bind_counter`](crate::QueuePair::bind_counter), operations of a queue pair count into
/// it when their completions are taken from the completion queue; a program can also add to it. All calls take `&self`: share it
/// by reference or in an [`Arc`], among any number of threads.
///
/// A change made by one thread becomes visible to other threads, possibly with a delay. If you call [`set`](Self::set) while
/// operations are in flight, either what they add or the new value may be lost: set a counter when everything that it counts has
/// completed. A value that grows beyond 64 bits starts again at zero.
///
/// A child of `fork` has a copy of the values, which it can read, add to and set. This wakes no waiting thread. All other calls
/// are refused there.
///
/// The calls are those of libfabric's `fi_cntr`, with the same semantics. To wait, see [`wait`](Self::wait),
/// [`wait_async`](Self::wait_async) and [`CompletionQueue::progress_until`](crate::CompletionQueue::progress_until).
///
/// ```
/// use std::time::{Duration, Instant};
/// use uverbs::{CompletionCounter, ErrorKind, WaitObject};
/// # fn main() -> uverbs::Result<()> {
/// let counter = CompletionCounter::new(WaitObject::Unspecified)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| counter.wait(3, None));
///     counter.add(1)?;
///     counter.add(2) // wakes the other thread
/// })?;
/// assert_eq!((counter.read(), counter.read_err()), (3, 0));
///
/// let late = counter.wait(4, Some(Duration::from_millis(1))).unwrap_err();
/// assert_eq!(late.kind(), ErrorKind::TimedOut);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "fid_cntr")]
#[doc(alias = "fi_cntr")]
#[doc(alias = "fi_cntr_control")]
#[doc(alias = "fi_control")]
pub struct CompletionCounter {
    state: Arc<State>,
    /// The value and the error value, if they are in memory; `None` if they must be read by a command.
    values: [Option<Value<State>>; 2],
}

/// Builder for a completion counter; see [`CompletionCounter::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is made before `create`"]
#[doc(alias = "fi_cntr_attr")]
pub struct CompletionCounterBuilder {
    events: CounterEvents,
    wait_object: WaitObject,
    flags: u64,
    cookie: u64,
}

impl CompletionCounterBuilder {
    /// What is counted; default completions.
    pub fn events(mut self, events: CounterEvents) -> Self {
        self.events = events;
        self
    }

    /// How threads can wait for the counter; default none.
    pub fn wait_object(mut self, object: WaitObject) -> Self {
        self.wait_object = object;
        self
    }

    /// Reserved: must be 0, the default.
    pub fn flags(mut self, flags: u64) -> Self {
        self.flags = flags;
        self
    }

    /// A number of your choice, which [`CompletionCounter::cookie`] returns; default 0.
    #[doc(alias = "context")]
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Creates the counter; both values are zero.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for flags other than 0; those of `eventfd(2)` for
    /// [`WaitObject::FileDescriptor`].
    pub fn create(self) -> Result<CompletionCounter> {
        let op = "completion_counter.create";
        self.check_flags(op)?;
        let signal = Signal::new(op, self.wait_object)?;
        let bytes = self.events == CounterEvents::Bytes;
        Ok(CompletionCounter::of(State::new(signal, bytes, self.cookie)))
    }

    fn check_flags(&self, op: &'static str) -> Result<()> {
        if self.flags == 0 {
            return Ok(());
        }
        Err(Error::refused(op, Errno::EINVAL, "flags are reserved and must be 0"))
    }
}

impl CompletionCounter {
    /// Creates a counter of completions.
    ///
    /// # Errors
    /// Those of `eventfd(2)` for [`WaitObject::FileDescriptor`].
    #[doc(alias = "fi_cntr_open")]
    pub fn new(wait_object: WaitObject) -> Result<Self> {
        Self::builder().wait_object(wait_object).create()
    }

    /// Starts a builder for a counter with more options.
    #[doc(alias = "fi_cntr_open")]
    pub fn builder() -> CompletionCounterBuilder {
        CompletionCounterBuilder::default()
    }

    fn of(state: State) -> Self {
        let state = Arc::new(state);
        let values = [comp_cntr_entry::COMP, comp_cntr_entry::ERR].map(|entry| State::value(&state, entry));
        Self { state, values }
    }

    /// What the counter counts.
    pub fn events(&self) -> CounterEvents {
        if self.state.counts_bytes() { CounterEvents::Bytes } else { CounterEvents::Completions }
    }

    /// The number given when the counter was created; libfabric calls it the context.
    pub fn cookie(&self) -> u64 {
        self.state.cookie
    }

    /// Where it is counted and where the values are stored.
    pub fn source(&self) -> CounterSource {
        match &self.state.hardware {
            None => CounterSource::Software,
            Some(hardware) if hardware.is_in_memory() => CounterSource::DeviceInMemory,
            Some(_) => CounterSource::DeviceByCommand,
        }
    }

    /// The value: successful operations, or their bytes, plus what the program added.
    #[inline]
    #[doc(alias = "fi_cntr_read")]
    #[doc(alias = "ibv_read_comp_cntr")]
    pub fn read(&self) -> u64 {
        let [value, _] = &self.values;
        value.as_ref().map_or_else(|| self.state.read(), Value::get)
    }

    /// The error value: failed operations, plus what the program added.
    #[inline]
    #[doc(alias = "fi_cntr_readerr")]
    #[doc(alias = "ibv_read_err_comp_cntr")]
    pub fn read_err(&self) -> u64 {
        let [_, value] = &self.values;
        value.as_ref().map_or_else(|| self.state.read_err(), Value::get)
    }

    /// Adds to the value, and wakes the threads whose threshold is reached.
    ///
    /// # Errors
    /// None for a software counter. For a hardware counter, those of the kernel, and
    /// [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    #[inline]
    #[doc(alias = "fi_cntr_add")]
    #[doc(alias = "ibv_inc_comp_cntr")]
    pub fn add(&self, value: u64) -> Result<()> {
        if let Some(hardware) = &self.state.hardware {
            return hardware.add(value);
        }
        self.state.add(value);
        Ok(())
    }

    /// Adds to the error value, and wakes all waiting threads, unless it adds zero.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`; those of the kernel for a hardware counter.
    #[doc(alias = "fi_cntr_adderr")]
    #[doc(alias = "ibv_inc_err_comp_cntr")]
    pub fn add_err(&self, value: u64) -> Result<()> {
        self.state.check_origin("completion_counter.add_err")?;
        if let Some(hardware) = &self.state.hardware {
            return self.state.seen(hardware, |hardware| hardware.add_err(value));
        }
        self.state.add_err(value);
        Ok(())
    }

    /// Sets the value, and wakes the threads whose threshold is reached.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[inline]
    #[doc(alias = "fi_cntr_set")]
    #[doc(alias = "ibv_set_comp_cntr")]
    pub fn set(&self, value: u64) -> Result<()> {
        if let Some(hardware) = &self.state.hardware {
            return hardware.set(value);
        }
        self.state.set(value);
        Ok(())
    }

    /// Sets the error value, and wakes all waiting threads if it changes.
    ///
    /// # Errors
    /// As [`add_err`](Self::add_err).
    #[doc(alias = "fi_cntr_seterr")]
    #[doc(alias = "ibv_set_err_comp_cntr")]
    pub fn set_err(&self, value: u64) -> Result<()> {
        self.state.check_origin("completion_counter.set_err")?;
        if let Some(hardware) = &self.state.hardware {
            return self.state.seen(hardware, |hardware| hardware.set_err(value));
        }
        self.state.set_err(value);
        Ok(())
    }

    /// Waits until the value is `threshold` or more; without a `timeout`, forever. Any number of threads may wait, each for its
    /// own threshold.
    ///
    /// Success means that this thread read such a value at the end of the wait. If the value reaches the threshold and is set
    /// back before the thread wakes up, the wait continues.
    ///
    /// Meanwhile the completions must be taken from the queue: by another thread that polls, by [`Progress`](crate::Progress), or
    /// by calling [`CompletionQueue::progress_until`](crate::CompletionQueue::progress_until) instead.
    ///
    /// # Errors
    /// [`OperationFailed`](crate::ErrorKind::OperationFailed) if the error value changes after the start of the call, even if it
    /// changes back immediately; [`TimedOut`](crate::ErrorKind::TimedOut) after `timeout`, without any effect on the counter;
    /// [`Cancelled`](crate::ErrorKind::Cancelled) if a [canceller](Self::canceller) has ended the wait;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the wait object is [`WaitObject::None`] or [`WaitObject::Set`].
    #[inline]
    #[doc(alias = "fi_cntr_wait")]
    pub fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        if self.state.can_wait && self.read() >= threshold {
            return Ok(());
        }
        self.state.wait_since(threshold, None, timeout)
    }

    /// Waits until the value is `threshold` or more, as [`wait`](Self::wait) does, but any error value other than `errors` ends the wait,
    /// also one from before the call. If you pass the last result of [`read_err`](Self::read_err), you miss no failure between two waits.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_since(&self, threshold: u64, errors: u64, timeout: Option<Duration>) -> Result<()> {
        self.state.wait_since(threshold, Some(errors), timeout)
    }

    /// Returns a future that waits until the value is `threshold` or more, for async tasks of any runtime; see [`wait`](Self::wait).
    /// Dropping it loses nothing.
    ///
    /// # Errors
    /// The future returns those of [`wait`](Self::wait), except for the timeout, which the runtime provides.
    pub fn wait_async(&self, threshold: u64) -> Wait<'_> {
        Wait::new(&self.state, threshold)
    }

    /// A handle that ends waits for this counter from another thread: [`wait`](Self::wait), [`wait_since`](Self::wait_since),
    /// [`wait_async`](Self::wait_async) and [`CompletionQueue::progress_until`](crate::CompletionQueue::progress_until). Neither value
    /// changes. It does not signal the wait object.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.state.lobby.clone())
    }

    /// Arms the wait object: it is signalled once, when the value is `threshold` or more or the error value changes. Returns true
    /// if the value has already reached `threshold`; the object is signalled in this case, too. An earlier signal of a file
    /// descriptor is cleared.
    ///
    /// The wait object of a new counter is armed for the first change.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is no object to signal: see [`wait_handle`](Self::wait_handle).
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    /// use uverbs::{CompletionCounter, WaitHandle, WaitObject};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let counter = CompletionCounter::new(WaitObject::FileDescriptor)?;
    /// let WaitHandle::FileDescriptor(fd) = counter.wait_handle()? else { unreachable!() };
    /// counter.arm(2)?;
    /// counter.add(1)?;
    /// let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    /// assert_eq!(poll(&mut fds, PollTimeout::ZERO)?, 0);
    /// counter.add(1)?;
    /// assert_eq!(poll(&mut fds, PollTimeout::ZERO)?, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "fi_trywait")]
    pub fn arm(&self, threshold: u64) -> Result<bool> {
        let op = "completion_counter.arm";
        self.state.check_origin(op)?;
        if !self.state.signal.is_signalled() {
            return Err(Error::refused(op, Errno::EINVAL, NO_HANDLE));
        }
        Ok(self.state.arm(threshold))
    }

    /// The object behind the wait object, for use with other system calls.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when there is none: with [`WaitObject::None`], [`WaitObject::Unspecified`]
    /// and [`WaitObject::Yield`].
    #[doc(alias = "FI_GETWAIT")]
    pub fn wait_handle(&self) -> Result<WaitHandle<'_>> {
        let op = "completion_counter.wait_handle";
        self.state.check_origin(op)?;
        let none = || Error::refused(op, Errno::ENOSYS, NO_HANDLE);
        self.state.signal.handle().ok_or_else(none)
    }

    /// The operation flags that were set last; initially 0. They are for the program: none has a meaning for the crate.
    #[doc(alias = "FI_GETOPSFLAG")]
    pub fn operation_flags(&self) -> u64 {
        self.state.flags.load(Ordering::Relaxed)
    }

    /// Sets the operation flags.
    #[doc(alias = "FI_SETOPSFLAG")]
    pub fn set_operation_flags(&self, flags: u64) {
        self.state.flags.store(flags, Ordering::Relaxed);
    }

    /// Closes the counter and reports any error. Dropping it does the same, except that a bound counter is destroyed with its
    /// last queue pair.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a queue pair to which it is bound exists; the counter is returned.
    #[doc(alias = "fi_close")]
    #[doc(alias = "ibv_destroy_comp_cntr")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        if self.state.bound.load(Ordering::Acquire) > 0 {
            let hint = "a queue pair that the counter is bound to still exists";
            let error = Error::refused("completion_counter.destroy", Errno::EBUSY, hint);
            return Err((self, error));
        }
        // These share ownership of the state. Without them, a counter that is returned is read by a longer path.
        self.values = [None, None];
        if let Some(Err(error)) = Arc::get_mut(&mut self.state).and_then(State::release) {
            return Err((self, error));
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Waits by polling the counter, and calls `before` each time before it reads the value.
    pub(crate) fn watch(
        &self,
        threshold: u64,
        deadline: Option<Instant>,
        before: impl FnMut(),
    ) -> Result<Option<Outcome>> {
        self.state.watch(threshold, deadline, before)
    }

    /// Makes `file` readable when a wait for the threshold has ended, unless the wait has already ended.
    pub(crate) fn tell_file(&self, file: Arc<EventFd>, threshold: u64) -> FileWait<'_> {
        let state = &*self.state;
        let waiter = Waiter::file(threshold, file.clone());
        let presence = state.begin(threshold, None);
        let outcome = match &presence {
            Ok(presence) => state.register(&waiter, presence),
            Err(outcome) => Some(*outcome),
        };
        FileWait { state, file, threshold, presence, waiter, outcome }
    }
}

/// The wait of a thread that sleeps on files.
#[derive(Debug)]
pub(crate) struct FileWait<'a> {
    state: &'a State,
    file: Arc<EventFd>,
    threshold: u64,
    presence: Result<Presence<'a>, Outcome>,
    waiter: Arc<Waiter>,
    outcome: Option<Outcome>,
}

impl FileWait<'_> {
    /// How the wait ended, if it has.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        loop {
            let outcome = self.outcome.or_else(|| self.waiter.outcome())?;
            if self.state.stands(outcome, self.threshold) {
                return Some(outcome);
            }
            // An empty file is not an error.
            let _ = self.file.read();
            self.waiter = Waiter::file(self.threshold, self.file.clone());
            // A wait that had ended when it began begins again.
            if self.presence.is_err() {
                self.presence = self.state.begin(self.threshold, None);
            }
            self.outcome = match &self.presence {
                Ok(presence) => self.state.register(&self.waiter, presence),
                Err(outcome) => Some(*outcome),
            };
        }
    }
}

impl Drop for FileWait<'_> {
    fn drop(&mut self) {
        self.state.withdraw(&self.waiter);
    }
}

const NO_HANDLE: &str =
    "the counter was made without a wait object that is signalled: a set, a file or a condvar";
