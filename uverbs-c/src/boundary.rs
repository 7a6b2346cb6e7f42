//! Data from C (pointers, arrays, texts), and objects that C holds.
//!
//! # Safety
//! A function of C has a contract, its manual page, which no compiler checks: a pointer is null or points to what the page describes, for
//! as long as the page says, and nothing changes it during the call except as the page says. This crate relies on the contract in these
//! forms only:
//! - a parameter `&T`, `Option<&T>`, `Option<Box<T>>` or [`Given`] of an exported function: an object that this library created and that
//!   was not destroyed, or a structure of the caller;
//! - a [`Pointer`] in such a structure, or an [`Array`], a [`Places`], a [`Handed`] or a [`Text`]: created only by C, or by
//!   [`Pointer::to`] and [`Pointer::cookie`] from a reference. What it points to follows from the type and the count where it is read;
//! - the cookie of an event is the address of the object with which it was created. The object still exists: its destruction waits until
//!   every event that was read is acknowledged, and the kernel removes the unread ones;
//! - between `wr_start` and `wr_complete` or `wr_abort` of a queue pair, its functions are called by the thread that called `wr_start`,
//!   and by no other (ibv_wr_post(3)); see [`Lock::held`]. The same is true of the functions that read completions, and of a completion
//!   queue between a `start_poll` that returned zero and `end_poll` (ibv_create_cq_ex(3)); see [`Beside`].
//!
//! Data that C and this library may change at the same time is in a `Cell` or an atomic, or behind a lock. A range of memory that is
//! registered belongs to the caller until it is deregistered, as ibv_reg_mr(3) says.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use uverbs::raw::{Here, Holder, InPlace, Origin, Range, Region};
use uverbs::{CompletionQueue, ProtectionDomain, Result};

use crate::answer::{Answer, Code};

/// A pointer in a structure.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
pub(crate) struct Pointer(*const c_void);

impl Pointer {
    pub(crate) const NULL: Self = Self(std::ptr::null());

    /// To something that outlives the use of the pointer.
    pub(crate) fn to<T>(target: &T) -> Self {
        Self(std::ptr::from_ref(target).cast())
    }

    /// To the first of several items, or, if there are none, to where they would be.
    pub(crate) fn to_first<T>(targets: &[T]) -> Self {
        Self(targets.as_ptr().cast())
    }

    pub(crate) fn to_text(text: &'static CStr) -> Self {
        Self(text.as_ptr().cast())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The number that the kernel puts into events about `target`.
    pub(crate) fn cookie<T>(target: &T) -> u64 {
        std::ptr::from_ref(target).expose_provenance() as u64
    }

    /// From the cookie of an event, or from a word of a request.
    pub(crate) fn from_word(word: u64) -> Self {
        Self(std::ptr::with_exposed_provenance(word as usize))
    }

    pub(crate) fn word(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// What it points to; `None` if it is null.
    pub(crate) fn get<'a, T>(self) -> Option<&'a T> {
        // SAFETY: by the contract of the call this came with, it is null or points to a `T` (second and third points).
        unsafe { self.0.cast::<T>().as_ref() }
    }

    /// The item at `index` of the array to which it points.
    pub(crate) fn item<'a, T>(self, index: usize) -> Option<&'a T> {
        if self.is_null() { None } else { Self(self.0.cast::<T>().wrapping_add(index).cast()).get() }
    }

    /// The array of `count` items to which it points. It may be null if there are none.
    #[inline(always)]
    pub(crate) fn array<'a, T: zerocopy::FromBytes>(self, count: u32) -> Option<&'a [T]> {
        const { assert!(size_of::<T>() <= 1 << 16 && usize::BITS >= 64) }
        if count == 0 {
            return Some(&[]);
        }
        // SAFETY: by the contract, there are as many items; they are plain numbers, valid whatever they contain. A count of 32 bits is
        // smaller than what a process can have.
        (!self.0.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.0.cast(), count as usize) })
    }

    /// The items to which it points. `None` if it is null and `count` is not zero, or if a process cannot have that many.
    #[inline]
    pub(crate) fn items<'a, T: zerocopy::FromBytes>(self, count: usize) -> Option<&'a [T]> {
        if count == 0 { Some(&[]) } else { self.some_items(count) }
    }

