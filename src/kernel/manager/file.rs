//! The kernel's connection manager, through its device file.
//!
//! # Safety
//! - A [`ManagerCommand`] has at most one address, which is written into it here, immediately before the call: that of the memory which it
//!   borrows, exclusively if it is for the answer. The header announces the size of that memory, and the kernel refuses a command whose
//!   answer is longer (`ucma_create_id`, `ucma_destroy_id`, `ucma_query`, `ucma_init_qp_attr`, `ucma_join_multicast`) or writes only as
//!   much (`ucma_get_event`; ucma.c, Linux 6.1 and 7.3). A value is read for the length in the command (`ucma_set_option`).
//! - The kernel copies the struct of a command whatever length the header announces: the buffer has room for the longest one.

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

impl ManagerFile for RdmaCm {
    fn send(&self, command: &mut ManagerCommand<'_>) -> Result<(), Errno> {
        let address = match &mut command.memory {
            Memory::None => None,
            Memory::Answer(at, place) => Some((*at, place.as_mut_ptr().expose_provenance())),
            Memory::Value(at, value) => Some((*at, value.as_ptr().expose_provenance())),
        };
        if let Some((at, address)) = address {
            let place = at..at + size_of::<u64>();
            command.bytes[place].copy_from_slice(&(address as u64).to_ne_bytes());
        }
        // SAFETY: the buffer is readable for the length, which is not beyond it, and longer than any struct that the kernel copies; the
        // one address in it is that of memory which the command borrows, with the announced length (the page above). The file is open.
        let written = unsafe { libc::write(self.0.as_raw_fd(), command.bytes.as_ptr().cast(), command.len) };
        match written {
            ..0 if Errno::last_raw() == ENOTSUPP => Err(Errno::EOPNOTSUPP),
            ..0 => Err(Errno::last()),
            _ => Ok(()),
        }
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
