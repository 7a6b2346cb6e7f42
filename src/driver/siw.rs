//! The user half of siw, software iWARP, as far as it goes without queues.
//!
//! Source: `siw_alloc_ucontext` and `siw_reg_user_mr`, siw_verbs.c, Linux 6.1 to 7.3. Both refuse a place for less than all of
//! their answer, and no place at all.

use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::siw::{AllocCtxResp, RegMrReq, RegMrResp};
use zerocopy::FromZeros;

use super::ContextPlan;

/// What is refused so far.
pub(super) const NO_QUEUES: &str =
    "this version of the crate has no queues on siw: it asks the device and registers memory";

/// What the regions of a context share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Low byte of the next region's keys.
    next_key: AtomicU32,
}

pub(super) fn plan_context() -> ContextPlan {
    ContextPlan { answer: vec![0; size_of::<AllocCtxResp>()], ..ContextPlan::default() }
}

impl State {
    /// Keys differ in their low byte from those of the region that had the same place before.
    pub(super) fn plan_mr(&self) -> (RegMrReq, RegMrResp) {
        let stag_key = self.next_key.fetch_add(1, Ordering::Relaxed) as u8;
        (RegMrReq { stag_key, ..RegMrReq::new_zeroed() }, RegMrResp::new_zeroed())
    }
}
