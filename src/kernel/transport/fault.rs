//! A watcher that fails one command.

use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use super::Watcher;
use crate::kernel::command::Command;

/// A [`Watcher`](super::Watcher) that answers the `nth` command (or mapping; counted together from 1) with an errno, without
/// passing it on.
#[derive(Debug)]
pub struct Fault {
    nth: u64,
    errno: Errno,
    seen: AtomicU64,
}

impl Fault {
    /// Fails the `nth` command with `errno`, a positive number.
    pub fn new(nth: u64, errno: i32) -> Self {
        Self { nth, errno: Errno::from_raw(errno), seen: AtomicU64::new(0) }
    }

    fn due(&self) -> Result<(), Errno> {
        let turn = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if turn == self.nth { Err(self.errno) } else { Ok(()) }
    }
}

impl Watcher for Fault {
    fn before(&self, _: &Command<'_>) -> Result<(), Errno> {
        self.due()
    }

    fn before_map(&self, _: u64, _: usize) -> Result<(), Errno> {
        self.due()
    }
}
