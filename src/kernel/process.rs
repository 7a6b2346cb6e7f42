//! Identifies the process that owns something, to distinguish it from a child that `fork` created.
//!
//! A child has copies of everything: of the device file and the shared rings, of handles, and of locks that may be held by
//! threads which do not exist in the child. If the child used them, it would change the parent's objects or wait for ever.
//! Everything that has such a thing therefore has an [`Origin`], which is checked first.
//!
//! A process has one page that the kernel clears in a child (`MADV_WIPEONFORK`, also in a child of the child). Its first word is
//! one. What belongs to the process refers to that word, which is zero in a child. A child that creates objects of its own gets
//! another page, so that the parent's objects still have another owner. The locks in this file are separate for each process, so
//! that no child finds one held. After the first use there is no system call.
//!
//! # Safety
//! - A [`Page`] is mapped by its own call of `mmap`, anonymous, readable and writable, and unmapped only when it is dropped. Its
//!   address leaves this file only as a reference to one of its words, an `AtomicU32`, for which the page is aligned and of which
//!   zero is a valid value. Nothing accesses it otherwise. The reference lives as long as the page does, for ever if that was
//!   leaked.
//! - [`HERE`] is null or points to the beginning of a leaked page, and is derived from a pointer to all of it.
//! - The pointers in statics are null or point to words that live for ever. Those in an [`Owner`] and a [`Holder`] are never
//!   null.
//! - The pointer in a [`Local`] is null or that of a box which is freed with it. In a child it is that of a box made there, and
//!   the copy of the parent's box stays allocated. Only `Send` values are put into a box, because all threads share it.
//! - `MADV_WIPEONFORK` changes nothing in this process; in a child the word reads zero, a value like any other.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::libc;

use crate::kernel::error::{Error, Result};

/// The size of a page, or less: the kernel rounds it up.
const PAGE: usize = 4096;
const WORDS_OF_PAGE: usize = PAGE / size_of::<AtomicU32>();

/// The word of this process, on its page. In a child that has no page yet, the word of the parent.
static HERE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Ensures that one thread of this process at a time takes an [`Owner`].
static TAKES: Local<()> = Local::new(|()| ());

/// The page whose words the next [`Shared`]s use, and how many are used. A child has one of its own, so that it and its parent never
/// use the same word for two things.
static SHARED: Local<SharedPage> = Local::new(|_| None);

/// The word that belongs to no process.
static NOWHERE: AtomicU32 = AtomicU32::new(0);

/// A process. Its word is zero in every other process.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Origin(&'static AtomicU32);

impl Origin {
    /// This process.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory for its page, which the first call maps.
    pub(crate) fn new() -> Result<Self, Errno> {
        loop {
            let known = HERE.load(Ordering::Acquire);
            if let Some(origin) = word(known).map(Self).filter(|origin| origin.is_here()) {
                return Ok(origin);
            }
            let page = Page::wiped()?;
            page.words()[0].store(1, Ordering::Relaxed);
            let first = page.0.as_ptr();
            // If several threads arrive here together, one keeps its page and the others drop theirs.
            if HERE.compare_exchange(known, first, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(Self(&page.leak()[0]));
            }
        }
    }

    /// This process. If there is no memory for its page, the result belongs to no process, so that everything is refused.
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn here() -> Self {
        Self::new().unwrap_or(Self(&NOWHERE))
    }

    /// Whether this is the current process.
    #[inline]
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn is_here(self) -> bool {
        // No order is needed: the page of a child is zero from the start.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Checks whether this is the current process, for callers that check only once per call.
    #[inline(always)]
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn ask(self) -> Option<Here> {
        self.is_here().then_some(Here(self.0))
    }

    /// Whether `here` is the answer of this origin.
    #[inline]
    pub(crate) fn is(self, here: Here) -> bool {
        std::ptr::eq(self.0, here.0)
    }

    /// Refuses `op` in another process.
    #[inline]
    pub(crate) fn check(self, op: &'static str) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(elsewhere(op)) }
    }
}

/// The answer of an [`Origin`] that is the current process. It is valid during the call in which it was obtained; after a fork it
/// would be wrong.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Here(&'static AtomicU32);

/// The process that holds something for longer than one call; none at first.
#[cfg(feature = "raw")]
#[derive(Debug)]
pub struct Holder(AtomicPtr<AtomicU32>);

#[cfg(feature = "raw")]
impl Holder {
    /// A holder for something that is not held.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::from_ref(&NOWHERE).cast_mut()))
    }

    /// From now on, this process holds it.
    #[inline(always)]
    pub fn hold(&self, origin: Origin) {
        self.0.store(std::ptr::from_ref(origin.0).cast_mut(), Ordering::Relaxed);
    }

    /// From now on, no process holds it.
    #[inline(always)]
    pub fn release(&self) {
        self.0.store(std::ptr::from_ref(&NOWHERE).cast_mut(), Ordering::Relaxed);
    }

