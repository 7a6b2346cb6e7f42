//! Everything that differs between drivers.
//!
//! Code outside this folder names no driver. It calls a method of [`Driver`] and gets a value or a plan. A plan contains the driver's
//! request, room for its response, and the memory that the device may access. After the kernel has created the object, `open` returns
//! the queue. If a driver does not support something, the method returns an error with a hint.
//!
//! What needs no queue, a driver says itself ([`Control`]). The plans for queues are in `plans.rs`.

pub(crate) mod completion;
pub(crate) mod cq;
#[cfg(feature = "raw")]
pub(crate) mod cursor;
pub(crate) mod efa;
mod flow;
pub(crate) mod list;
pub(crate) mod mlx5;
mod others;
mod plans;
#[cfg(feature = "raw")]
pub mod provider;
pub(crate) mod request;
pub(crate) mod ring;
pub(crate) mod rq;
pub(crate) mod rxe;
pub(crate) mod seam;
pub(crate) mod side;
pub(crate) mod siw;
pub(crate) mod sq;

use std::ops::Deref;

use nix::errno::Errno;
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::AhAttr;

use self::others::NO_QUEUES;
use self::plans::{AhPlan, CounterPlan, CqPlan, HashPlan, QpPlan, SrqPlan, WqPlan};
pub(crate) use self::plans::{CounterValues, Known, QpQueues};
#[cfg(feature = "raw")]
pub(crate) use self::provider::ProviderKind;
#[cfg(feature = "raw")]
pub use self::seam::CompletionFields;
use self::seam::Control;
pub(crate) use self::seam::{
    ContextPlan, CqShape, GuardedKeys, Kernel, PointData, Points, QpShape, RefusedBind,
};
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::seam::{DriverCq, DriverQp, PacketCaps};
use self::side::{CqSide, SrqSide};
use crate::kernel::error::{Error, Result};

/// The user half of a driver, with the state that the queues of a context share.
#[derive(Debug)]
pub(crate) enum Driver {
    /// rxe, software RoCE: queues are rings shared with the kernel.
    Rxe,
    /// mlx5, ConnectX: the only kernel driver with flow counters.
    Mlx5(mlx5::State),
    /// The soft device: rxe's rings and mlx5's counters.
    #[cfg_attr(not(feature = "soft"), expect(dead_code))]
    Soft,
    /// siw, software iWARP: arrays of slots, each of which has a flag that names its owner.
    Siw(siw::State),
    /// efa, the driver of Amazon's cloud: queues that the kernel maps.
    Efa(efa::State),
    /// A driver whose payloads this crate does not know.
    Other,
}

const NO_SRD: &str = "of the devices that this crate knows, only those of efa have reliable datagrams (srd)";
const NO_CHOICES: &str = "the device's driver has no flags of its own for the queue";
const NO_MEMORY: &str = "of the devices that this crate knows, only those of efa support completion queues in memory of the program";
const NO_WORK_QUEUES: &str =
    "of the devices that this crate knows, only those of mlx5 have receive work queues";

/// The error for something that this version of the crate does not support for a driver.
fn lacks<T>(op: &'static str, hint: &'static str) -> Result<T> {
    Err(Error::refused(op, Errno::EOPNOTSUPP, hint))
}

impl Driver {
    pub(crate) fn of(driver: u32) -> Self {
        match driver {
            driver_id::RXE => Self::Rxe,
            driver_id::MLX5 => Self::Mlx5(mlx5::State::default()),
            driver_id::SIW => Self::Siw(siw::State::default()),
            driver_id::EFA => Self::Efa(efa::State::default()),
            _ => Self::Other,
        }
    }

    /// The context was created; the plan contains the response.
    pub(crate) fn opened(&mut self, plan: &ContextPlan) {
        match self {
            Self::Mlx5(state) => state.opened(&plan.answer),
            Self::Siw(state) => state.opened(&plan.answer),
            Self::Efa(state) => state.opened(&plan.answer),
            // They answer nothing.
            Self::Rxe | Self::Soft | Self::Other => {}
        }
    }

    /// Which of the providers for bindings its queues have.
    #[cfg(feature = "raw")]
    pub(crate) fn provider(&self) -> ProviderKind {
        match self {
            // Without queues of its own nothing depends on it.
            Self::Rxe | Self::Soft | Self::Other => ProviderKind::Rxe,
            Self::Mlx5(_) => ProviderKind::Mlx5,
            Self::Siw(_) => ProviderKind::Siw,
            Self::Efa(_) => ProviderKind::Efa,
        }
    }

    /// A completion counter of the device, and where its values are read. The kernel reports whether the device has such counters.
    pub(crate) fn plan_completion_counter(&self, op: &'static str) -> Result<CounterPlan> {
        match self {
            // The soft device implements such counters in the same way as efa, the only driver that has them.
            Self::Soft | Self::Efa(_) => efa::CounterPlan::new(op).map(CounterPlan::Memory),
            Self::Rxe | Self::Mlx5(_) | Self::Siw(_) | Self::Other => Ok(CounterPlan::Kernel),
        }
    }

    /// A completion queue.
    pub(crate) fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Result<CqPlan> {
        match self {
            Self::Efa(state) => state.plan_cq(op, shape, kernel).map(CqPlan::Efa),
            Self::Other => lacks(op, NO_QUEUES),
            _ if shape.memory.is_some() => lacks(op, NO_MEMORY),
            Self::Mlx5(state) => state.plan_cq(op, shape, kernel).map(|plan| CqPlan::Mlx5(Box::new(plan))),
            _ if shape.driver != DriverCq::default() => lacks(op, NO_CHOICES),
            Self::Rxe | Self::Soft => Ok(CqPlan::Rings(rxe::CqPlan::default())),
            Self::Siw(_) => Ok(CqPlan::Siw(siw::CqPlan::new())),
        }
    }

