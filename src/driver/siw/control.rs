//! What siw says about its device.

use nix::errno::Errno;
use uverbs_abi::siw::AllocCtxResp;
use uverbs_abi::write::QueryQpResp;

use super::{NO_STATES, NOT_CONNECTED, State};
use crate::driver::seam::{ContextPlan, Control, Exchange, SrqChange};
use crate::kernel::error::{Error, Result};

/// `SIW_MAX_SRQ_WR` and `SIW_MAX_CQE`, siw.h, Linux 6.1 to 7.3.
const MOST_SHARED: u32 = 32 * 1024 * 10;
const MOST_ENTRIES: u32 = 32 * 1024 * 100;

impl Control for State {
    fn name(&self) -> &'static str {
        "siw"
    }

    /// `siw_alloc_ucontext`, siw_verbs.c. The response is a number of the device.
    fn plan_context(&self, _: bool) -> ContextPlan {
        ContextPlan { answer: vec![0; size_of::<AllocCtxResp>()], ..ContextPlan::default() }
    }

    // No `plan_query`: siw refuses a place for more than it answers (siw_query_device, siw_verbs.c, Linux 6.1).

    fn firmware(&self, raw: u64) -> Option<String> {
        let part = |shift: u32| raw >> shift & 0xffff;
        Some(format!("{}.{}.{}", part(32), part(16), part(0)))
    }

    #[cfg(feature = "raw")]
    fn has_flagged_queues(&self) -> bool {
        true
    }

    /// `siw_alloc_pd`, siw_verbs.c, Linux 6.1 to 7.3.
    fn numbers_domains(&self) -> bool {
        false
    }

    fn plan_mr(&self) -> Exchange {
        self.keys_of_region()
    }

    fn plan_srq_change(&self, _: &'static str) -> Result<SrqChange> {
        Ok(SrqChange::Nothing(Errno::EOPNOTSUPP, "siw cannot resize shared receive queues"))
    }

    fn plan_xrcd(&self, op: &'static str) -> Result<()> {
        Err(Error::refused(op, Errno::EOPNOTSUPP, "iWARP has no extended reliable connections"))
    }

    fn connected_by_others(&self) -> Option<&'static str> {
        Some(NOT_CONNECTED)
    }

    fn tidy_qp(&self, answer: &mut QueryQpResp) {
        self.keep_answered(answer);
    }

    fn tells_states(&self, op: &'static str) -> Result<()> {
        if self.has_states() { Ok(()) } else { Err(Error::refused(op, Errno::EOPNOTSUPP, NO_STATES)) }
    }

    fn granted_entries(&self, asked: u32, _: u32, room: u32) -> u32 {
        room.min(asked.max(MOST_ENTRIES))
    }

    fn granted_shared(&self, asked: u32, _: u32, room: u32) -> u32 {
        room.min(asked.max(MOST_SHARED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_holds_more_than_the_limit_is_granted_up_to_it() {
        let siw = State::default();
        assert_eq!(siw.granted_shared(327_680, 327_680, 1 << 19), 327_680);
        assert_eq!(siw.granted_entries(3_276_800, 1 << 22, 1 << 22), 3_276_800);
        assert_eq!(siw.granted_entries(5, 8, 8), 8);
    }
}