    /// Whether this process holds it.
    #[inline(always)]
    pub fn ask(&self) -> Option<Here> {
        // No order is needed: the value is read by the thread that called `hold`, and by a child, which has its own copy. SAFETY:
        // never null, and to a word that lives for ever.
        Origin(unsafe { &*self.0.load(Ordering::Relaxed) }).ask()
    }
}

/// The error for something that belongs to the other process of a fork.
#[cold]
#[inline(never)]
pub(crate) fn elsewhere(op: &'static str) -> Error {
    let hint = "since a fork it belongs to another process; open or create it again in this one";
    Error::refused(op, Errno::EIO, hint)
}

/// A word that is all ones while a short code path may be taken. It is zero in another process, and after the gate was closed, so that one
/// read checks both.
#[derive(Debug)]
pub(crate) struct Gate(Passage);

/// The word of a [`Gate`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage(&'static AtomicU32);

/// The words of this process that gates use.
#[derive(Debug, Default)]
struct Words {
    /// Words that no gate uses.
    free: Vec<&'static AtomicU32>,
    /// Whether the words of the process's own page were already distributed.
    has_begun: bool,
}

impl Words {
    fn take(&mut self) -> Option<&'static AtomicU32> {
        if self.free.is_empty() {
            let has_begun = std::mem::replace(&mut self.has_begun, true);
            self.free.extend(if has_begun { Page::wiped().ok()?.leak() } else { rest_of_page()? });
        }
        self.free.pop()
    }
}

/// The page of this process without its first word; `None` if there is no memory for it.
fn rest_of_page() -> Option<&'static [AtomicU32]> {
    let here = Origin::new().ok()?;
    let page = HERE.load(Ordering::Acquire);
    if !std::ptr::eq(page, here.0) {
        return None;
    }
    // SAFETY: null, or the beginning of a page that is never unmapped, by a pointer to all of it.
    unsafe { page.cast::<[AtomicU32; WORDS_OF_PAGE]>().as_ref() }.map(|words| &words[1..])
}

static WORDS: Local<Words> = Local::new(|_| Words::default());

impl Gate {
    /// An open gate. It is closed if there is no memory for its word.
    pub(crate) fn open() -> Self {
        let word = WORDS.lock().take().unwrap_or(&NOWHERE);
        if !std::ptr::eq(word, &NOWHERE) {
            word.store(u32::MAX, Ordering::Relaxed);
        }
        Self(Passage(word))
    }

    /// Closes the gate. Code that finds it closed sees everything that happened before.
    pub(crate) fn close(&self) {
        self.0.0.store(0, Ordering::Release);
    }

    pub(crate) fn passage(&self) -> Passage {
        self.0
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // In a child, this is a word of another page, which is cleared and may be used like any other.
        self.close();
        if !std::ptr::eq(self.0.0, &NOWHERE) {
            WORDS.lock().free.push(self.0.0);
        }
    }
}

#[cfg(any(feature = "raw", test))]
impl Default for Passage {
    /// A closed gate.
    fn default() -> Self {
        Self(&NOWHERE)
    }
}

impl Passage {
    /// All ones, or zero.
    #[inline]
    pub(crate) fn word(self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.word() != 0
    }
}

/// The owner of something that several processes could own, a process and its children. At first there is none; the first process
/// to take it owns it for ever.
#[derive(Debug)]
pub(crate) struct Owner {
    /// The word of the owner, if this process knows it.
    here: AtomicPtr<AtomicU32>,
    /// Whether there is an owner.
    is_taken: Shared,
    maker: Origin,
}

impl Owner {
    /// Without an owner.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory.
    pub(crate) fn new() -> Result<Self, Errno> {
        let maker = Origin::new()?;
        let nobody = AtomicPtr::new(std::ptr::from_ref(&NOWHERE).cast_mut());
        Ok(Self { here: nobody, is_taken: Shared::new(&SHARED)?, maker })
    }

    /// The owner; none if it is another process.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        // No order is needed: an object that was created after this changed can be reached only by code that has seen the change.
        // SAFETY: never null, and to a word that lives for ever.
        Origin(unsafe { &*self.here.load(Ordering::Relaxed) })
    }

    /// Whether this process is the owner.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin().is_here()
    }

    /// Whether this process created the [`Owner`].
    pub(crate) fn is_made_here(&self) -> bool {
        self.maker.is_here()
    }

    /// Takes it if there is no owner. Returns whether this process is now the owner.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.is_here() || self.take_first()
    }

    #[cold]
    #[inline(never)]
    fn take_first(&self) -> bool {
        let Ok(here) = Origin::new() else { return false };
        // Another thread of this process may be taking it at the moment. A child that is created meanwhile has its own lock, and
        // finds it taken or not taken.
        let _turn = TAKES.lock();
        if self.is_here() {
            return true;
        }
        let taken = self.is_taken.word().compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if taken {
            self.here.store(std::ptr::from_ref(here.0).cast_mut(), Ordering::Relaxed);
        }
        taken
    }

    /// Whether no other process is the owner.
    pub(crate) fn is_free_or_here(&self) -> bool {
        self.is_here() || self.is_taken.word().load(Ordering::Acquire) == 0 || self.take_first()
    }
}