    /// The same, but `None` also if it is null and there are no items.
    #[inline(always)]
    pub(crate) fn some_items<'a, T: zerocopy::FromBytes>(self, count: usize) -> Option<&'a [T]> {
        if self.0.is_null() || !fits::<T>(count) {
            return None;
        }
        // SAFETY: by the contract, there are as many items; they are plain numbers, valid whatever they contain.
        Some(unsafe { std::slice::from_raw_parts(self.0.cast(), count) })
    }
}

/// Whether a process can have an array of `count` items: a larger slice must not be created.
fn fits<T>(count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

/// Room for items that this library writes. Only one value exists for each room, so that the same room is not used twice.
#[repr(transparent)]
pub(crate) struct Places<'a, T>(*mut T, PhantomData<&'a mut T>);

/// Room for one item, which is uninitialised until it is written.
#[repr(transparent)]
pub(crate) struct Room<T>(pub(crate) MaybeUninit<T>);

impl<T> Room<T> {
    pub(crate) fn write(&mut self, item: T) {
        self.0.write(item);
    }
}

impl<T> Places<'_, T> {
    #[cfg(test)]
    pub(crate) fn of(items: &mut [T]) -> Places<'_, T> {
        Places(items.as_mut_ptr(), PhantomData)
    }

    #[inline(always)]
    pub(crate) fn first(&mut self) -> Option<&mut Room<T>> {
        // SAFETY: by the contract, it is null or there is room for one item, which nothing else uses during the call.
        unsafe { self.0.cast::<Room<T>>().as_mut() }
    }

    #[inline(always)]
    pub(crate) fn get(&mut self, count: usize) -> &mut [Room<T>] {
        if self.0.is_null() || !fits::<T>(count) {
            return &mut [];
        }
        // SAFETY: by the contract, there is room for as many items, and nothing else uses it during the call.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), count) }
    }
}

impl Places<'_, u8> {
    /// Writes the first `size` bytes of `value`, which may be from another version of the structure; nothing if this is null.
    pub(crate) fn write_prefix<T: Copy>(&mut self, value: &T, size: usize) -> Option<()> {
        let size = size.min(size_of::<T>());
        (!self.0.is_null()).then(|| {
            // SAFETY: `value` has at least as many bytes, and by the contract so has the caller's structure. Padding is copied without
            // being read.
            unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), self.0, size) }
        })
    }
}

/// A text that ends with a zero byte.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Option<&CStr> {
        // SAFETY: by the contract, it is null or a text.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

/// A pointer to something that C has, or will have, and gives back once.
#[repr(transparent)]
pub(crate) struct Handed(pub(crate) Pointer);

/// Objects that C holds. `T` begins with the structure that C knows, and has a reference count.
pub(crate) struct Counted;

impl Counted {
    /// Gives one reference to C.
    pub(crate) fn give<T>(object: Arc<T>) -> Handed {
        Handed(Pointer(Arc::into_raw(object).cast()))
    }

    /// Takes a reference back from C.
    pub(crate) fn take<T>(Handed(pointer): Handed) -> Option<Arc<T>> {
        // SAFETY: it was made by `give`, and C gives it back once (ibv_free_device_list(3)).
        (!pointer.0.is_null()).then(|| unsafe { Arc::from_raw(pointer.0.cast::<T>()) })
    }

    /// Another reference to an object of which C has one.
    pub(crate) fn share<T>(pointer: Pointer) -> Option<Arc<T>> {
        if pointer.is_null() {
            return None;
        }
        let pointer = pointer.0.cast::<T>();
        // SAFETY: it was made by `give`, and C has a count of it.
        Some(unsafe {
            Arc::increment_strong_count(pointer);
            Arc::from_raw(pointer)
        })
    }
}

/// An object that C gives back in order to destroy it. It is not a `Box`, which would need exclusive access: until the object is freed,
/// other threads may still acknowledge its events.
#[repr(transparent)]
pub(crate) struct Given<T>(*mut T);

