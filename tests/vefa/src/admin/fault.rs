//! Commands that fail at the request of a test.

use std::collections::BTreeMap;

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u8,
    /// How many more commands fail in this way.
    pub(crate) times: u32,
    /// How many succeed before that.
    pub(crate) after: u32,
}

/// The requested faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failing: BTreeMap<u8, Fault>,
}

impl Faults {
    /// Lets the next commands of an opcode fail.
    pub(crate) fn fail(&mut self, opcode: u8, fault: Fault) {
        self.failing.insert(opcode, fault);
    }

    pub(crate) fn clear(&mut self) {
        self.failing.clear();
    }

    /// The status of a command that is about to be executed, if it is to fail.
    pub(super) fn take(&mut self, opcode: u8) -> Option<u8> {
        let fault = self.failing.get_mut(&opcode)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        let status = fault.status;
        fault.times = fault.times.saturating_sub(1);
        if fault.times == 0 {
            self.failing.remove(&opcode);
        }
        Some(status)
    }
}
