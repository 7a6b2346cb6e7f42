//! The two values of a counter, and who waits for them.
//!
//! Adding must cost nothing while nobody waits, and no waiter may sleep through what it waits for. Waiters stand in a
//! list behind a lock; the smallest threshold among them is in `lowest`, which an adder looks at after each change,
//! and only whoever has reached it takes the lock.
//!
//! That an adder cannot miss a waiter who has missed the adder follows from one rule: every change of `successes` is a
//! read-modify-write with acquire and release, and a waiter makes one too (it adds zero) between writing `lowest` and
//! looking at the value. All of these have one order, and each sees what came before it. If the adder's comes first,
//! the waiter's gives it the new value. If the waiter's does, the adder sees what the waiter wrote before: `lowest`.
//! Both orders are tried by loom in `tests.rs`.
//!
//! `lowest` is written under the lock only, and so is the error value, whose every change ends every wait: a waiter that
//! is in the list when it changes is told. Who is not in the list compares how many changes there were, not the value, which
//! may be what it was before.
//!
//! A waiter that was told of the value looks at it again before its wait ends: it may have been set back. Then it
//! stands in the list again.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use uverbs_abi::types::comp_cntr_entry;

use super::hardware::Hardware;
use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use super::wait_object::Signal;
use super::waiter::{Outcome, Waiter};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Value;
use crate::kernel::process::Origin;

/// `lowest` when nobody waits. Who waits for just this many is woken all the same, since it is reached.
const NOBODY: u64 = u64::MAX;

/// What a counter shares with the queue pairs that it is bound to.
#[derive(Debug)]
pub(crate) struct State {
    /// The process whose counter it is. Asked before the lock, for which a child of `fork` must not wait; and a wait object is
    /// the parent's.
    origin: Origin,
    successes: AtomicU64,
    lowest: AtomicU64,
    errors: AtomicU64,
    /// How often the error value has changed. Written under the lock only.
    failures: AtomicU64,
    /// The owner's.
    pub(super) cookie: u64,
    /// Whether waiting is allowed.
    pub(super) can_wait: bool,
    bytes: bool,
    /// To how many queue pairs it is bound.
    pub(super) bound: AtomicU32,
    pub(super) flags: AtomicU64,
    waiting: Mutex<Waiting>,
    pub(super) signal: Signal,
    /// The device's counter, in place of the values here: these are what it told last.
    pub(super) hardware: Option<Hardware>,
}

#[derive(Debug, Default)]
struct Waiting {
    list: Vec<Arc<Waiter>>,
    /// What the wait object is armed for.
    armed: Option<u64>,
}

impl Waiting {
    fn lowest(&self) -> u64 {
        let thresholds = self.list.iter().map(|waiter| waiter.threshold).chain(self.armed);
        thresholds.min().unwrap_or(NOBODY)
    }

    /// Takes a waiter out; false if it is not in the list any more.
    fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        let before = self.list.len();
        self.list.retain(|known| !Arc::ptr_eq(known, waiter));
        self.list.len() < before
    }
}

impl State {
    pub(super) fn new(signal: Signal, bytes: bool, cookie: u64) -> Self {
        // Until it is armed for something else, the wait object tells of the first change.
        let armed = signal.is_signalled().then_some(1);
        let waiting = Waiting { list: Vec::new(), armed };
        Self {
            origin: Origin::here(),
            successes: AtomicU64::new(0),
            lowest: AtomicU64::new(waiting.lowest()),
            errors: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            cookie,
            can_wait: !matches!(signal, Signal::None | Signal::Set(_)),
            bytes,
            bound: AtomicU32::new(0),
            flags: AtomicU64::new(0),
            waiting: Mutex::new(waiting),
            signal,
            hardware: None,
        }
    }

    /// Destroys the device's counter, if it is one.
    pub(super) fn release(&mut self) -> Option<Result<()>> {
        self.hardware.as_mut().map(Hardware::release)
    }

