//! What efa says about its device.

use uverbs_abi::write::AhAttr;

use super::{State, plan_ah, plan_context};
#[cfg(feature = "raw")]
use crate::driver::seam::Kernel;
use crate::driver::seam::{AhPlan, ContextPlan, Control};
use crate::kernel::error::Result;

impl Control for State {
    fn name(&self) -> &'static str {
        "efa"
    }

    fn plan_context(&self, _: bool) -> ContextPlan {
        plan_context()
    }

    fn opened(&mut self, answer: &[u8]) {
        self.read_limits(answer);
    }

    fn plan_ah(&self, op: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        plan_ah(op, attr)
    }

    fn has_choices(&self) -> bool {
        true
    }

    /// `efa_create_comp_cntr`, efa_verbs.c, Linux 7.3.
    fn counts_in_memory(&self) -> bool {
        true
    }

    fn firmware(&self, raw: u64) -> Option<String> {
        let [a, b, c, d, ..] = raw.to_ne_bytes();
        Some(format!("{a}.{b}.{c}.{d}"))
    }

    #[cfg(feature = "raw")]
    fn most_sends(&self) -> Option<u32> {
        Some(self.small_slots())
    }

    #[cfg(feature = "raw")]
    fn has_parent_domains(&self) -> bool {
        true
    }

    #[cfg(feature = "raw")]
    fn orders_data(&self, kernel: &dyn Kernel) -> Result<bool> {
        self.writes_in_order(kernel)
    }

    /// `efa_get_hw_stats`, hw/efa/efa_verbs.c, Linux 6.1.
    fn counter_bits(&self, _: &str) -> Option<u8> {
        Some(64)
    }
}
