//! The real transport: ioctl, mmap, and for doorbells write, on the character device.
//!
//! # Safety
//! - Every address in a lowered [`Command`] is that of a slice which the command borrows (shared for inputs, exclusively for outputs) or
//!   owns, with the length of the attribute: only `Command`'s crate-private methods create attributes, and [`Command::lower`] fills in the
//!   addresses. The same holds for [`CountersRead`] and the values passed with it, and for a [`Doorbell`] and an [`EventRequest`], which
//!   own all of it. The kernel writes only to outputs (uverbs_copy_to, uverbs_ioctl.c, Linux 6.1), and at most their length. One input is
//!   itself an address: that of [`PLACE`](crate::kernel::command) bytes, exclusively borrowed, to which rxe writes exactly this number
//!   (do_mmap_info, rxe_queue.c); only a command for rxe's shared receive queues has it.
//! - A doorbell that is written has the address of its response, which it owns. The kernel writes at most the announced length
//!   (uverbs_response, uverbs_cmd.c, Linux 6.1).
//! - Raw commands may break all of this: the code that opens a [`RawConnection`] promises that they do not.
//! - Addresses inside a payload (a memory region's start, a queue's buffer) belong to memory which the object that sends the command
//!   keeps alive until the kernel has released it.
//! - A new file descriptor that a successful command returns has no other owner.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
#[cfg(feature = "raw")]
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use uverbs_abi::ioctl::RDMA_VERBS_IOCTL;
use zerocopy::IntoBytes;

use super::raw::{AnyShape, RawConnection};
use super::{Mapping, Transport};
use crate::kernel::command::{Command, CountersRead, Doorbell, EventRequest};

/// An open `/dev/infiniband/uverbsN`.
#[derive(Debug)]
pub(crate) struct Uverbs {
    file: File,
}

impl Uverbs {
    /// Opens the node at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        // std opens files with O_CLOEXEC.
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(errno_of)?;
        Ok(Self { file })
    }

    /// A file that is open already. `EINVAL` if it is not the node at `path`: other files have other commands.
    #[cfg(feature = "raw")]
    pub(crate) fn over(file: File, path: &Path) -> Result<Self, (File, Errno)> {
        let is_node = || -> io::Result<bool> {
            let (one, other) = (file.metadata()?, path.metadata()?);
            Ok(one.file_type().is_char_device() && one.rdev() == other.rdev())
        };
        match is_node() {
            Ok(true) => Ok(Self { file }),
            Ok(false) => Err((file, Errno::EINVAL)),
            Err(error) => Err((file, errno_of(error))),
        }
    }
}

/// Sends a message by the C library's `ioctl`, so that a program that puts its own in front (a recorder, a fake device) sees every
/// command. The C library sets `errno` if the kernel refuses the command and leaves it alone otherwise.
///
/// # Safety
/// `message` points to a header followed by as many attributes as it says, both valid for reads and writes for the length in the header;
/// and everything that the message makes the kernel do is allowed.
#[inline(always)]
unsafe fn send(file: &File, message: *mut u8) -> Result<(), Errno> {
    // SAFETY: by this function's contract.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), RDMA_VERBS_IOCTL as _, message) };
    if answer < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Rings the doorbell where the kernel does not take a write.
#[cold]
fn ring_by_ioctl(file: &File, doorbell: &mut Doorbell) -> Result<(), Errno> {
    let mut message = doorbell.lower();
    // SAFETY: a header followed by its three attributes; request and response are the doorbell's own, exclusively borrowed during the
    // call.
    unsafe { send(file, message.as_mut_bytes().as_mut_ptr()) }
}

fn errno_of(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

impl AnyShape for Uverbs {
    /// The kernel accepts any memory of the process.
    fn allow(&self, _: &Mapping) {}
}

impl RawConnection {
    /// Opens the device file `node` of a driver (both as returned by a [`Device`](crate::Device)) for commands of any form.
    ///
    /// # Errors
    /// The errno, a positive number.
    ///
    /// # Safety
    /// The kernel trusts the contents of a command. For every command that is sent through this connection, unless the kernel
    /// refuses it before it accesses invalid memory, the caller guarantees:
    /// - The number of attributes in its header is not larger than the actual number, and at most 16.
    /// - No attribute has a length that exceeds its memory.
    /// - Every address that the kernel reads (the data of an attribute for output or for more than eight bytes, and fields of
    ///   requests) is one of the command's memory or of [`RawConnection::memory`], with a length inside that memory, or an
    ///   address that is never mapped, as in [`RawAttr::bad_address`].
    ///
    /// [`RawAttr::bad_address`]: super::RawAttr::bad_address
    pub unsafe fn open(node: &Path, driver_id: u32) -> Result<Self, i32> {
        let file = Uverbs::open(node).map_err(|errno| errno as i32)?;
        Ok(Self::new(Box::new(file), driver_id))
    }
}

// SAFETY: the kernel answers, for the device of the file, to which nothing else has access; each command is sent once, and the kernel uses
// no other memory than that which the command names (the invariants above). Its answers are passed on unchanged.
unsafe impl Transport for Uverbs {
    #[inline]
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        let message = command.lower().as_mut_ptr();
        // SAFETY: `message` points to a header followed by as many attributes as it says, both valid for
        // reads and writes for the length in the header (`Command` builds it so); what they point to is
        // valid by the first invariant above. `self.file` is open.
        unsafe { send(&self.file, message) }?;
        if let Some(fd) = command.raw_fd().filter(|fd| *fd >= 0) {
            // SAFETY: the command succeeded and made this descriptor (third invariant above).
            command.give_fd(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    #[inline]
    fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<(), Errno> {
        let message = read.lower(values).as_mut_ptr();
        // SAFETY: as in `invoke`; the one output is `values`, exclusively borrowed during the call.
        unsafe { send(&self.file, message) }.inspect_err(|_| read.mark(false))
    }

    #[inline]
    fn ring(&self, _op: &'static str, doorbell: &mut Doorbell) -> Result<(), Errno> {
        if !doorbell.is_by_ioctl() {
            let bytes = doorbell.lower_to_write();
            // SAFETY: `bytes` are readable; the kernel writes only the response, which is the doorbell's own and exclusively borrowed
            // during the call. `self.file` is open.
            let answer = unsafe { libc::write(self.file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
            if answer >= 0 {
                return Ok(());
            }
            match Errno::last() {
                Errno::EACCES => doorbell.send_by_ioctl(),
                errno => return Err(errno),
            }
        }
        ring_by_ioctl(&self.file, doorbell)
    }

    #[inline]
    fn request_event(&self, _op: &'static str, request: &mut EventRequest) -> Result<(), Errno> {
        let message = request.lower().as_mut_ptr();
        // SAFETY: as in `invoke`; no attribute has an address.
        unsafe { send(&self.file, message) }
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        Mapping::of_file(&self.file, offset, len).map_err(errno_of)
    }

    fn map_to_read(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        Mapping::of_file_to_read(&self.file, offset, len).map_err(errno_of)
    }

    #[cfg(feature = "raw")]
    fn file(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.file))
    }

    #[cfg(feature = "raw")]
    fn into_file(self: Box<Self>) -> Option<File> {
        Some(self.file)
    }
}
