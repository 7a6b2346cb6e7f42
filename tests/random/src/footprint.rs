//! The file descriptors and mappings of a process.

#[path = "../../common/footprint.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with tests, which use other parts")]
mod shared;

pub use shared::Footprint;
