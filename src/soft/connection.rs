//! A file that is open on a soft device.
//!
//! # Safety
//! The soft device meets the contract of [`Transport`], because it cannot break it: it follows no address, and reads and writes memory
//! only through the [`Mapping`]s of regions and rings, which it holds itself. All of it is safe code. A file is one [`Connection`], and
//! commands can be sent only through it.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use nix::errno::Errno;

use super::call::Call;
use super::{Hardware, parse};
use crate::kernel::command::Command;
use crate::kernel::transport::{AnyShape, Mapping, Transport};

/// An open file, which is closed when this is dropped.
pub(super) struct Connection {
    pub(super) hardware: Arc<Hardware>,
    pub(super) file: u32,
}

impl AnyShape for Connection {
    fn allow(&self, memory: &Mapping) {
        let Some(mut state) = self.hardware.lock() else { return };
        if let Some(file) = state.files.get_mut(&self.file) {
            file.only_memory.get_or_insert_default().push(memory.clone());
        }
    }
}

// SAFETY: it is safe code on memory that it holds itself; see above.
unsafe impl Transport for Connection {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        let method = parse::method(&self.hardware.profile, command)?;
        let mut state = self.hardware.lock().ok_or(Errno::EIO)?;
        let answer = Call::new(&mut state, self.file, command).run(method);
        state.retry_waiting();
        state.transmit();
        answer
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.hardware.lock().ok_or(Errno::EIO)?.map(self.file, offset, len)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(mut state) = self.hardware.lock() {
            state.close(self.file);
            state.retry_waiting();
            state.transmit();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("device", &self.hardware.profile.name)
            .field("file", &self.file)
            .finish()
    }
}
