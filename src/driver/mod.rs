//! What differs between drivers, and nothing else: the questions that the rest of the crate asks, and each driver's answer.
//!
//! Code outside this folder names no driver: it asks, and gets an answer or a plan. A plan has the driver's request, room
//! for its answer, and the memory that the device may touch; once the kernel has made the object, `open` gives the queue.
//! "Lacks it" is an answer too: an error with a hint. Every match on [`Driver`] names all drivers, so that one that is added
//! does not compile before it has answered.

#[cfg(feature = "raw")]
pub(crate) mod bound;
pub(crate) mod completion;
pub(crate) mod efa;
mod flagged;
mod flow;
pub(crate) mod mlx5;
mod plans;
mod query;
pub(crate) mod queues;
pub(crate) mod receives;
pub(crate) mod request;
pub(crate) mod ring;
pub(crate) mod rxe;
pub(crate) mod side;
mod siw;
mod statistics;

use nix::errno::Errno;
use uverbs_abi::mlx5::ModifyWq;
use uverbs_abi::rxe::Mminfo;
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::AhAttr;

pub(crate) use self::flow::{PointData, Points, RefusedBind};
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::plans::DriverQp;
pub(crate) use self::plans::{
    AhPlan, CounterPlan, CounterValues, CqPlan, CqShape, HashPlan, Known, MrPlan, QpPlan, QpQueues, QpShape,
    SrqChange, SrqPlan, WqPlan,
};
#[cfg(not(feature = "raw"))]
pub(crate) use self::query::PacketCaps;
#[cfg(feature = "raw")]
pub use self::query::{CompletionFields, PacketCaps};
use self::ring::RingDevice;
use self::side::CqSide;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The user half of a driver, and what the queues of a context share.
#[derive(Debug)]
pub(crate) enum Driver {
    /// rxe, software RoCE: queues are rings shared with the kernel.
    Rxe,
    /// mlx5, ConnectX: the one kernel driver with flow counters.
    Mlx5(mlx5::State),
    /// The soft device: rxe's rings and mlx5's counters.
    #[cfg_attr(not(feature = "soft"), expect(dead_code))]
    Soft,
    /// siw, software iWARP: queues of slots that each change hands by themselves.
    Siw(siw::State),
    /// efa, of Amazon's cloud: queues that the kernel maps.
    Efa(efa::State),
    /// A driver whose own payloads this crate does not know.
    Other,
}

/// The open device, as plans reach it. Each way asks first whose the device is.
pub(crate) trait Kernel {
    /// Makes the device this process's; refuses `op` if it is another's. It comes before any lock, which a thread may hold
    /// that a child of `fork` does not have.
    fn take(&self, op: &'static str) -> Result<()>;

    /// Sends a command.
    fn invoke(&self, command: &mut Command<'_>) -> Result<()>;

    /// Maps memory of the device at an offset that the kernel or its driver has told.
    fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping>;

    /// Who must be told of receives in rings: of the queue pair of this number, or of a shared queue.
    fn ring_device(&self, qp: Option<u32>) -> Option<Box<dyn RingDevice>>;
}

/// What goes with a new context.
#[derive(Debug, Default)]
pub(crate) struct ContextPlan {
    request: Vec<u8>,
    /// For a kernel that finds the request invalid.
    older: Option<Vec<u8>>,
    answer: Vec<u8>,
}

impl ContextPlan {
    /// The driver's request, and the place of its answer.
    pub(crate) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (&self.request, &mut self.answer)
    }

    /// Goes on to what older kernels want to be told; false when that is nothing else.
    pub(crate) fn goes_on(&mut self) -> bool {
        let older = self.older.take();
        let is_there = older.is_some();
        self.request = older.unwrap_or_default();
        is_there
    }
}

/// Of which devices an invalidate for a key must not be sent twice, and none for a window that is not bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GuardedKeys {
    /// The device looks itself.
    None,
    /// Of the open device.
    OfDevice,
    /// Of all devices of the driver.
    OfDriver,
}

