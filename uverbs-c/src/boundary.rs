//! Data from C (pointers, arrays, texts), and objects that C holds.
//!
//! # Safety
//! A function of C has a contract, its manual page, which no compiler checks: a pointer is null or points to what the page describes, for
//! as long as the page says, and nothing changes it during the call except as the page says. This crate relies on the contract in these
//! forms only:
//! - a parameter `&T`, `Option<&T>`, `Option<Box<T>>` or [`Given`] of an exported function: an object that this library created and that
//!   was not destroyed, or a structure of the caller;
//! - a [`Pointer`] in such a structure, or a [`Places`], a [`Handed`] or a [`Text`]: created only by C, or by
//!   [`Pointer::to`] and [`Pointer::cookie`] from a reference. What it points to follows from the type and the count where it is read;
//! - the cookie of an event is the address of the object with which it was created. The object still exists: its destruction waits until
//!   every event that was read is acknowledged, and the kernel removes the unread ones;
//! - between `wr_start` and `wr_complete` or `wr_abort` of a queue pair, its functions are called by the thread that called `wr_start`,
//!   and by no other (ibv_wr_post(3)); see [`Lock::held`]. The same is true of the functions that read completions, and of a completion
//!   queue between a `start_poll` that returned zero and `end_poll` (ibv_create_cq_ex(3)); see [`Beside`].
//!
//! Data that C and this library may change at the same time is in a `Cell` or an atomic, or behind a lock. A range of memory that is
//! registered belongs to the caller until it is deregistered, as ibv_reg_mr(3) says. A card accesses pages that the kernel has pinned; a soft
//! device accesses the caller's addresses, so there they must stay mapped until then.

#![allow(unsafe_code)]

mod lock;

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::FromRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use uverbs::raw::{InPlace, Range, Region};
use uverbs::{CompletionQueue, Context, Mapping, ProtectionDomain, Result};

pub(crate) use self::lock::{Beside, Lock};
use crate::providers::{Umem, UmemRange};

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
        // SAFETY: by the contract of the call from which the pointer comes, it is null or points to a `T` (first and second form).
        unsafe { self.0.cast::<T>().as_ref() }
    }

    /// The object whose event has this cookie.
    pub(crate) fn of_event<'a, T>(cookie: u64) -> &'a T {
        // SAFETY: the cookie is the object's address, and the object still exists (third form).
        unsafe { &*Self::from_word(cookie).0.cast::<T>() }
    }

    /// The item at `index` of the array it points to.
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
    pub(crate) fn items<'a, T: zerocopy::FromZeros>(self, count: usize) -> Option<&'a [T]> {
        if count == 0 { Some(&[]) } else { self.some_items(count) }
    }

    /// The items to which it points. `None` if it is null, also if there are no items, or if a process cannot have that many.
    #[inline(always)]
    pub(crate) fn some_items<'a, T: zerocopy::FromZeros>(self, count: usize) -> Option<&'a [T]> {
        if self.0.is_null() || !fits::<T>(count) {
            return None;
        }
        // SAFETY: by the contract, there are as many items: numbers, or structures of C, whose pointers are followed only where a
        // contract says what they point to.
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
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
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

/// Objects that C holds. `T` begins with the structure that C accesses, and has a reference count.
pub(crate) struct Counted;

impl Counted {
    /// Gives one reference to C.
    pub(crate) fn give<T>(object: Arc<T>) -> Handed {
        Handed(Pointer(Arc::into_raw(object).cast()))
    }

    /// Takes a reference back from C.
    pub(crate) fn take<T>(Handed(pointer): Handed) -> Option<Arc<T>> {
        // SAFETY: it was made by `give`, and C gives it back once (ibv_free_device_list(3)); `share` takes it only for a moment, and leaves
        // the reference to C.
        (!pointer.0.is_null()).then(|| unsafe { Arc::from_raw(pointer.0.cast::<T>()) })
    }

    /// Another reference to an object to which C has one.
    pub(crate) fn share<T>(pointer: Pointer) -> Option<Arc<T>> {
        // C keeps its own.
        let object = Self::take::<T>(Handed(pointer)).map(ManuallyDrop::new)?;
        Some(Arc::clone(&object))
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

/// A file that the caller hands over, or not: its owner decides. `None` for a number below zero.
pub(crate) fn given_file(file: c_int) -> Option<ManuallyDrop<File>> {
    // SAFETY: it is not -1, and the caller's contract is that it is an open file (ibv_import_device(3)), which nothing here closes unless
    // the owner takes it over.
    (file >= 0).then(|| ManuallyDrop::new(unsafe { File::from_raw_fd(file) }))
}

/// Registers memory of the caller.
pub(crate) fn register(pd: &ProtectionDomain, range: Range) -> Result<Region> {
    // SAFETY: the caller keeps the memory until it is deregistered (last paragraph of the module's page).
    unsafe { pd.register_at(range) }
}

/// Registers memory of the caller for commands to the firmware.
pub(crate) fn register_umem(context: &Context, range: UmemRange) -> Result<Umem> {
    // SAFETY: as for `register` (mlx5dv_devx_umem_reg(3)).
    unsafe { Umem::register_at(context, range) }
}

/// Memory that the caller's allocator has returned, which `owner` gives back to it. `None` if there is none.
pub(crate) fn memory_of(
    block: Pointer,
    len: usize,
    owner: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
) -> Option<Mapping> {
    let base = NonNull::new(block.0.cast_mut().cast())?;
    // SAFETY: an allocator returns memory of the size that it was asked for, which is the caller's until it is given back
    // (mlx5dv_set_context_attr(3)).
    Some(unsafe { Mapping::from_owner(base, len, owner()) })
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

/// The completions of a queue of rings, read where they lie.
pub(crate) fn in_place(queue: &CompletionQueue) -> Option<InPlace> {
    // SAFETY: the queue is in a lock, which is held from the start of a poll to its end, and whenever completions are taken otherwise.
    unsafe { queue.in_place() }
}
