//! A wrapper that fails one command.

use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use super::{Mapping, Transport};
use crate::command::Command;

/// Answers the `nth` command (or mapping; counted together from 1) with an errno, without passing it on.
#[derive(Debug)]
pub struct Fault {
    inner: Box<dyn Transport>,
    nth: u64,
    errno: Errno,
    seen: AtomicU64,
}

impl Fault {
    /// Fails the `nth` command sent to `inner` with `errno`, a positive number.
    pub fn new(inner: Box<dyn Transport>, nth: u64, errno: i32) -> Self {
        Self { inner, nth, errno: Errno::from_raw(errno), seen: AtomicU64::new(0) }
    }

    fn due(&self) -> Result<(), Errno> {
        let turn = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if turn == self.nth { Err(self.errno) } else { Ok(()) }
    }
}

impl Transport for Fault {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        self.due()?;
        self.inner.invoke(command)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.due()?;
        self.inner.map(offset, len)
    }
}
