//! InfiniBand's transports as packets, without any input or output: what RoCE v2 puts into UDP datagrams.
//!
//! Source: InfiniBand Architecture Specification 1.4, volume 1, chapter 9, and annex A17 (RoCEv2).

mod bytes;
pub mod icrc;
mod message;
mod packet;
pub mod psn;
pub mod requester;
pub mod responder;
mod settings;

pub use self::bytes::BASE;
#[cfg(feature = "raw")]
pub use self::bytes::Malformed;
pub use self::packet::{Atomic, Operation, Packet, Remote, Service};

/// UDP's destination port.
pub const PORT: u16 = 4791;

#[cfg(test)]
mod tests;
