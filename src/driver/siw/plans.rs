//! Objects about to be made, whose queues the kernel makes: it wants to be told nothing, and tells where they can be mapped.
//!
//! Source: `siw_create_cq`, `siw_create_qp`, `siw_create_srq` and `siw_mmap`, siw_verbs.c, Linux 6.1 to 7.3. What is mapped must have the
//! size that the kernel made it with, up to whole pages.

use uverbs_abi::siw::{CqCtrl, CreateCqResp, CreateQpResp, CreateSrqResp, INVAL_UOBJ_KEY};
use zerocopy::{FromZeros, IntoBytes};

use super::completions::Completions;
use super::receives::Receives;
use super::sends::Sends;
use super::slots::{self, COMPLETION, RECEIVE, SEND, Slots};
use crate::driver::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Maps so many slots of so many words, and what is behind them.
fn map<const WORDS: usize>(
    op: &'static str,
    key: u64,
    count: u32,
    behind: usize,
    kernel: &dyn Kernel,
) -> Result<Mapping> {
    if key == u64::from(INVAL_UOBJ_KEY) {
        return Err(Error::malformed(op, "a queue that cannot be mapped"));
    }
    let bytes = slots::bytes::<WORDS>(count).ok_or_else(|| slots::nonsense(op))?;
    kernel.map(op, key, bytes + behind)
}

fn map_slots<const WORDS: usize>(
    op: &'static str,
    key: u64,
    count: u32,
    kernel: &dyn Kernel,
) -> Result<Slots<WORDS>> {
    Slots::new(op, map::<WORDS>(op, key, count, 0, kernel)?, count)
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

    pub(in crate::driver) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Completions> {
        let CreateCqResp { num_cqe, cq_key, .. } = self.0;
        let memory = map::<COMPLETION>(op, cq_key, num_cqe, size_of::<CqCtrl>(), kernel)?;
        Completions::new(op, memory, num_cqe)
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

    /// The queues. Of one that receives nothing the kernel has no second one, and then nothing can be posted.
    pub(in crate::driver) fn open(
        self,
        op: &'static str,
        kernel: &dyn Kernel,
    ) -> Result<(Sends, Option<Receives>)> {
        let CreateQpResp { num_sqe, num_rqe, sq_key, rq_key, .. } = self.answer;
        let sends = Sends::new(op, map_slots::<SEND>(op, sq_key, num_sqe, kernel)?)?;
        let receives = match (self.has_receives, num_rqe) {
            (false, _) => None,
            (true, 0) => Some(Receives::without_slots()),
            (true, count) => Some(Receives::new(map_slots::<RECEIVE>(op, rq_key, count, kernel)?)),
        };
        Ok((sends, receives))
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqPlan {
    answer: CreateSrqResp,
    wanted: [u32; 2],
}

impl SrqPlan {
    /// For so many requests of so many segments.
    pub(in crate::driver) fn new(wanted: [u32; 2]) -> Self {
        Self { answer: CreateSrqResp::new_zeroed(), wanted }
    }

    pub(in crate::driver) fn wanted(&self) -> [u32; 2] {
        self.wanted
    }

    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.answer.as_mut_bytes()
    }

    pub(in crate::driver) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Receives> {
        let CreateSrqResp { num_rqe, srq_key, .. } = self.answer;
        map_slots::<RECEIVE>(op, srq_key, num_rqe, kernel).map(Receives::new)
    }
}
