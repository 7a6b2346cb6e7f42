//! How a command reaches a device: the real character device, the soft device, and who watches them.

mod contract;
mod fault;
mod null;
mod raw;
mod script;
mod trace;
mod uverbs;
mod watched;

/// What a command is answered with when it fails.
pub use nix::errno::Errno;

pub use self::contract::Transport;
pub use self::fault::Fault;
pub use self::null::Null;
#[cfg(feature = "soft")]
pub(crate) use self::raw::AnyShape;
pub use self::raw::{RawAttr, RawCommand, RawConnection};
pub use self::script::{Reply, Script};
pub use self::trace::Trace;
pub(crate) use self::uverbs::Uverbs;
pub use self::watched::{Watched, Watcher};
pub use crate::kernel::mapping::Mapping;
