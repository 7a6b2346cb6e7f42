//! Sending: the doorbell, and emptying the send ring of a queue pair.
//!
//! The ring is in the user's memory: every value in it is checked here, and read once.

use nix::errno::Errno;
use uverbs_abi::rxe::{SendWqe, Sge};
use uverbs_abi::types::{
    AccessFlags, SendFlags, WcFlags, event_type, qp_state, qp_type, wc_opcode, wc_status, wr_opcode,
};
use uverbs_abi::write::{PostSend, PostSendResp, SendWr, Wc};
use zerocopy::{FromZeros, IntoBytes};

use super::call::Call;
use super::completion_counters;
use super::engine::MAX_FRAME;
use super::pieces;
use super::queue_pairs::Qp;
use super::state::State;
use super::steering::Origin;
use super::table::Kind;

/// Minimum length of a frame in bytes: its Ethernet header.
const MIN_FRAME: usize = 14;
/// The size that the kernel cannot allocate in one piece (`KMALLOC_MAX_SIZE`).
const MAX_WQE: u32 = 4 << 20;

/// `ib_uverbs_post_send` as a doorbell: the requests are in the ring, none are in the command (`rxe_post_send`).
pub(super) fn post_send(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let body = call.input(uverbs_abi::ids::device::invoke_write::CORE_IN)?;
    let (head, rest) = body.split_at_checked(size_of::<PostSend>()).ok_or(Errno::ENOSPC)?;
    let mut request = PostSend::new_zeroed();
    request.as_mut_bytes().copy_from_slice(head);
    let requests = u64::from(request.wqe_size) * u64::from(request.wr_count);
    let pieces = u64::from(request.sge_count) * size_of::<Sge>() as u64;
    let skip =
        requests.checked_add(pieces).and_then(|skip| usize::try_from(skip).ok()).ok_or(Errno::ENOSPC)?;
    let tail = rest.get(skip..).ok_or(Errno::ENOSPC)?;
    if tail.iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    if (request.wqe_size as usize) < size_of::<SendWr>() {
        return Err(Errno::EINVAL);
    }
    if request.wqe_size > MAX_WQE {
        return Err(Errno::ENOMEM);
    }
    let number = call.lookup(Kind::Qp, request.qp_handle.into())?.id;
    let qp = call.state.qps.get(&number).ok_or(Errno::EINVAL)?;
    let accepted = request.wr_count == 0 && qp.state >= qp_state::RTS;
    if accepted {
        call.state.drain(number);
    }
    call.respond(&PostSendResp { bad_wr: 0 })?;
    if accepted { Ok(()) } else { Err(Errno::EINVAL) }
}

impl State {
    /// Executes the requests that are in the send ring now. Returns whether any of them ended. Requests that are posted meanwhile wait
    /// for the next doorbell, and so do those after a request that waits for its receiver.
    pub(super) fn drain(&mut self, number: u32) -> bool {
        if self.is_on_wire(number) {
            self.pump_link(number);
            self.flush_if_broken(number);
            return false;
        }
        let was_waiting = self.waiting.remove(&number);
        let waiting = self.qps.get(&number).map_or(0, |qp| qp.sends.available());
        for done in 0..waiting {
            let Some(qp) = self.qps.get(&number) else { return true };
            match qp.state {
                qp_state::RTS if qp.stuck_after == Some(0) => return done > 0,
                qp_state::RTS => {}
                qp_state::SQD if qp.draining => {}
                // An earlier request, or its own frame that was looped back, moved the queue pair to the error state.
                qp_state::ERR => {
                    self.flush_if_broken(number);
                    return true;
                }
                _ if qp.has_stopped_sends() => {
                    self.flush_if_broken(number);
                    return true;
                }
                _ => return done > 0,
            }
            let ended = match qp.kind {
                qp_type::RAW_PACKET => self.send_frame(number),
                qp_type::UD => self.send_datagram(number),
                _ => self.send_message(number, was_waiting && done == 0),
            };
            if !ended {
                self.waiting.insert(number);
                return done > 0;
            }
            if let Some(qp) = self.qps.get_mut(&number).filter(|qp| qp.draining) {
                qp.draining = false;
                self.announce(number, event_type::SQ_DRAINED);
            }
        }
        self.flush_if_broken(number);
        waiting > 0
    }

