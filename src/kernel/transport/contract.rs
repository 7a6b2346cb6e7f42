//! Transports, and the contract that they must meet.
//!
//! # Safety
//! The library relies on its transport: memory is freed after a successful `DEREG_MR`, and after its registration has failed. The
//! transports in this file meet the contract of [`Transport`] in one of two ways:
//! - [`Watched`] passes each command on, once and unchanged, or fails without passing it on. It returns the answer of the inner
//!   transport. A [`Watcher`] gets a command by a shared reference and can neither send nor change it; it also gets the answer, which it
//!   cannot change either.
//! - [`Null`] and [`Script`] answer without a device. `Null` answers only reads of counters in this way, which change nothing and
//!   register nothing: the values stay as they were. Behind a `Script` there is no device at all, so nothing accesses any memory that its
//!   commands name, whatever it answers; places for answers are written by safe code, with their lengths checked.

#![allow(unsafe_code)]

use std::fmt::Debug;
#[cfg(feature = "raw")]
use std::{fs::File, os::fd::BorrowedFd};

use nix::errno::Errno;

use super::null::{Null, null_kernel};
use super::script::Script;
use super::watched::{Watched, Watcher};
use crate::kernel::command::{Command, CountersRead, Doorbell, EventRequest};
use crate::kernel::mapping::Mapping;

/// The connection to a device: an open device file, or a replacement for it.
///
/// To examine or refuse commands or record their answers, implement a [`Watcher`] instead, which is safe. To answer commands
/// without a device, use [`Script`].
///
/// # Safety
/// The library frees memory and reads answers according to what its transport returns. For every command, while the transport exists, an
/// implementation must therefore guarantee:
/// - The command is executed at most once, by one device, and nothing else is sent to that device through the same file. Objects
///   that it creates belong to the library: only the library's commands use or destroy them.
/// - `Ok` means that the device has executed it. After `Ok` for `DEREG_MR`, or for the destroy of a queue or of another object to
///   which memory was given, the device no longer accesses that memory.
/// - An error means that the device has not executed it: after an error for a command that registers memory, or provides the
///   memory of a queue, the device does not access that memory.
/// - The device accesses only memory that such commands gave it, as far and as long as they allow it, and during a call the
///   buffers for answers.
/// - An output is marked as written only if it contains everything that the device returns; the output of a read of counters or
///   of a doorbell, only if it succeeded.
/// - A file descriptor that a command returns is new and not used elsewhere.
/// - [`map`](Self::map) returns memory of this device at the requested offset, with the requested length, and the memory stays
///   mapped. In a ring in this memory (`struct rxe_queue_buf`), the device reads only published slots and writes only slots that
///   were returned to it, according to the indices in the ring's header, as the kernel's driver does (rxe_queue.h). Nothing else
///   in this process accesses them.
///
/// ```compile_fail,E0200
/// use uverbs::command::Command;
/// use uverbs::transport::{Errno, Mapping, Transport};
///
/// #[derive(Debug)]
/// struct Yes;
///
/// impl Transport for Yes { // safe code may not answer for a device
///     fn invoke(&self, _: &mut Command<'_>) -> Result<(), Errno> {
///         Ok(())
///     }
///     fn map(&self, _: u64, _: usize) -> Result<Mapping, Errno> {
///         Err(Errno::ENODEV)
///     }
/// }
/// ```
pub unsafe trait Transport: Debug + Send + Sync {
    /// Executes one command. On success every output that was written is marked as valid.
    ///
    /// # Errors
    /// The errno that the kernel returns.
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno>;

    /// Executes a read of counters into `values`, at most 8191 of them.
    ///
    /// # Errors
    /// The errno that the kernel returns.
    #[inline]
    fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<(), Errno> {
        read.mark(false);
        let mut command = read.as_command(values);
        self.invoke(&mut command)?;
        read.mark(command.outputs_are_valid());
        Ok(())
    }

    /// Makes the device read a send ring in shared memory; `op` names the operation.
    ///
    /// # Errors
    /// The errno that the kernel returns.
    #[inline]
    fn ring(&self, op: &'static str, doorbell: &mut Doorbell) -> Result<(), Errno> {
        let mut command = doorbell.as_command(op);
        self.invoke(&mut command)?;
        let is_valid = command.outputs_are_valid();
        doorbell.mark(is_valid);
        Ok(())
    }

    /// Requests an event of a completion queue; `op` names the operation.
    ///
    /// # Errors
    /// The errno that the kernel returns.
    #[inline]
    fn request_event(&self, op: &'static str, request: &mut EventRequest) -> Result<(), Errno> {
        self.invoke(&mut request.as_command(op))
    }

    /// Maps `len` bytes of device memory, at an offset that an earlier command returned.
    ///
    /// # Errors
    /// The errno of `mmap`.
    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno>;

    /// Maps `len` bytes that the kernel or the device writes, for reading only: nobody writes to this mapping.
    ///
    /// # Errors
    /// The errno of `mmap`; `ENODEV` if there is no such memory.
    fn map_to_read(&self, _offset: u64, _len: usize) -> Result<Mapping, Errno> {
        Err(Errno::ENODEV)
    }

    /// The device file, if there is one.
    #[cfg(feature = "raw")]
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The device file, which nobody needs any more.
    #[cfg(feature = "raw")]
    fn into_file(self: Box<Self>) -> Option<File> {
        None
    }
}

// SAFETY: it passes each command on, or fails without passing it on (first point of the module's page).
unsafe impl<W: Watcher> Transport for Watched<W> {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        if let Err(errno) = self.watcher().before(command) {
            self.watcher().after(command, Err(errno));
            return Err(errno);
        }
        let answer = self.inner().invoke(command);
        self.watcher().after(command, answer);
        answer
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        let answer = self.watcher().before_map(offset, len).and_then(|()| self.inner().map(offset, len));
        self.watcher().after_map(offset, len, answer.as_ref().map(drop).map_err(|errno| *errno));
        answer
    }

    fn map_to_read(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        let answer =
            self.watcher().before_map(offset, len).and_then(|()| self.inner().map_to_read(offset, len));
        self.watcher().after_map(offset, len, answer.as_ref().map(drop).map_err(|errno| *errno));
        answer
    }
}

// SAFETY: it passes commands on, except for reads of counters, whose values are left as they are (second point).
unsafe impl Transport for Null {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        self.inner().invoke(command)
    }

    fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<(), Errno> {
        null_kernel(read.lower(values));
        Ok(())
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.inner().map(offset, len)
    }

    fn map_to_read(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.inner().map_to_read(offset, len)
    }
}

// SAFETY: there is no device (second point).
unsafe impl Transport for Script {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        self.answer(command)
    }

    fn map(&self, _: u64, _: usize) -> Result<Mapping, Errno> {
        Err(Errno::ENODEV)
    }
}
