//! The older commands, which are sent with `write()` on a uverbs file or with the ioctl method INVOKE_WRITE.
//!
//! With INVOKE_WRITE a request goes into CORE_IN without any header and the response comes out of CORE_OUT.
//! Structs whose C form ends in `driver_data` or another open array contain only the fixed part; the rest is a
//! separate buffer. Names are the kernel's without `ib_uverbs_`.

mod action;
pub mod cmd;
mod cq;
mod device;
mod memory;
mod qp;
mod srq_wq;

pub use action::*;
pub use cmd::{COMMANDS, CommandInfo, FLAG_EXTENDED};
pub use cq::*;
pub use device::*;
pub use memory::*;
pub use qp::*;
pub use srq_wq::*;

/// The structs of this module as data.
pub(crate) const STRUCTS: &[&[crate::layout::StructInfo]] =
    &[device::STRUCTS, memory::STRUCTS, cq::STRUCTS, qp::STRUCTS, srq_wq::STRUCTS, action::STRUCTS];
