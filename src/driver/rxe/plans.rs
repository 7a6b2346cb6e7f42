//! Objects that are about to be created. The driver creates their rings: it needs no data, and returns where they can be mapped.

use std::sync::Arc;

use uverbs_abi::rxe::{CreateCqResp, CreateQpResp, CreateSrqResp, Mminfo};
use uverbs_abi::types::driver_id;
use uverbs_abi::write::QpCap;
use zerocopy::IntoBytes;

use super::{Completions, Receives, Sends, State};
use crate::driver::ring::RingDevice;
use crate::driver::seam::{
    CqShape, CqSide, Created, Kernel, Payload, Plan, Planned, QpQueues, QpShape, Queues, Sides,
};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

impl Queues for State {
    const NUMBER: u32 = driver_id::RXE;

    type Completions = Completions;
    type Sends = Sends;
    type Receives = Receiving;
    type Shared = Receiving;

    fn plan_cq(&self, _: &'static str, _: &CqShape<'_>, _: &dyn Kernel) -> Planned<u32, Completions> {
        Ok(Box::<CqPlan>::default())
    }

    fn plan_qp(
        &self,
        _: &'static str,
        shape: &QpShape,
        _: Sides<'_>,
        _: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receiving>> {
        Ok(Box::new(QpPlan { has_receives: shape.has_receives(), ..QpPlan::default() }))
    }

    fn plan_srq(
        &self,
        _: &'static str,
        _: [u32; 2],
        _: Option<&Arc<dyn CqSide>>,
        _: &dyn Kernel,
    ) -> Planned<[u32; 2], Receiving> {
        Ok(Box::<SrqPlan>::default())
    }
}

/// Maps a ring that an earlier command has created and described.
pub(super) fn map_ring(op: &'static str, info: Mminfo, kernel: &dyn Kernel) -> Result<Mapping> {
    let len = usize::try_from(info.size).map_err(|_| Error::malformed(op, "a ring of no possible size"))?;
    kernel.map(op, info.offset, len)
}

/// A ring of receives, and the device that must be notified of them, if there is one.
pub(in crate::driver) type Receiving = (Receives, Option<Box<dyn RingDevice>>);

/// Maps the ring of a shared receive queue.
pub(in crate::driver) fn map_receives(
    op: &'static str,
    info: Mminfo,
    kernel: &dyn Kernel,
) -> Result<Receiving> {
    Ok((Receives::open(op, map_ring(op, info, kernel)?)?, kernel.ring_device(None)))
}

/// A completion queue.
#[derive(Debug, Default)]
struct CqPlan(CreateCqResp);

impl Plan<u32, Completions> for CqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (&[], self.0.as_mut_bytes())
    }

    fn open(self: Box<Self>, made: Created<'_, u32>) -> Result<Completions> {
        Completions::open(made.op, map_ring(made.op, self.0.mi, made.kernel)?)
    }
}

/// A queue pair.
#[derive(Debug, Default)]
struct QpPlan {
    answer: CreateQpResp,
    has_receives: bool,
}

impl Plan<QpCap, QpQueues<Sends, Receiving>> for QpPlan {
    fn payload(&mut self) -> Payload<'_> {
        (&[], self.answer.as_mut_bytes())
    }

    fn open(self: Box<Self>, made: Created<'_, QpCap>) -> Result<QpQueues<Sends, Receiving>> {
        let Created { op, number, size, kernel } = made;
        let mut sends = map_ring(op, self.answer.sq_mi, kernel)?;
        let mut receives = None;
        if self.has_receives {
            let [first, second] = Mapping::joined(sends, map_ring(op, self.answer.rq_mi, kernel)?);
            sends = first;
            receives = Some((Receives::open(op, second)?, kernel.ring_device(Some(number))));
        }
        Ok(QpQueues { sends: Sends::open(op, sends)?, receives, cap: size, known: None })
    }
}

/// A shared receive queue.
#[derive(Debug, Default)]
struct SrqPlan(CreateSrqResp);

impl Plan<[u32; 2], Receiving> for SrqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (&[], self.0.as_mut_bytes())
    }

    fn open(self: Box<Self>, made: Created<'_, [u32; 2]>) -> Result<Receiving> {
        map_receives(made.op, self.0.mi, made.kernel)
    }
}
