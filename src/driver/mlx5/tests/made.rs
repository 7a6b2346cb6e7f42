//! Objects as if the kernel had created them.

use std::sync::Arc;

use zerocopy::FromZeros;

use crate::driver::mlx5::completions::CompletionSide;
use crate::driver::mlx5::shape::Ends;
use crate::driver::ring::RingDevice;
use crate::driver::seam::{Created, Kernel, Plan};
use crate::kernel::command::Command;
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;
use crate::kernel::process::elsewhere;

/// A device that belongs to another process.
pub(in crate::driver::mlx5) struct Elsewhere;

impl Kernel for Elsewhere {
    fn take(&self, op: &'static str) -> Result<()> {
        Err(elsewhere(op))
    }

    fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        panic!("{command:?}")
    }

    fn map(&self, op: &'static str, _: u64, _: usize) -> Result<Mapping> {
        panic!("{op}")
    }

    fn ring_device(&self, _: Option<u32>) -> Option<Box<dyn RingDevice>> {
        None
    }
}

/// For a queue pair with its own receive queue.
pub(super) fn ends(queues: [&Arc<CompletionSide>; 2]) -> Ends<'_> {
    Ends { queues, shared: None }
}

/// What is made of an object with this number. The driver does not ask the kernel for anything then.
pub(in crate::driver::mlx5) fn open<S: FromZeros, T>(plan: impl Plan<S, T>, number: u32) -> T {
    let made = Created { op: "test", number, size: S::new_zeroed(), kernel: &Elsewhere };
    Box::new(plan).open(made).unwrap()
}
