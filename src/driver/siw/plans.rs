//! Objects that are about to be created. The kernel creates their queues: it needs no data, and returns where they can be mapped.
//!
//! Source: `siw_create_cq`, `siw_create_qp`, `siw_create_srq` and `siw_mmap`, siw_verbs.c, Linux 6.1 to 7.3. A mapping must have the size
//! of the kernel's memory, rounded up to whole pages.

use uverbs_abi::siw::{CqCtrl, CreateCqResp, CreateQpResp, CreateSrqResp};
use zerocopy::{FromZeros, IntoBytes};

use super::completions::Completions;
use super::receives::Receives;
use super::sends::Sends;
use super::slots::{Entries, ReceiveSlots, SendSlots};
use crate::driver::seam::Kernel;
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;

/// Maps `bytes` bytes whose key the kernel has returned. The key that means "no ring" is also that of a ring, if the context has as many
/// pages of rings (`rdma_user_mmap_entry_insert`), and then it is one: without a ring the kernel has returned an error, or a count of 0.
#[inline(never)]
fn map(op: &'static str, key: u64, bytes: usize, kernel: &dyn Kernel) -> Result<Mapping> {
    kernel.map(op, key, bytes)
}

#[inline(never)]
fn map_receives(op: &'static str, key: u64, count: u32, kernel: &dyn Kernel) -> Result<Box<Receives>> {
    let slots = ReceiveSlots::new(op, count, 0, &|bytes| map(op, key, bytes, kernel))?;
    Ok(Box::new(Receives::new(slots)))
}

/// The receive queue of a queue pair that was created without receives.
#[cold]
#[inline(never)]
fn without_slots(op: &'static str) -> Result<Box<Receives>> {
    Receives::without_slots(op).map(Box::new)
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CqPlan(CreateCqResp);

impl CqPlan {
    pub(in crate::driver) fn new() -> Self {
        Self(CreateCqResp::new_zeroed())
    }

    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }

    #[inline(never)]
    pub(in crate::driver) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Box<Completions>> {
        let CreateCqResp { num_cqe, cq_key, .. } = self.0;
        let entries =
            Entries::new(op, num_cqe, size_of::<CqCtrl>(), &|bytes| map(op, cq_key, bytes, kernel))?;
        Ok(Box::new(Completions::new(entries)))
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QpPlan {
    answer: CreateQpResp,
    has_receives: bool,
}

impl QpPlan {
    pub(super) fn new(has_receives: bool) -> Self {
        Self { answer: CreateQpResp::new_zeroed(), has_receives }
    }

    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.answer.as_mut_bytes()
    }

    /// The queues. If the queue pair was created without receives, the kernel has no receive queue, and nothing can be posted to it.
    #[inline(never)]
    pub(in crate::driver) fn open(
        self,
        op: &'static str,
        kernel: &dyn Kernel,
    ) -> Result<(Box<Sends>, Option<Box<Receives>>)> {
        let CreateQpResp { num_sqe, num_rqe, sq_key, rq_key, .. } = self.answer;
        let slots = SendSlots::new(op, num_sqe, 0, &|bytes| map(op, sq_key, bytes, kernel))?;
        let receives = match (self.has_receives, num_rqe) {
            (false, _) => None,
            (true, 0) => Some(without_slots(op)?),
            (true, count) => Some(map_receives(op, rq_key, count, kernel)?),
        };
        Ok((Box::new(Sends::new(slots)), receives))
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqPlan {
    answer: CreateSrqResp,
    wanted: [u32; 2],
}

impl SrqPlan {
    /// For `wanted` requests and segments of each.
    pub(in crate::driver) fn new(wanted: [u32; 2]) -> Self {
        Self { answer: CreateSrqResp::new_zeroed(), wanted }
    }

    pub(in crate::driver) fn wanted(&self) -> [u32; 2] {
        self.wanted
    }

    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.answer.as_mut_bytes()
    }

    #[inline(never)]
    pub(in crate::driver) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Box<Receives>> {
        let CreateSrqResp { num_rqe, srq_key, .. } = self.answer;
        map_receives(op, srq_key, num_rqe, kernel)
    }
}
