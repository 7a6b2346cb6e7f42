//! The user half of efa, the driver of Amazon's cloud.
//!
//! The kernel's driver allocates all memory of queues and returns where it can be mapped: rings of completions and of receives in
//! memory of the host, send rings in memory of the device, and pages of doorbells. Queue pairs are for datagrams, unreliable or
//! reliable ones (SRD). Verbs do not have reliable datagrams: each request names its destination, and requests complete in any order.
//!
//! Source: `efa_alloc_ucontext` and others, efa_verbs.c, Linux 6.1 to 7.3; providers/efa of rdma-core 65.

#[cfg(feature = "raw")]
pub(crate) mod binding;
mod completions;
mod control;
mod counter;
mod doorbell;
mod entry;
mod qp;
mod receives;
mod request;
mod sends;
mod track;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use uverbs_abi::efa::{
    ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR, ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH, AllocUcontext,
    AllocUcontextResp, CREATE_CQ_WITH_SGID, CREATE_QP_WITH_UNSOLICITED_WRITE_RECV, CreateAhResp,
    ExQueryDeviceResp, QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS, QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM,
    QUERY_DEVICE_CAPS_RDMA_READ, QUERY_DEVICE_CAPS_RDMA_WRITE, USER_CMDS_SUPP_UDATA_QUERY_DEVICE,
};
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::{AhAttr, ExQueryDevice, ExQueryDeviceResp as CoreResp, QpCap, cmd};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub(crate) use self::completions::Completions;
use self::completions::CqPlan;
pub(crate) use self::counter::{CounterPlan, CounterValues};
#[cfg(feature = "raw")]
pub use self::entry::Told;
pub(crate) use self::entry::UNSOLICITED;
use self::qp::QpPlan;
pub(crate) use self::receives::Receives;
pub(crate) use self::sends::Sends;
use self::track::Generations;
use super::request::Address;
use super::seam::{
    AhPlan, ContextPlan, CqShape, DriverCq, Kernel, Planned, QpQueues, QpShape, Queues, Sides, own,
};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};

/// The hints of what is refused.
const TYPES: &str = "efa has queue pairs for datagrams only: reliable ones (srd) and unreliable ones (ud)";
const FLAGS: &str = "this flag of efa gives the queue a form that this crate does not support";
const SHARED: &str = "efa has no shared receive queues";
const OPTIONS: &str = "efa's queue pairs have no options except that all sends are signaled";
const NO_MEMORY: &str =
    "the device or the kernel does not support completion queues in memory of the program";
const NO_EVENTS: &str = "the device has no completion events: create the queue without a channel, and poll";

/// If the device limits batches of sends, or has a minimum depth, the kernel creates a context only for a program that declares support
/// for these limits (`efa_user_comp_handshake`).
fn plan_context() -> ContextPlan {
    let request = AllocUcontext {
        supported_caps: ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH | ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR,
        ..AllocUcontext::new_zeroed()
    };
    ContextPlan {
        request: request.as_bytes().to_vec(),
        older: None,
        answer: vec![0; size_of::<AllocUcontextResp>()],
    }
}

/// The limits in the driver's response for the context.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Whether the driver adds a response of its own to a query of the device.
    answers_queries: bool,
    /// Number of rings of a completion queue.
    rings: u16,
    /// Maximum bytes of inline data, and of those in wide slots; the latter is zero on older kernels.
    inline: u32,
    wide_inline: u32,
    /// Maximum bytes of a send ring.
    max_llq: u32,
    /// Maximum bytes of sends that one doorbell announces; zero for no limit.
    max_batch: u32,
    /// Minimum depth of a send queue.
    min_sends: u32,
}

impl Limits {
    /// Bytes per unit of [`AllocUcontextResp::max_tx_batch`].
    const BATCH: u32 = 64;

    fn new(answer: &AllocUcontextResp) -> Self {
        Self {
            answers_queries: answer.cmds_supp_udata_mask & USER_CMDS_SUPP_UDATA_QUERY_DEVICE != 0,
            rings: answer.sub_cqs_per_cq,
            inline: answer.inline_buf_size.into(),
            wide_inline: answer.inline_buf_size_ex.into(),
            max_llq: answer.max_llq_size,
            max_batch: u32::from(answer.max_tx_batch) * Self::BATCH,
            min_sends: answer.min_sq_wr.into(),
        }
    }
}

/// State that the queues of a context share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Zeros until the context exists.
    limits: Limits,
    /// The capabilities of the device, after the first query.
    caps: OnceLock<Caps>,
    generations: Arc<Generations>,
}

impl State {
    /// Reads the driver's response, after the kernel has created the context.
    fn read_limits(&mut self, answer: &[u8]) {
        if let Ok((answer, _)) = AllocUcontextResp::read_from_prefix(answer) {
            self.limits = Limits::new(&answer);
        }
    }

    /// The capabilities of the device. It is queried when they are first needed.
    fn caps(&self, op: &'static str, kernel: &dyn Kernel) -> Result<&Caps> {
        kernel.take(op)?;
        if let Some(caps) = self.caps.get() {
            return Ok(caps);
        }
        // If several threads get here at the same time, each queries the device, and all get the same response.
        let nothing = || Ok(Caps(ExQueryDeviceResp::new_zeroed()));
        let caps = if self.limits.answers_queries { ask(kernel) } else { nothing() }?;
        Ok(self.caps.get_or_init(|| caps))
    }

