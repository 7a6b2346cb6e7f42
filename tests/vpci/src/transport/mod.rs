//! The reliable connected transport, for any device: a [`Connection`] turns requests into packets and executes the packets of its peer.
//!
//! It knows neither the device's queues nor its memory keys: a [`Host`] gives it receives and access to memory, and takes packets and the
//! ends of requests. The order of packets, losses and repetitions are those of [`uverbs::raw::roce`]; [`frame`] puts packets into RoCE v2
//! frames. It has no clock: each call is told the time.
//!
//! Source: InfiniBand Architecture Specification 1.4, volume 1, chapter 9.

mod connection;
pub mod frame;
mod incoming;
#[cfg(test)]
mod tests;

pub use uverbs::raw::roce::requester::{Settings, Work};
use uverbs::raw::roce::{Atomic, Packet};

pub use self::connection::Connection;

/// A piece of memory, by its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u32,
    /// The key.
    pub key: u32,
}

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device writes what its owner asked for.
    LocalWrite,
    /// The peer reads.
    RemoteRead,
    /// The peer writes.
    RemoteWrite,
}

/// Memory may not be accessed in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// Why an atomic operation is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicRefused {
    /// The memory may not be accessed so.
    Denied,
    /// There are no atomic operations here, or the address is not a multiple of eight.
    Invalid,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the specification's completion statuses")]
pub enum Status {
    Success,
    LocalLength,
    LocalOperation,
    LocalProtection,
    Flushed,
    BadResponse,
    RemoteInvalidRequest,
    RemoteAccess,
    RemoteOperation,
    RetriesExceeded,
    UnreadyRetriesExceeded,
}

/// A request of the send queue.
#[derive(Clone, Debug)]
pub struct Send {
    /// The device's name for it.
    pub token: u64,
    /// The operation; the length of a read or write in it is ignored.
    pub work: Work,
    /// The bytes of a message.
    pub data: Vec<u8>,
    /// Where the answer to a read or an atomic operation is written.
    pub to: Vec<Piece>,
    /// The receiver is to be notified.
    pub solicited: bool,
    /// It waits for earlier reads and atomic operations.
    pub fence: bool,
}

/// A request of the receive queue.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    /// The device's name for it.
    pub token: u64,
    /// Where the message is written.
    pub to: Vec<Piece>,
}

/// A message that has filled a receive, or used it for its immediate data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes.
    pub len: u32,
    /// It was written to memory that the sender named.
    pub is_write: bool,
    /// Immediate data, as a number.
    pub immediate: Option<u32>,
    /// The key that was invalidated.
    pub invalidated: Option<u32>,
    /// The sender wants the receiver to be notified.
    pub solicited: bool,
}

/// The device around a connection.
pub trait Host {
    /// A packet for the peer.
    fn send(&mut self, packet: Packet);

    /// The next request of the receive queue, which is taken from it.
    fn receive(&mut self) -> Option<Receive>;

    /// Whether memory may be accessed so.
    ///
    /// # Errors
    /// If it may not.
    fn check(&mut self, piece: Piece, access: Access) -> Result<(), Denied>;

    /// Reads memory into bytes of this length.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn read(&mut self, piece: Piece, access: Access, bytes: &mut [u8]) -> Result<(), Denied>;

    /// Writes bytes of this length to memory.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn write(&mut self, piece: Piece, access: Access, bytes: &[u8]) -> Result<(), Denied>;

    /// Executes an atomic operation of the peer, and returns the old value.
    ///
    /// # Errors
    /// Why it is not executed.
    fn atomic(&mut self, atomic: &Atomic, is_swap: bool) -> Result<u64, AtomicRefused>;

    /// Invalidates a key, as the peer asks.
    ///
    /// # Errors
    /// If the peer may not do this.
    fn invalidate(&mut self, key: u32) -> Result<(), Denied>;

    /// A request of the send queue has ended; a read or write with this many bytes.
    fn sent(&mut self, token: u64, status: Status, len: u32);

    /// A request of the receive queue has ended.
    fn received(&mut self, token: u64, status: Status, received: Received);
}
