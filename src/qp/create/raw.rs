//! Queue pairs for bindings: of any type, in parts, with requests as the kernel lays them out.

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::CORE_IN;
use uverbs_abi::rxe::{SendWr, Sge};
use uverbs_abi::types::{QpAttrMask, QpCreateFlags, qp_state, wr_opcode};
use uverbs_abi::write::{AttachMcast, DestroyQpResp, DetachMcast, ModifyQp, QueryQpResp, cmd};
use zerocopy::FromBytes;

use super::{Capacity, Made, QueuePairBuilder};
use crate::command::Command;
use crate::completion_counter::{Bound, CompletionCounter, Counted, Posted};
use crate::cq::CompletionQueue;
use crate::driver::queues::{Data, Head, Sends};
use crate::error::{Error, ErrorKind, Result};
use crate::object;
use crate::pd::ProtectionDomain;
use crate::process::Origin;
use crate::qp::counting::{self, Bindable};
use crate::qp::{RawPacket, RssQueuePair, Shared, post, state};
use crate::srq::SharedReceiveQueue;
use crate::work::{self, full, oversized};

/// What a queue pair is made from.
#[derive(Debug)]
pub struct QueuePairInit<'a> {
    /// One of [`uverbs_abi::types::qp_type`].
    pub type_: u8,
    /// Where sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where receives complete.
    pub receive_cq: &'a CompletionQueue,
    /// Where receives come from, if not from a queue of its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// What the queues shall hold at least.
    pub capacity: Capacity,
    /// The number that asynchronous events carry.
    pub cookie: u64,
    /// As the kernel knows them.
    pub flags: QpCreateFlags,
}

/// A queue pair without its queues. It holds its domain and its completion queues, as a
/// [`QueuePair`](crate::QueuePair) does.
#[derive(Debug)]
pub struct QueuePair {
    shared: Arc<Shared>,
    capacity: Capacity,
}

/// Its send queue.
#[derive(Debug)]
pub struct SendQueue {
    sends: Sends,
    segments: u32,
    inline: u32,
    large_header: u32,
    /// The first slot that was filled and not published.
    first: Option<u32>,
    type_: u8,
    /// The completion counters, if there are any.
    bound: Option<Box<Bound>>,
    origin: Origin,
}

/// Its receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    queue: work::ReceiveQueue,
    origin: Origin,
}

impl ProtectionDomain {
    /// Makes a queue pair and its queues; no receive queue if it shares one.
    ///
    /// # Errors
    /// As [`QueuePairBuilder::create`].
    pub fn create_parts(
        &self,
        init: &QueuePairInit<'_>,
    ) -> Result<(QueuePair, SendQueue, Option<ReceiveQueue>)> {
        let QueuePairInit { type_, send_cq, receive_cq, srq, capacity, cookie, flags } = *init;
        // Of no type in particular: the number says which.
        let kind = PhantomData::<RawPacket>;
        let builder =
            QueuePairBuilder { pd: self, send_cq, receive_cq, srq, wanted: capacity, cookie, flags, kind };
        let Made { sends, receives, capacity, shared } = builder.make(type_)?;
        let Capacity { send_segments: segments, inline, large_header, .. } = capacity;
        let origin = self.context().origin();
        let sends =
            SendQueue { sends, segments, inline, large_header, first: None, type_, bound: None, origin };
        let qp = QueuePair { shared: Arc::new(shared), capacity };
        Ok((qp, sends, receives.map(|queue| ReceiveQueue { queue, origin })))
    }
}

/// A queue pair on a table of work queues has no queues of its own.
impl From<RssQueuePair> for QueuePair {
    fn from(qp: RssQueuePair) -> Self {
        let capacity = Capacity::default();
        Self { shared: qp.into_shared(), capacity }
    }
}

impl QueuePair {
    /// The kernel's handle of the queue pair.
    pub fn handle(&self) -> u32 {
        self.shared.object().id()
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// What the queues can hold.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Changes attributes as the request says, whose handle is filled in.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn modify(
        &self,
        request: &ModifyQp,
        sends: &mut SendQueue,
        receives: Option<&mut ReceiveQueue>,
    ) -> Result<()> {
        let object = self.shared.object();
        let request = ModifyQp { qp_handle: object.id(), ..*request };
        let mut command = Command::write("qp.modify", cmd::MODIFY_QP);
        command.input(CORE_IN, &request);
        object.context().invoke(&mut command)?;
        // The queues learn of the state that was asked for.
        if QpAttrMask::from_bits_retain(request.attr_mask).contains(QpAttrMask::STATE) {
            sends.sends.enter(request.qp_state);
            if let Some(receives) = receives {
                receives.queue.enter(request.qp_state);
            }
            if let Some(bound) = sends.bound.as_mut().filter(|_| request.qp_state == qp_state::RESET) {
                bound.reset();
            }
        }
        Ok(())
    }