    /// A queue pair that completes in these queues, for sends and for receives, and receives from a shared queue if there is one.
    pub(crate) fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        queues: [&CqSide; 2],
        shared: Option<&SrqSide>,
        kernel: &dyn Kernel,
    ) -> Result<QpPlan> {
        match self {
            Self::Efa(state) => {
                let [sends, receives] = queues;
                let sides = [sends.efa(op)?, receives.efa(op)?];
                state.plan_qp(op, shape, sides, kernel).map(|plan| QpPlan::Efa(Box::new(plan)))
            }
            Self::Other => lacks(op, NO_QUEUES),
            _ if shape.type_ == qp_type::DRIVER => lacks(op, NO_SRD),
            Self::Mlx5(state)
                if shape.driver == (DriverQp { flags: shape.driver.flags, ..DriverQp::default() }) =>
            {
                if shape.type_ == qp_type::RAW_PACKET && shape.is_shared {
                    return lacks(op, "raw packet queue pairs do not share their receives");
                }
                let Some(form) = mlx5::Form::of(shape) else { return lacks(op, mlx5::NO_QUEUES) };
                let [sends, receives] = queues;
                let queues = [sends.mlx5(op)?, receives.mlx5(op)?];
                let ends = mlx5::Ends { queues, shared: shared.map(|shared| shared.mlx5(op)).transpose()? };
                state.plan_qp(op, form, shape, ends, kernel).map(|plan| QpPlan::Mlx5(Box::new(plan)))
            }
            _ if shape.driver != DriverQp::default() => lacks(op, NO_CHOICES),
            Self::Rxe | Self::Soft => Ok(QpPlan::Rings(rxe::QpPlan::new(shape.has_receives()))),
            Self::Siw(_) => siw::plan_qp(op, shape).map(QpPlan::Siw),
            // Its choices were looked at above.
            Self::Mlx5(_) => lacks(op, NO_CHOICES),
        }
    }

    /// A queue pair over a table of work queues, which spreads frames by a Toeplitz hash of these fields with this key.
    pub(crate) fn plan_hash(
        &self,
        op: &'static str,
        fields: u64,
        key: &[u8; 40],
        flags: u16,
    ) -> Result<HashPlan> {
        match self {
            Self::Mlx5(_) => Ok(HashPlan::Mlx5(Box::new(mlx5::HashPlan::new(fields, key, flags)))),
            _ => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// A shared receive queue for requests of several segments.
    pub(crate) fn plan_srq(
        &self,
        op: &'static str,
        wanted: [u32; 2],
        kernel: &dyn Kernel,
    ) -> Result<SrqPlan> {
        match self {
            Self::Rxe | Self::Soft => Ok(SrqPlan::Rings(rxe::SrqPlan::default(), wanted)),
            Self::Mlx5(state) => {
                state.plan_srq(op, wanted, None, kernel).map(|plan| SrqPlan::Mlx5(Box::new(plan)))
            }
            Self::Siw(_) => Ok(SrqPlan::Siw(siw::SrqPlan::new(wanted))),
            Self::Other => lacks(op, NO_QUEUES),
            _ => Err(self.lacking(op, "has no shared receive queues")),
        }
    }

    /// A shared receive queue of such a domain, which completes in this queue.
    pub(crate) fn plan_xrc_srq(
        &self,
        op: &'static str,
        wanted: [u32; 2],
        queue: &CqSide,
        kernel: &dyn Kernel,
    ) -> Result<SrqPlan> {
        self.plan_xrcd(op)?;
        match self {
            Self::Mlx5(state) => {
                let plan = state.plan_srq(op, wanted, Some(queue.mlx5(op)?), kernel);
                plan.map(|plan| SrqPlan::Mlx5(Box::new(plan)))
            }
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => {
                self.plan_srq(op, wanted, kernel)
            }
        }
    }

    /// A receive work queue that completes in this queue.
    pub(crate) fn plan_wq(
        &self,
        op: &'static str,
        depth: u32,
        segments: u32,
        queue: &CqSide,
        kernel: &dyn Kernel,
    ) -> Result<WqPlan> {
        match self {
            Self::Mlx5(state) => {
                state.plan_wq(op, depth, segments, queue.mlx5(op)?, kernel).map(WqPlan::Mlx5)
            }
            _ => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// The driver's data for a change of a work queue's state.
    pub(crate) fn plan_wq_change(&self, op: &'static str) -> Result<&'static [u8]> {
        self.wq_change().map_or_else(|| lacks(op, NO_WORK_QUEUES), Ok)
    }

    /// A table of work queues, for which the driver needs no data.
    pub(crate) fn plan_table(&self, op: &'static str) -> Result<()> {
        self.plan_wq_change(op).map(drop)
    }

    /// An address handle for a path.
    pub(crate) fn plan_ah(&self, op: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        match self {
            Self::Rxe | Self::Soft => Ok(AhPlan::Rings(rxe::AhPlan::default())),
            Self::Efa(_) => efa::AhPlan::new(op, attr).map(AhPlan::Efa),
            Self::Mlx5(_) => Ok(AhPlan::Mlx5(mlx5::AhPlan::new(attr))),
            Self::Other => lacks(op, NO_QUEUES),
            _ => Err(self.lacking(op, "has no datagrams, and so no address handles")),
        }
    }
}

impl Deref for Driver {
    type Target = dyn Control;

    fn deref(&self) -> &(dyn Control + 'static) {
        match self {
            Self::Rxe => &rxe::State,
            Self::Soft => &others::Soft,
            Self::Mlx5(state) => state,
            Self::Siw(state) => state,
            Self::Efa(state) => state,
            Self::Other => &others::Other,
        }
    }
}
