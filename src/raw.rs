//! The layer beneath the safe interface, for bindings to other languages (feature `raw`).
//!
//! The objects are the same: a [`Context`](crate::Context), a [`ProtectionDomain`](crate::ProtectionDomain), a
//! [`CompletionQueue`](crate::CompletionQueue) and a [`SharedReceiveQueue`](crate::SharedReceiveQueue) have methods more, and
//! objects whose safe form keeps memory alive for its user have a form here that does not: a [`Region`] is an address
//! and keys, and a request is a list of addresses, lengths and keys. Rings, commands and drivers are those of the safe
//! interface.
//!
//! Memory is named by address only where it is registered, so that is where `unsafe` is:
//! [`register_at`](crate::ProtectionDomain::register_at) and [`Region::change`]. A request cannot name memory that is not registered; what
//! goes inline is copied from a slice.
//!
//! This layer follows the needs of the bindings in this repository (`uverbs-c`, a drop-in `libibverbs.so.1`); it may change
//! in any version.
//!
//! ```
//! use uverbs::abi::types::{QpCreateFlags, SendFlags, qp_type};
//! use uverbs::raw::{Extended, Opcode, Sge};
//! use uverbs::{Capacity, SoftDevice, raw};
//! # fn main() -> uverbs::Result<()> {
//! let context = SoftDevice::default().open()?;
//! let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(4)?);
//! let capacity = Capacity { sends: 4, receives: 4, send_segments: 1, receive_segments: 1, inline: 64, ..Capacity::default() };
//! let flags = QpCreateFlags::SQ_SIG_ALL;
//! let init = raw::QueuePairInit {
//!     type_: qp_type::UD, send_cq: &cq, receive_cq: &cq, srq: None, capacity, cookie: 0, flags,
//! };
//! let (_qp, mut sends, receives) = pd.create_parts(&init)?;
//! let piece = Sge { addr: 0x1000, length: 64, lkey: 5 };
//! sends.put(1, SendFlags::SIGNALED, &Opcode::LocalInvalidate(3), &[]).unwrap();
//! assert!(sends.publish().is_err(), "the queue pair is not ready");
//! receives.unwrap().post_one(7, &[piece]).unwrap();
//! assert_eq!(cq.poll_places(&mut [Extended::default(); 4]), 0);
//! # Ok(())
//! # }
//! ```

pub use crate::driver::completion::{Extended, Place, Raised};
pub use crate::driver::queues::{Lower, LowerReceive};
pub use crate::driver::request::{Binding, Data, FrameHead, Opcode, Refused, Sge};
pub use crate::driver::{CompletionFields, PacketCaps};
pub use crate::mr::raw::{Range, Region};
pub use crate::mw::raw::Window;
pub use crate::process::{Local, Origin};
pub use crate::qp::create::raw::{QueuePair, QueuePairInit};
pub use crate::qp::send::{Batch, FillSends, SendQueue};
pub use crate::work::{FillReceives, ReceiveBatch, ReceiveQueue};
