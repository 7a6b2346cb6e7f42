//! Faults of commands, set by the control line.

use std::collections::BTreeMap;

/// How commands of a code fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) status: u32,
    /// How many commands fail, after how many that do not.
    pub(crate) times: u32,
    pub(crate) after: u32,
}

/// The faults of all codes.
#[derive(Debug, Default)]
pub(crate) struct Faults(BTreeMap<u32, Fault>);

impl Faults {
    pub(crate) fn fail(&mut self, code: u32, fault: Fault) {
        self.0.insert(code, fault);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The status with which the next command of this code fails.
    pub(super) fn next(&mut self, code: u32) -> Option<u32> {
        let fault = self.0.get_mut(&code)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        let status = fault.status;
        if fault.times == 0 {
            self.0.remove(&code);
        }
        Some(status)
    }
}
