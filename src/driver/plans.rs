//! Plans of any driver: objects that are about to be created.

use std::fmt::Debug;

use super::rq::Receives;
use super::seam::{Created, Kernel, Payload, Plan, SrqChange};
use super::{efa, rxe};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// A driver's plan, and what stores its object among those of all drivers.
#[derive(Debug)]
struct Stored<S, T, U> {
    plan: Box<dyn Plan<S, T>>,
    store: fn(T) -> U,
}

/// The plan of any driver for this plan of one, whose object `store` stores.
pub(super) fn stored<S, T, U>(plan: Box<dyn Plan<S, T>>, store: fn(T) -> U) -> Box<dyn Plan<S, U>>
where
    S: Debug + 'static,
    T: Debug + 'static,
    U: Debug + 'static,
{
    Box::new(Stored { plan, store })
}

impl<S: Debug, T: Debug, U: Debug> Plan<S, U> for Stored<S, T, U> {
    fn payload(&mut self) -> Payload<'_> {
        self.plan.payload()
    }

    fn asked(&self, wanted: S) -> S {
        self.plan.asked(wanted)
    }

    fn memory(&self) -> Option<&Mapping> {
        self.plan.memory()
    }

    fn open(self: Box<Self>, made: Created<'_, S>) -> Result<U> {
        self.plan.open(made).map(self.store)
    }
}

impl SrqChange {
    /// The queue, after the kernel has resized it.
    pub(crate) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Receives> {
        match self {
            Self::Rings(ring) => rxe::map_receives(op, ring, kernel).map(Into::into),
            Self::Nothing(..) => {
                Err(Error::malformed(op, "another size of a queue whose driver gives it none"))
            }
        }
    }
}

/// A completion counter of the device that is about to be created.
#[derive(Debug)]
pub(crate) enum CounterPlan {
    /// The kernel reads its values.
    Kernel,
    /// The values are in memory of the process.
    Memory(efa::CounterPlan),
}

/// Where the values of a completion counter of the device are read.
#[derive(Debug)]
pub(crate) enum CounterValues {
    Kernel,
    Memory(efa::CounterValues),
}

impl CounterPlan {
    /// Adds the driver's data to the command.
    pub(crate) fn put<'c>(&'c self, command: &mut Command<'c>) {
        match self {
            Self::Kernel => {}
            Self::Memory(plan) => plan.put(command),
        }
    }

    /// The memory to which the device may write as long as the counter exists.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        match self {
            Self::Kernel => None,
            Self::Memory(plan) => Some(plan.memory()),
        }
    }

    /// The values, after the kernel has created the counter.
    pub(crate) fn open(self) -> CounterValues {
        match self {
            Self::Kernel => CounterValues::Kernel,
            Self::Memory(plan) => CounterValues::Memory(efa::CounterValues::new(plan)),
        }
    }
}