    /// Asks the device, if the counter is the device's.
    #[inline(never)]
    fn ask(&self, hardware: &Hardware) -> Result<()> {
        use comp_cntr_entry::{COMP, ERR};
        self.successes.store(hardware.read(COMP)?, Ordering::Release);
        let errors = hardware.read(ERR)?;
        // Most often there is nothing new, and no lock is needed.
        if errors != self.errors.load(Ordering::Acquire) {
            self.change_errors(|_| errors);
        }
        Ok(())
    }

    /// Changes the device's error value in a way that nobody who waits misses, even if it is changed back at once.
    pub(super) fn seen(
        &self,
        hardware: &Hardware,
        change: impl FnOnce(&Hardware) -> Result<()>,
    ) -> Result<()> {
        self.ask(hardware)?;
        change(hardware)?;
        // It is changed: whoever waits will find out.
        let _ = self.ask(hardware);
        Ok(())
    }

    /// Makes the values here those of the device.
    #[inline]
    fn refresh(&self) -> Result<()> {
        self.hardware.as_ref().map_or(Ok(()), |hardware| self.ask(hardware))
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn waiters(&self) -> usize {
        self.lock().list.len()
    }

    /// Refuses `op` in a child of `fork`.
    #[inline]
    pub(super) fn check_origin(&self, op: &'static str) -> Result<()> {
        self.origin.check(op)
    }

    /// Whether it counts bytes, not operations.
    pub(super) fn counts_bytes(&self) -> bool {
        self.bytes
    }

    /// A value, if it is in memory.
    #[cfg(not(all(test, uverbs_loom)))]
    pub(super) fn value(state: &Arc<Self>, entry: u64) -> Option<Value<Self>> {
        Value::find(state, |state| match &state.hardware {
            Some(hardware) => hardware.value(entry),
            None if entry == comp_cntr_entry::ERR => Some(&state.errors),
            None => Some(&state.successes),
        })
    }

    /// loom has atomics of its own.
    #[cfg(all(test, uverbs_loom))]
    pub(super) fn value(_: &Arc<Self>, _: u64) -> Option<Value<Self>> {
        None
    }

    /// The value as the device tells it, if it does; else what it told last.
    #[inline(never)]
    pub(super) fn read(&self) -> u64 {
        let _ = self.refresh();
        self.successes.load(Ordering::Acquire)
    }

    /// The error value, in the same way.
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
        lock(&self.waiting)
    }

