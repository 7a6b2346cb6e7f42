//! A watcher of the connection manager's commands.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::{ManagerCommand, ManagerFile};

/// Watches the commands of a connection manager: for tracing, counting and fault injection. See
/// [`Manager::open_with`](crate::cm::Manager::open_with).
///
/// It gets each command before it is sent, may refuse it, and gets the answer. It must not call the manager, which may hold a lock while it
/// sends.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use uverbs::abi::cm::LISTEN;
/// use uverbs::cm::{Command, SoftNetwork, Watcher};
/// use uverbs::transport::Errno;
///
/// /// Refuses to listen, and counts how often.
/// #[derive(Clone, Debug, Default)]
/// struct Deaf(Arc<AtomicUsize>);
///
/// impl Watcher for Deaf {
///     fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
///         if command.number() == LISTEN { Err(Errno::ENOMEM) } else { Ok(()) }
///     }
///
///     fn after(&self, _: &Command<'_>, answer: Result<(), Errno>) {
///         self.0.fetch_add(usize::from(answer == Err(Errno::ENOMEM)), Ordering::Relaxed);
///     }
/// }
///
/// # fn main() -> uverbs::Result<()> {
/// let deaf = Deaf::default();
/// let manager = SoftNetwork::default().manager_with(deaf.clone())?;
/// let error = manager.listen("0.0.0.0:7174".parse().unwrap()).unwrap_err();
/// assert_eq!((error.kind(), deaf.0.load(Ordering::Relaxed)), (uverbs::ErrorKind::Exhausted, 1));
/// # Ok(())
/// # }
/// ```
pub trait Watcher: Debug + Send + Sync {
    /// Called with a command before it is sent.
    ///
    /// # Errors
    /// If it returns an errno, the command is not sent and fails with this errno.
    fn before(&self, command: &ManagerCommand<'_>) -> Result<(), Errno> {
        let _ = command;
        Ok(())
    }

    /// Called with a command and its answer, from the connection manager or from [`before`](Self::before).
    fn after(&self, command: &ManagerCommand<'_>, answer: Result<(), Errno>) {
        let _ = (command, answer);
    }
}

/// A file and its [`Watcher`].
#[derive(Debug)]
pub(crate) struct WatchedFile<W> {
    file: Box<dyn ManagerFile>,
    watcher: W,
}

impl<W: Watcher> WatchedFile<W> {
    pub(crate) fn new(file: Box<dyn ManagerFile>, watcher: W) -> Self {
        Self { file, watcher }
    }
}

impl<W: Watcher> ManagerFile for WatchedFile<W> {
    fn send(&self, command: &mut ManagerCommand<'_>) -> Result<(), Errno> {
        let answer = self.watcher.before(command).and_then(|()| self.file.send(command));
        self.watcher.after(command, answer);
        answer
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.file.events()
    }
}
