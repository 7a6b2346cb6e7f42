//! What answers for a device, and what it promises.
//!
//! # Safety
//! The library believes its transport: memory that a successful `DEREG_MR` was about is freed, and memory whose registration
//! failed too. The transports in this file meet the contract of [`Transport`] in one of two ways:
//! - [`Watched`] passes each command on, once and as it is, or not at all, and then fails; what it gives back is the answer of the
//!   transport inside. A [`Watcher`] sees a command by a shared reference and can neither send nor change it; and it sees the
//!   answer, which it cannot change either.
//! - [`Null`] and [`Script`] answer without a device. `Null` does so only to reads of counters, which change nothing and register
//!   nothing: the values stay what they were. Behind a `Script` there is no device at all, so nobody touches any memory that it is
//!   told of, whatever it answers; places of answers are written by safe code, with their lengths checked.

#![allow(unsafe_code)]

use std::fmt::Debug;
#[cfg(feature = "raw")]
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::null::{Null, null_kernel};
use super::script::Script;
use super::watched::{Watched, Watcher};
use crate::kernel::command::{Command, CountersRead, Doorbell, EventRequest};
use crate::kernel::mapping::Mapping;

/// What answers for a device: an open device file, or something in its place.
///
/// To look at commands, refuse them, or note their answers, write a [`Watcher`] instead, which is safe. For answers without a device
/// there is [`Script`].
///
/// # Safety
/// The library frees memory, and reads what it was answered, by what its transport says. So of every command, for as long as
/// the transport exists:
/// - It is carried out at most once, by one device, and nothing else is sent to that device through the same file. Objects
///   that it makes are the library's: only its own commands use or destroy them.
/// - `Ok` means that the device has done it. After `Ok` for `DEREG_MR`, or for the destroy of a queue or of another object that
///   memory was given to, the device does not touch that memory any more.
/// - An error means that the device has not done it: after one for a command that registers memory, or gives the memory of a queue,
///   the device does not touch that memory.
/// - A device touches no memory of the process but what such commands gave it, as far as they allow it, and while they do; and
///   the places of answers during the call.
/// - An output is marked as written only if all of it that the device has to tell is in there, and a read of counters or a
///   doorbell only if it has succeeded.
/// - A file descriptor that a command reports is new, and nobody else's.
/// - What [`map`](Self::map) gives is memory of this device at the offset that was asked for, of no other length, and stays
///   mapped. Of a ring in it (`struct rxe_queue_buf`) the device reads only slots that were published, and writes only such as it
///   was given back, by the indices in the ring's header, as the kernel's driver does (rxe_queue.h); and nobody else in this
///   process accesses them.
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
    /// Carries out one command. On success every output that was written is marked as valid.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno>;

    /// Carries out a read of counters into `values`, of which there are 8191 at most.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    #[inline]
    fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<(), Errno> {
        read.mark(false);
        let mut command = read.as_command(values);
        self.invoke(&mut command)?;
        read.mark(command.outputs_are_valid());
        Ok(())
    }

    /// Has the device look at a send ring in shared memory; `op` names the operation.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    #[inline]
    fn ring(&self, op: &'static str, doorbell: &mut Doorbell) -> Result<(), Errno> {
        let mut command = doorbell.as_command(op);
        self.invoke(&mut command)?;
        let is_valid = command.outputs_are_valid();
        doorbell.mark(is_valid);
        Ok(())
    }

    /// Has a completion queue announce its next completion; `op` names the operation.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    #[inline]
    fn request_event(&self, op: &'static str, request: &mut EventRequest) -> Result<(), Errno> {
        self.invoke(&mut request.as_command(op))
    }

    /// Maps `len` bytes of device memory, at an offset that an earlier command gave.
    ///
    /// # Errors
    /// The errno that `mmap` gives.
    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno>;

    /// The device file, if there is one.
    #[cfg(feature = "raw")]
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

// SAFETY: passes on, or fails without (first point of the module's page).
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
}

// SAFETY: passes on, but for reads of counters, whose values are left as they are (second point).
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
