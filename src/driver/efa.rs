//! The user half of efa, of Amazon's cloud, as far as it goes without queues.
//!
//! Source: `efa_alloc_ucontext`, efa_verbs.c, Linux 6.1 to 7.3.

use uverbs_abi::efa::{
    ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR, ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH, AllocUcontext,
    AllocUcontextResp,
};
use zerocopy::{FromZeros, IntoBytes};

use super::ContextPlan;

/// What is refused so far.
pub(super) const NO_QUEUES: &str =
    "this version of the crate has no queues on efa: it asks the device and registers memory";

/// The device writes the value to memory of the process that the request names (`efa_create_comp_cntr`, Linux 7.3).
pub(super) const COUNTERS: &str = "this version of the crate has no completion counters of efa's hardware; one made without a \
                                   context counts on every device";

/// A device that limits batches of sends, or has a least depth, gives a context to those only that say they know of it
/// (`efa_user_comp_handshake`). Here nothing is sent.
pub(super) fn plan_context() -> ContextPlan {
    let request = AllocUcontext {
        supported_caps: ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH | ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR,
        ..AllocUcontext::new_zeroed()
    };
    ContextPlan {
        request: request.as_bytes().to_vec(),
        older: None,
        answer: vec![0; size_of::<AllocUcontextResp>()],
    }
}