    /// The attributes that the kernel tells.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn query(&self, mask: QpAttrMask) -> Result<QueryQpResp> {
        state::query(self.shared.object(), mask)
    }

    /// Has `counter` count operations of the queue pair from now on, until its send queue is dropped.
    ///
    /// # Errors
    /// As [`QueuePair::bind_counter`](crate::QueuePair::bind_counter).
    pub fn bind_counter(
        &self,
        sends: &mut SendQueue,
        counter: &CompletionCounter,
        counted: Counted,
    ) -> Result<()> {
        let slots = sends.sends.slots() as u32;
        Bindable { shared: &self.shared, type_: sends.type_, slots }.bind(&mut sends.bound, counter, counted)
    }

    /// Joins a multicast group.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn attach_multicast(&self, gid: [u8; 16], mlid: u16) -> Result<()> {
        let object = self.shared.object();
        let request = AttachMcast { gid, qp_handle: object.id(), mlid, reserved: 0 };
        let mut command = Command::write("qp.join_multicast", cmd::ATTACH_MCAST);
        command.input(CORE_IN, &request);
        object.context().invoke(&mut command)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn detach_multicast(&self, gid: [u8; 16], mlid: u16) -> Result<()> {
        let object = self.shared.object();
        let request = DetachMcast { gid, qp_handle: object.id(), mlid, reserved: 0 };
        let mut command = Command::write("qp.leave_multicast", cmd::DETACH_MCAST);
        command.input(CORE_IN, &request);
        object.context().invoke(&mut command)
    }

    /// Destroys the queue pair, and says how many of its asynchronous events were read.
    ///
    /// # Errors
    /// As [`QueuePair::destroy`](crate::QueuePair::destroy).
    pub fn destroy(mut self) -> Result<u32, (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.shared) else {
            let error = object::shared("qp.destroy", "a flow still uses the queue pair");
            return Err((self, error));
        };
        match shared.object.release_reporting() {
            Ok(bytes) => {
                Ok(DestroyQpResp::read_from_prefix(&bytes).map_or(0, |(read, _)| read.events_reported))
            }
            Err(error) if error.kind() == ErrorKind::Disassociated => Ok(0),
            Err(error) => Err((self, error)),
        }
    }
}

const SEND: &str = "qp.post_send";

fn bytes(pieces: impl Iterator<Item = Sge>) -> u64 {
    pieces.map(|piece| u64::from(piece.length)).sum()
}

impl SendQueue {
    /// How many bytes at the head of a frame the device must find in the request itself: [`SendQueue::put`] wants
    /// them in `header`.
    #[inline]
    pub fn inline_header(&self) -> usize {
        self.sends.inline_header()
    }

