//! The counters of a queue pair, and how they count its completions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;
use uverbs_abi::types::wc_opcode;

use super::log::{Kind, Log, Posted};
use super::state::State;
use crate::driver::completion::{Completion, Status};

bitflags! {
    /// Which operations of a queue pair a completion counter counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Counted: u32 {
        /// Messages sent: every kind of send.
        #[doc(alias = "FI_SEND")]
        const SEND = 1 << 0;
        /// Messages received.
        #[doc(alias = "FI_RECV")]
        const RECEIVE = 1 << 1;
        /// Remote reads that this side requested, and its atomic operations, which also return a value.
        #[doc(alias = "FI_READ")]
        const READ = 1 << 2;
        /// Reads of this side's memory by the peer. Only hardware can count them.
        #[doc(alias = "FI_REMOTE_READ")]
        const REMOTE_READ = 1 << 3;
        /// Remote writes that this side requested.
        #[doc(alias = "FI_WRITE")]
        const WRITE = 1 << 4;
        /// Writes into this side's memory by the peer. Only hardware can count them.
        #[doc(alias = "FI_REMOTE_WRITE")]
        const REMOTE_WRITE = 1 << 5;
        /// Writes into this side's memory with immediate data. They complete a receive, so software can count them on every queue
        /// pair that supports them. Hardware counters do not distinguish them from other writes.
        #[doc(alias = "FI_REMOTE_WRITE")]
        const REMOTE_WRITE_IMMEDIATE = 1 << 16;
    }
}

impl Counted {
    /// The operations that a completed receive can be. A failed one counts as either.
    const RECEIVES: Self = Self::RECEIVE.union(Self::REMOTE_WRITE_IMMEDIATE);
}

impl From<Kind> for Counted {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Send => Self::SEND,
            Kind::Write => Self::WRITE,
            Kind::Read => Self::READ,
            Kind::Other => Self::empty(),
        }
    }
}

/// A counter, and the operations of a queue pair that it counts.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(super) state: Arc<State>,
    pub(super) counted: Counted,
}

/// The counters of a queue pair, as its completion queues see them. A ledger never changes; it is replaced by another one.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) number: u32,
    /// The posted requests, in their order. `None` if requests complete in any order, each with a completion that names the operation.
    pub(super) log: Option<Arc<Log>>,
    pub(super) bindings: Vec<Binding>,
    pub(super) markers: Arc<AtomicU64>,
}

impl Ledger {
    /// Counts a completion of the queue pair, from the queue of its sends, or of its receives, or both.
    pub(super) fn count(&self, completion: &Completion, sends: bool, receives: bool) {
        let Some(log) = &self.log else { return self.count_told(completion) };
        // The crate's own requests, which end when everything else has ended.
        let marker = self.markers.load(Ordering::Relaxed);
        if marker != 0 && completion.wr_id.wrapping_sub(marker) < 2 {
            if completion.wr_id == marker {
                log.finish(|posted| self.sent(posted));
            }
            return;
        }
        let is_receive = !sends || completion.is_receive();
        match (completion.status, is_receive) {
            (Status::Success, true) => self.received(completion),
            (Status::Success, false) => log.succeed(completion.wr_id, |posted| self.sent(posted)),
            (_, true) => self.failed(Counted::RECEIVES),
            // Not every driver reports which operation has failed.
            (_, false) => match log.fail(completion.wr_id, |posted| self.sent(posted)) {
                Some(posted) => self.failed(posted.kind.into()),
                None if receives => self.failed(Counted::RECEIVES),
                None => {}
            },
        }
    }

    /// Counts a completion that contains everything that is needed.
    fn count_told(&self, completion: &Completion) {
        let is_receive = completion.is_receive();
        let counted = match completion.opcode {
            wc_opcode::SEND => Counted::SEND,
            wc_opcode::RDMA_WRITE => Counted::WRITE,
            wc_opcode::RDMA_READ => Counted::READ,
            _ => Counted::empty(),
        };
        match (completion.status, is_receive) {
            (Status::Success, true) => self.received(completion),
            (Status::Success, false) => self.succeeded(counted, completion.len),
            (_, true) => self.failed(Counted::RECEIVES),
            (_, false) => self.failed(counted),
        }
    }

    fn sent(&self, posted: Posted) {
        self.succeeded(posted.kind.into(), posted.bytes);
    }

    fn received(&self, completion: &Completion) {
        let is_write = completion.opcode == wc_opcode::RECV_RDMA_WITH_IMM;
        let counted = if is_write { Counted::REMOTE_WRITE_IMMEDIATE } else { Counted::RECEIVE };
        self.succeeded(counted, completion.len);
    }

    fn succeeded(&self, counted: Counted, bytes: u32) {
        for state in self.states(counted) {
            state.add(if state.counts_bytes() { bytes.into() } else { 1 });
        }
    }

    fn failed(&self, counted: Counted) {
        for state in self.states(counted) {
            state.add_err(1);
        }
    }

    fn states(&self, counted: Counted) -> impl Iterator<Item = &State> {
        let is_bound = move |binding: &&Binding| binding.counted.intersects(counted);
        self.bindings.iter().filter(is_bound).map(|binding| &*binding.state)
    }
}
