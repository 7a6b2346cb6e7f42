//! Posting requests.

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::rxe::{SendWqe, SendWr};
use uverbs_abi::types::SendFlags;
use uverbs_abi::write::{PostSend, PostSendResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::operation::sealed::Encode;
use super::{Frame, QpType, QueuePair};
use crate::ah::AddressHandle;
use crate::command::Command;
use crate::error::{Error, ErrorKind, Result};
use crate::mr::{MemoryRegion, Segment};
use crate::provider::rxe::Data;

/// A request to be posted to the send queue: an operation, and the local memory it reads or fills.
///
/// ```
/// # use uverbs::SendRequest;
/// // A frame of a raw packet queue pair, from no memory at all, with a completion:
/// let request = SendRequest::frame(7, &[]).signaled();
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendRequest<'a, O = Frame> {
    wr_id: u64,
    operation: O,
    data: Local<'a>,
    flags: SendFlags,
}

/// The local side of a request.
#[derive(Clone, Copy, Debug)]
enum Local<'a> {
    Segments(&'a [Segment<'a>]),
    /// Copied into the queue when the request is posted.
    Inline(&'a [u8]),
}

impl<'a> SendRequest<'a> {
    /// Sends an Ethernet frame that stands in `segments`, one behind the other, without the FCS.
    pub fn frame(wr_id: u64, segments: &'a [Segment<'a>]) -> Self {
        Self::new(wr_id, Frame, segments)
    }
}

impl<'a, O> SendRequest<'a, O> {
    /// An operation over the memory of `segments`, one behind the other. `wr_id` comes back in the completion.
    pub fn new(wr_id: u64, operation: O, segments: &'a [Segment<'a>]) -> Self {
        Self { wr_id, operation, data: Local::Segments(segments), flags: SendFlags::empty() }
    }

    /// An operation over bytes that are copied when it is posted; at most
    /// [`inline`](crate::Capacity::inline) of them.
    pub fn inline(wr_id: u64, operation: O, bytes: &'a [u8]) -> Self {
        Self { wr_id, operation, data: Local::Inline(bytes), flags: SendFlags::INLINE }
    }

    /// Success is reported by a completion; failure always is.
    #[must_use]
    pub fn signaled(mut self) -> Self {
        self.flags |= SendFlags::SIGNALED;
        self
    }

    /// Wakes a receiver that waits for solicited messages.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.flags |= SendFlags::SOLICITED;
        self
    }

    /// Waits for earlier reads and atomic operations of the queue pair.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags |= SendFlags::FENCE;
        self
    }
}

/// Room for a message or frame to be received: it fills `segments`, one behind the other.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct ReceiveRequest<'a> {
    wr_id: u64,
    segments: &'a [Segment<'a>],
}

impl<'a> ReceiveRequest<'a> {
    /// Room in `segments`; `wr_id` comes back in the completion.
    pub fn new(wr_id: u64, segments: &'a [Segment<'a>]) -> Self {
        Self { wr_id, segments }
    }
}

/// What the request in a slot of a queue needs until it is completed.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    regions: Vec<MemoryRegion>,
    address: Option<AddressHandle>,
}

impl Held {
    /// Lets go of what the slot's last request needed, and takes hold of what its next one does.
    fn hold(slots: &mut [Self], slot: u32, segments: &[Segment<'_>], address: Option<&AddressHandle>) {
        if let Some(held) = slots.get_mut(slot as usize) {
            held.regions.clear();
            held.regions.extend(segments.iter().map(|segment| segment.region().clone()));
            held.address = address.cloned();
        }
    }
}

fn full(op: &'static str) -> Error {
    Error::refused(op, Errno::ENOMEM, "the queue has no room for all of these; nothing was posted")
}

fn oversized(op: &'static str) -> Error {
    let hint = "more segments or inline bytes than the queue pair was made for; nothing was posted";
    Error::refused(op, Errno::EINVAL, hint)
}

impl<T: QpType> QueuePair<T> {
    /// Posts room for messages or frames, all of it or nothing.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue has no room for all of them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more segments than the queue pair was made for.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let op = "qp.post_receive";
        self.shared.object().context().check_origin(op)?;
        if requests.len() > self.receives.ring().free() as usize {
            return Err(full(op));
        }
        let limit = self.capacity.receive_segments as usize;
        if requests.iter().any(|request| request.segments.len() > limit) {
            return Err(oversized(op));
        }
        for request in requests {
            let slot = self.receives.ring().next_slot();
            Held::hold(&mut self.in_flight.receives, slot, request.segments, None);
            if !self.receives.put(request.wr_id, request.segments.iter().map(Segment::sge)) {
                self.receives.ring().rewind();
                return Err(oversized(op));
            }
        }
        self.receives.ring().publish();
        Ok(())
    }

