//! Flows for bindings.

use super::{Flow, FlowRule, RuleType};
use crate::error::Result;
use crate::qp::create::raw::QueuePair;

impl QueuePair {
    /// Puts a rule in force, with this queue pair as destination.
    ///
    /// # Errors
    /// As [`QueuePair::create_flow`](crate::QueuePair::create_flow).
    pub fn create_flow<K: RuleType>(&self, rule: &FlowRule<K>) -> Result<Flow> {
        self.shared().steer(rule, uverbs_abi::types::qp_type::RAW_PACKET)
    }
}

impl Flow {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.0.object.id()
    }
}
