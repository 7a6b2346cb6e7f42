//! Plans: objects that are about to be created.

use nix::errno::Errno;
use uverbs_abi::write::QpCap;
use zerocopy::IntoBytes;

use super::cq::{Completions, Rings};
use super::request::Address;
use super::rq::{self, Receives};
use super::seam::{Kernel, Payload, SrqChange};
use super::sq::{self, Sends};
use super::{efa, mlx5, rxe, siw};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

const NOTHING: &[u8] = &[];

/// A completion queue that is about to be created.
#[derive(Debug)]
pub(crate) enum CqPlan {
    Rings(rxe::CqPlan),
    Mlx5(Box<mlx5::CqPlan>),
    Efa(efa::CqPlan),
    Siw(siw::CqPlan),
}

impl CqPlan {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        match self {
            Self::Rings(plan) => (NOTHING, plan.answer()),
            Self::Mlx5(plan) => plan.payload(),
            Self::Efa(plan) => plan.payload(),
            Self::Siw(plan) => (NOTHING, plan.answer()),
        }
    }

    /// Number of entries to request from the kernel if `wanted` entries are needed.
    pub(crate) fn entries(&self, wanted: u32) -> u32 {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => wanted,
            Self::Efa(plan) => plan.entries(),
        }
    }

    /// The memory to which the device may write as long as the queue exists.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        match self {
            Self::Rings(_) | Self::Siw(_) => None,
            Self::Mlx5(plan) => Some(plan.memory()),
            Self::Efa(plan) => plan.memory(),
        }
    }

    /// The queue, after the kernel has created it with `told` entries.
    pub(crate) fn open(self, op: &'static str, told: u32, kernel: &dyn Kernel) -> Result<Completions> {
        Ok(Completions(match self {
            Self::Rings(plan) => Rings::Rxe(plan.open(op, kernel)?),
            Self::Mlx5(plan) => Rings::Mlx5(plan.open()),
            Self::Efa(plan) => Rings::Efa(Box::new(plan.open(op, told, kernel)?)),
            Self::Siw(plan) => Rings::Siw(plan.open(op, kernel)?),
        }))
    }
}

impl Completions {
    /// Continues in a ring with room for `entries`. `command` makes the kernel create or use it, and gets the driver's payload and the
    /// memory to which the device may write from then on. Returns the memory to which it does not write any more.
    pub(crate) fn resize(
        &mut self,
        op: &'static str,
        entries: u32,
        kernel: &dyn Kernel,
        command: impl FnOnce(Payload<'_>, Option<&Mapping>) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        match &mut self.0 {
            Rings::Rxe(queue) => {
                queue.resize(op, kernel, |answer| command((NOTHING, answer), None)).map(|()| None)
            }
            Rings::Mlx5(queue) => queue
                .resize(op, entries, |request, memory| command((request.as_bytes(), &mut []), Some(memory))),
            // This was refused before.
            _ => Err(Error::refused(op, Errno::EOPNOTSUPP, "this driver cannot resize completion queues")),
        }
    }
}

/// A queue pair that is about to be created.
#[derive(Debug)]
pub(crate) enum QpPlan {
    Rings(rxe::QpPlan),
    Mlx5(Box<mlx5::QpPlan>),
    Efa(Box<efa::QpPlan>),
    Siw(siw::QpPlan),
}

/// The queues of a queue pair, and their capacity.
#[derive(Debug)]
pub(crate) struct QpQueues {
    pub(crate) sends: Sends,
    pub(crate) receives: Option<Receives>,
    pub(crate) cap: QpCap,
    pub(crate) known: Option<Known>,
}

/// Keeps a queue pair registered with its completion queues, if the driver needs this as long as the kernel's object exists.
#[derive(Debug)]
pub(crate) struct Known(#[expect(dead_code, reason = "it is dropped")] mlx5::Known);

impl QpPlan {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        match self {
            Self::Rings(plan) => (NOTHING, plan.answer()),
            Self::Mlx5(plan) => plan.payload(),
            Self::Efa(plan) => plan.payload(),
            Self::Siw(plan) => (NOTHING, plan.answer()),
        }
    }

    /// The capacity to request from the kernel if `wanted` is needed.
    pub(crate) fn asked(&self, wanted: QpCap) -> QpCap {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => wanted,
            Self::Efa(plan) => plan.cap(),
        }
    }

    /// The memory to which the device may write as long as the queue pair exists.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        match self {
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => None,
            Self::Mlx5(plan) => Some(plan.memory()),
        }
    }

    /// The queues, after the kernel has created the queue pair with this number and returned its capacity.
    pub(crate) fn open(
        self,
        op: &'static str,
        number: u32,
        told: QpCap,
        kernel: &dyn Kernel,
    ) -> Result<QpQueues> {
        Ok(match self {
            Self::Rings(plan) => {
                let (sends, receives) = plan.open(op, number, kernel)?;
                let receives = receives.map(Receives::in_rings);
                QpQueues { sends: Sends(sq::Rings::Rxe(sends)), receives, cap: told, known: None }
            }
            Self::Mlx5(plan) => {
                let cap = plan.cap();
                let (sends, receives, known) = plan.open(number);
                let (receives, known) =
                    (receives.map(|queue| Receives(rq::Rings::Mlx5(queue))), known.map(Known));
                QpQueues { sends: Sends(sq::Rings::Mlx5(sends)), receives, cap, known }
            }
            Self::Efa(plan) => {
                let cap = plan.cap();
                let (sends, receives) = plan.open(op, number, kernel)?;
                let receives = receives.map(|queue| Receives(rq::Rings::Efa(Box::new(queue))));
                QpQueues { sends: Sends(sq::Rings::Efa(Box::new(sends))), receives, cap, known: None }
            }
            Self::Siw(plan) => {
                let (sends, receives) = plan.open(op, kernel)?;
                let receives = receives.map(|queue| Receives(rq::Rings::Siw(queue)));
                QpQueues { sends: Sends(sq::Rings::Siw(sends)), receives, cap: told, known: None }
            }
        })
    }
}

