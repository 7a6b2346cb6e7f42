//! The kernel's objects but for flows and counters: each in the file of its name.

pub(crate) mod ah;
pub(crate) mod cq;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod progress;
pub(crate) mod qp;
pub(crate) mod srq;
#[cfg_attr(not(feature = "raw"), allow(unreachable_pub, dead_code))]
pub(crate) mod work;
pub(crate) mod wq;
pub(crate) mod xrcd;
