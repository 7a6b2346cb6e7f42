//! Features of EFA only: device attributes, options of reliable datagrams, and completion queues in memory of the program.
//!
//! Queue pairs for reliable datagrams ([`Srd`]) are created, activated and used like all others: start with
//! [`ProtectionDomain::srd`](crate::ProtectionDomain::srd) and [`SrdDatagram`](crate::SrdDatagram).
//!
//! ```no_run
//! use uverbs::{AccessFlags, ConnectionOptions, Route, SendRequest, SrdDatagram, SrdOperation};
//!
//! # fn main() -> uverbs::Result<()> {
//! let devices = uverbs::devices()?;
//! let context = devices.named("rdmap0s6")?.open()?;
//! let limits = uverbs::efa::Device::of(&context)?;
//! let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(64)?);
//! let mut qp = pd.srd(&cq).send_depth(64).create()?;
//! qp.activate(&ConnectionOptions::new(1, 0), 0x1234, 0)?;
//!
//! let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
//! # let (gid, qp_num) = ([0; 16], 7);
//! let to = pd.create_ah(&Route::new(1, 0, gid))?; // the GID and the number are from the other side
//! let message = SrdDatagram { to: &to, qp_num, qkey: 0x1234, operation: SrdOperation::Send };
//! qp.post_send(&[SendRequest::new(1, message, &[memory.segment(..)?]).signaled()])?;
//! # let _ = (limits, &mut cq);
//! # Ok(())
//! # }
//! ```

mod cq;
mod device;
mod region;
mod srd;

pub use self::device::{Device, DeviceCaps};
pub use self::region::Ways;
#[cfg(feature = "raw")]
pub use self::srd::is_unsolicited_wc;
pub use self::srd::{handle_number, is_unsolicited};
#[cfg(doc)]
use crate::verbs::qp::Srd;
