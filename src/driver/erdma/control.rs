//! What erdma says about its device.

use uverbs_abi::erdma::{AllocCtxResp, MAX_SLOTS};
use uverbs_abi::write::QueryQpResp;
use zerocopy::FromBytes;

use super::State;
use crate::driver::seam::{ContextPlan, Control};

impl Control for State {
    fn name(&self) -> &'static str {
        "erdma"
    }

    /// `erdma_alloc_ucontext`, erdma_verbs.c, Linux 6.1 to 7.3: the place for the answer may not be smaller.
    fn plan_context(&self, _: bool) -> ContextPlan {
        ContextPlan { answer: vec![0; size_of::<AllocCtxResp>()], ..ContextPlan::default() }
    }

    fn opened(&mut self, answer: &[u8]) {
        if let Ok((answer, _)) = AllocCtxResp::read_from_prefix(answer) {
            self.context = answer;
        }
    }

    // No `plan_query`: `erdma_query_device`, erdma_verbs.c, refuses a place for an answer.

    /// `erdma_query_device`, providers/erdma/erdma_verbs.c, rdma-core 65.
    fn firmware(&self, raw: u64) -> Option<String> {
        let part = |shift: u32| raw >> shift & 0xffff;
        Some(format!("{}.{}.{}", part(32), part(16), part(0)))
    }

    /// `erdma_alloc_pd`, erdma_verbs.c.
    fn numbers_domains(&self) -> bool {
        false
    }

    /// The kernel answers with slots, of which it gives each request the most that one can take (`erdma_query_qp`, erdma_verbs.c, Linux 7.3).
    fn tidy_qp(&self, answer: &mut QueryQpResp) {
        answer.max_send_wr /= MAX_SLOTS as u32;
    }

    /// `erdma_query_hw_stats`, erdma_verbs.c, Linux 6.8.
    fn counter_bits(&self, _: &str) -> Option<u8> {
        Some(64)
    }
}
