//! Kernel objects other than flows and counters, each in a module with its name, and the code that several of them share.

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