impl<T> Given<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: by the contract, it is null or an object of this library that is not yet destroyed.
        unsafe { self.0.as_ref() }
    }

    #[cfg(test)]
    pub(crate) fn of(object: Box<T>) -> Self {
        Self(Box::into_raw(object))
    }

    /// Frees the object.
    pub(crate) fn free(self) {
        if !self.0.is_null() {
            // SAFETY: it was given to C as a `Box`, and C gives it back once.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

/// Gives C a list that ends with null. Its length is stored before the list.
pub(crate) fn give_list(items: Vec<Handed>) -> Pointer {
    let length = Pointer::from_word(items.len() as u64);
    let list: Box<[Pointer]> =
        [length].into_iter().chain(items.into_iter().map(|item| item.0)).chain([Pointer::NULL]).collect();
    let list = Box::into_raw(list).cast::<Pointer>();
    // SAFETY: there are two items at least.
    Pointer(unsafe { list.add(1) }.cast())
}

/// Takes back a list that [`give_list`] created.
pub(crate) fn take_list(Handed(list): Handed) -> Vec<Handed> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: `give_list` created it, so its length is stored before it, followed by as many items and a null.
    let items = unsafe {
        let first = list.0.cast::<Pointer>().cast_mut().sub(1);
        let length = (*first).word() as usize;
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, length + 2))
    };
    items[1..items.len() - 1].iter().copied().map(Handed).collect()
}

/// Registers memory of the caller.
pub(crate) fn register(pd: &ProtectionDomain, range: Range) -> Result<Region> {
    // SAFETY: the caller keeps the memory until it is deregistered (last paragraph of the module's page).
    unsafe { pd.register_at(range) }
}

/// Changes the access flags, the memory or the protection domain of a region.
pub(crate) fn change(
    region: &mut Region,
    flags: u32,
    range: Range,
    pd: Option<&ProtectionDomain>,
) -> Result<()> {
    // SAFETY: as for `register`.
    unsafe { region.change(flags, range, pd) }
}

/// Gives a boxed object to C, which uses the part at `offset` in it.
pub(crate) fn give_part<W>(whole: Box<W>, offset: usize) -> Pointer {
    let whole = Box::into_raw(whole).cast::<u8>();
    debug_assert!(offset < size_of::<W>());
    // SAFETY: the offset is that of a part.
    Pointer(unsafe { whole.add(offset) }.cast())
}

/// Takes back an object that [`give_part`] gave.
pub(crate) fn take_part<W>(Handed(part): Handed, offset: usize) -> Option<Box<W>> {
    // SAFETY: `give_part` made the pointer, and C gives it back once (ibv_close_device(3)).
    (!part.is_null()).then(|| unsafe { Box::from_raw(part.0.cast::<u8>().sub(offset).cast_mut().cast()) })
}

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

    /// The same, but `None` if it is locked for several calls, perhaps by this thread. Other threads are waited for.
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

    /// Locks it if it is free. Returns false, with nothing locked, in a child that cannot lock it.
    #[must_use]
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

    /// Uses the value that [`Lock::keep`] locked, in a child too: for values that check themselves which process owns them.
    #[inline(always)]
    pub(crate) fn kept<R>(&self, how: impl FnOnce(&mut T) -> R) -> Option<R> {
        let is_kept = self.state.load(Ordering::Relaxed) == KEPT;
        // SAFETY: by the contract of the calls between `keep` and `give_back`, this is the thread that took the lock, and it is in none
        // of these calls (fourth form). A child first checks which process owns the value, which does not change.
        is_kept.then(|| how(unsafe { &mut *self.value.get() }))
    }

    /// As [`Lock::held`], and then unlocks it. In a child nothing is unlocked, because it may not have been locked there.
    #[inline(always)]
    pub(crate) fn end<R>(&self, how: impl FnOnce(&mut T, Here) -> R) -> Option<R> {
        let answer = self.held(how)?;
        self.holder.release();
        self.give_back();
        Some(answer)
    }

    /// Unlocks what [`Lock::keep`] locked. The caller knows that this process locked it.
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

/// The completions of a queue with rings, which are read in the ring itself.
pub(crate) fn in_place(queue: &CompletionQueue) -> Option<InPlace> {
    // SAFETY: the queue is in a lock, which is held from the start of a poll to its end, and whenever completions are taken otherwise.
    unsafe { queue.in_place() }
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
