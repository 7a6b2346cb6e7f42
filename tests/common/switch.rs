//! A watcher that counts commands, and can make reads of counters fail or take longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use uverbs::command::Command;
use uverbs::transport::Watcher;
use uverbs::{Context, Device};

/// What the watcher has counted, and what it is to do.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    commands: AtomicUsize,
    reads: AtomicUsize,
    errno: AtomicI32,
    micros: AtomicU64,
}

impl Switch {
    /// Opens a device with a switch.
    pub fn open(device: &Device) -> (Context, Self) {
        let switch = Self::default();
        (device.open_with(switch.clone()).expect("the device under test opens"), switch)
    }

    /// Commands of all kinds so far.
    pub fn commands(&self) -> usize {
        self.0.commands.load(Ordering::SeqCst)
    }

    /// Reads of counters so far.
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    /// From now on, reads fail with this errno; zero ends this. With EIO all commands fail, as if the device was removed.
    pub fn fail(&self, errno: i32) {
        self.0.errno.store(errno, Ordering::SeqCst);
    }

    /// From now on, reads take at least this long.
    pub fn delay(&self, time: Duration) {
        self.0.micros.store(time.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Watcher for Switch {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        let State { commands, reads, errno, micros } = &*self.0;
        commands.fetch_add(1, Ordering::SeqCst);
        let is_read = command.op() == "counters.read";
        if is_read {
            reads.fetch_add(1, Ordering::SeqCst);
            match micros.load(Ordering::SeqCst) {
                0 => {}
                micros => std::thread::sleep(Duration::from_micros(micros)),
            }
        }
        match errno.load(Ordering::SeqCst) {
            0 => Ok(()),
            errno if is_read || errno == Errno::EIO as i32 => Err(Errno::from_raw(errno)),
            _ => Ok(()),
        }
    }
}
