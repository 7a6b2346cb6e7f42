//! A line: a pair of connected queue pairs that exchanges one message at a time.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use uverbs::{
    CompletionQueue, ConnectionOptions, Context, Endpoint, Operation, ProtectionDomain, QueuePair,
    ReceiveRequest, Segment, SendRequest, SharedReceiveQueue, XrcDomain, XrcReceiveQueuePair,
};

use super::address::{Address, Extended};
use super::counted::{Messages, Tally, Watch};
use super::exchange::Words;
use super::side::{Plan, SEND};
use super::transport::{Joined, Link, Transport};
use crate::job::told;

/// What has completed on a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Sent,
    /// A message was received; its number of bytes includes the header of datagrams.
    Received(u64),
}

/// The queue pairs of a line.
#[derive(Debug)]
pub(super) struct Ends<T: Transport> {
    pub(super) qp: Held<T>,
    /// Over an extended connection, another queue pair receives.
    pub(super) target: Option<XrcReceiveQueuePair>,
}

/// Who has the queue pair of a line.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few lines, and their queue pairs are used for each message"
)]
pub(super) enum Held<T: Transport> {
    Line(QueuePair<T>),
    /// A connection, which the line has.
    Connection(T::Joined),
    /// Whoever connects it.
    Other,
}

impl<T: Transport> Held<T> {
    /// The queue pair, if the line has it.
    pub(super) fn get(&mut self) -> Option<&mut QueuePair<T>> {
        match self {
            Self::Line(qp) => Some(qp),
            Self::Connection(connection) => Some(connection.queue_pair()),
            Self::Other => None,
        }
    }
}

/// A receive queue that does not belong to one queue pair.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) srq: SharedReceiveQueue,
    /// For extended connections.
    domain: Option<XrcDomain>,
}

impl Shared {
    /// The shared queue for this kind of ping, if it needs one.
    pub(super) fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        context: &Context,
        words: Words,
        depth: u32,
    ) -> uverbs::Result<Option<Self>> {
        let (srq, domain) = match words {
            Words::Single => return Ok(None),
            Words::Shared(_) => (pd.srq(depth).create()?, None),
            Words::Extended => {
                let domain = context.open_xrcd()?;
                (domain.srq(pd, cq, depth).create()?, Some(domain))
            }
        };
        Ok(Some(Self { srq, domain }))
    }

    /// Releases the queue, and then its domain.
    pub(super) fn release(self) -> [uverbs::Result<()>; 2] {
        let Self { srq, domain } = self;
        [told(srq.destroy()), domain.map_or(Ok(()), |domain| told(domain.destroy()))]
    }
}

/// This end of a line, and whose turn it is.
#[derive(Debug)]
pub(super) struct Line<T: Transport> {
    pub(super) local: Address,
    ends: Ends<T>,
    way: Option<T::Way>,
    /// Its completion counters.
    tally: Option<Tally>,
    /// Number of completions that must arrive before the next message is sent.
    pub(super) sending: bool,
    pub(super) receiving: bool,
    pub(super) asked: Option<Instant>,
}

