//! What comes from C: pointers, arrays, texts; and objects that C holds.
//!
//! # Safety
//! A function of C has a contract, its manual page, which no compiler checks: a pointer is null or points to what the
//! page says, for as long as the page says, and nobody changes it during the call but as the page says. All
//! of this crate rests on it in one of these forms, and on nothing else:
//! - a parameter `&T`, `Option<&T>`, `Option<Box<T>>` or [`Given`] of an exported function: an object that this library made
//!   and that was not destroyed, or a structure of the caller's;
//! - a [`Pointer`] in such a structure, or an [`Array`], a [`Places`], a [`Handed`] or a [`Text`]: made only by C, or by [`Pointer::to`] and
//!   [`Pointer::cookie`] from a reference. What it points to is said where it is read, by the type and the count;
//! - the cookie of an event is the address of the object that it was made with. The object is still there, since the
//!   destroy of an object waits until every event of it that was read is acknowledged, and the kernel takes the unread
//!   ones away;
//! - between `wr_start` and `wr_complete` or `wr_abort` of a queue pair, its functions are called by the thread that called
//!   `wr_start`, and by no other (ibv_wr_post(3)); see [`Lock::held`]. The same holds of the functions that read completions, and of
//!   a completion queue between a `start_poll` that answered zero and `end_poll` (ibv_create_cq_ex(3)); see [`Beside`].
//!
//! What C and this library may change at the same time is in a `Cell` or an atomic, or behind a lock. A range of memory to
//! be registered is the caller's until it is deregistered: so says ibv_reg_mr(3).

#![allow(unsafe_code)]

mod lock;

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

use uverbs::raw::{InPlace, Range, Region};
use uverbs::{CompletionQueue, ProtectionDomain, Result};

pub(crate) use self::lock::{Beside, Lock};

/// A pointer in a structure.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
pub(crate) struct Pointer(*const c_void);

impl Pointer {
    pub(crate) const NULL: Self = Self(std::ptr::null());

    /// To something that outlives its use.
    pub(crate) fn to<T>(target: &T) -> Self {
        Self(std::ptr::from_ref(target).cast())
    }

    /// To the first of some things, or to where they would be.
    pub(crate) fn to_first<T>(targets: &[T]) -> Self {
        Self(targets.as_ptr().cast())
    }

    pub(crate) fn to_text(text: &'static CStr) -> Self {
        Self(text.as_ptr().cast())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The number that the kernel shall put into events about `target`.
    pub(crate) fn cookie<T>(target: &T) -> u64 {
        std::ptr::from_ref(target).expose_provenance() as u64
    }

    /// From the cookie of an event, or a word of a request.
    pub(crate) fn from_word(word: u64) -> Self {
        Self(std::ptr::with_exposed_provenance(word as usize))
    }

    pub(crate) fn word(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// What it points to; none if it is null.
    pub(crate) fn get<'a, T>(self) -> Option<&'a T> {
        // SAFETY: by the contract of the call this came with, it is null or points to a `T` (second and third points).
        unsafe { self.0.cast::<T>().as_ref() }
    }

    /// The object whose event has this cookie.
    pub(crate) fn of_event<'a, T>(cookie: u64) -> &'a T {
        // SAFETY: it is the object's address, and the object is there (third form).
        unsafe { &*Self::from_word(cookie).0.cast::<T>() }
    }

    /// The item at `index` of the array it points to.
    pub(crate) fn item<'a, T>(self, index: usize) -> Option<&'a T> {
        if self.is_null() { None } else { Self(self.0.cast::<T>().wrapping_add(index).cast()).get() }
    }

    /// The array it points to, of so many items; it may be null if there are none.
    #[inline(always)]
    pub(crate) fn array<'a, T: zerocopy::FromBytes>(self, count: u32) -> Option<&'a [T]> {
        const { assert!(size_of::<T>() <= 1 << 16 && usize::BITS >= 64) }
        if count == 0 {
            return Some(&[]);
        }
        // SAFETY: by the contract, there are as many items; they are plain numbers, valid whatever they hold. As many as a number of
        // 32 bits says are less than a process can have.
        (!self.0.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.0.cast(), count as usize) })
    }

    /// The items it points to. None if it is null and there is one at least, or if a process cannot have as many.
    #[inline]
    pub(crate) fn items<'a, T: zerocopy::FromBytes>(self, count: usize) -> Option<&'a [T]> {
        if count == 0 { Some(&[]) } else { self.some_items(count) }
    }

    /// The same. None also if it is null and there are none.
    #[inline(always)]
    pub(crate) fn some_items<'a, T: zerocopy::FromBytes>(self, count: usize) -> Option<&'a [T]> {
        if self.0.is_null() || !fits::<T>(count) {
            return None;
        }
        // SAFETY: by the contract, there are as many items; they are plain numbers, valid whatever they hold.
        Some(unsafe { std::slice::from_raw_parts(self.0.cast(), count) })
    }
}

/// Whether a process can have an array of so many items: a slice of more must not be made.
fn fits<T>(count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

/// Room for items that this library writes. There is one of it at a time, so that nobody gets the same room twice.
#[repr(transparent)]
pub(crate) struct Places<'a, T>(*mut T, PhantomData<&'a mut T>);

