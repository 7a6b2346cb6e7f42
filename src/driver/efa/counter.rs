//! Completion counters of efa: the device writes the values to memory of the process.
//!
//! Source: `efa_create_comp_cntr`, efa_verbs.c, Linux 7.3.

use std::sync::atomic::{AtomicU64, Ordering};

use uverbs_abi::efa::ids::comp_cntr::create::{COMP_BUFFER, ERR_BUFFER};
use uverbs_abi::types::buffer_type;
use uverbs_abi::write::BufferDesc;
use zerocopy::FromZeros;

use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Byte positions of the two values: 16 bytes in one page.
const VALUES: [usize; 2] = [0, 8];

/// A completion counter that is about to be created. Its values have memory of their own, which the kernel pins until the counter is
/// destroyed.
#[derive(Debug)]
pub(crate) struct CounterPlan {
    memory: Mapping,
    buffers: [BufferDesc; 2],
}

impl CounterPlan {
    pub(in crate::driver) fn new(op: &'static str) -> Result<Self> {
        let len = VALUES.len() * size_of::<u64>();
        let memory = Mapping::block(len).map_err(|errno| Error::kernel(op, errno))?;
        let buffers = VALUES.map(|at| BufferDesc {
            type_: buffer_type::VA,
            addr: memory.address() + at as u64,
            length: size_of::<u64>() as u64,
            ..BufferDesc::new_zeroed()
        });
        Ok(Self { memory, buffers })
    }

    pub(in crate::driver) fn put<'c>(&'c self, command: &mut Command<'c>) {
        let [successes, errors] = &self.buffers;
        command.input(COMP_BUFFER, successes).input(ERR_BUFFER, errors).registers(&self.memory);
    }

    pub(in crate::driver) fn memory(&self) -> &Mapping {
        &self.memory
    }
}

/// The values of a counter, in memory to which the device writes.
#[derive(Debug)]
pub(crate) struct CounterValues(Mapping);

impl CounterValues {
    pub(in crate::driver) fn new(plan: CounterPlan) -> Self {
        Self(plan.memory)
    }

    /// The value with this number in [`comp_cntr_entry`](uverbs_abi::types::comp_cntr_entry).
    pub(crate) fn value(&self, entry: u64) -> Option<&AtomicU64> {
        let at = usize::try_from(entry).ok().and_then(|entry| VALUES.get(entry).copied());
        at.and_then(|at| self.0.value(at))
    }

    /// Reads a value. It is zero for a number that does not exist.
    pub(crate) fn get(&self, entry: u64) -> u64 {
        self.value(entry).map_or(0, |value| value.load(Ordering::Acquire))
    }
}
