//! A transport without a device.

use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::Transport;
use crate::kernel::command::Command;

type Answering = dyn Fn(&mut Reply<'_, '_>) -> Result<(), Errno> + Send + Sync;

/// Answers commands with a closure, without a device: for tests of answers that no available device gives.
///
/// It cannot map memory (ENODEV), so there are no queues.
///
/// ```
/// use uverbs::transport::{Errno, Reply, Script};
/// # fn main() -> uverbs::Result<()> {
/// let device = uverbs::SoftDevice::default().device();
/// let script = |reply: &mut Reply<'_, '_>| match reply.op() {
///     "async_event.create" => {
///         let (events, _) = std::os::unix::net::UnixStream::pair().map_err(|_| Errno::EMFILE)?;
///         reply.fd(events.into());
///         reply.zeros()
///     }
///     "context.create" => reply.zeros(),
///     _ => Err(Errno::EBUSY),
/// };
/// let context = device.open_through(|_| Box::new(Script::new(script)))?;
/// assert_eq!(context.alloc_pd().unwrap_err().errno(), Some(Errno::EBUSY as i32));
/// # Ok(())
/// # }
/// ```
pub struct Script(Box<Answering>);

impl Script {
    /// Answers each command with `answer`.
    pub fn new(answer: impl Fn(&mut Reply<'_, '_>) -> Result<(), Errno> + Send + Sync + 'static) -> Self {
        Self(Box::new(answer))
    }

    pub(super) fn answer(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        self.0(&mut Reply(command))
    }
}

impl From<Script> for Box<dyn Transport> {
    fn from(script: Script) -> Self {
        Box::new(script)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

/// A command that a [`Script`] answers.
#[derive(Debug)]
pub struct Reply<'c, 'b>(&'c mut Command<'b>);

impl Reply<'_, '_> {
    /// Writes the answer of the attribute with this id, as far as there is room, and marks it as written; false if there is no
    /// such output.
    pub fn write(&mut self, id: u16, bytes: &[u8]) -> bool {
        let index = self.0.attrs().position(|attr| attr.attr_id == id);
        let Some(place) = index.and_then(|index| self.0.answer(index)) else { return false };
        place.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        true
    }

    /// Sets the handle of a new object in the attribute with this id; false if the command has no such attribute, or if the
    /// attribute has data.
    pub fn handle(&mut self, id: u16, handle: u32) -> bool {
        let index = self.0.attrs().position(|attr| attr.attr_id == id && attr.len == 0);
        let attr = index.and_then(|index| self.0.attr_mut(index));
        attr.map(|attr| attr.data = handle.into()).is_some()
    }

    /// Provides the file descriptor that the command creates.
    pub fn fd(&mut self, fd: OwnedFd) {
        self.0.give_fd(fd);
    }

    /// Marks all answers as written; those that were not written are zeros.
    ///
    /// # Errors
    /// None: it is the success result of a closure.
    pub fn zeros(&mut self) -> Result<(), Errno> {
        for index in 0..self.0.len() {
            self.0.answer(index);
        }
        Ok(())
    }
}

impl<'b> Deref for Reply<'_, 'b> {
    type Target = Command<'b>;

    fn deref(&self) -> &Command<'b> {
        self.0
    }
}