/// Room for one item, about which nothing is known before it is written.
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
        // SAFETY: by the contract, it is null or there is room for one, which nobody else uses during the call.
        unsafe { self.0.cast::<Room<T>>().as_mut() }
    }

    #[inline(always)]
    pub(crate) fn get(&mut self, count: usize) -> &mut [Room<T>] {
        if self.0.is_null() || !fits::<T>(count) {
            return &mut [];
        }
        // SAFETY: by the contract, there is room for as many, and nobody else uses it during the call.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), count) }
    }
}

impl Places<'_, u8> {
    /// Writes the first `size` bytes of `value`, which may be from another version of the structure; nothing if this is null.
    pub(crate) fn write_prefix<T: Copy>(&mut self, value: &T, size: usize) -> Option<()> {
        let size = size.min(size_of::<T>());
        (!self.0.is_null()).then(|| {
            // SAFETY: `value` has as many bytes, and by the contract so has the caller's structure. Padding is copied as it is,
            // without being looked at.
            unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), self.0, size) }
        })
    }
}

/// A text that ends with zero.
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

/// Objects that C holds: `T` begins with the structure that C knows, and is counted.
pub(crate) struct Counted;

impl Counted {
    /// Hands one count to C.
    pub(crate) fn give<T>(object: Arc<T>) -> Handed {
        Handed(Pointer(Arc::into_raw(object).cast()))
    }

    /// Takes a count back that C had.
    pub(crate) fn take<T>(Handed(pointer): Handed) -> Option<Arc<T>> {
        // SAFETY: it was made by `give`, and C gives it back once (ibv_free_device_list(3)), but for what `share` takes and keeps for it.
        (!pointer.0.is_null()).then(|| unsafe { Arc::from_raw(pointer.0.cast::<T>()) })
    }

    /// Another count of an object that C has one of.
    pub(crate) fn share<T>(pointer: Pointer) -> Option<Arc<T>> {
        // C keeps its own.
        let object = Self::take::<T>(Handed(pointer)).map(ManuallyDrop::new)?;
        Some(Arc::clone(&object))
    }
}

/// An object that C gives back, to be destroyed. Until it is freed other threads may still acknowledge its events: so
/// it is not a `Box`, which nobody else may look into.
#[repr(transparent)]
pub(crate) struct Given<T>(*mut T);

impl<T> Given<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: by the contract, it is null or an object of this library's that is not yet destroyed.
        unsafe { self.0.as_ref() }
    }

    #[cfg(test)]
    pub(crate) fn of(object: Box<T>) -> Self {
        Self(Box::into_raw(object))
    }

    /// Frees it.
    pub(crate) fn free(self) {
        if !self.0.is_null() {
            // SAFETY: it was given to C as a `Box`, and C gives it back once.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

/// A list that ends with null, whose length stands before it.
pub(crate) fn give_list(items: Vec<Handed>) -> Pointer {
    let length = Pointer::from_word(items.len() as u64);
    let list: Box<[Pointer]> =
        [length].into_iter().chain(items.into_iter().map(|item| item.0)).chain([Pointer::NULL]).collect();
    let list = Box::into_raw(list).cast::<Pointer>();
    // SAFETY: there are two items at least.
    Pointer(unsafe { list.add(1) }.cast())
}

/// Takes a list of [`give_list`] back.
pub(crate) fn take_list(Handed(list): Handed) -> Vec<Handed> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: `give_list` made it, so a length stands before it and as many items and a null behind that.
    let items = unsafe {
        let first = list.0.cast::<Pointer>().cast_mut().sub(1);
        let length = (*first).word() as usize;
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, length + 2))
    };
    items[1..items.len() - 1].iter().copied().map(Handed).collect()
}

/// Registers memory of the caller's.
pub(crate) fn register(pd: &ProtectionDomain, range: Range) -> Result<Region> {
    // SAFETY: the caller keeps the memory until it is deregistered (last paragraph of the module's page).
    unsafe { pd.register_at(range) }
}

/// Changes what a region is.
pub(crate) fn change(
    region: &mut Region,
    flags: u32,
    range: Range,
    pd: Option<&ProtectionDomain>,
) -> Result<()> {
    // SAFETY: as for `register`.
    unsafe { region.change(flags, range, pd) }
}

/// Hands a boxed object to C, which knows the part at `offset` in it.
pub(crate) fn give_part<W>(whole: Box<W>, offset: usize) -> Pointer {
    let whole = Box::into_raw(whole).cast::<u8>();
    debug_assert!(offset < size_of::<W>());
    // SAFETY: the offset is that of a part.
    Pointer(unsafe { whole.add(offset) }.cast())
}

/// Takes back what [`give_part`] gave.
pub(crate) fn take_part<W>(Handed(part): Handed, offset: usize) -> Option<Box<W>> {
    // SAFETY: `give_part` made the pointer, and C gives it back once (ibv_close_device(3)).
    (!part.is_null()).then(|| unsafe { Box::from_raw(part.0.cast::<u8>().sub(offset).cast_mut().cast()) })
}

/// The completions of a queue of rings, read where they lie.
pub(crate) fn in_place(queue: &CompletionQueue) -> Option<InPlace> {
    // SAFETY: the queue is in a lock, which is held from the start of a poll to its end, and whenever completions are taken
    // otherwise.
    unsafe { queue.in_place() }
}
