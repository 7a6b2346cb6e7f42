//! What one thread at a time may use, during one call of C's or from one call to another.
//!
//! # Safety
//! By the fourth form of the contract, on the page of `boundary.rs`.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};

use uverbs::raw::{Here, Holder, Origin};

use crate::answer::{Answer, Code};

/// What one thread at a time may use, such as a queue. A child of `fork` that finds it taken, by a thread that is not there, is refused.
///
/// It turns instead of sleeping, as the locks of libibverbs' drivers do: most often it is free, and held for some
/// hundred instructions.
pub(crate) struct Lock<T> {
    /// [`FREE`], [`IN_CALL`] or [`KEPT`].
    state: AtomicU8,
    /// The process whose threads may have it.
    origin: Origin,
    /// The process of the thread that has taken it for more than one call.
    holder: Holder,
    value: UnsafeCell<T>,
}

/// Nobody has it; it is held during one call of C's; for more than one.
const FREE: u8 = 0;
const IN_CALL: u8 = 1;
const KEPT: u8 = 2;

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        let (origin, holder) = (Origin::here(), Holder::new());
        Self { state: AtomicU8::new(FREE), origin, holder, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Answer<Guard<'_, T>> {
        if self.take(IN_CALL) { Ok(Guard(self)) } else { Err(Code::new(nix::libc::EIO)) }
    }

    #[inline(always)]
    fn try_take(&self, state: u8) -> bool {
        self.state.compare_exchange(FREE, state, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn take(&self, state: u8) -> bool {
        self.try_take(state) || self.wait(state)
    }

    /// The same, but none if it is held for more than one call, which may be this thread's own. Others are given a moment to end.
    pub(crate) fn lock_unless_kept(&self) -> Answer<Option<Guard<'_, T>>> {
        let mut turns = 1000;
        while turns > 0 {
            if self.try_take(IN_CALL) {
                return Ok(Some(Guard(self)));
            }
            if !self.origin.is_here() {
                return Err(Code::new(nix::libc::EIO));
            }
            // A call ends; but whoever keeps it next may wait for this thread.
            turns -= i32::from(self.state.load(Ordering::Relaxed) == KEPT);
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Does something under the lock, if it is free; none if not, or if there is nothing to be done in this way.
    #[inline(always)]
    pub(crate) fn try_with<R>(&self, how: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        if !self.try_take(IN_CALL) {
            return None;
        }
        how(&mut Guard(self))
    }

    /// Takes the lock for more than one call of C's; nothing is taken in a child that cannot have it.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        if self.try_take(KEPT) {
            self.holder.hold(self.origin);
        } else {
            self.begin_later();
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_later(&self) {
        if self.wait(KEPT) {
            self.holder.hold(self.origin);
        }
    }

    /// Takes the lock for more than one call of C's, if it is free, for [`Lock::kept`].
    #[inline(always)]
    #[must_use]
    pub(crate) fn try_keep(&self) -> bool {
        self.try_take(KEPT)
    }

    /// The same when it is free; false, and nothing taken, in a child that cannot have it.
    #[must_use]
    #[inline(always)]
    pub(crate) fn keep(&self) -> bool {
        self.take(KEPT)
    }

    /// For whoever holds it for long, which is during a system call.
    #[cold]
    #[inline(never)]
    fn wait(&self, state: u8) -> bool {
        loop {
            if !self.origin.is_here() {
                return false;
            }
            std::thread::yield_now();
            if self.try_take(state) {
                return true;
            }
        }
    }

    /// Whether this is the process whose threads may have it.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Uses what [`Lock::begin`] took; not if nothing was taken, and not in a child, where another thread's hand may be in it.
    #[inline(always)]
    pub(crate) fn held<R>(&self, how: impl FnOnce(&mut T, Here) -> R) -> Option<R> {
        let here = self.holder.ask()?;
        // SAFETY: the lock was taken by `begin`, which names the holder behind that; and by the contract of the calls that come
        // between it and `end`, this is the thread that did, and it is in none of these calls (fourth form).
        Some(how(unsafe { &mut *self.value.get() }, here))
    }

    /// The same where the value says that something was begun, without a look at the process: for what only changes this process's own memory.
    #[inline(always)]
    pub(crate) fn within<R>(&self, how: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `held`, by the contract alone (fourth form): its functions are called by the thread that called `begin`, or in a
        // child by the one that was it.
        how(unsafe { &mut *self.value.get() })
    }

    /// Uses what [`Lock::keep`] took, in a child too: for what asks itself whose the value is.
    #[inline(always)]
    pub(crate) fn kept<R>(&self, how: impl FnOnce(&mut T) -> R) -> Option<R> {
        let is_kept = self.state.load(Ordering::Relaxed) == KEPT;
        // SAFETY: by the contract of the calls that come between `keep` and `give_back`, this is the thread that took the lock, and
        // it is in none of these calls (fourth form). A child asks whose the value is, which does not change, before all else.
        is_kept.then(|| how(unsafe { &mut *self.value.get() }))
    }

    /// As [`Lock::held`] for the last time: it gives the lock back. Nothing is given back in a child, where it may not have been taken.
    #[inline(always)]
    pub(crate) fn end<R>(&self, how: impl FnOnce(&mut T, Here) -> R) -> Option<R> {
        let answer = self.held(how)?;
        self.holder.release();
        self.give_back();
        Some(answer)
    }

    /// Gives back what [`Lock::keep`] took, of which the caller knows that it was in this process.
    #[inline(always)]
    pub(crate) fn give_back(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

/// What is used by whoever holds a [`Lock`] for more than one call of C's, and lies beside it.
pub(crate) struct Beside<T>(UnsafeCell<T>);

impl<T> Beside<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Uses it: by a function that has taken the lock, or one of those that are called until it is given back.
    #[inline(always)]
    pub(crate) fn with<R>(&self, how: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: by the contract of these functions (fourth form) this is the thread that took the lock, and it is in no other of
        // them: `how` is code of this crate's, and does not come here again.
        how(unsafe { &mut *self.0.get() })
    }
}

/// Holds a [`Lock`].
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so that nobody else has a reference.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
    }
}
