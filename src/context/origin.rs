//! The process that opened a device.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;

use crate::mapping::Mapping;

/// Tells the process that opened a device from a child that `fork` made of it.
///
/// The child has the device file and the shared rings too. What it did there it would do to its parent's objects:
/// destroy them when its copies are dropped, take their completions. So it is refused everything.
///
/// The process has one page that the kernel wipes in a child, with a number in it. A child that opens a device itself
/// writes another one there, so that it is not taken for its parent.
#[derive(Debug)]
pub(super) struct Origin {
    page: Mapping,
    number: u32,
}

/// The page, and the last number that this process or one of its parents had.
static PAGE: Mutex<(Option<Mapping>, u32)> = Mutex::new((None, 0));

impl Origin {
    pub(super) fn new() -> Result<Self, Errno> {
        let mut guard = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let (page, last) = &mut *guard;
        let page = match page {
            Some(page) => page.clone(),
            None => page.insert(Mapping::private_page()?).clone(),
        };
        if page.load(0, Ordering::Relaxed) == 0 {
            *last = last.wrapping_add(1).max(1);
            page.store(0, *last, Ordering::Relaxed);
        }
        let number = page.load(0, Ordering::Relaxed);
        Ok(Self { page, number })
    }

    /// Whether this is the process that opened the device.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        // No order is needed: the page of a child is zero from its first moment on.
        self.page.load(0, Ordering::Relaxed) == self.number
    }
}
