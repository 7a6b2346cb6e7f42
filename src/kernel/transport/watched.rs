//! A transport with a watcher.

use std::fmt::Debug;

use nix::errno::Errno;

use super::Transport;
use crate::kernel::command::Command;

/// Watches the commands of an open device: for tracing, counting and fault injection.
///
/// It gets each command before it is sent, may refuse it, and gets the answer. It cannot report success in place of the device, so
/// implementing it needs no `unsafe`: a [`Transport`] that did so, for example for a deregistration, would make the library free memory to
/// which a device still writes. See [`Device::open_with`](crate::Device::open_with).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use uverbs::command::Command;
/// use uverbs::transport::{Errno, Watcher};
/// # fn main() -> uverbs::Result<()> {
///
/// #[derive(Clone, Debug, Default)]
/// struct Destroyed(Arc<AtomicUsize>);
///
/// impl Watcher for Destroyed {
///     fn after(&self, command: &Command<'_>, answer: Result<(), Errno>) {
///         if answer.is_ok() && command.op().ends_with(".destroy") {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let destroyed = Destroyed::default();
/// let context = uverbs::SoftDevice::default().device().open_with(destroyed.clone())?;
/// drop(context.alloc_pd()?);
/// assert_eq!(destroyed.0.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
pub trait Watcher: Debug + Send + Sync {
    /// Called with a command before it is sent.
    ///
    /// # Errors
    /// If it returns an errno, the command is not sent and fails with this errno.
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        let _ = command;
        Ok(())
    }

    /// Called with a command and its answer, from the device or from [`before`](Self::before).
    fn after(&self, command: &Command<'_>, answer: Result<(), Errno>) {
        let _ = (command, answer);
    }

    /// Called before device memory is mapped.
    ///
    /// # Errors
    /// If it returns an errno, nothing is mapped.
    fn before_map(&self, offset: u64, len: usize) -> Result<(), Errno> {
        let _ = (offset, len);
        Ok(())
    }

    /// Called with the answer to a mapping of device memory, from the device or from [`before_map`](Self::before_map).
    fn after_map(&self, offset: u64, len: usize, answer: Result<(), Errno>) {
        let _ = (offset, len, answer);
    }
}

/// A transport and its [`Watcher`].
#[derive(Debug)]
pub struct Watched<W> {
    inner: Box<dyn Transport>,
    watcher: W,
}

impl<W: Watcher> Watched<W> {
    /// Lets `watcher` watch `inner`.
    pub fn new(inner: Box<dyn Transport>, watcher: W) -> Self {
        Self { inner, watcher }
    }

    pub(super) fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    pub(super) fn watcher(&self) -> &W {
        &self.watcher
    }
}
