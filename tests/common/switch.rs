//! A transport that counts commands, and whose reads of counters can be made to fail or to take their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use uverbs::command::{Command, CountersRead};
use uverbs::transport::{Mapping, Transport};
use uverbs::{Context, Device};

/// What the transport has seen, and what it is to do.
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
    /// Opens a device behind a switch.
    pub fn open(device: &Device) -> (Context, Self) {
        let switch = Self::default();
        let wrap = |inner| Box::new(Switched { inner, switch: switch.clone() }) as Box<dyn Transport>;
        (device.open_with(wrap).expect("the device under test opens"), switch)
    }

    /// Commands of all kinds so far.
    pub fn commands(&self) -> usize {
        self.0.commands.load(Ordering::SeqCst)
    }

    /// Reads of counters so far.
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    /// Reads fail with this errno from now on; zero for not. With EIO all commands do, as when the device has gone.
    pub fn fail(&self, errno: i32) {
        self.0.errno.store(errno, Ordering::SeqCst);
    }

    /// Reads take this long from now on, at least.
    pub fn delay(&self, time: Duration) {
        self.0.micros.store(time.as_micros() as u64, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Switched {
    inner: Box<dyn Transport>,
    switch: Switch,
}

impl Transport for Switched {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        self.switch.0.commands.fetch_add(1, Ordering::SeqCst);
        if self.switch.0.errno.load(Ordering::SeqCst) == Errno::EIO as i32 {
            return Err(Errno::EIO);
        }
        self.inner.invoke(command)
    }

    fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<(), Errno> {
        let State { commands, reads, errno, micros } = &*self.switch.0;
        commands.fetch_add(1, Ordering::SeqCst);
        reads.fetch_add(1, Ordering::SeqCst);
        match micros.load(Ordering::SeqCst) {
            0 => {}
            micros => std::thread::sleep(Duration::from_micros(micros)),
        }
        match errno.load(Ordering::SeqCst) {
            0 => self.inner.read_counters(read, values),
            errno => Err(Errno::from_raw(errno)),
        }
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.inner.map(offset, len)
    }
}
