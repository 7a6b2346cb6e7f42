//! Posting requests.

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::rxe::{SendWqe, SendWr};
use uverbs_abi::types::{SendFlags, wr_opcode};
use uverbs_abi::write::{PostSend, PostSendResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::{QpType, QueuePair, RawPacket};
use crate::command::Command;
use crate::error::{Error, ErrorKind, Result};
use crate::mr::{MemoryRegion, Segment};
use crate::provider::ring::Producer;

/// A frame to be sent: its bytes stand in `segments`, one behind the other.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendRequest<'a> {
    /// A number that comes back in the completion.
    pub wr_id: u64,
    /// Where the frame is, Ethernet header first, without the FCS.
    pub segments: &'a [Segment<'a>],
    /// Whether success is reported by a completion; failure always is.
    pub signaled: bool,
}

/// Room for a frame to be received: it fills `segments`, one behind the other.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct ReceiveRequest<'a> {
    /// A number that comes back in the completion.
    pub wr_id: u64,
    /// Where the frame goes.
    pub segments: &'a [Segment<'a>],
}

/// Remembers the regions of the request about to be put into `slot`, in place of those that were there.
fn hold(slots: &mut [Vec<MemoryRegion>], ring: &Producer, segments: &[Segment<'_>]) {
    if let Some(slot) = slots.get_mut(ring.next_slot() as usize) {
        slot.clear();
        slot.extend(segments.iter().map(|segment| segment.region().clone()));
    }
}

fn full(op: &'static str) -> Error {
    Error::refused(op, Errno::ENOMEM, "the queue has no room for all of these; nothing was posted")
}

fn oversized(op: &'static str) -> Error {
    Error::refused(op, Errno::EINVAL, "more segments than the queue pair was made for; nothing was posted")
}

impl<T: QpType> QueuePair<T> {
    /// Posts room for frames, all of it or nothing.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue has no room for all of them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more segments than the queue pair was made for.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let op = "qp.post_receive";
        if requests.len() > self.receives.ring().free() as usize {
            return Err(full(op));
        }
        let limit = self.capacity.receive_segments as usize;
        if requests.iter().any(|request| request.segments.len() > limit) {
            return Err(oversized(op));
        }
        for request in requests {
            hold(&mut self.in_flight.receives, self.receives.ring(), request.segments);
            if !self.receives.put(request.wr_id, request.segments.iter().map(Segment::sge)) {
                self.receives.ring().rewind();
                return Err(oversized(op));
            }
        }
        self.receives.ring().publish();
        Ok(())
    }
}

impl QueuePair<RawPacket> {
    /// Posts frames to be sent, all of them or nothing, with one doorbell.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue has no room for all of them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more segments than the queue pair was made for, or when
    /// the queue pair is not ready to send.
    ///
    /// # Kernel
    /// The doorbell is `POST_SEND` by `INVOKE_WRITE`, with no request in it: the kernel looks at the ring
    /// (rxe_post_send, rxe_verbs.c, Linux 6.1).
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&mut self, requests: &[SendRequest<'_>]) -> Result<()> {
        let op = "qp.post_send";
        if requests.len() > self.sends.ring().free() as usize {
            return Err(full(op));
        }
        let limit = self.capacity.send_segments as usize;
        if requests.iter().any(|request| request.segments.len() > limit) {
            return Err(oversized(op));
        }
        let first = self.sends.ring().next_slot();
        for request in requests {
            hold(&mut self.in_flight.sends, self.sends.ring(), request.segments);
            let flags = if request.signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            let wr = SendWr {
                wr_id: request.wr_id,
                opcode: wr_opcode::SEND,
                send_flags: flags.bits(),
                ..SendWr::new_zeroed()
            };
            if !self.sends.put(wr, 0, request.segments.iter().map(Segment::sge)) {
                self.sends.ring().rewind();
                return Err(oversized(op));
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.sends.ring().publish();
        self.doorbell().map_err(|error| {
            // Refused for its state, the kernel has not looked at the ring.
            if error.kind() == ErrorKind::InvalidInput {
                self.sends.ring().retract(first);
            }
            error.hinted_if(ErrorKind::InvalidInput, "the queue pair is not ready to send")
        })
    }

    fn doorbell(&self) -> Result<()> {
        let object = self.shared.object();
        let request = PostSend {
            qp_handle: object.id(),
            wqe_size: size_of::<SendWqe>() as u32,
            ..PostSend::new_zeroed()
        };
        let mut response = PostSendResp::new_zeroed();
        let mut command = Command::write("qp.post_send", cmd::POST_SEND);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        object.context().invoke(&mut command)
    }
}
