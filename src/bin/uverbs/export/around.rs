//! The devices that flow rules can name, and locks with a time limit.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::{Devices, SoftDevice};

use crate::Outcome;
use crate::failure::Failure;
use crate::target::Target;

/// The devices that rules can name: those of the machine as they were found last, and the soft device.
pub(super) struct Around {
    soft: SoftDevice,
    machine: Mutex<Devices>,
    trace: bool,
}

impl Around {
    pub(super) fn new(soft: SoftDevice, trace: bool) -> Self {
        Self { soft, machine: Mutex::default(), trace }
    }

    /// Keeps the devices that another part of the program has found, so that each device need not be searched for separately.
    pub(super) fn keep(&self, devices: Devices) {
        *locked(&self.machine) = devices;
    }

    /// Searches for devices of these names, if one of them can be a device of the machine. The kernel may query the firmware for
    /// this: if it does not answer in time, the devices that were found last stay.
    pub(super) fn look<'a>(&self, mut names: impl Iterator<Item = &'a str>, end: Instant) -> Outcome {
        if names.any(|name| name != self.soft.name())
            && let Some(devices) = devices_until(end)?
        {
            self.keep(devices);
        }
        Ok(())
    }

    /// The device of this name, if it is there.
    pub(super) fn target(&self, name: &str) -> Outcome<Option<Target>> {
        if name == self.soft.name() {
            return Ok(Some(Target::embedded(self.soft.clone(), self.trace)));
        }
        match Target::among(&locked(&self.machine), name, self.trace) {
            Ok(target) => Ok(Some(target)),
            Err(Failure::NotFound(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// Takes the lock, also after a thread that held it has panicked.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock that may be held for long, also after a thread that held it has panicked. Returns `None` if it is not free in time.
pub(super) fn locked_until<T>(mutex: &Mutex<T>, end: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The devices of the machine; `None` if the kernel does not answer in time.
fn devices_until(end: Instant) -> Outcome<Option<Devices>> {
    let (answer, answers) = mpsc::sync_channel(1);
    // If no thread can be started, no answer arrives.
    let _ = thread::Builder::new().name("search".to_owned()).spawn(move || answer.send(uverbs::devices()));
    let found = answers.recv_timeout(end.saturating_duration_since(Instant::now()));
    Ok(found.ok().transpose()?)
}