/// The hint of a driver that has no queues here.
const NO_QUEUES: &str =
    "this version of the crate has queues for rxe, mlx5, siw, efa and the soft device only";
const NO_SRD: &str = "of the devices that this crate knows, only those of efa have reliable datagrams (srd)";
const NO_CHOICES: &str = "the device's driver has no flags of its own for the queue";
const NO_MEMORY: &str = "of the devices that this crate knows, only those of efa support completion queues in memory of the program";
const NO_WORK_QUEUES: &str =
    "of the devices that this crate knows, only those of mlx5 have receive work queues";

/// The error of what this version of the crate does not have for a driver.
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

    /// What a new context carries and expects, with commands to the firmware or without.
    pub(crate) fn plan_context(&self, devx: bool) -> ContextPlan {
        match self {
            Self::Mlx5(_) => mlx5::plan_context(devx),
            Self::Siw(_) => siw::plan_context(),
            Self::Efa(_) => efa::plan_context(),
            Self::Rxe | Self::Soft | Self::Other => ContextPlan::default(),
        }
    }

    /// The context is made, and this is what came back.
    pub(crate) fn opened(&mut self, plan: &ContextPlan) {
        match self {
            Self::Mlx5(state) => state.opened(&plan.answer),
            Self::Efa(state) => state.opened(&plan.answer),
            // The answer of siw is a number of the device.
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

    /// What the process itself limits a queue of sends to, if it does: the size of the device's memory for them.
    #[cfg(feature = "raw")]
    pub(crate) fn most_sends(&self) -> Option<u32> {
        match self {
            Self::Efa(state) => Some(state.most_sends()),
            Self::Rxe | Self::Soft | Self::Mlx5(_) | Self::Siw(_) | Self::Other => None,
        }
    }

    /// Whether programs of libibverbs have domains of threads, and of both, on its devices.
    #[cfg(feature = "raw")]
    pub(crate) fn has_parent_domains(&self) -> bool {
        match self {
            Self::Efa(_) => true,
            Self::Rxe | Self::Soft | Self::Mlx5(_) | Self::Siw(_) | Self::Other => false,
        }
    }

    /// Whether its requests complete in any order, by numbers.
    #[cfg(feature = "raw")]
    pub(crate) fn has_numbered_queues(&self) -> bool {
        match self {
            Self::Efa(_) => true,
            Self::Rxe | Self::Soft | Self::Mlx5(_) | Self::Siw(_) | Self::Other => false,
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

    /// How it words the version of its firmware; none when only the kernel can.
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

    /// What completions can tell besides what all of them do.
    #[cfg(feature = "raw")]
    pub(crate) fn completion_fields(&self) -> CompletionFields {
        match self {
            Self::Mlx5(_) => {
                CompletionFields::TIMESTAMP | CompletionFields::VLAN | CompletionFields::FLOW_TAG
            }
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => CompletionFields::empty(),
        }
    }

    /// Whether an invalidate for a key may be sent once only, and none for a window that is not bound, and through which devices: see [`Keys`](crate::device::context).
    pub(crate) fn guarded_keys(&self) -> GuardedKeys {
        match self {
            Self::Rxe => GuardedKeys::OfDriver,
            Self::Soft => GuardedKeys::OfDevice,
            Self::Mlx5(_) | Self::Siw(_) | Self::Efa(_) | Self::Other => GuardedKeys::None,
        }
    }

    /// A completion counter of the device's: where its values live. The kernel says whether there are any.
    pub(crate) fn plan_completion_counter(&self, op: &'static str) -> Result<CounterPlan> {
        match self {
            Self::Rxe | Self::Mlx5(_) | Self::Siw(_) | Self::Other => Ok(CounterPlan::Kernel),
            // The soft device has them as the one driver that has them.
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

    /// Whether a completion queue may be resized to so many entries, before anything is made for that.
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

    /// A queue pair that completes in these queues, of sends and of receives.
    pub(crate) fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape<'_>,
        queues: [&CqSide; 2],
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
                if shape.type_ == qp_type::RAW_PACKET && shape.srq.is_some() {
                    return lacks(op, "raw packet queue pairs do not share their receives");
                }
                let Some(form) = mlx5::Form::of(shape) else { return lacks(op, mlx5::NO_QUEUES) };
                let queues = [queues[0].mlx5(op)?, queues[1].mlx5(op)?];
                state.plan_qp(op, form, shape, queues, kernel).map(|plan| QpPlan::Mlx5(Box::new(plan)))
            }
            Self::Siw(_) => siw::plan_qp(op, shape).map(QpPlan::Siw),
            Self::Efa(state) => {
                state.plan_qp(op, shape, queues, kernel).map(|plan| QpPlan::Efa(Box::new(plan)))
            }
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// A queue pair over a table of work queues, that spreads frames by a Toeplitz hash of these fields with this key.
    pub(crate) fn plan_hash(&self, op: &'static str, fields: u64, key: &[u8; 40]) -> Result<HashPlan> {
        match self {
            Self::Mlx5(_) => Ok(HashPlan::Mlx5(Box::new(mlx5::HashPlan::new(fields, key)))),
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// A shared receive queue for so many requests of so many segments.
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

    /// A domain of extended reliable connections, with which nothing goes; nor does with their targets, whose driver is told
    /// nothing (`ib_create_qp_user`, verbs.c, Linux 6.1).
    pub(crate) fn plan_xrcd(&self, op: &'static str) -> Result<()> {
        match self {
            Self::Soft | Self::Mlx5(_) => Ok(()),
            Self::Rxe => lacks(op, "rxe has no extended reliable connections"),
            Self::Siw(_) => lacks(op, "iWARP has no extended reliable connections"),
            Self::Efa(_) => lacks(op, "efa has no extended reliable connections"),
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// A shared receive queue of such a domain, that completes in this queue.
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

    /// Arming a shared receive queue, or giving it another size.
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

    /// What a change of a work queue's state carries.
    pub(crate) fn plan_wq_change(&self, op: &'static str) -> Result<&'static [u8]> {
        match self {
            Self::Mlx5(_) => Ok(&[0; size_of::<ModifyWq>()]),
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// A table of work queues, with which nothing goes.
    pub(crate) fn plan_table(&self, op: &'static str) -> Result<()> {
        match self {
            Self::Mlx5(_) => Ok(()),
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => lacks(op, NO_WORK_QUEUES),
        }
    }

    /// An address handle for a way.
    pub(crate) fn plan_ah(&self, op: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        match self {
            Self::Rxe | Self::Soft => Ok(AhPlan::Rings(rxe::AhPlan::default())),
            Self::Siw(_) => lacks(op, "siw has no datagrams, and so no address handles"),
            Self::Efa(_) => efa::AhPlan::new(op, attr).map(AhPlan::Efa),
            Self::Mlx5(_) => Ok(AhPlan::Mlx5(mlx5::AhPlan::new(attr))),
            Self::Other => lacks(op, NO_QUEUES),
        }
    }

    /// Whether the device writes completions in blocks of its own, and requests are blocks.
    #[cfg(feature = "raw")]
    pub(crate) fn has_queues_in_blocks(&self) -> bool {
        match self {
            Self::Mlx5(_) => true,
            Self::Rxe | Self::Soft | Self::Efa(_) | Self::Siw(_) | Self::Other => false,
        }
    }

    /// Whether the slots of its queues have a flag each, by which they are handed over.
    #[cfg(feature = "raw")]
    pub(crate) fn has_flagged_queues(&self) -> bool {
        match self {
            Self::Siw(_) => true,
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => false,
        }
    }

    /// Why a queue pair does not come to where it sends, of a driver whose queue pairs others than this crate connect.
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
