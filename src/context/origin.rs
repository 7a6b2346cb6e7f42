//! The process that opened a device.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// Tells the process that opened a device from a child that `fork` made of it.
///
/// The child has the device file and the shared rings too. What it did there it would do to its parent's objects:
/// destroy them when its copies are dropped, take their completions. So it is refused everything.
///
/// The process has one page that the kernel wipes in a child, with a number in it. A child that opens a device itself
/// writes another one there, so that it is not taken for its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// On the page.
    word: &'static AtomicU32,
    number: u32,
}

/// Stays for the life of the process.
static PAGE: OnceLock<Mapping> = OnceLock::new();

/// The last number that this process or one of its parents had.
static LAST: Mutex<u32> = Mutex::new(0);

impl Origin {
    pub(super) fn new() -> Result<Self, Errno> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match PAGE.get() {
            Some(page) => page,
            None => {
                let page = Mapping::private_page()?;
                PAGE.get_or_init(|| page)
            }
        };
        let [word] = page.words(0).ok_or(Errno::ENOMEM)?;
        if word.load(Ordering::Relaxed) == 0 {
            *last = last.wrapping_add(1).max(1);
            word.store(*last, Ordering::Relaxed);
        }
        Ok(Self { word, number: word.load(Ordering::Relaxed) })
    }

    /// Whether this is the process that opened the device.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        // No order is needed: the page of a child is zero from its first moment on.
        self.word.load(Ordering::Relaxed) == self.number
    }

    /// Refuses `op` in a child that `fork` made.
    #[inline]
    pub(crate) fn check(self, op: &'static str) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(elsewhere(op)) }
    }
}

/// The error in a child that `fork` made.
#[cold]
#[inline(never)]
fn elsewhere(op: &'static str) -> Error {
    let hint = "this process was forked from the one that opened the device; open it again here";
    Error::refused(op, Errno::EIO, hint)
}