    /// Posts requests to the send queue, all of them or none, with one doorbell.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue has no room for all of them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more segments or inline bytes than the queue pair was made
    /// for, or when the queue pair is not ready to send.
    ///
    /// # Kernel
    /// The doorbell is `POST_SEND` by `INVOKE_WRITE`, with no request in it: the kernel looks at the ring
    /// (rxe_post_send, rxe_verbs.c, Linux 6.1).
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&mut self, requests: &[SendRequest<'_, T::Operation<'_>>]) -> Result<()> {
        let op = "qp.post_send";
        self.shared.object().context().check_origin(op)?;
        if requests.len() > self.sends.ring().free() as usize {
            return Err(full(op));
        }
        let fits = |request: &SendRequest<'_, T::Operation<'_>>| match request.data {
            Local::Segments(segments) => segments.len() <= self.capacity.send_segments as usize,
            Local::Inline(bytes) => bytes.len() <= self.capacity.inline as usize,
        };
        if !requests.iter().all(fits) {
            return Err(oversized(op));
        }
        let first = self.sends.ring().next_slot();
        for request in requests {
            let mut wr =
                SendWr { wr_id: request.wr_id, send_flags: request.flags.bits(), ..SendWr::new_zeroed() };
            let iova = request.operation.encode(&mut wr);
            let slot = self.sends.ring().next_slot();
            let held = &mut self.in_flight.sends;
            let put = match request.data {
                Local::Segments(segments) => {
                    Held::hold(held, slot, segments, request.operation.address());
                    self.sends.put(wr, iova, Data::Pieces(segments.iter().map(Segment::sge)))
                }
                Local::Inline(bytes) => {
                    Held::hold(held, slot, &[], request.operation.address());
                    self.sends.put(wr, iova, Data::<std::iter::Empty<_>>::Inline(bytes))
                }
            };
            if !put {
                self.sends.ring().rewind();
                return Err(oversized(op));
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.publish(op, first)
    }

    /// Posts one request that moves no data, and that needs these regions until it is completed.
    pub(crate) fn post_local(
        &mut self,
        op: &'static str,
        wr: SendWr,
        regions: impl Iterator<Item = MemoryRegion>,
    ) -> Result<()> {
        self.shared.object().context().check_origin(op)?;
        if self.sends.ring().free() == 0 {
            return Err(full(op));
        }
        let first = self.sends.ring().next_slot();
        if let Some(held) = self.in_flight.sends.get_mut(first as usize) {
            held.regions.clear();
            held.regions.extend(regions);
            held.address = None;
        }
        if !self.sends.put(wr, 0, Data::Pieces(std::iter::empty())) {
            self.sends.ring().rewind();
            return Err(oversized(op));
        }
        self.publish(op, first)
    }

    /// Shows the kernel what was put into the ring from slot `first` on.
    fn publish(&mut self, op: &'static str, first: u32) -> Result<()> {
        self.sends.ring().publish();
        self.doorbell(op).map_err(|error| {
            // Refused for its state, the kernel has not looked at the ring.
            if error.kind() == ErrorKind::InvalidInput {
                self.sends.ring().retract(first);
            }
            error.hinted_if(ErrorKind::InvalidInput, "the queue pair is not ready to send")
        })
    }

    fn doorbell(&self, op: &'static str) -> Result<()> {
        let object = self.shared.object();
        let request = PostSend {
            qp_handle: object.id(),
            wqe_size: size_of::<SendWqe>() as u32,
            ..PostSend::new_zeroed()
        };
        let mut response = PostSendResp::new_zeroed();
        let mut command = Command::write(op, cmd::POST_SEND);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        object.context().invoke(&mut command)
    }
}