    /// Stops sending (`rxe_qp_drain`, rxe_qp.c, Linux 6.1). A request in progress is completed.
    pub(super) fn hold(&mut self, number: u32) {
        let is_on_wire = self.qps.get(&number).is_some_and(Qp::has_begun);
        let has_begun = is_on_wire || self.waiting.contains(&number) && !self.profile.stops_between_tries();
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.draining = has_begun;
        }
        if !has_begun {
            self.announce(number, event_type::SQ_DRAINED);
        }
    }

    /// Retries every request that waits for a receiver. The device has no clock, so this is done whenever the receiver may have become
    /// ready or may have been destroyed: a receive was posted, a frame arrived, or a command was executed.
    pub(super) fn retry_waiting(&mut self) {
        let mut again = true;
        while again {
            again = false;
            // A request that ends may move a queue pair to the error state, for which another one may wait.
            for number in std::mem::take(&mut self.waiting) {
                again |= self.drain(number);
            }
        }
    }

    /// Removes the oldest request from the ring. This is done before its completion is written, because a program that sees the completion
    /// may use the slot.
    pub(super) fn take_send(&mut self, number: u32) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.sends.advance();
            qp.sends.release();
            qp.stuck_after = qp.stuck_after.map(|requests| requests.saturating_sub(1));
        }
    }

    /// Sends a frame.
    fn send_frame(&mut self, number: u32) -> bool {
        let Some(qp) = self.qps.get(&number) else { return true };
        let (wqe, port) = (pieces::oldest_send(&qp.sends), qp.port);
        let frame = self.frame(qp, &wqe);
        self.take_send(number);
        let status = match frame {
            Ok(frame) => {
                self.arrive(&frame, Origin::Sent { port, qp: number });
                wc_status::SUCCESS
            }
            Err(status) => status,
        };
        self.sent(number, &wqe, status);
        true
    }

    /// The data of a request, or the status with which it ends.
    fn frame(&self, qp: &Qp, wqe: &SendWqe) -> Result<Vec<u8>, u32> {
        if wqe.wr.opcode != wr_opcode::SEND {
            return Err(wc_status::LOC_QP_OP_ERR);
        }
        let frame = if SendFlags::from_bits_retain(wqe.wr.send_flags).contains(SendFlags::INLINE) {
            pieces::inline(qp, wqe)?
        } else {
            self.gather(qp, wqe.dma.num_sge)?
        };
        let fits = (MIN_FRAME..=MAX_FRAME).contains(&frame.len());
        if fits { Ok(frame) } else { Err(wc_status::LOC_LEN_ERR) }
    }

    fn gather(&self, qp: &Qp, num_sge: u32) -> Result<Vec<u8>, u32> {
        let mut frame = Vec::new();
        for piece in 0..num_sge as usize {
            let mut sge = Sge::new_zeroed();
            let at = size_of::<SendWqe>().saturating_add(piece.saturating_mul(size_of::<Sge>()));
            if piece >= qp.cap.max_send_sge as usize || !qp.sends.read(at, sge.as_mut_bytes()) {
                return Err(wc_status::LOC_QP_OP_ERR);
            }
            let from = frame.len();
            let len = from + sge.length as usize;
            if len > MAX_FRAME {
                return Err(wc_status::LOC_LEN_ERR);
            }
            if sge.length == 0 {
                continue;
            }
            frame.resize(len, 0);
            let place = frame.get_mut(from..).unwrap_or_default();
            let reached = self.reach(qp.pd, &sge, AccessFlags::empty());
            if !reached.is_some_and(|(memory, offset)| memory.read(offset, place)) {
                return Err(wc_status::LOC_PROT_ERR);
            }
        }
        Ok(frame)
    }

    /// A send has ended. Only a successful completion names the operation (`make_send_cqe`, rxe_comp.c, Linux 6.1).
    pub(super) fn sent(&mut self, number: u32, wqe: &SendWqe, status: u32) {
        let Some(qp) = self.qps.get(&number) else { return };
        let cq = qp.send_cq;
        let failed = status != wc_status::SUCCESS;
        let flags = SendFlags::from_bits_retain(wqe.wr.send_flags);
        if failed || qp.signal_all || flags.contains(SendFlags::SIGNALED) {
            let mut wc = Wc { wr_id: wqe.wr.wr_id, status, qp_num: number, ..Wc::new_zeroed() };
            if !failed && qp.kind != qp_type::RAW_PACKET {
                wc.byte_len = wqe.dma.length;
                (wc.opcode, wc.wc_flags) = told(wqe.wr.opcode);
            }
            self.complete(cq, &wc, false);
        }
        self.count_operation(number, completion_counters::operation(wqe.wr.opcode), status);
        if failed {
            self.break_sends(number);
        }
    }
}

/// The operation and flags of a request in its completion.
fn told(opcode: u32) -> (u32, u32) {
    let operation = match opcode {
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => wc_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ => wc_opcode::RDMA_READ,
        wr_opcode::ATOMIC_CMP_AND_SWP => wc_opcode::COMP_SWAP,
        wr_opcode::ATOMIC_FETCH_AND_ADD => wc_opcode::FETCH_ADD,
        wr_opcode::BIND_MW => wc_opcode::BIND_MW,
        wr_opcode::LOCAL_INV => wc_opcode::LOCAL_INV,
        _ => wc_opcode::SEND,
    };
    let has_imm = matches!(opcode, wr_opcode::RDMA_WRITE_WITH_IMM | wr_opcode::SEND_WITH_IMM);
    (operation, if has_imm { WcFlags::WITH_IMM.bits() } else { 0 })
}
