//! How commands reach a device. Most programs do not need this module. Use a [`Watcher`] to trace commands ([`Trace`]) or inject
//! faults ([`Fault`]) in tests, [`Script`] to test without a device, and a [`RawConnection`] to send malformed commands.

mod contract;
mod fault;
mod null;
mod raw;
mod script;
mod trace;
mod uverbs;
mod watched;

/// The error code of a failed command.
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