    /// Most pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.segments
    }

    /// Most bytes of a request that is posted inline.
    #[inline]
    pub fn max_inline(&self) -> u32 {
        self.inline
    }

    /// Fills the next slot with a request over pieces of registered memory. `iova` is the remote address of
    /// operations that have one. The device sees it after [`SendQueue::publish`].
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue is full, [`InvalidInput`](ErrorKind::InvalidInput) for more
    /// pieces than it was made for, or when the queue pair is not ready to send.
    #[inline(always)]
    pub fn put(
        &mut self,
        wr: &SendWr,
        iova: u64,
        header: &[u8],
        pieces: impl ExactSizeIterator<Item = Sge> + Clone,
    ) -> Result<()> {
        self.put_pieces(wr, iova, Head { bytes: header, mss: 0 }, pieces)
    }

    /// Fills the next slot with a large send, which the device cuts: see [`SendRequest::large_send`](crate::SendRequest::large_send).
    ///
    /// # Errors
    /// As [`SendQueue::put`], and [`InvalidInput`](ErrorKind::InvalidInput) for a header that the queue was not made for, no
    /// data, or more than the device takes at once.
    pub fn put_large(
        &mut self,
        qp: &QueuePair,
        wr: &SendWr,
        header: &[u8],
        mss: u16,
        pieces: impl ExactSizeIterator<Item = Sge> + Clone,
    ) -> Result<()> {
        let least = self.inline_header();
        let room = post::LargeRoom { object: qp.shared.object(), least, most: self.large_header };
        room.check(SEND, header, mss, bytes(pieces.clone()))?;
        let wr = SendWr { opcode: wr_opcode::SEND, ..*wr };
        self.put_pieces(&wr, 0, Head { bytes: header, mss }, pieces)
    }

    #[inline]
    fn put_pieces(
        &mut self,
        wr: &SendWr,
        iova: u64,
        head: Head<'_>,
        pieces: impl ExactSizeIterator<Item = Sge> + Clone,
    ) -> Result<()> {
        let fits = pieces.len() <= self.segments as usize;
        // A sum of 4 GiB or more is not posted.
        let counted = self.bound.is_some().then(|| counting::posted(wr, bytes(pieces.clone()) as u32));
        self.fill(wr, iova, head, fits, Data::Pieces(pieces))?;
        self.stage(counted);
        Ok(())
    }

    /// The same over bytes, which are copied into the queue.
    ///
    /// # Errors
    /// As [`SendQueue::put`].
    #[inline(always)]
    pub fn put_inline(&mut self, wr: &SendWr, iova: u64, bytes: &[u8]) -> Result<()> {
        let header = bytes.get(..self.inline_header()).unwrap_or_default();
        let head = Head { bytes: header, mss: 0 };
        let fits = bytes.len() <= self.inline as usize;
        let counted = self.bound.is_some().then(|| counting::posted(wr, bytes.len() as u32));
        self.fill(wr, iova, head, fits, Data::<std::iter::Empty<_>>::Inline(bytes))?;
        self.stage(counted);
        Ok(())
    }

    #[inline]
    fn stage(&mut self, request: Option<Posted>) {
        if let (Some(bound), Some(request)) = (&mut self.bound, request) {
            bound.stage(&request);
        }
    }

    #[inline(always)]
    fn fill<P: Iterator<Item = Sge>>(
        &mut self,
        wr: &SendWr,
        iova: u64,
        head: Head<'_>,
        fits: bool,
        data: Data<'_, P>,
    ) -> Result<()> {
        // The slots of a shared ring may be the parent's requests.
        self.origin.check(SEND)?;
        if !self.sends.is_ready() {
            return Err(Error::refused(SEND, nix::errno::Errno::EINVAL, post::NOT_READY));
        }
        if self.sends.free() == 0 || self.bound.as_ref().is_some_and(|bound| bound.free() == 0) {
            return Err(full(SEND));
        }
        let slot = self.sends.next_slot();
        if !fits || !self.sends.put(wr, iova, head, data) {
            return Err(oversized(SEND));
        }
        self.first.get_or_insert(slot);
        Ok(())
    }

    /// Forgets what was put and not published.
    pub fn rewind(&mut self) {
        self.first = None;
        self.sends.rewind();
        self.bound.iter_mut().for_each(|bound| bound.rewind());
    }

    /// Shows the device every request put so far.
    ///
    /// # Errors
    /// Those of the kernel where it has to be told, such as [`InvalidInput`](ErrorKind::InvalidInput) when the queue pair
    /// is not ready to send.
    #[inline]
    pub fn publish(&mut self, qp: &QueuePair) -> Result<()> {
        let object = qp.shared.object();
        object.context().check_origin(SEND)?;
        let Some(first) = self.first.take() else { return Ok(()) };
        // Before the device can complete any of these.
        if let Some(bound) = &mut self.bound {
            bound.publish();
        }
        if self.sends.publish() {
            return Ok(());
        }
        post::ring_doorbell(SEND, object).inspect_err(|error| {
            // Refused for its state, the kernel has not looked at the ring.
            if error.kind() == ErrorKind::InvalidInput {
                self.sends.retract(first);
                self.bound.iter_mut().for_each(|bound| bound.retract());
            }
        })
    }
}

impl ReceiveQueue {
    /// Fills the next slot. The device sees it after [`ReceiveQueue::publish`].
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue is full, [`InvalidInput`](ErrorKind::InvalidInput) for more
    /// pieces than it was made for, [`Disassociated`](ErrorKind::Disassociated) in a child of `fork`.
    #[inline(always)]
    pub fn put(&mut self, wr_id: u64, pieces: impl ExactSizeIterator<Item = Sge>) -> Result<()> {
        let op = "qp.post_receive";
        self.origin.check(op)?;
        self.queue.put(op, wr_id, pieces)
    }

    /// Shows the device every slot filled so far; nothing in a child, whose index is not the parent's.
    #[inline]
    pub fn publish(&mut self) {
        if self.origin.is_here() {
            self.queue.publish();
        }
    }
}
