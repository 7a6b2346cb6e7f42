//! Queues in the guest's memory: events, completions, requests to send and to receive.

mod compress;
mod cq;
mod eq;
mod pages;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use self::compress::MOST as MOST_COMPRESSED;
pub(crate) use self::cq::{CompletionEntry, Cq, Opcode, Posted, Syndrome};
pub(crate) use self::eq::{Eq, event};
pub(crate) use self::pages::Pages;
pub(crate) use self::receive::{Receive, ReceiveRing, Rq, Xrc};
pub(crate) use self::send::{Send, Sq};
pub(crate) use self::work::{Segment, WorkRing};

/// States of send and receive queues.
pub(crate) mod state {
    pub(crate) const RESET: u32 = 0;
    pub(crate) const READY: u32 = 1;
    pub(crate) const ERROR: u32 = 3;

    /// Whether a queue may change from one state to the other.
    pub(crate) fn may_change(from: u32, to: u32) -> bool {
        matches!((from, to), (_, RESET) | (RESET | READY, READY) | (READY | ERROR | RESET, ERROR))
    }
}
