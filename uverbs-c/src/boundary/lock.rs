//! A lock for values that one thread at a time may use, during one call from C or several.
//!
//! # Safety
//! It relies on the fourth form of the contract; see the page of `boundary.rs`.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};

use uverbs::raw::{Here, Holder, Origin};

use crate::answer::{Answer, Code};

/// A value that one thread at a time may use, such as a queue. If a child of `fork` finds it locked by a thread that does not exist in
/// the child, the child is refused.
///
/// It spins instead of sleeping, as the locks of libibverbs' drivers do: it is usually free, and held for a short time only.
pub(crate) struct Lock<T> {
    /// [`FREE`], [`IN_CALL`] or [`KEPT`].
    state: AtomicU8,
    /// The process whose threads may lock it.
    origin: Origin,
    /// The process of the thread that has locked it for more than one call.
    holder: Holder,
    value: UnsafeCell<T>,
}

/// Not locked; locked during one call from C; locked for several calls.
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

    /// Locks it for one call, or returns `None` if it is locked for several calls, perhaps by this thread. Waits for other threads. EIO in
    /// a child that cannot lock it.
    pub(crate) fn lock_unless_kept(&self) -> Answer<Option<Guard<'_, T>>> {
        let mut turns = 1000;
        while turns > 0 {
            if self.try_take(IN_CALL) {
                return Ok(Some(Guard(self)));
            }
            if !self.origin.is_here() {
                return Err(Code::new(nix::libc::EIO));
            }
            // A call ends by itself; but a thread that keeps the lock may wait for this thread.
            turns -= i32::from(self.state.load(Ordering::Relaxed) == KEPT);
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Calls `how` under the lock if it is free. Returns `None` if it is not, or if `how` does.
    #[inline(always)]
    pub(crate) fn try_with<R>(&self, how: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        if !self.try_take(IN_CALL) {
            return None;
        }
        how(&mut Guard(self))
    }

    /// Locks it for several calls from C. In a child that cannot lock it, nothing is locked.
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

    /// Locks it for several calls from C, if it is free, for [`Lock::kept`].
    #[inline(always)]
    #[must_use]
    pub(crate) fn try_keep(&self) -> bool {
        self.try_take(KEPT)
    }

    /// Locks it for several calls from C, if it is free, and uses the value. The state is not read back from the locked instruction, as
    /// [`Lock::kept`] would: that read has to wait until the instruction is complete.
    #[inline(always)]
    pub(crate) fn try_keep_with<R>(&self, how: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: the lock was taken here, so there is no other reference.
        self.try_keep().then(|| how(unsafe { &mut *self.value.get() }))
    }

    /// Waits until it is free, and locks it. Returns false, with nothing locked, in a child that cannot lock it.
    #[must_use]
    #[inline(always)]
    pub(crate) fn keep(&self) -> bool {
        self.take(KEPT)
    }

    /// For locks that are held long, that is, during a system call.
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

    /// Whether this is the process whose threads may lock it.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Uses the value that [`Lock::begin`] locked. Does nothing if it was not locked, and in a child, where another thread may have been
    /// changing the value.
    #[inline(always)]
    pub(crate) fn held<R>(&self, how: impl FnOnce(&mut T, Here) -> R) -> Option<R> {
        let here = self.holder.ask()?;
        // SAFETY: the lock was taken by `begin`, which then stored the holder; and by the contract of the calls between `begin` and
        // `end`, this is the thread that called `begin`, and it is in none of these calls (fourth form).
        Some(how(unsafe { &mut *self.value.get() }, here))
    }

    /// Uses the value that [`Lock::begin`] locked, if the value itself shows that something was begun. It does not check the process, so it
    /// is for changes to memory that belongs to this process.
    #[inline(always)]
    pub(crate) fn within<R>(&self, how: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `held`, by the contract alone (fourth form): this is the thread that called `begin`, or its copy in a child.
        how(unsafe { &mut *self.value.get() })
    }

    /// Uses the value that [`Lock::keep`] locked, in a child too: for values that check themselves which process owns them.
    #[inline(always)]
    pub(crate) fn kept<R>(&self, how: impl FnOnce(&mut T) -> R) -> Option<R> {
        let is_kept = self.state.load(Ordering::Relaxed) == KEPT;
        // SAFETY: by the contract of the calls between `keep` and `give_back`, this is the thread that took the lock, and it is in none
        // of these calls (fourth form). A child first checks which process owns the value, which does not change.
        is_kept.then(|| how(unsafe { &mut *self.value.get() }))
    }

    /// Uses the value that [`Lock::begin`] locked, as [`Lock::held`] does, and then unlocks it. In a child nothing is unlocked, because it
    /// may not have been locked there.
    #[inline(always)]
    pub(crate) fn end<R>(&self, how: impl FnOnce(&mut T, Here) -> R) -> Option<R> {
        let answer = self.held(how)?;
        self.holder.release();
        self.give_back();
        Some(answer)
    }

    /// Unlocks what [`Lock::keep`] locked. The caller must make sure that this process locked it.
    #[inline(always)]
    pub(crate) fn give_back(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

/// A value beside a [`Lock`], used by the thread that holds the lock for several calls from C.
pub(crate) struct Beside<T>(UnsafeCell<T>);

impl<T> Beside<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Uses the value, in a function that has taken the lock, or in one of those that are called until it is released.
    #[inline(always)]
    pub(crate) fn with<R>(&self, how: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: by the contract of these functions (fourth form) this is the thread that took the lock, and it is in no other of them:
        // `how` is code of this crate, and does not call this function again.
        how(unsafe { &mut *self.0.get() })
    }
}

/// The holder of a [`Lock`].
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so there is no other reference.
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
