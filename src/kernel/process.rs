//! The process that something belongs to, and not a child that `fork` made of it.
//!
//! A child has copies of everything: of the device file and the shared rings, of handles, and of locks that were held by threads
//! that it does not have. What it did with them it would do to its parent, or wait for ever. So everything that has such a
//! thing has an [`Origin`], which is asked first.
//!
//! A process has one page that the kernel wipes in a child (`MADV_WIPEONFORK`, also in a child of the child), with a one
//! in it. What belongs to the process looks at that word: it is zero in a child. A child that makes something of its own has
//! another page, so that what was its parent's stays that. The locks in here are each process's own, so that no child finds
//! one held, and there is no system call after the first.
//!
//! # Safety
//! - A [`Page`] is mapped by its own call of `mmap`, anonymous, readable and writable, and unmapped only when it is dropped. Its
//!   address gets out of this file only as a reference to its first word, an `AtomicU32`, for which it is aligned and of which
//!   zero is a value; or, of a page that was leaked, to any of its words. Nobody touches it otherwise. The reference lives as long as the
//!   page does, for ever if that was leaked.
//! - What [`HERE`] leads to is the beginning of a leaked page, by a pointer to all of it.
//! - The pointers in statics are null or to words that live for ever, and those in an [`Owner`] and a [`Holder`] never null.
//! - The pointer in a [`Local`] is null or that of a box which is freed with it; in a child, after its copy of an older one, which
//!   stays allocated. Only what is `Send` gets into one, since all threads share it.
//! - `MADV_WIPEONFORK` changes nothing in this process; in a child the word reads zero, a value like any other.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::libc;

use crate::kernel::error::{Error, Result};

/// The size of a page, or less: the kernel rounds it up.
const PAGE: usize = 4096;
const WORDS_OF_PAGE: usize = PAGE / size_of::<AtomicU32>();

/// The word of this process, on its page. That of the parent, in a child that has none yet.
static HERE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Of the threads of this process one at a time takes an [`Owner`].
static TAKES: Local<()> = Local::new(|()| ());

/// The word of no process.
static NOWHERE: AtomicU32 = AtomicU32::new(0);

/// A process. Its word is zero in every other.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Origin(&'static AtomicU32);

impl Origin {
    /// This process.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory for its page, which is made the first time.
    pub(crate) fn new() -> Result<Self, Errno> {
        loop {
            let known = HERE.load(Ordering::Acquire);
            if let Some(origin) = word(known).map(Self).filter(|origin| origin.is_here()) {
                return Ok(origin);
            }
            let page = Page::wiped()?;
            page.word().store(1, Ordering::Relaxed);
            let first = page.0.as_ptr();
            // Of threads that come here together one goes on with its page; the others drop theirs.
            if HERE.compare_exchange(known, first, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(Self(&page.leak()[0]));
            }
        }
    }

    /// This process. Without memory for its page it is none, so that all that is asked for is refused.
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn here() -> Self {
        Self::new().unwrap_or(Self(&NOWHERE))
    }

    /// Whether this process is meant.
    #[inline]
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn is_here(self) -> bool {
        // No order is needed: the page of a child is zero from its first moment on.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Asks whether this process is meant, for whoever asks no more in the same call.
    #[inline(always)]
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn ask(self) -> Option<Here> {
        self.is_here().then_some(Here(self.0))
    }

    /// Whether this is what was asked.
    #[inline(always)]
    pub(crate) fn is(self, here: Here) -> bool {
        std::ptr::eq(self.0, here.0)
    }

    /// Refuses `op` in another process.
    #[inline]
    pub(crate) fn check(self, op: &'static str) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(elsewhere(op)) }
    }
}

/// The answer of an [`Origin`] that is this process. It is good for the call in which it was asked for: after a fork it would be
/// wrong.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Here(&'static AtomicU32);

/// The process that holds something over more than one call; none at first.
#[cfg(feature = "raw")]
#[derive(Debug)]
pub struct Holder(AtomicPtr<AtomicU32>);

#[cfg(feature = "raw")]
impl Holder {
    /// Of what nobody holds.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::from_ref(&NOWHERE).cast_mut()))
    }

    /// From now on that process holds it.
    #[inline(always)]
    pub fn hold(&self, origin: Origin) {
        self.0.store(std::ptr::from_ref(origin.0).cast_mut(), Ordering::Relaxed);
    }

    /// From now on nobody does.
    #[inline(always)]
    pub fn release(&self) {
        self.0.store(std::ptr::from_ref(&NOWHERE).cast_mut(), Ordering::Relaxed);
    }

    /// Whether this process holds it.
    #[inline(always)]
    pub fn ask(&self) -> Option<Here> {
        // No order is needed: it is for the thread that called `hold`, and for a child, which has its own copy.
        // SAFETY: never null, and to a word that lives for ever.
        Origin(unsafe { &*self.0.load(Ordering::Relaxed) }).ask()
    }
}

/// The error of what belongs to the process on the other side of a fork.
#[cold]
#[inline(never)]
pub(crate) fn elsewhere(op: &'static str) -> Error {
    let hint = "since a fork it belongs to another process; open or create it again in this one";
    Error::refused(op, Errno::EIO, hint)
}

/// A word that is all ones as long as a short way is open: zero in another process, and once it was closed. So that who goes the
/// short way asks both with one look.
#[derive(Debug)]
pub(crate) struct Gate(Passage);

