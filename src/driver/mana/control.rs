//! What mana says about its device.

use uverbs_abi::mana::AllocUcontextResp;

use super::State;
use crate::driver::seam::{ContextPlan, Control};
use crate::kernel::error::Result;

impl Control for State {
    fn name(&self) -> &'static str {
        "mana"
    }

    /// `mana_ib_alloc_ucontext`, hw/mana/main.c, Linux 7.3: a request must be empty. Older kernels respond nothing.
    fn plan_context(&self, _: bool) -> ContextPlan {
        ContextPlan { answer: vec![0; size_of::<AllocUcontextResp>()], ..ContextPlan::default() }
    }

    #[cfg(feature = "raw")]
    fn has_parent_domains(&self) -> bool {
        true
    }

    /// The kernel has no `query_qp` for mana (`mana_ib_dev_ops`, hw/mana/device.c, Linux 7.3).
    fn tells_states(&self, op: &'static str) -> Result<()> {
        Err(self.lacking(op, "does not say in which state a queue pair is"))
    }

    /// The limit need not be a power of two, as rings are.
    fn granted_entries(&self, asked: u32, _: u32, room: u32) -> u32 {
        self.limits.get().map_or(room, |limits| room.min(asked.max(limits.entries)))
    }

    /// `mana_ib_get_hw_stats`, hw/mana/counters.c, Linux 7.3.
    fn counter_bits(&self, _: &str) -> Option<u8> {
        Some(64)
    }
}