impl<T: Transport> Line<T> {
    pub(super) fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        shared: Option<&Shared>,
        plan: &Plan,
        options: Option<&ConnectionOptions>,
    ) -> uverbs::Result<Self> {
        let builder = T::builder(pd, cq).send_depth(1).receive_depth(plan.depth());
        let (qp, target) = match shared {
            None => (builder.create()?, None),
            Some(Shared { srq, domain: None }) => (builder.srq(srq).create()?, None),
            Some(Shared { domain: Some(domain), .. }) => {
                (builder.create()?, Some(domain.receive_qp().create()?))
            }
        };
        let (psn, sender) = (psn(), qp.number());
        let mut endpoint = match (&target, options) {
            (Some(target), Some(options)) => target.endpoint(options, psn)?,
            (None, Some(options)) => qp.endpoint(options, psn)?,
            (_, None) => Endpoint { lid: 0, qp_num: sender, psn, gid: [0; 16] },
        };
        if endpoint.lid != 0 && !plan.has_gid {
            endpoint.gid = [0; 16];
        }
        let number = shared.and_then(|shared| shared.srq.number());
        let local = Address { endpoint, extended: number.map(|srq| Extended { sender, srq }) };
        let ends = Ends { qp: Held::Line(qp), target };
        let (sending, receiving) = (false, true);
        Ok(Self { local, ends, way: None, tally: None, sending, receiving, asked: None })
    }

    /// Counts the operations of the line from now on. It must not be connected yet.
    pub(super) fn count(&mut self, watch: &Watch) -> uverbs::Result<()> {
        let receives = self.ends.target.is_none();
        if let Some(qp) = self.ends.qp.get() {
            self.tally = Some(Tally::new(qp, watch, receives)?);
        }
        Ok(())
    }

    /// Gives the queue pair to who connects it, if the line still has it.
    pub(super) fn lend(&mut self) -> Option<QueuePair<T>> {
        match std::mem::replace(&mut self.ends.qp, Held::Other) {
            Held::Line(qp) => Some(qp),
            _ => None,
        }
    }

    /// Takes the queue pair back, connected.
    pub(super) fn join(&mut self, connection: T::Joined, way: T::Way) {
        self.ends.qp = Held::Connection(connection);
        self.way = Some(way);
    }

    /// The connection, if there is one.
    pub(super) fn connection(&mut self) -> Option<&mut T::Joined> {
        match &mut self.ends.qp {
            Held::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Connects to the other end.
    pub(super) fn connect(
        &mut self,
        pd: &ProtectionDomain,
        options: &ConnectionOptions,
        remote: &Address,
    ) -> uverbs::Result<()> {
        let link = Link { pd, options, local: &self.local, remote };
        if let Some(qp) = self.ends.qp.get() {
            self.way = Some(T::connect(qp, self.ends.target.as_mut(), &link)?);
        }
        Ok(())
    }

    /// Whether completions with this number belong to the line.
    pub(super) fn has(&self, qp_num: u32) -> bool {
        [self.local.endpoint, self.local.sender()].iter().any(|own| own.qp_num == qp_num)
    }

    /// Whether it is this side's turn.
    pub(super) fn is_ready(&self) -> bool {
        !self.sending && !self.receiving
    }

    /// Sends the next message.
    pub(super) fn send(&mut self, segment: Segment<'_>) -> uverbs::Result<()> {
        (self.sending, self.receiving) = (true, true);
        self.asked = Some(Instant::now());
        self.post(Operation::Send, segment)
    }

    /// Posts a message, or an operation on the peer's memory.
    pub(super) fn post(&mut self, what: Operation, segment: Segment<'_>) -> uverbs::Result<()> {
        let operation = self.way.as_ref().and_then(|way| T::operation(what, way));
        let (Some(operation), Some(qp)) = (operation, self.ends.qp.get()) else { return Ok(()) };
        qp.post_send(&[SendRequest::new(SEND, operation, &[segment]).signaled()])
    }

    /// Posts receives, for lines without a shared queue.
    pub(super) fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> uverbs::Result<()> {
        self.ends.qp.get().map_or(Ok(()), |qp| qp.post_receive(requests))
    }

    /// The operations that were counted since the last call.
    pub(super) fn ended(&mut self) -> [Option<Ended>; 2] {
        self.tally.as_mut().map_or([None; 2], Tally::ended)
    }

    /// The counters that are not bound to a queue pair.
    pub(super) fn unbound(&self) -> Option<Arc<Messages>> {
        let tally = self.tally.as_ref().filter(|_| self.ends.target.is_some())?;
        Some(tally.messages())
    }

    pub(super) fn release(self) -> [uverbs::Result<()>; 2] {
        let Ends { qp, target } = self.ends;
        let alone = match qp {
            Held::Line(qp) => told(qp.destroy()),
            // Dropping a connection ends it, and destroys its queue pair.
            Held::Connection(_) | Held::Other => Ok(()),
        };
        [alone, target.map_or(Ok(()), |target| told(target.destroy()))]
    }
}

/// A number with which most likely no earlier connection began: 24 random bits.
fn psn() -> u32 {
    RandomState::new().hash_one(0) as u32 & 0xff_ffff
}
