//! Commands that fail or are delayed at the request of a test.

use std::collections::BTreeMap;
use std::time::Duration;

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u8,
    pub(crate) syndrome: u32,
    /// How many more commands fail in this way.
    pub(crate) times: u32,
    /// How many succeed before that.
    pub(crate) after: u32,
}

/// The requested faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failing: BTreeMap<u16, Fault>,
    /// Delays by opcode; `None` is the delay of all others.
    delays: BTreeMap<Option<u16>, Duration>,
}

impl Faults {
    /// Lets the next commands of an opcode fail.
    pub(crate) fn fail(&mut self, opcode: u16, fault: Fault) {
        self.failing.insert(opcode, fault);
    }

    /// Delays the commands of an opcode, or all commands without a delay of their own.
    pub(crate) fn delay(&mut self, opcode: Option<u16>, time: Duration) {
        self.delays.insert(opcode, time);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault of a command that is about to be executed, if it is to fail.
    pub(super) fn take(&mut self, opcode: u16) -> Option<Fault> {
        let fault = self.failing.get_mut(&opcode)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        let taken = *fault;
        fault.times = fault.times.saturating_sub(1);
        if fault.times == 0 {
            self.failing.remove(&opcode);
        }
        Some(taken)
    }

    /// How long a command waits before it is executed.
    pub(crate) fn delay_of(&self, opcode: u16) -> Duration {
        self.delays.get(&Some(opcode)).or_else(|| self.delays.get(&None)).copied().unwrap_or_default()
    }
}
