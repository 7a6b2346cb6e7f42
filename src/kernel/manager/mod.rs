//! The connection manager's file: its commands, and who answers them.

mod address;
mod command;
mod file;

use std::fmt;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

pub(crate) use self::address::{decode, encode};
pub(crate) use self::command::{ManagerCommand, Request};
pub(crate) use self::file::RdmaCm;

/// Answers commands of the connection manager: the kernel, a soft network, or a script.
pub(crate) trait ManagerFile: fmt::Debug + Send + Sync {
    /// Carries out one command. It never waits for an event: without one, [`GET_EVENT`](uverbs_abi::cm::GET_EVENT) is `EAGAIN`.
    fn send(&self, command: &mut ManagerCommand<'_>) -> Result<(), Errno>;

    /// The file that is readable while an event waits.
    fn events(&self) -> BorrowedFd<'_>;
}