/// The word of a [`Gate`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage(&'static AtomicU32);

/// Words of this process, for gates.
#[derive(Debug, Default)]
struct Words {
    /// Which nobody has.
    free: Vec<&'static AtomicU32>,
    /// Whether those of the process's own page were given out.
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

/// The page of this process but for its first word; none without memory for it.
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
    /// One that is open; closed when there is no memory for its word.
    pub(crate) fn open() -> Self {
        let word = WORDS.lock().take().unwrap_or(&NOWHERE);
        if !std::ptr::eq(word, &NOWHERE) {
            word.store(u32::MAX, Ordering::Relaxed);
        }
        Self(Passage(word))
    }

    /// Closes it. What was done before is seen by who finds it closed.
    pub(crate) fn close(&self) {
        self.0.0.store(0, Ordering::Release);
    }

    pub(crate) fn passage(&self) -> Passage {
        self.0
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // In a child the word is one of its own by now, like any of another page.
        self.close();
        if !std::ptr::eq(self.0.0, &NOWHERE) {
            WORDS.lock().free.push(self.0.0);
        }
    }
}

#[cfg(any(feature = "raw", test))]
impl Default for Passage {
    /// One that is closed.
    fn default() -> Self {
        Self(&NOWHERE)
    }
}

impl Passage {
    /// All ones, or zero.
    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn is_open(self) -> bool {
        self.word() != 0
    }
}

/// Who has something that several processes could have, since they are a process and its children: nobody at first, and then the one
/// that takes it, for ever.
#[derive(Debug)]
pub(crate) struct Owner {
    /// The word of the process that has it, if this process knows.
    here: AtomicPtr<AtomicU32>,
    /// Whether a process has it: a word that all of them share.
    is_taken: Page,
    maker: Origin,
}

impl Owner {
    /// Of what nobody has yet.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory.
    pub(crate) fn new() -> Result<Self, Errno> {
        let maker = Origin::new()?;
        let nobody = AtomicPtr::new(std::ptr::from_ref(&NOWHERE).cast_mut());
        Ok(Self { here: nobody, is_taken: Page::shared()?, maker })
    }

    /// The process that has it; none if this is another.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        // No order is needed: whoever has an object that was made after this changed has seen the change.
        // SAFETY: never null, and to a word that lives for ever.
        Origin(unsafe { &*self.here.load(Ordering::Relaxed) })
    }

    /// Whether this process has it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin().is_here()
    }

    /// Whether this process made it.
    pub(crate) fn is_made_here(&self) -> bool {
        self.maker.is_here()
    }

    /// Takes it, if nobody has it; whether this process has it now.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.is_here() || self.take_first()
    }

    #[cold]
    #[inline(never)]
    fn take_first(&self) -> bool {
        let Ok(here) = Origin::new() else { return false };
        // Another thread of this process may just be taking it. A child that is made meanwhile has its own lock, and finds it
        // taken or not.
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

    /// Whether no other process has it.
    pub(crate) fn is_free_or_here(&self) -> bool {
        self.is_here() || self.is_taken.word().load(Ordering::Acquire) == 0 || self.take_first()
    }
}

/// A value with a lock, one for each process. A child of `fork` goes on with what it inherits from its parent's, or with
/// nothing if a thread had the lock at the fork.
///
/// All threads of a process reach its value, so only what may go from one thread to another can be in it:
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
    /// None yet, or a box that only a drop of this frees.
    place: AtomicPtr<(Origin, Mutex<T>)>,
    inherit: fn(&T) -> T,
}

impl<T: Default + Send> Local<T> {
    /// Of the default, with what a child makes of its parent's.
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub const fn new(inherit: fn(&T) -> T) -> Self {
        Self { place: AtomicPtr::new(std::ptr::null_mut()), inherit }
    }

    /// This process's.
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            let known = self.place.load(Ordering::Acquire);
            // SAFETY: null, or a box that lives as long as `self`.
            let known_place = unsafe { known.as_ref() };
            // Where there is no memory for a page the process goes on with what there is.
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
                // SAFETY: nobody else has seen it.
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

/// What one of the pointers of this file leads to.
#[inline]
fn word(pointer: *mut AtomicU32) -> Option<&'static AtomicU32> {
    // SAFETY: null, or a word that lives for ever.
    unsafe { pointer.as_ref() }
}

/// A page with one word.
#[derive(Debug)]
struct Page(NonNull<AtomicU32>);

// SAFETY: all that can be done with it is done with an atomic; any thread may unmap it.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Which a process has in common with its children.
    fn shared() -> Result<Self, Errno> {
        Self::map(libc::MAP_SHARED)
    }

    /// Of which a child has another one, with zero in it.
    fn wiped() -> Result<Self, Errno> {
        let page = Self::map(libc::MAP_PRIVATE)?;
        if !cfg!(miri) {
            // SAFETY: the page is a mapping of our own, private and anonymous as madvise(2) wants it.
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

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the first word of the page, which is mapped as long as `self` is there.
        unsafe { self.0.as_ref() }
    }

    /// Never unmaps it, and gives all its words.
    fn leak(self) -> &'static [AtomicU32; WORDS_OF_PAGE] {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the page, which is not unmapped any more.
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
