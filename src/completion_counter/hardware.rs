//! Completion counters of the hardware.
//!
//! The object came with Linux 7.3, where EFA's is the one driver that has it (feature `comp-cntr-uapi`). The device counts by itself,
//! without anybody who takes completions, and also what only it can see. It tells nobody, so waiting is asking again and again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::ids::comp_cntr::{self, create, modify, read};
use uverbs_abi::types::{comp_cntr_entry, comp_cntr_op};
use zerocopy::IntoBytes;

use super::CompletionCounter;
use super::state::State;
use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{ErrorKind, Result};

pub(super) const NONE_HERE: &str = "this kernel and device have no completion counters; one made without a context counts on \
                         every device";

/// Without the feature `comp-cntr-uapi` there is no such value, so that nothing that needs one is compiled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Feature {
    #[cfg(feature = "comp-cntr-uapi")]
    On,
}

/// The kernel's object.
#[derive(Debug)]
pub(super) struct Hardware(Object, Feature);

impl Hardware {
    /// A new one.
    ///
    /// `UVERBS_METHOD_COMP_CNTR_CREATE`.
    pub(super) fn create(op: &'static str, context: &Context, feature: Feature) -> Result<Self> {
        context.driver().completion_counters(op)?;
        let mut command = Command::new(op, comp_cntr::OBJECT, comp_cntr::method::CREATE);
        command.new_handle(create::HANDLE);
        context.invoke(&mut command).map_err(|error| error.hinted_if(ErrorKind::Unsupported, NONE_HERE))?;
        let handle = command.new_handle_of(create::HANDLE)?;
        Ok(Self(Object::new(context, Kind::CompletionCounter, handle), feature))
    }

    pub(super) fn object(&self) -> &Object {
        &self.0
    }

    pub(super) fn release(&mut self) -> Result<()> {
        self.0.release()
    }

    /// `UVERBS_METHOD_COMP_CNTR_READ`.
    pub(super) fn read(&self, entry: u64) -> Result<u64> {
        let mut value = 0_u64;
        let mut command = Command::new("completion_counter.read", comp_cntr::OBJECT, comp_cntr::method::READ);
        command
            .handle(read::HANDLE, self.0.id())
            .value(read::ENTRY, entry)
            .output(read::RESP_VALUE, value.as_mut_bytes());
        self.0.context().invoke(&mut command)?;
        Ok(value)
    }

    /// `UVERBS_METHOD_COMP_CNTR_MODIFY`.
    fn modify(&self, entry: u64, how: u64, operand: u64) -> Result<()> {
        let mut command =
            Command::new("completion_counter.modify", comp_cntr::OBJECT, comp_cntr::method::MODIFY);
        command
            .handle(modify::HANDLE, self.0.id())
            .value(modify::ENTRY, entry)
            .value(modify::OP, how)
            .input(modify::VALUE, &operand);
        self.0.context().invoke(&mut command)
    }

    pub(super) fn add(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::COMP, comp_cntr_op::INC, value)
    }

    pub(super) fn add_err(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::ERR, comp_cntr_op::INC, value)
    }

    pub(super) fn set(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::COMP, comp_cntr_op::SET, value)
    }

    pub(super) fn set_err(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::ERR, comp_cntr_op::SET, value)
    }
}

/// Hardware counters that a queue pair uses: the kernel lets them go after it.
#[derive(Debug, Default)]
pub(crate) struct Attached(Mutex<Vec<Arc<State>>>);

impl Attached {
    /// The queue pair uses a counter from now on.
    pub(crate) fn add(&self, counter: &CompletionCounter) {
        counter.state.bound.fetch_add(1, Ordering::Relaxed);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(counter.state.clone());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for state in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            state.bound.fetch_sub(1, Ordering::Release);
        }
    }
}

impl CompletionCounter {
    /// The kernel's object, of a counter of the device's.
    pub(crate) fn object(&self) -> Option<&Object> {
        self.state.hardware.as_ref().map(Hardware::object)
    }
}