/// A queue pair that spreads frames over a table of work queues and is about to be created.
#[derive(Debug)]
pub(crate) enum HashPlan {
    Mlx5(Box<mlx5::HashPlan>),
}

impl HashPlan {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        match self {
            Self::Mlx5(plan) => plan.payload(),
        }
    }
}

/// A shared receive queue that is about to be created.
#[derive(Debug)]
pub(crate) enum SrqPlan {
    Rings(rxe::SrqPlan, [u32; 2]),
    Mlx5(Box<mlx5::SrqPlan>),
    Siw(siw::SrqPlan),
}

impl SrqPlan {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        match self {
            Self::Rings(plan, _) => (NOTHING, plan.answer()),
            Self::Mlx5(plan) => plan.payload(),
            Self::Siw(plan) => (NOTHING, plan.answer()),
        }
    }

    /// Number of requests to request from the kernel, and of segments of each.
    pub(crate) fn wanted(&self) -> [u32; 2] {
        match self {
            Self::Rings(_, wanted) => *wanted,
            Self::Mlx5(plan) => plan.capacity(),
            Self::Siw(plan) => plan.wanted(),
        }
    }

    /// The memory to which the device may write as long as the queue exists.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        match self {
            Self::Rings(..) | Self::Siw(_) => None,
            Self::Mlx5(plan) => Some(plan.memory()),
        }
    }

    /// The device's number of the queue, after the kernel has created it, if the driver returns it.
    #[cfg(feature = "raw")]
    pub(crate) fn number(&self) -> Option<u32> {
        match self {
            Self::Rings(..) | Self::Siw(_) => None,
            Self::Mlx5(plan) => Some(plan.number()),
        }
    }

    /// Whether the driver ignores the limit in the kernel's command that creates the queue (`mlx5_ib_create_srq`, srq.c, Linux 6.1).
    pub(crate) fn forgets_limit(&self) -> bool {
        match self {
            Self::Rings(..) | Self::Siw(_) => false,
            Self::Mlx5(_) => true,
        }
    }

    /// The queue, after the kernel has created it.
    pub(crate) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Receives> {
        match self {
            Self::Rings(plan, _) => plan.open(op, kernel).map(Receives::in_rings),
            Self::Mlx5(plan) => Ok(Receives(rq::Rings::Mlx5Shared(plan.open()))),
            Self::Siw(plan) => Ok(Receives(rq::Rings::Siw(plan.open(op, kernel)?))),
        }
    }
}

impl SrqChange {
    /// The queue, after the kernel has resized it.
    pub(crate) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Receives> {
        match self {
            Self::Rings(ring) => rxe::map_receives(op, ring, kernel).map(Receives::in_rings),
            Self::Nothing(..) => {
                Err(Error::malformed(op, "another size of a queue whose driver gives it none"))
            }
        }
    }
}

/// A work queue that is about to be created.
#[derive(Debug)]
pub(crate) enum WqPlan {
    Mlx5(mlx5::WqPlan),
}

impl WqPlan {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        match self {
            Self::Mlx5(plan) => plan.payload(),
        }
    }

    /// The memory to which the device may write as long as the work queue exists.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        match self {
            Self::Mlx5(plan) => Some(plan.memory()),
        }
    }

    /// Number of requests that it holds, and of segments of each.
    pub(crate) fn capacity(&self) -> (u32, u32) {
        match self {
            Self::Mlx5(plan) => plan.capacity(),
        }
    }

    /// The queue, after the kernel has created it with this number.
    pub(crate) fn open(self, number: u32) -> Receives {
        match self {
            Self::Mlx5(plan) => Receives(rq::Rings::Mlx5(plan.open(number))),
        }
    }
}

/// An address handle that is about to be created.
#[derive(Debug)]
pub(crate) enum AhPlan {
    Rings(rxe::AhPlan),
    Mlx5(mlx5::AhPlan),
    Efa(efa::AhPlan),
}

impl AhPlan {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        match self {
            Self::Rings(plan) => (NOTHING, plan.answer()),
            Self::Mlx5(plan) => (NOTHING, plan.answer()),
            Self::Efa(plan) => (NOTHING, plan.answer()),
        }
    }

    /// The part that datagrams carry, after the kernel has created the handle.
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Rings(plan) => plan.address(),
            Self::Mlx5(plan) => plan.address(),
            Self::Efa(plan) => plan.address(),
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
