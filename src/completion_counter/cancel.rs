//! Ending waits from outside.

use std::fmt;
use std::sync::Arc;

/// What has waits that can be ended.
pub(crate) trait Cancel: fmt::Debug + Send + Sync {
    fn cancel(&self);
}

/// Ends waits, from any thread: of a [`CompletionCounter`](super::CompletionCounter::canceller), of a
/// [`WaitSet`](super::WaitSet::canceller), or of a [`Progress`](crate::Progress::canceller).
///
/// Cheap to clone. It keeps nothing alive, and does nothing when what it belongs to is gone, and in a child of `fork`.
///
/// ```
/// use uverbs::{CompletionCounter, ErrorKind, WaitObject};
/// # fn main() -> uverbs::Result<()> {
/// let counter = CompletionCounter::new(WaitObject::Unspecified)?;
/// let canceller = counter.canceller();
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| counter.wait(1, None).unwrap_err());
///     canceller.cancel();
///     assert_eq!(waiter.join().expect("no panic").kind(), ErrorKind::Cancelled);
/// });
/// assert_eq!((counter.read(), counter.read_err()), (0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Canceller(Arc<dyn Cancel>);

impl Canceller {
    pub(crate) fn new(of: Arc<dyn Cancel>) -> Self {
        Self(of)
    }

    /// Ends every wait that is in progress, as [`Cancelled`](crate::ErrorKind::Cancelled). If there is none, it ends the next one when it
    /// begins, unless what that waits for has happened already; several cancels in a row end only one then.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// The waits in progress, and their cancels. Behind the lock of what is waited for.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    waits: u32,
    count: u64,
    /// The next wait ends at once.
    is_due: bool,
}

impl Cancels {
    /// A wait begins, and is in progress until [`leave`](Self::leave). Returns the number of cancels before it, or nothing if it is ended
    /// at once.
    pub(super) fn enter(&mut self) -> Option<u64> {
        if std::mem::take(&mut self.is_due) {
            return None;
        }
        self.waits += 1;
        Some(self.count)
    }

    pub(super) fn leave(&mut self) {
        self.waits = self.waits.saturating_sub(1);
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn waits(&self) -> u32 {
        self.waits
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Ends the waits in progress, or the next one.
    pub(super) fn cancel(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.is_due = self.waits == 0;
    }
}
