//! Posting requests.

mod data;
mod path;

use std::marker::PhantomData;

use nix::errno::Errno;
use uverbs_abi::types::{RawPacketCaps, SendFlags};

use self::data::{Any, Bytes, Form, OneSegment, Putting, Segments};
use super::operation::sealed::Encode;
use super::request::{ETHERNET_HEADER, Local};
use super::send::{Batch, FillSends, SEND, SendQueue};
use super::{Capacity, QpType, QueuePair, SendRequest};
use crate::device::object::Object;
use crate::driver::request::{Data, FrameHead, NoBytes, NoPieces, Opcode, Refused, RequestKind, Terms};
use crate::driver::seam::Lower;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::mr::{MemoryRegion, Segment};
use crate::verbs::work::{ReceiveRequest, Slots, refused};

impl<T: QpType> QueuePair<T> {
    /// Posts receives for messages or frames, all of them or none.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if the queue has no room for all of them; [`InvalidInput`](ErrorKind::InvalidInput)
    /// for more segments than the queue pair was created with, or if it receives from a shared receive queue.
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_post_recvv")]
    #[inline]
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let op = "qp.post_receive";
        match &mut self.receives {
            Some(receives) => receives.post(op, requests),
            None => Err(self.shared.without_receives(op)),
        }
    }

    /// Posts requests to the send queue, all of them or none, with one doorbell.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if the queue has no room for all of them; [`InvalidInput`](ErrorKind::InvalidInput)
    /// for more segments or inline bytes than the queue pair was created with, for inline data of a read or an atomic operation,
    /// or if the queue pair is not ready to send; [`Unsupported`](ErrorKind::Unsupported) for
    /// [`checksums`](SendRequest::checksums) and [`large_send`](SendRequest::large_send) on a device without these features;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a second [`SendInvalidate`](super::Operation::SendInvalidate) of a key.
    ///
    /// # Kernel
    /// The doorbell is `POST_SEND` through `INVOKE_WRITE`, without a request: it makes the kernel read the ring (rxe_post_send,
    /// rxe_verbs.c, Linux 6.1).
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[doc(alias = "ibv_wr_abort")]
    #[doc(alias = "rdma_post_send")]
    #[doc(alias = "rdma_post_sendv")]
    #[doc(alias = "rdma_post_write")]
    #[doc(alias = "rdma_post_writev")]
    #[doc(alias = "rdma_post_read")]
    #[doc(alias = "rdma_post_readv")]
    #[doc(alias = "rdma_post_ud_send")]
    #[inline]
    pub fn post_send(&mut self, requests: &[SendRequest<'_, T::Operation<'_>>]) -> Result<()> {
        match self.put(requests, false) {
            Ok(()) => Ok(()),
            Err(stopped) => self.post_otherwise(requests, stopped),
        }
    }

    /// Handles a batch of which nothing was posted at the first attempt.
    #[cold]
    #[inline(never)]
    fn post_otherwise(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        stopped: Stopped,
    ) -> Result<()> {
        match stopped {
            Stopped { why, error: Some(error) } => {
                if why == Why::Unseen {
                    self.let_go_if_refused(&error, requests.len());
                }
                Err(*error)
            }
            Stopped { why: Why::Refused(why), error: None } => Err(self.refused(requests, why)),
            Stopped { error: None, .. } => self.post_invalidating(requests),
        }
    }

    /// The error for requests of which none was posted.
    #[cold]
    fn refused(&self, requests: &[SendRequest<'_, T::Operation<'_>>], why: Refused) -> Error {
        let (pieces, inline) = (self.sends.max_pieces(), self.sends.max_inline());
        let beyond = || requests.iter().find_map(|request| request.data.beyond(pieces, inline));
        match beyond().filter(|_| why == Refused::TooLarge) {
            Some(hint) => Error::refused(SEND, Errno::EINVAL, hint),
            None => refused(SEND, why),
        }
    }

    /// Releases what the last `count` requests need if the kernel has refused to read them: they were taken back in this case.
    fn let_go_if_refused(&mut self, error: &Error, count: usize) -> bool {
        let is_refused = error.kind() == ErrorKind::InvalidInput;
        if is_refused {
            self.held.let_go(self.sends.next_slot(), count, |_| None);
        }
        is_refused
    }

    /// Posts requests, some of which invalidate keys of the peer.
    fn post_invalidating(&mut self, requests: &[SendRequest<'_, T::Operation<'_>>]) -> Result<()> {
        let key = |request: &SendRequest<'_, T::Operation<'_>>| match request.operation.opcode() {
            Opcode::SendInvalidate(key) => Some(key),
            _ => None,
        };
        let keys: Vec<_> = requests.iter().filter_map(key).collect();
        let shared = self.shared.clone();
        let context = shared.object().context();
        if !self.is_peer_settled {
            // A device has several GIDs: the first one stands for all GIDs of this device.
            let gids = context.gid_table()?;
            let is_own = gids.iter().any(|gid| gid.raw == self.peer);
            self.peer = gids.first().filter(|_| is_own).map_or(self.peer, |gid| gid.raw);
            self.is_peer_settled = true;
        }
        let known = context.window_keys();
        let noted = known.send(self.peer, &keys).map_err(|hint| Error::refused(SEND, Errno::EINVAL, hint))?;
        let (error, is_none_posted) = match self.put(requests, true) {
            // With any other error than a refusal it is not known whether the device has them.
            Err(Stopped { why: Why::Unseen, error: Some(error) }) => {
                let is_refused = self.let_go_if_refused(&error, requests.len());
                (*error, is_refused)
            }
            Err(Stopped { error: Some(error), .. }) => (*error, true),
            Err(Stopped { why: Why::Refused(why), error: None }) => (self.refused(requests, why), true),
            Ok(()) | Err(Stopped { error: None, .. }) => return Ok(()),
        };
        if is_none_posted {
            known.take_back(self.peer, &noted);
        }
        Err(error)
    }

    /// Posts one request that transfers no data, and that needs these regions until it has completed.
    pub(crate) fn post_local(
        &mut self,
        op: &'static str,
        wr_id: u64,
        flags: SendFlags,
        opcode: Opcode<'_>,
        regions: impl Iterator<Item = MemoryRegion>,
    ) -> Result<()> {
        let mut put = None;
        let posted = self.sends.post_local(op, wr_id, flags, opcode, |slot| put = Some(slot));
        // If the kernel refused because of the state, it has not read the request; with any other error it may have.
        let is_refused = posted.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput);
        if let Some(slot) = put.filter(|_| !is_refused) {
            self.held.slots().hold_regions(slot, regions.collect());
        }
        posted
    }
}

