//! The process that opened a device.

use std::sync::atomic::Ordering;

use nix::errno::Errno;

use crate::mapping::Mapping;

/// Tells the process that opened a device from a child that `fork` made of it.
///
/// The child has the device file and the shared rings too. What it did there it would do to its parent's objects:
/// destroy them when its copies are dropped, take their completions. So it is refused everything.
#[derive(Debug)]
pub(super) struct Origin(Mapping);

const HERE: u32 = 1;

impl Origin {
    pub(super) fn new() -> Result<Self, Errno> {
        let page = Mapping::private_page()?;
        page.store(0, HERE, Ordering::Relaxed);
        Ok(Self(page))
    }

    /// Whether this is the process that opened the device.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        // No order is needed: the page of a child is zero from its first moment on.
        self.0.load(0, Ordering::Relaxed) == HERE
    }
}
