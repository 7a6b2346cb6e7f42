//! Everything that differs between drivers.
//!
//! Code outside this folder names no driver. It calls a method of [`Driver`] and gets a value or a plan. A plan contains the driver's
//! request, room for its response, and the memory that the device may access. After the kernel has created the object, `open` returns
//! the queue. If a driver does not support something, the method returns an error with a hint. Every match on [`Driver`] names all
//! drivers, so that the crate does not compile with a new driver until each method handles it.

pub(crate) mod completion;
pub(crate) mod cq;
#[cfg(feature = "raw")]
pub(crate) mod cursor;
pub(crate) mod efa;
mod flow;
mod granted;
pub(crate) mod mlx5;
mod paging;
mod plans;
#[cfg(feature = "raw")]
pub mod provider;
mod query;
pub(crate) mod request;
pub(crate) mod ring;
pub(crate) mod rq;
pub(crate) mod rxe;
pub(crate) mod seam;
pub(crate) mod side;
pub(crate) mod siw;
pub(crate) mod sq;
mod statistics;

use nix::errno::Errno;
use uverbs_abi::mlx5::ModifyWq;
use uverbs_abi::rxe::Mminfo;
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::AhAttr;

pub(crate) use self::plans::{
    AhPlan, CounterPlan, CounterValues, CqPlan, HashPlan, Known, MrPlan, QpPlan, QpQueues, SrqChange,
    SrqPlan, WqPlan,
};
#[cfg(feature = "raw")]
pub(crate) use self::provider::ProviderKind;
#[cfg(not(feature = "raw"))]
pub(crate) use self::query::PacketCaps;
#[cfg(feature = "raw")]
pub use self::query::{CompletionFields, PacketCaps};
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::seam::DriverQp;
pub(crate) use self::seam::{ContextPlan, CqShape, Kernel, PointData, Points, QpShape, RefusedBind};
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

/// The scope in which an invalidate must not be sent twice for one key, and not for a window that is not bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GuardedKeys {
    /// No restriction, because the device checks it.
    None,
    /// The open device.
    OfDevice,
    /// All devices of the driver.
    OfDriver,
}