    /// Maximum bytes of inline data of a request in a small slot, and in a slot of any size.
    pub(crate) fn inline(&self) -> [u32; 2] {
        [self.limits.inline, self.limits.wide_inline.max(self.limits.inline)]
    }

    /// Maximum number of requests of a send queue with small slots, or with wide ones. The size of a ring is a power of two.
    pub(crate) fn most_in_ring(&self, is_wide: bool) -> u32 {
        let slot = if is_wide { sends::WIDE_SLOT } else { sends::SLOT } as u32;
        (self.limits.max_llq / slot).checked_ilog2().map_or(0, |bits| 1 << bits)
    }

    /// Whether data is written in order, in units of 128 bytes.
    #[cfg(feature = "raw")]
    fn writes_in_order(&self, kernel: &dyn Kernel) -> Result<bool> {
        Ok(self.caps("device.query", kernel)?.has(uverbs_abi::efa::QUERY_DEVICE_CAPS_DATA_POLLING_128))
    }

    /// The number of small slots for which the device has memory.
    #[cfg(feature = "raw")]
    fn small_slots(&self) -> u32 {
        self.limits.max_llq / sends::SLOT as u32
    }
}

impl Queues for State {
    const NUMBER: u32 = driver_id::EFA;

    type Completions = Completions;
    type Sends = Sends;
    type Receives = Receives;
    type Shared = Receives;

    fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<u32, Completions> {
        let CqShape { entries, has_channel, memory, driver } = *shape;
        let (flags, refused) = (driver.flags, |hint| Err(Error::refused(op, Errno::EOPNOTSUPP, hint)));
        if driver != (DriverCq { flags, ..DriverCq::default() }) {
            return refused("efa chooses the size of completions");
        }
        if flags & !CREATE_CQ_WITH_SGID != 0 {
            return refused(FLAGS);
        }
        if has_channel && !self.caps(op, kernel)?.has(QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS) {
            return refused(NO_EVENTS);
        }
        let Some(memory) = memory else {
            return Ok(Box::new(CqPlan::new(entries, self.limits.rings, has_channel).with(flags)));
        };
        if !self.caps(op, kernel)?.has(QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM) {
            return refused(NO_MEMORY);
        }
        if has_channel {
            // There is no doorbell with which an event could be requested.
            return refused(
                "a completion queue in memory of the program sends no events: create it without a channel",
            );
        }
        Ok(Box::new(CqPlan::in_memory(op, entries, self.limits.rings, memory)?.with(flags)))
    }

    fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        sides: Sides<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receives>> {
        shape.only(op, &[qp_type::UD, qp_type::DRIVER], [TYPES, SHARED, OPTIONS])?;
        if shape.driver.flags & !CREATE_QP_WITH_UNSOLICITED_WRITE_RECV != 0 {
            return Err(Error::refused(op, Errno::EOPNOTSUPP, FLAGS));
        }
        let caps = self.caps(op, kernel)?;
        let [sends, receives] = sides.queues;
        let sides = [own(op, sends.clone())?, own(op, receives.clone())?];
        Ok(Box::new(QpPlan::new(op, shape, (&self.limits, caps), sides, &self.generations)?))
    }
}

/// The driver's response to a query of the device.
#[derive(Debug)]
struct Caps(ExQueryDeviceResp);

impl Caps {
    fn has(&self, bit: u32) -> bool {
        self.0.device_caps & bit != 0
    }

    /// The operations that reliable datagrams may have.
    fn allowed(&self) -> sends::Allowed {
        sends::Allowed {
            reads: self.has(QUERY_DEVICE_CAPS_RDMA_READ),
            writes: self.has(QUERY_DEVICE_CAPS_RDMA_WRITE),
            most_remote: self.0.max_rdma_size,
            inline_writes: true,
        }
    }
}

/// Queries the device (`efa_query_device`, efa_verbs.c).
fn ask(kernel: &dyn Kernel) -> Result<Caps> {
    let (request, mut answer) = (ExQueryDevice::default(), ExQueryDeviceResp::new_zeroed());
    let mut response = CoreResp::new_zeroed();
    let mut command = Command::write("device.query", cmd::EX_QUERY_DEVICE);
    command
        .input(CORE_IN, &request)
        .output(CORE_OUT, response.as_mut_bytes())
        .driver_output(answer.as_mut_bytes());
    kernel.invoke(&mut command)?;
    Ok(Caps(answer))
}

/// An address handle, which is a number of the device.
fn plan_ah(op: &'static str, attr: &AhAttr) -> Result<AhPlan> {
    if attr.is_global == 0 {
        // The driver reads only the GID, and without one passes a GID of zeros to the device.
        let hint = "efa finds the other side by its GID: the route has none";
        return Err(Error::refused(op, Errno::EINVAL, hint));
    }
    Ok(AhPlan::new(attr, size_of::<CreateAhResp>(), |_, [first, second, ..]| {
        let CreateAhResp { efa_address_handle, .. } = zerocopy::transmute!([first, second]);
        Address { number: efa_address_handle.into(), ..Address::default() }
    }))
}
