//! The two values of a counter, and the list of waiters.
//!
//! Adding must cost nothing while nothing waits, and no waiter may miss the value that it waits for. Waiters are in a list behind
//! a lock. The smallest threshold among them is in `lowest`. An adder reads `lowest` after each change, and takes the lock only
//! if the value has reached it.
//!
//! One rule ensures that an adder and a waiter cannot both miss each other: every change of `successes` is a read-modify-write
//! with acquire and release, and a waiter also makes one (it adds zero) between writing `lowest` and reading the value. All of
//! these operations have one order, and each sees what happened before it. If the adder's comes first, the waiter reads the new
//! value. If the waiter's comes first, the adder reads `lowest` as the waiter wrote it. loom tries both orders in `tests.rs`.
//!
//! `lowest` is written only under the lock. So is the error value, and each change of it ends every wait: waiters in the list are
//! woken. A waiter that is not in the list compares the number of changes, not the value, because the value may have been changed
//! back.
//!
//! A wait that is cancelled ends like one that fails, and the counter does not change. Waits are counted from their beginning to their end
//! (`Presence`), also while they are not in the list: a cancel ends these, or if there are none, the next one.
//!
//! A waiter that was woken for the value reads it again before its wait ends, because the value may have been set back. In that
//! case the waiter enters the list again.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use uverbs_abi::types::comp_cntr_entry;

use super::hardware::Hardware;
use super::lobby::{Lobby, Presence, Waiting};
use super::sync::{AtomicU64, MutexGuard, Ordering};
use super::wait_object::Signal;
use super::waiter::{Outcome, Waiter};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Value;

/// The part of a counter that is shared with the queue pairs to which it is bound.
#[derive(Debug)]
pub(crate) struct State {
    successes: AtomicU64,
    lowest: AtomicU64,
    errors: AtomicU64,
    /// Number of changes of the error value. Written only under the lock.
    failures: AtomicU64,
    /// The number that the owner chose.
    pub(super) cookie: u64,
    /// Whether waiting is allowed.
    pub(super) can_wait: bool,
    bytes: bool,
    /// Number of queue pairs to which it is bound.
    pub(super) bound: AtomicU32,
    pub(super) flags: AtomicU64,
    pub(super) lobby: Arc<Lobby>,
    pub(super) signal: Signal,
    /// The device's counter, if there is one. The values here are then the last ones that were read from it.
    pub(super) hardware: Option<Hardware>,
}

impl State {
    pub(super) fn new(signal: Signal, bytes: bool, cookie: u64) -> Self {
        // Until it is armed for another value, the wait object signals the first change.
        let armed = signal.is_signalled().then_some(1);
        let lobby = Lobby::new(armed);
        let lowest = lobby.lock().lowest();
        Self {
            successes: AtomicU64::new(0),
            lowest: AtomicU64::new(lowest),
            errors: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            cookie,
            can_wait: !matches!(signal, Signal::None | Signal::Set(_)),
            bytes,
            bound: AtomicU32::new(0),
            flags: AtomicU64::new(0),
            lobby,
            signal,
            hardware: None,
        }
    }

    /// Destroys the device's counter, if there is one.
    pub(super) fn release(&mut self) -> Option<Result<()>> {
        self.hardware.as_mut().map(Hardware::release)
    }

    /// Reads the values of the device's counter.
    #[inline(never)]
    fn ask(&self, hardware: &Hardware) -> Result<()> {
        use comp_cntr_entry::{COMP, ERR};
        self.successes.store(hardware.read(COMP)?, Ordering::Release);
        let errors = hardware.read(ERR)?;
        // Usually nothing has changed, and no lock is needed.
        if errors != self.errors.load(Ordering::Acquire) {
            self.change_errors(|_| errors);
        }
        Ok(())
    }

    /// Changes the device's error value so that no waiter misses the change, even if the value is changed back immediately.
    pub(super) fn seen(
        &self,
        hardware: &Hardware,
        change: impl FnOnce(&Hardware) -> Result<()>,
    ) -> Result<()> {
        self.ask(hardware)?;
        change(hardware)?;
        // The value was changed; waiters read it themselves.
        let _ = self.ask(hardware);
        Ok(())
    }