/// Why nothing of a batch was posted.
// Two plain values, which a function returns in registers: only then can it end with a jump to the next longer one, which needs no stack.
#[derive(Debug)]
struct Stopped {
    why: Why,
    /// For [`Why::Looked`] and [`Why::Unseen`].
    error: Option<Box<Error>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A key has to be recorded first.
    TakesKeys,
    Refused(Refused),
    /// The check of a request has failed.
    Looked,
    /// The requests were put, but showing them to the device has failed.
    Unseen,
}

impl From<Refused> for Stopped {
    fn from(why: Refused) -> Self {
        Self { why: Why::Refused(why), error: None }
    }
}

impl Stopped {
    #[cold]
    #[inline(never)]
    fn unseen(error: Error) -> Self {
        Self { why: Why::Unseen, error: Some(Box::new(error)) }
    }

    #[cold]
    #[inline(never)]
    fn looked(error: Error) -> Self {
        Self { why: Why::Looked, error: Some(Box::new(error)) }
    }

    #[cold]
    #[inline(never)]
    fn without_place() -> Self {
        let hint = "reads and atomic operations return data to registered memory: give segments, not bytes";
        Self::looked(Error::refused(SEND, Errno::EINVAL, hint))
    }
}

/// The data that is needed to put a request, and what requests need until they have completed.
struct Posting<'a> {
    held: Slots<'a>,
    object: &'a Object,
    capacity: &'a Capacity,
    wants_head: bool,
    are_noted: bool,
}

/// Puts one request with data of this form.
struct One<'a, 'r, O, D> {
    request: &'a SendRequest<'r, O>,
    posting: Posting<'a>,
    form: PhantomData<D>,
}

impl<O: Encode, D: Form> FillSends for One<'_, '_, O, D> {
    const KIND: RequestKind = O::KIND;
    const IS_OF_ONE_PIECE: bool = D::IS_ONE;
    type Error = Stopped;

    #[inline]
    fn fill<L: Lower>(mut self, batch: &mut Batch<'_, L>) -> Result<(), Stopped> {
        self.posting.put::<L, O, D>(batch, batch.slot_before(), self.request)
    }
}

/// Puts several requests with data of this form.
struct All<'a, 'r, O, D> {
    requests: &'a [SendRequest<'r, O>],
    posting: Posting<'a>,
    form: PhantomData<D>,
}