/// The hint for a driver without queues in this crate.
const NO_QUEUES: &str =
    "this version of the crate has queues for rxe, mlx5, siw, efa and the soft device only";
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

    /// The request and response of a new context, with DEVX or without.
    pub(crate) fn plan_context(&self, devx: bool) -> ContextPlan {
        match self {
            Self::Mlx5(_) => mlx5::plan_context(devx),
            Self::Siw(_) => siw::plan_context(),
            Self::Efa(_) => efa::plan_context(),
            Self::Rxe | Self::Soft | Self::Other => ContextPlan::default(),
        }
    }

    /// The context was created; the plan contains the response.
    pub(crate) fn opened(&mut self, plan: &ContextPlan) {
        match self {
            Self::Mlx5(state) => state.opened(&plan.answer),
            Self::Efa(state) => state.opened(&plan.answer),
            // The response of siw is a number of the device.
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Other => {}
        }
    }

    /// Whether requests may be flushes and atomic writes.
    #[cfg(feature = "raw")]
    pub(crate) fn has_flushes(&self) -> bool {
        match self {
            Self::Rxe | Self::Soft => true,
            Self::Mlx5(_) | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }

    /// Whether a context may send commands to the firmware.
    pub(crate) fn has_devx(&self) -> bool {
        match self {
            Self::Mlx5(_) => true,
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }

    /// The maximum number of sends of a queue, if it is limited in user space, by the size of the device's memory for them.
    #[cfg(feature = "raw")]
    pub(crate) fn most_sends(&self) -> Option<u32> {
        match self {
            Self::Efa(state) => Some(state.most_sends()),
            Self::Rxe | Self::Soft | Self::Mlx5(_) | Self::Siw(_) | Self::Other => None,
        }
    }

    /// Whether libibverbs offers thread domains and parent domains on its devices.
    #[cfg(feature = "raw")]
    pub(crate) fn has_parent_domains(&self) -> bool {
        match self {
            Self::Efa(_) => true,
            Self::Rxe | Self::Soft | Self::Mlx5(_) | Self::Siw(_) | Self::Other => false,
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

    /// Whether the device writes the data of a message in order, in aligned pieces of 128 bytes.
    #[cfg(feature = "raw")]
    pub(crate) fn orders_data(&self, kernel: &dyn Kernel) -> Result<bool> {
        match self {
            Self::Efa(state) => state.orders_data(kernel),
            Self::Rxe | Self::Soft | Self::Mlx5(_) | Self::Siw(_) | Self::Other => Ok(false),
        }
    }

    /// The version of its firmware as text; `None` if only the kernel can convert it.
    pub(crate) fn firmware(&self, raw: u64) -> Option<String> {
        let part = |shift: u32| raw >> shift & 0xffff;
        match self {
            Self::Mlx5(_) => Some(format!("{}.{}.{:04}", part(32), part(16), part(0))),
            Self::Rxe | Self::Siw(_) => Some(format!("{}.{}.{}", part(32), part(16), part(0))),
            Self::Efa(_) => {
                let [a, b, c, d, ..] = raw.to_ne_bytes();
                Some(format!("{a}.{b}.{c}.{d}"))
            }
            Self::Soft | Self::Other => None,
        }
    }

    /// The additional fields that its completions can have.
    #[cfg(feature = "raw")]
    pub(crate) fn completion_fields(&self) -> CompletionFields {
        match self {
            Self::Mlx5(_) => {
                CompletionFields::TIMESTAMP | CompletionFields::VLAN | CompletionFields::FLOW_TAG
            }
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => CompletionFields::empty(),
        }
    }

    /// Whether an invalidate for a key may be sent only once, and not for a window that is not bound, and for which devices this holds:
    /// see [`Keys`](crate::device::context).
    pub(crate) fn guarded_keys(&self) -> GuardedKeys {
        match self {
            Self::Rxe => GuardedKeys::OfDriver,
            Self::Soft => GuardedKeys::OfDevice,
            Self::Mlx5(_) | Self::Siw(_) | Self::Efa(_) | Self::Other => GuardedKeys::None,
        }
    }

    /// Whether the driver may return a number of its own for a protection domain. Those of software devices do not (`rxe_alloc_pd`,
    /// rxe_verbs.c; `siw_alloc_pd`, siw_verbs.c; Linux 6.1 to 7.3).
    pub(crate) fn numbers_domains(&self) -> bool {
        match self {
            Self::Rxe | Self::Siw(_) | Self::Soft => false,
            Self::Mlx5(_) | Self::Efa(_) | Self::Other => true,
        }
    }

    /// A completion counter of the device, and where its values are read. The kernel reports whether the device has such counters.
    pub(crate) fn plan_completion_counter(&self, op: &'static str) -> Result<CounterPlan> {
        match self {
            Self::Rxe | Self::Mlx5(_) | Self::Siw(_) | Self::Other => Ok(CounterPlan::Kernel),
            // The soft device implements such counters in the same way as efa, the only driver that has them.
            Self::Soft | Self::Efa(_) => efa::CounterPlan::new(op).map(CounterPlan::Memory),
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
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Siw(_) if shape.memory.is_some() => {
                lacks(op, NO_MEMORY)
            }
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Siw(_) if shape.flags != 0 => {
                lacks(op, NO_CHOICES)
            }
            Self::Rxe | Self::Soft => Ok(CqPlan::Rings(rxe::CqPlan::default())),
            Self::Mlx5(state) => state.plan_cq(op, shape.entries, kernel).map(CqPlan::Mlx5),
            Self::Siw(_) => Ok(CqPlan::Siw(siw::CqPlan::new())),
            Self::Efa(state) => state.plan_cq(op, shape, kernel).map(CqPlan::Efa),
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// Checks whether a completion queue may be resized to `entries`, before anything is allocated.
    pub(crate) fn may_resize_cq(&self, op: &'static str, entries: u32, kernel: &dyn Kernel) -> Result<()> {
        match self {
            Self::Rxe | Self::Soft => Ok(()),
            // The new ring is written before the kernel sees it.
            Self::Mlx5(state) => state.check_cqe(op, entries, kernel),
            Self::Siw(_) => lacks(op, siw::NO_RESIZE),
            Self::Efa(_) => lacks(op, efa::NO_RESIZE),
            Self::Other => lacks(op, NO_QUEUES),
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
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Siw(_) if shape.type_ == qp_type::DRIVER => {
                lacks(op, NO_SRD)
            }
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Siw(_) if shape.driver != DriverQp::default() => {
                lacks(op, NO_CHOICES)
            }
            Self::Rxe | Self::Soft => Ok(QpPlan::Rings(rxe::QpPlan::new(shape.has_receives()))),
            Self::Mlx5(state) => {
                if shape.type_ == qp_type::RAW_PACKET && shape.is_shared {
                    return lacks(op, "raw packet queue pairs do not share their receives");
                }
                let Some(form) = mlx5::Form::of(shape) else { return lacks(op, mlx5::NO_QUEUES) };
                let [sends, receives] = queues;
                let queues = [sends.mlx5(op)?, receives.mlx5(op)?];
                let ends = mlx5::Ends { queues, shared: shared.map(|shared| shared.mlx5(op)).transpose()? };
                state.plan_qp(op, form, shape, ends, kernel).map(|plan| QpPlan::Mlx5(Box::new(plan)))
            }
            Self::Siw(_) => siw::plan_qp(op, shape).map(QpPlan::Siw),
            Self::Efa(state) => {
                let [sends, receives] = queues;
                let sides = [sends.efa(op)?, receives.efa(op)?];
                state.plan_qp(op, shape, sides, kernel).map(|plan| QpPlan::Efa(Box::new(plan)))
            }
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// A queue pair over a table of work queues, which spreads frames by a Toeplitz hash of these fields with this key.
    pub(crate) fn plan_hash(&self, op: &'static str, fields: u64, key: &[u8; 40]) -> Result<HashPlan> {
        match self {
            Self::Mlx5(_) => Ok(HashPlan::Mlx5(Box::new(mlx5::HashPlan::new(fields, key)))),
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
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
            Self::Efa(_) => lacks(op, "efa has no shared receive queues"),
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// A domain of extended reliable connections. The driver needs no data for it, and none for the target queue pairs
    /// (`ib_create_qp_user`, verbs.c, Linux 6.1).
    pub(crate) fn plan_xrcd(&self, op: &'static str) -> Result<()> {
        match self {
            Self::Soft | Self::Mlx5(_) => Ok(()),
            Self::Rxe => lacks(op, "rxe has no extended reliable connections"),
            Self::Siw(_) => lacks(op, "iWARP has no extended reliable connections"),
            Self::Efa(_) => lacks(op, "efa has no extended reliable connections"),
            Self::Other => lacks(op, NO_QUEUES),
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

    /// Arming or resizing a shared receive queue.
    pub(crate) fn plan_srq_change(&self, op: &'static str) -> Result<SrqChange> {
        match self {
            Self::Rxe | Self::Soft => Ok(SrqChange::Rings(Mminfo::default())),
            Self::Mlx5(_) => {
                Ok(SrqChange::Nothing(Errno::EINVAL, "mlx5 cannot resize shared receive queues"))
            }
            Self::Siw(_) => Ok(SrqChange::Nothing(Errno::EOPNOTSUPP, siw::NO_SHARED_RESIZE)),
            Self::Efa(_) => lacks(op, "efa has no shared receive queues"),
            Self::Other => lacks(op, NO_QUEUES),
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
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// The driver's data for a change of a work queue's state.
    pub(crate) fn plan_wq_change(&self, op: &'static str) -> Result<&'static [u8]> {
        match self {
            Self::Mlx5(_) => Ok(&[0; size_of::<ModifyWq>()]),
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// A table of work queues, for which the driver needs no data.
    pub(crate) fn plan_table(&self, op: &'static str) -> Result<()> {
        match self {
            Self::Mlx5(_) => Ok(()),
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// An address handle for a path.
    pub(crate) fn plan_ah(&self, op: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        match self {
            Self::Rxe | Self::Soft => Ok(AhPlan::Rings(rxe::AhPlan::default())),
            Self::Siw(_) => lacks(op, "siw has no datagrams, and so no address handles"),
            Self::Efa(_) => efa::AhPlan::new(op, attr).map(AhPlan::Efa),
            Self::Mlx5(_) => Ok(AhPlan::Mlx5(mlx5::AhPlan::new(attr))),
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// Whether each slot of its queues has a flag that names its owner.
    #[cfg(feature = "raw")]
    pub(crate) fn has_flagged_queues(&self) -> bool {
        match self {
            Self::Siw(_) => true,
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => false,
        }
    }

    /// The hint for a queue pair that cannot be made ready to send, for drivers whose queue pairs are connected by other means than this
    /// crate.
    pub(crate) fn connected_by_others(&self) -> Option<&'static str> {
        match self {
            Self::Siw(_) => Some(siw::NOT_CONNECTED),
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => None,
        }
    }

    /// A memory region.
    pub(crate) fn plan_mr(&self) -> MrPlan {
        match self {
            Self::Siw(state) => {
                let (request, answer) = state.plan_mr();
                MrPlan::Siw(request, answer)
            }
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => MrPlan::Nothing,
        }
    }
}