    /// Tells everybody who waits for `value` or less. Nobody in a child of `fork`, whose copies of the waiters are its
    /// parent's, and whose lock may be held for ever.
    #[cold]
    #[inline(never)]
    fn reach(&self, value: u64) {
        if !self.origin.is_here() {
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

    /// How often the error value has changed by now; none if it is not `errors`, when given, and in a child of `fork`.
    pub(super) fn failures(&self, errors: Option<u64>) -> Option<u64> {
        if !self.origin.is_here() {
            return None;
        }
        let _waiting = self.lock();
        let is_known = errors.is_none_or(|errors| self.errors.load(Ordering::Relaxed) == errors);
        is_known.then(|| self.failures.load(Ordering::Relaxed))
    }

    /// Whether this outcome of a wait is true now.
    pub(super) fn stands(&self, outcome: Outcome, threshold: u64) -> bool {
        outcome == Outcome::Failed || self.successes.load(Ordering::Acquire) >= threshold
    }

    /// Ends the waits that are meant, and wakes those who wait.
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

    /// The value, after everything that this thread has written is there for whoever changes it next.
    fn meet_adders(&self) -> u64 {
        self.successes.fetch_add(0, Ordering::AcqRel)
    }

    /// Puts a waiter into the list, unless there is nothing to wait for: the threshold is reached, or the error value has
    /// changed since there were so many `failures`.
    pub(super) fn register(&self, waiter: &Arc<Waiter>, failures: u64) -> Option<Outcome> {
        let mut waiting = self.lock();
        waiting.list.push(waiter.clone());
        self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        let outcome = if self.meet_adders() >= waiter.threshold {
            Outcome::Reached
        } else if self.failures.load(Ordering::Relaxed) != failures {
            Outcome::Failed
        } else {
            return None;
        };
        waiting.remove(waiter);
        self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        Some(outcome)
    }

    /// Takes a waiter out of the list; the outcome if it is not in there any more.
    pub(super) fn withdraw(&self, waiter: &Arc<Waiter>) -> Option<Outcome> {
        if !self.origin.is_here() {
            return waiter.outcome();
        }
        let mut waiting = self.lock();
        if waiting.remove(waiter) {
            self.lowest.store(waiting.lowest(), Ordering::Relaxed);
        }
        waiter.outcome()
    }

    /// Arms the wait object; true if the threshold is reached already.
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

    /// Waits; an error value other than `errors`, when given, ends it at once.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_since(
        &self,
        threshold: u64,
        errors: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.allow_waiting()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.refresh()?;
        let Some(failures) = self.failures(errors) else {
            let reached = self.stands(Outcome::Reached, threshold);
            return told(OP_WAIT, Some(if reached { Outcome::Reached } else { Outcome::Failed }));
        };
        let outcome = match self.signal {
            Signal::Yield => self.spin(threshold, failures, deadline, None, || ())?,
            _ if self.hardware.is_some() => {
                let pause = Some(Instant::now() + SPINS);
                self.spin(threshold, failures, deadline, pause, || ())?
            }
            _ => self.sleep(threshold, failures, deadline),
        };
        told(OP_WAIT, outcome)
    }

    /// Whether the wait object is one to wait with.
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

    /// Whether somebody wakes who sleeps.
    pub(super) fn allow_sleeping(&self) -> Result<()> {
        self.check_origin(OP_WAIT)?;
        if self.hardware.is_some() {
            let hint = "a hardware counter wakes no thread: call `wait`, which reads it repeatedly";
            return Err(Error::refused(OP_WAIT, Errno::EOPNOTSUPP, hint));
        }
        Ok(())
    }

    fn sleep(&self, threshold: u64, failures: u64, deadline: Option<Instant>) -> Option<Outcome> {
        loop {
            let waiter = Waiter::thread(threshold);
            if let Some(outcome) = self.register(&waiter, failures) {
                return Some(outcome);
            }
            let outcome = waiter.sleep(deadline).or_else(|| self.withdraw(&waiter))?;
            if self.stands(outcome, threshold) {
                return Some(outcome);
            }
        }
    }

    /// Looks again and again, whatever the wait object is, and calls `before` each look.
    pub(super) fn watch(
        &self,
        threshold: u64,
        deadline: Option<Instant>,
        before: impl FnMut(),
    ) -> Result<Option<Outcome>> {
        self.check_origin(OP_WAIT)?;
        self.refresh()?;
        let failures = self.failures(None).unwrap_or_default();
        self.spin(threshold, failures, deadline, None, before)
    }

    /// Looks again and again, and calls `before` each look; from `pause` on, if there is such a moment, it sleeps in between.
    pub(super) fn spin(
        &self,
        threshold: u64,
        failures: u64,
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
            if self.failures.load(Ordering::Acquire) != failures {
                return Ok(Some(Outcome::Failed));
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

/// How long a wait for a counter of the device's looks all the time, and how long it sleeps then in between: as
/// [`CompletionCounterBuilder::create_on`](super::CompletionCounterBuilder::create_on) says.
const SPINS: Duration = Duration::from_micros(50);
const FIRST_NAP: Duration = Duration::from_micros(10);
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How often it looks whether the device is there.
const LOOKS: Duration = Duration::from_millis(100);

/// Names waits in errors.
pub(super) const OP_WAIT: &str = "completion_counter.wait";

/// What a caller is told of a wait; none is that the time was over.
pub(crate) fn told(op: &'static str, outcome: Option<Outcome>) -> Result<()> {
    match outcome {
        Some(Outcome::Reached) => Ok(()),
        Some(Outcome::Failed) => {
            Err(Error::operation_failed(op, "the error value has changed: see `read_err`"))
        }
        None => Err(Error::refused(op, Errno::ETIMEDOUT, "the counter has not reached the threshold")),
    }
}