impl<O: Encode, D: Form> FillSends for All<'_, '_, O, D> {
    const KIND: RequestKind = O::KIND;
    const IS_OF_ONE_PIECE: bool = D::IS_ONE;
    type Error = Stopped;

    #[inline(always)]
    fn fill<L: Lower>(mut self, batch: &mut Batch<'_, L>) -> Result<(), Stopped> {
        let first = batch.slot_before();
        for request in self.requests {
            let slot = batch.slot_before();
            if let Err(why) = self.posting.put::<L, O, D>(batch, slot, request) {
                let is_none = std::ptr::eq(request, self.requests.as_ptr());
                let held = self.posting.held.into_held();
                if L::IS_IN_ORDER {
                    held.let_go_until(first, slot, is_none);
                } else if !is_none {
                    let first = batch.filled(0).unwrap_or(0);
                    let count =
                        self.requests.iter().take_while(|before| !std::ptr::eq(*before, request)).count();
                    // The slots are requested in the order of the requests.
                    let next = std::cell::Cell::new(0);
                    held.let_go(first, count, |_| {
                        next.set(next.get() + 1);
                        batch.filled(next.get())
                    });
                }
                return Err(why);
            }
        }
        Ok(())
    }
}

impl Posting<'_> {
    #[inline(always)]
    fn put<L: Lower, O: Encode, D: Form>(
        &mut self,
        batch: &mut Batch<'_, L>,
        slot: u32,
        request: &SendRequest<'_, O>,
    ) -> Result<(), Stopped> {
        let mut head = None;
        let is_special = matches!(O::KIND, RequestKind::Frames)
            && (self.wants_head || request.flags.contains(SendFlags::IP_CSUM));
        if is_special || request.operation.needs_a_look() {
            head = request.look(self.object, self.capacity, self.wants_head, self.are_noted)?;
        }
        Putting { posting: self, batch, slot, head }.put::<O, D>(request)
    }
}

impl<O: Encode> SendRequest<'_, O> {
    /// Checks properties that most requests do not have. Returns the head of a frame if the device needs it separately.
    #[cold]
    #[inline(never)]
    fn look(
        &self,
        object: &Object,
        capacity: &Capacity,
        wants_head: bool,
        are_noted: bool,
    ) -> Result<Option<FrameHead>, Stopped> {
        if self.flags.contains(SendFlags::IP_CSUM) {
            let hint = "the device does not fill in checksums of raw packets; nothing was posted";
            let checked = object.context().needs_raw_packet(SEND, RawPacketCaps::IP_CSUM, hint);
            checked.map_err(Stopped::looked)?;
        }
        match self.operation.opcode() {
            Opcode::SendInvalidate(_) if !are_noted => Err(Stopped { why: Why::TakesKeys, error: None }),
            Opcode::Large { header, mss } => {
                let room = LargeRoom { object, wants_head, most: capacity.large_header };
                room.check(SEND, header.len(), mss, self.data.len()).map_err(Stopped::looked)?;
                Ok(None)
            }
            _ => wants_head.then(|| self.data.head(SEND)).transpose().map_err(Stopped::looked),
        }
    }
}

/// The limits for large sends of a queue pair.
#[derive(Debug)]
pub(super) struct LargeRoom<'a> {
    pub(super) object: &'a Object,
    /// Whether the device needs the head of a frame in a request, and the maximum size of a header in bytes.
    pub(super) wants_head: bool,
    pub(super) most: u32,
}

impl LargeRoom<'_> {
    /// Refuses a large send that the device or this queue pair does not support.
    #[inline(never)]
    pub(super) fn check(&self, op: &'static str, header: usize, mss: u16, len: u64) -> Result<()> {
        let most = self.object.context().most_large_send(op)?;
        let least = if self.wants_head { size_of::<FrameHead>() } else { ETHERNET_HEADER };
        if self.most == 0 {
            return Err(Error::refused(op, Errno::EINVAL, "the queue pair was not made for large sends"));
        }
        if !(least..=self.most as usize).contains(&header) {
            let allowed = format!("{least} to {}", self.most);
            return Err(Error::outside(op, "bytes of the header of a large send", header, allowed));
        }
        if mss == 0 {
            return Err(Error::outside(op, "bytes of a segment of a large send", mss, "at least 1"));
        }
        if len == 0 || len > most.into() {
            let allowed = format!("1 to {most} (max_tso)");
            return Err(Error::outside(op, "bytes of a large send", len, allowed));
        }
        Ok(())
    }
}