    /// Updates the values here from the device's counter, if there is one.
    #[inline]
    fn refresh(&self) -> Result<()> {
        self.hardware.as_ref().map_or(Ok(()), |hardware| self.ask(hardware))
    }

    /// Number of waits in progress.
    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn waits(&self) -> u32 {
        self.lock().cancels.waits()
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn waiters(&self) -> usize {
        self.lock().list.len()
    }

    /// Refuses `op` in a child of `fork`.
    #[inline]
    pub(super) fn check_origin(&self, op: &'static str) -> Result<()> {
        self.lobby.origin.check(op)
    }

    /// Whether the counter counts bytes instead of operations.
    pub(super) fn counts_bytes(&self) -> bool {
        self.bytes
    }

    /// A value, if it can be read from memory.
    #[cfg(not(all(test, uverbs_loom)))]
    pub(super) fn value(state: &Arc<Self>, entry: u64) -> Option<Value<Self>> {
        Value::find(state, |state| match &state.hardware {
            Some(hardware) => hardware.value(entry),
            None if entry == comp_cntr_entry::ERR => Some(&state.errors),
            None => Some(&state.successes),
        })
    }

    /// loom has its own atomics.
    #[cfg(all(test, uverbs_loom))]
    pub(super) fn value(_: &Arc<Self>, _: u64) -> Option<Value<Self>> {
        None
    }

    /// The value, read from the device if it has the counter. If that fails, the last value that was read.
    #[inline(never)]
    pub(super) fn read(&self) -> u64 {
        let _ = self.refresh();
        self.successes.load(Ordering::Acquire)
    }

    /// The error value, read in the same way.
    #[inline(never)]
    pub(super) fn read_err(&self) -> u64 {
        let _ = self.refresh();
        self.errors.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn add(&self, value: u64) {
        let new = self.successes.fetch_add(value, Ordering::AcqRel).wrapping_add(value);
        self.changed(new);
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        self.successes.swap(value, Ordering::AcqRel);
        self.changed(value);
    }

    #[inline]
    fn changed(&self, new: u64) {
        if new >= self.lowest.load(Ordering::Relaxed) {
            self.reach(new);
        }
    }

    pub(super) fn add_err(&self, value: u64) {
        self.change_errors(|errors| errors.wrapping_add(value));
    }

    pub(super) fn set_err(&self, value: u64) {
        self.change_errors(|_| value);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.lobby.lock()
    }

    /// Wakes all waiters whose threshold is at most `value`. In a child of `fork` it does nothing: the waiters are copies of the
    /// parent's, and the lock may be held for ever.
    #[cold]
    fn reach(&self, value: u64) {
        if !self.lobby.origin.is_here() {
            return;
        }
        self.tell(self.lock(), Outcome::Reached, |threshold| threshold <= value);
    }

    fn change_errors(&self, change: impl FnOnce(u64) -> u64) {
        let waiting = self.lock();
        let old = self.errors.load(Ordering::Relaxed);
        let new = change(old);
        if new != old {
            self.errors.store(new, Ordering::Release);
            self.failures.fetch_add(1, Ordering::Release);
            self.tell(waiting, Outcome::Failed, |_| true);
        }
    }

    /// Number of changes of the error value so far.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Begins a wait. If it has ended already, returns how: the threshold is reached, `errors` is given and is not the error value, or
    /// waits were cancelled while there was none. In a child of `fork` every wait has failed.
    pub(super) fn begin(&self, threshold: u64, errors: Option<u64>) -> Result<Presence<'_>, Outcome> {
        let is_reached = || self.stands(Outcome::Reached, threshold);
        let ended = |outcome| if is_reached() { Outcome::Reached } else { outcome };
        if !self.lobby.origin.is_here() {
            return Err(ended(Outcome::Failed));
        }
        let mut waiting = self.lock();
        if errors.is_some_and(|errors| self.errors.load(Ordering::Relaxed) != errors) {
            return Err(ended(Outcome::Failed));
        }
        if is_reached() {
            return Err(Outcome::Reached);
        }
        let cancels = waiting.cancels.enter().ok_or(Outcome::Cancelled)?;
        Ok(Presence { lobby: &self.lobby, failures: self.failures.load(Ordering::Relaxed), cancels })
    }

    /// Whether this outcome of a wait is still true.
    pub(super) fn stands(&self, outcome: Outcome, threshold: u64) -> bool {
        outcome != Outcome::Reached || self.successes.load(Ordering::Acquire) >= threshold
    }

    /// Ends the waits whose threshold satisfies `is_meant`, and wakes the waiters.
    fn tell(&self, mut waiting: MutexGuard<'_, Waiting>, outcome: Outcome, is_meant: impl Fn(u64) -> bool) {
        let told: Vec<_> = waiting.list.extract_if(.., |waiter| is_meant(waiter.threshold)).collect();
        for waiter in &told {
            waiter.finish(outcome);
        }
        let signalled = waiting.armed.take_if(|threshold| is_meant(*threshold)).is_some();
        if signalled {
            self.signal.raise();
        }
        self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        drop(waiting);
        for waiter in told {
            waiter.wake();
        }
        if signalled {
            self.signal.notify();
        }
    }

    /// Returns the value. Everything that this thread has written before is visible to the next thread that changes the value.
    fn meet_adders(&self) -> u64 {
        self.successes.fetch_add(0, Ordering::AcqRel)
    }

    /// Adds a waiter to the list, unless its wait has already ended: the threshold is reached, or the error value has changed
    /// since the wait began, or it was cancelled.
    pub(super) fn register(&self, waiter: &Arc<Waiter>, wait: &Presence<'_>) -> Option<Outcome> {
        let mut waiting = self.lock();
        waiting.list.push(waiter.clone());
        self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        let outcome = if self.meet_adders() >= waiter.threshold {
            Outcome::Reached
        } else if self.failures.load(Ordering::Relaxed) != wait.failures {
            Outcome::Failed
        } else if waiting.cancels.count() != wait.cancels {
            Outcome::Cancelled
        } else {
            return None;
        };
        waiting.remove(waiter);
        self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        Some(outcome)
    }

    /// Removes a waiter from the list. Returns the outcome if it is no longer in the list.
    pub(super) fn withdraw(&self, waiter: &Arc<Waiter>) -> Option<Outcome> {
        if !self.lobby.origin.is_here() {
            return waiter.outcome();
        }
        let mut waiting = self.lock();
        if waiting.remove(waiter) {
            self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        }
        waiter.outcome()
    }

    /// Arms the wait object. Returns true if the threshold is already reached.
    pub(super) fn arm(&self, threshold: u64) -> bool {
        let mut waiting = self.lock();
        self.signal.clear();
        waiting.armed = Some(threshold);
        self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        let reached = self.meet_adders() >= threshold;
        if reached {
            waiting.armed = None;
            self.lowest.store(waiting.lowest(), Ordering::Relaxed);
            self.signal.raise();
        }
        reached
    }

    /// Waits for the threshold. If `errors` is given, any other error value ends the wait immediately.
    #[cold]
    pub(super) fn wait_since(
        &self,
        threshold: u64,
        errors: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.allow_waiting()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.refresh()?;
        let wait = match self.begin(threshold, errors) {
            Ok(wait) => wait,
            Err(outcome) => return told(OP_WAIT, Some(outcome)),
        };
        let outcome = match self.signal {
            Signal::Yield => self.spin(threshold, &wait, deadline, None, || ())?,
            _ if self.hardware.is_some() => {
                let pause = Some(Instant::now() + SPINS);
                self.spin(threshold, &wait, deadline, pause, || ())?
            }
            _ => self.sleep(threshold, &wait, deadline),
        };
        told(OP_WAIT, outcome)
    }

    /// Whether the wait object allows waiting.
    pub(super) fn allow_waiting(&self) -> Result<()> {
        self.check_origin(OP_WAIT)?;
        if self.can_wait {
            return Ok(());
        }
        let hint = match self.signal {
            Signal::Set(_) => "the counter belongs to a wait set: wait for the set",
            _ => "the counter was made without a wait object",
        };
        Err(Error::refused(OP_WAIT, Errno::EINVAL, hint))
    }

    /// Whether a thread that sleeps would be woken.
    pub(super) fn allow_sleeping(&self) -> Result<()> {
        self.check_origin(OP_WAIT)?;
        if self.hardware.is_some() {
            let hint = "a hardware counter wakes no thread: call `wait`, which reads it repeatedly";
            return Err(Error::refused(OP_WAIT, Errno::EOPNOTSUPP, hint));
        }
        Ok(())
    }

    fn sleep(&self, threshold: u64, wait: &Presence<'_>, deadline: Option<Instant>) -> Option<Outcome> {
        loop {
            let waiter = Waiter::thread(threshold);
            if let Some(outcome) = self.register(&waiter, wait) {
                return Some(outcome);
            }
            let outcome = waiter.sleep(deadline).or_else(|| self.withdraw(&waiter))?;
            if self.stands(outcome, threshold) {
                return Some(outcome);
            }
        }
    }

    /// Polls the counter, whatever the wait object is, and calls `before` each time before it reads the value.
    pub(super) fn watch(
        &self,
        threshold: u64,
        deadline: Option<Instant>,
        mut before: impl FnMut(),
    ) -> Result<Option<Outcome>> {
        self.check_origin(OP_WAIT)?;
        self.refresh()?;
        // Also if the threshold is reached already: who polls to wait expects the completions to be taken.
        before();
        match self.begin(threshold, None) {
            Ok(wait) => self.spin(threshold, &wait, deadline, None, before),
            Err(outcome) => Ok(Some(outcome)),
        }
    }

    /// Polls the counter, and calls `before` each time before it reads the value. From `pause` on, if it is given, it sleeps
    /// between two reads.
    pub(super) fn spin(
        &self,
        threshold: u64,
        wait: &Presence<'_>,
        deadline: Option<Instant>,
        pause: Option<Instant>,
        mut before: impl FnMut(),
    ) -> Result<Option<Outcome>> {
        let (mut nap, mut looked) = (FIRST_NAP, Instant::now());
        loop {
            before();
            self.refresh()?;
            if self.stands(Outcome::Reached, threshold) {
                return Ok(Some(Outcome::Reached));
            }
            if self.failures() != wait.failures {
                return Ok(Some(Outcome::Failed));
            }
            if self.lobby.has_ended(wait.cancels) {
                return Ok(Some(Outcome::Cancelled));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            let now = Instant::now();
            if let Some(hardware) = self.hardware.as_ref().filter(|_| now - looked >= LOOKS) {
                hardware.look()?;
                looked = now;
            }
            if pause.is_none_or(|pause| now < pause) {
                std::thread::yield_now();
                continue;
            }
            let left = deadline.map_or(nap, |deadline| deadline.saturating_duration_since(now));
            std::thread::sleep(nap.min(left));
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }
}

/// How long a wait for a hardware counter polls without a pause, and how long it sleeps between two reads after that; see
/// [`CompletionCounterBuilder::create_on`](super::CompletionCounterBuilder::create_on).
const SPINS: Duration = Duration::from_micros(50);
const FIRST_NAP: Duration = Duration::from_micros(10);
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How often such a wait checks whether the device still exists.
const LOOKS: Duration = Duration::from_millis(100);

/// The name of waits in errors.
pub(super) const OP_WAIT: &str = "completion_counter.wait";

/// Converts the outcome of a wait to the caller's result. `None` means that the time has run out.
pub(crate) fn told(op: &'static str, outcome: Option<Outcome>) -> Result<()> {
    match outcome {
        Some(Outcome::Reached) => Ok(()),
        Some(Outcome::Failed) => {
            Err(Error::operation_failed(op, "the error value has changed: see `read_err`"))
        }
        Some(Outcome::Cancelled) => {
            Err(Error::refused(op, Errno::ECANCELED, "the wait was cancelled; the counter is as it was"))
        }
        None => Err(Error::refused(op, Errno::ETIMEDOUT, "the counter has not reached the threshold")),
    }
}
