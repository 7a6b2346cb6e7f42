//! Objects that are about to be created. The kernel creates their queues: it needs no data, and returns where they can be mapped.
//!
//! Source: `siw_create_cq`, `siw_create_qp`, `siw_create_srq` and `siw_mmap`, siw_verbs.c, Linux 6.1 to 7.3. A mapping must have the size
//! of the kernel's memory, rounded up to whole pages.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::siw::{CqCtrl, CreateCqResp, CreateQpResp, CreateSrqResp};
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::slots::{Entries, ReceiveSlots, SendSlots};
use super::{Completions, Receives, Sends, State, TYPES};
use crate::driver::seam::{
    CqShape, CqSide, Created, Kernel, Payload, Plan, Planned, QpQueues, QpShape, Queues, Sides,
};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

impl Queues for State {
    const NUMBER: u32 = driver_id::SIW;

    type Completions = Completions;
    type Sends = Sends;
    type Receives = Receives;
    type Shared = Receives;

    fn plan_cq(&self, _: &'static str, _: &CqShape<'_>, _: &dyn Kernel) -> Planned<u32, Completions> {
        Ok(Box::new(CqPlan(CreateCqResp::new_zeroed())))
    }

    fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        _: Sides<'_>,
        _: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receives>> {
        if shape.type_ != qp_type::RC {
            return Err(Error::refused(op, Errno::EOPNOTSUPP, TYPES));
        }
        let has_receives = shape.has_receives();
        Ok(Box::new(QpPlan { answer: CreateQpResp::new_zeroed(), has_receives }))
    }

    fn plan_srq(
        &self,
        _: &'static str,
        _: [u32; 2],
        _: Option<&Arc<dyn CqSide>>,
        _: &dyn Kernel,
    ) -> Planned<[u32; 2], Receives> {
        Ok(Box::new(SrqPlan(CreateSrqResp::new_zeroed())))
    }
}

/// Maps `bytes` bytes whose key the kernel has returned. The key that means "no ring" is also that of a ring, if the context has as many
/// pages of rings (`rdma_user_mmap_entry_insert`), and then it is one: without a ring the kernel has returned an error, or a count of 0.
fn map(op: &'static str, key: u64, bytes: usize, kernel: &dyn Kernel) -> Result<Mapping> {
    kernel.map(op, key, bytes)
}

fn map_receives(op: &'static str, key: u64, count: u32, kernel: &dyn Kernel) -> Result<Receives> {
    let slots = ReceiveSlots::new(op, count, 0, &|bytes| map(op, key, bytes, kernel))?;
    Ok(Receives::new(slots))
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CqPlan(pub(super) CreateCqResp);

impl Plan<u32, Completions> for CqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (&[], self.0.as_mut_bytes())
    }

    fn open(self: Box<Self>, made: Created<'_, u32>) -> Result<Completions> {
        let CreateCqResp { num_cqe, cq_key, .. } = self.0;
        let map = |bytes| map(made.op, cq_key, bytes, made.kernel);
        Ok(Completions::new(Entries::new(made.op, num_cqe, size_of::<CqCtrl>(), &map)?))
    }
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QpPlan {
    pub(super) answer: CreateQpResp,
    pub(super) has_receives: bool,
}

impl Plan<QpCap, QpQueues<Sends, Receives>> for QpPlan {
    fn payload(&mut self) -> Payload<'_> {
        (&[], self.answer.as_mut_bytes())
    }

    /// If the queue pair was created without receives, the kernel has no receive queue, and nothing can be posted to it.
    fn open(self: Box<Self>, made: Created<'_, QpCap>) -> Result<QpQueues<Sends, Receives>> {
        let Created { op, size, kernel, .. } = made;
        let CreateQpResp { num_sqe, num_rqe, sq_key, rq_key, .. } = self.answer;
        let sends = Sends::new(SendSlots::new(op, num_sqe, 0, &|bytes| map(op, sq_key, bytes, kernel))?);
        let receives = match (self.has_receives, num_rqe) {
            (false, _) => None,
            (true, 0) => Some(Receives::without_slots(op)?),
            (true, count) => Some(map_receives(op, rq_key, count, kernel)?),
        };
        Ok(QpQueues { sends, receives, cap: size, known: None })
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct SrqPlan(pub(super) CreateSrqResp);

impl Plan<[u32; 2], Receives> for SrqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (&[], self.0.as_mut_bytes())
    }

    fn open(self: Box<Self>, made: Created<'_, [u32; 2]>) -> Result<Receives> {
        let CreateSrqResp { num_rqe, srq_key, .. } = self.0;
        map_receives(made.op, srq_key, num_rqe, made.kernel)
    }
}
