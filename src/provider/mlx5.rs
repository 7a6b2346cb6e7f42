//! The user half of mlx5, so far as contexts and counters need it.

use uverbs_abi::mlx5::{AllocUcontextReqV2, LIB_CAP_4K_UAR, LIB_CAP_DYN_UAR};

/// The request that goes with a new context: all 32 bytes of version 2, since Linux 7.2 leaves what is not
/// sent uninitialised (mlx5_ib_alloc_ucontext, main.c). A completion entry version of at least 1 is asked
/// for, without which raw packet queue pairs are refused.
pub(super) fn context_request() -> AllocUcontextReqV2 {
    AllocUcontextReqV2 {
        max_cqe_version: 1,
        lib_caps: LIB_CAP_4K_UAR | LIB_CAP_DYN_UAR,
        ..AllocUcontextReqV2::default()
    }
}
