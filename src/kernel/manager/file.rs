//! The kernel's connection manager, through its device file.
//!
//! # Safety
//! - A [`ManagerCommand`] has at most one address, which is written into it here, immediately before the call: that of the memory which it
//!   borrows, exclusively if it is for the answer. The header announces the size of that memory, and the kernel refuses a command whose
//!   answer is longer (`ucma_create_id`, `ucma_destroy_id`, `ucma_query`, `ucma_init_qp_attr`, `ucma_join_multicast`) or writes only as
//!   much (`ucma_get_event`; ucma.c, Linux 6.1 and 7.3). A value is read for the length in the command (`ucma_set_option`).
//! - In a sequence, the address of an answer may be that of bytes of the next command instead. The sequence borrows all commands
//!   exclusively, and the bytes are as many as the answer.
//! - The kernel copies the whole struct of a command, whatever length the header announces, and of CONNECT and ACCEPT at most as much as
//!   that. A command has the whole struct of its number: `Request` pairs them.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;

use super::command::Memory;
use super::{ManagerCommand, ManagerFile};
use crate::kernel::error::{Error, Result};

/// The node of the connection manager.
const NODE: &str = "/dev/infiniband/rdma_cm";

/// An errno that the kernel keeps for itself (errno.h), but answers with nevertheless (`cma_iboe_join_multicast`, cma.c, Linux 6.1 and 7.3).
const ENOTSUPP: i32 = 524;

/// An open `/dev/infiniband/rdma_cm`.
#[derive(Debug)]
pub(crate) struct RdmaCm(File);

impl RdmaCm {
    /// Opens the file. Reading an event from it never blocks.
    pub(crate) fn open(op: &'static str) -> Result<Self> {
        let mut options = OpenOptions::new();
        // std opens files with O_CLOEXEC.
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(NODE);
        file.map(Self).map_err(|error| {
            let error = Error::io(op, &error);
            match error.errno().map(Errno::from_raw) {
                Some(Errno::ENOENT | Errno::ENXIO | Errno::ENODEV) => {
                    error.not_found("there is no /dev/infiniband/rdma_cm: load the kernel module rdma_ucm")
                }
                Some(Errno::EACCES | Errno::EPERM) => {
                    error.hinted("this process may not open /dev/infiniband/rdma_cm")
                }
                _ => error,
            }
        })
    }
}

/// The most commands in one system call.
const MOST: usize = 3;

/// Why a system call has failed.
fn refused() -> Errno {
    match Errno::last_raw() {
        ENOTSUPP => Errno::EOPNOTSUPP,
        errno => Errno::from_raw(errno),
    }
}

/// Writes the one address of a command into it.
fn lower(command: &mut ManagerCommand<'_>) {
    let address = match &mut command.memory {
        Memory::None => None,
        Memory::Answer(at, place) => Some((*at, place.as_mut_ptr().expose_provenance())),
        Memory::Value(at, value) => Some((*at, value.as_ptr().expose_provenance())),
    };
    if let Some((at, address)) = address {
        let place = at..at + size_of::<u64>();
        command.bytes[place].copy_from_slice(&(address as u64).to_ne_bytes());
    }
}

impl ManagerFile for RdmaCm {
    fn send(&self, command: &mut ManagerCommand<'_>) -> Result<(), Errno> {
        lower(command);
        // SAFETY: the buffer is readable for the length, and has the whole struct that the kernel copies; the one address in it is that of
        // memory which the command borrows, with the announced length (the page above). The file is open.
        let written =
            unsafe { libc::write(self.0.as_raw_fd(), command.bytes.as_ptr().cast(), command.bytes.len()) };
        if written < 0 { Err(refused()) } else { Ok(()) }
    }

    /// By one system call: the kernel calls the file's write function for each part of a `writev` (`do_loop_readv_writev`, read_write.c,
    /// Linux 6.1 and 7.3).
    fn send_in_order(&self, commands: &mut [ManagerCommand<'_>]) -> Result<usize, Errno> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST];
        let count = commands.len().min(MOST);
        let commands = &mut commands[..count];
        for at in 0..count {
            let (command, rest) = commands[at..].split_at_mut(1);
            let command = &mut command[0];
            lower(command);
            if let (Memory::Answer(field, answer), Some(to), [next, ..]) =
                (&command.memory, command.passes_to, rest)
                && let Some(place) = next.bytes.get_mut(to..to + answer.len())
            {
                // The kernel writes the answer there before it reads the next command.
                let address = place.as_mut_ptr().expose_provenance() as u64;
                command.bytes[*field..*field + size_of::<u64>()].copy_from_slice(&address.to_ne_bytes());
            }
        }
        for (part, command) in parts.iter_mut().zip(&mut *commands) {
            *part = libc::iovec { iov_base: command.bytes.as_mut_ptr().cast(), iov_len: command.bytes.len() };
        }
        // SAFETY: as in `send`, for each of the parts, which are as many as commands. An answer that is passed on goes to the bytes of the
        // next command, with the length that the header announces; they are borrowed exclusively here.
        let written = unsafe { libc::writev(self.0.as_raw_fd(), parts.as_ptr(), count as i32) };
        let Ok(mut written) = usize::try_from(written) else { return Err(refused()) };
        let mut done = 0;
        for command in &*commands {
            match written.checked_sub(command.bytes.len()) {
                Some(rest) => (written, done) = (rest, done + 1),
                None => break,
            }
        }
        for at in 1..count {
            let (before, next) = commands.split_at_mut(at);
            before[at - 1].take_from(&next[0]);
        }
        Ok(done)
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
