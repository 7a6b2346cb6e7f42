//! The connection manager's file: its commands, and who answers them.

mod address;
mod command;
mod file;
mod watched;

use std::fmt;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

pub(crate) use self::address::{ROOM, decode, encode};
pub use self::command::ManagerCommand;
pub(crate) use self::command::{LeaveMcast, OfIdentifier, Request};
pub(crate) use self::file::RdmaCm;
pub(crate) use self::watched::WatchedFile;
pub use self::watched::Watcher;

/// Answers commands of the connection manager: the kernel, a soft network, or a script.
pub(crate) trait ManagerFile: fmt::Debug + Send + Sync {
    /// Carries out one command. It never waits for an event: without one, [`GET_EVENT`](uverbs_abi::cm::GET_EVENT) is `EAGAIN`.
    fn send(&self, command: &mut ManagerCommand<'_>) -> Result<(), Errno>;

    /// Carries out commands in their order, up to the first that is refused. Returns how many were carried out, or why the first one was
    /// refused.
    fn send_in_order(&self, commands: &mut [ManagerCommand<'_>]) -> Result<usize, Errno> {
        for at in 0..commands.len() {
            let (command, rest) = commands[at..].split_at_mut(1);
            match self.send(&mut command[0]) {
                Ok(()) => {}
                Err(errno) if at == 0 => return Err(errno),
                Err(_) => return Ok(at),
            }
            if let Some(next) = rest.first_mut() {
                command[0].pass_on(next);
            }
        }
        Ok(commands.len())
    }

    /// The file that is readable while an event waits.
    fn events(&self) -> BorrowedFd<'_>;
}

/// Where private data goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    Request,
    Reply,
    Rejection,
    LookUp,
    /// The answer to a look-up, whether it is granted or refused.
    Answer,
}

impl Data {
    /// The room for it in bytes. The kernel refuses more, and with a reply the connection would be lost. On InfiniBand and RoCE the other
    /// side gets all of it, padded with zeros (`IB_CM_REQ_PRIVATE_DATA_SIZE` and `IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE` less the header of
    /// `cma_format_hdr`, and the others, ib_cm.h; cma.c; siw_cm.c; Linux 6.1 and 7.3).
    pub(crate) fn room(self, is_iwarp: bool) -> u8 {
        match self {
            _ if is_iwarp => 251,
            Self::Request => 56,
            Self::Reply => 196,
            Self::Rejection => 148,
            Self::LookUp => 180,
            Self::Answer => 136,
        }
    }
}