/// A word, zero at first, that a process shares with the children that it creates from now on. A word is never used again, because a
/// child may still have it. Its page is unmapped when all its words were used and are dropped.
#[derive(Debug)]
struct Shared {
    page: Arc<Page>,
    index: usize,
}

type SharedPage = Option<(Arc<Page>, usize)>;

impl Shared {
    /// With the next word of the current page, or with the first word of a new one.
    fn new(current: &Local<SharedPage>) -> Result<Self, Errno> {
        let mut current = current.lock();
        let (page, index) = match &*current {
            Some((page, used)) if *used < WORDS_OF_PAGE => (page.clone(), *used),
            _ => (Arc::new(Page::shared()?), 0),
        };
        *current = Some((page.clone(), index + 1));
        Ok(Self { page, index })
    }

    fn word(&self) -> &AtomicU32 {
        &self.page.words()[self.index]
    }
}

/// A value with a lock, separate for each process. A child of `fork` starts with what it inherits from its parent's value, or
/// with nothing if a thread held the lock at the fork.
///
/// All threads of a process share the value, so it can only contain what may be sent from one thread to another:
///
#[cfg_attr(feature = "raw", doc = "```")]
#[cfg_attr(not(feature = "raw"), doc = "```text")]
/// use std::sync::Arc;
/// uverbs::raw::Local::<Vec<Arc<u8>>>::new(Vec::clone);
/// ```
///
#[cfg_attr(feature = "raw", doc = "```compile_fail")]
#[cfg_attr(not(feature = "raw"), doc = "```text")]
/// use std::rc::Rc;
/// uverbs::raw::Local::<Vec<Rc<u8>>>::new(Vec::clone);
/// ```
#[derive(Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Local<T> {
    /// Null, or a box that only the drop of this value frees.
    place: AtomicPtr<(Origin, Mutex<T>)>,
    inherit: fn(&T) -> T,
}

impl<T: Default + Send> Local<T> {
    /// With the default value. `inherit` derives the value of a child from its parent's.
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub const fn new(inherit: fn(&T) -> T) -> Self {
        Self { place: AtomicPtr::new(std::ptr::null_mut()), inherit }
    }

    /// Locks the value of this process.
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            let known = self.place.load(Ordering::Acquire);
            // SAFETY: null, or a box that lives as long as `self`.
            let known_place = unsafe { known.as_ref() };
            // If there is no memory for a page, the process continues with what it has.
            let here = Origin::new();
            match known_place {
                Some((origin, value)) if origin.is_here() || here.is_err() => {
                    return value.lock().unwrap_or_else(PoisonError::into_inner);
                }
                _ => {}
            }
            let inherited = known_place.and_then(|(_, value)| Some((self.inherit)(&*value.try_lock().ok()?)));
            let origin = here.unwrap_or(Origin(&NOWHERE));
            let place = Box::into_raw(Box::new((origin, Mutex::new(inherited.unwrap_or_default()))));
            if self.place.compare_exchange(known, place, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: no other code has a reference to it.
                drop(unsafe { Box::from_raw(place) });
            }
        }
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        let place = *self.place.get_mut();
        if !place.is_null() {
            // SAFETY: from `Box::into_raw`, and no reference to it is left. (What a child inherited from stays allocated.)
            drop(unsafe { Box::from_raw(place) });
        }
    }
}

/// The word to which one of the pointers in this file points.
#[inline]
fn word(pointer: *mut AtomicU32) -> Option<&'static AtomicU32> {
    // SAFETY: null, or a word that lives for ever.
    unsafe { pointer.as_ref() }
}

/// A page of words.
#[derive(Debug)]
struct Page(NonNull<AtomicU32>);

// SAFETY: a page only gives access to atomics, which any thread may use, and any thread may unmap it.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A page that a process shares with its children.
    fn shared() -> Result<Self, Errno> {
        Self::map(libc::MAP_SHARED)
    }

    /// A page that the kernel clears in a child.
    fn wiped() -> Result<Self, Errno> {
        let page = Self::map(libc::MAP_PRIVATE)?;
        if !cfg!(miri) {
            // SAFETY: the page is a mapping of our own, private and anonymous as madvise(2) requires.
            let answer = unsafe { libc::madvise(page.0.as_ptr().cast(), PAGE, libc::MADV_WIPEONFORK) };
            Errno::result(answer)?;
        }
        Ok(page)
    }

    fn map(sharing: i32) -> Result<Self, Errno> {
        // Miri maps privately only; it has one process.
        let sharing = if cfg!(miri) { libc::MAP_PRIVATE } else { sharing };
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        NonNull::new(base.cast()).map(Self).ok_or(Errno::ENOMEM)
    }

    fn words(&self) -> &[AtomicU32; WORDS_OF_PAGE] {
        // SAFETY: the page, which is mapped while `self` exists.
        unsafe { self.0.cast().as_ref() }
    }

    /// Leaks the page, and returns all its words.
    fn leak(self) -> &'static [AtomicU32; WORDS_OF_PAGE] {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the page, which is never unmapped.
        unsafe { this.0.cast().as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; no reference to it is left. It cannot fail.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests;
