//! Sending: the doorbell, and emptying the send ring of a queue pair.
//!
//! The ring is in the user's memory: whatever it says is bounded here, and read once.

use nix::errno::Errno;
use uverbs_abi::rxe::{SendWqe, Sge};
use uverbs_abi::types::{SendFlags, qp_state, wc_opcode, wc_status, wr_opcode};
use uverbs_abi::write::{PostSend, PostSendResp, SendWr, Wc};
use zerocopy::{FromZeros, IntoBytes};

use super::call::Call;
use super::engine::MAX_FRAME;
use super::queues::Qp;
use super::state::State;
use super::steering::Origin;
use super::table::Kind;

/// Fewest bytes of a frame: its Ethernet header.
const MIN_FRAME: usize = 14;
/// What the kernel cannot allocate in one piece (`KMALLOC_MAX_SIZE`).
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

/// What is to be sent.
struct Request {
    wr_id: u64,
    flags: SendFlags,
    /// The frame, or the status that the request ends with.
    frame: Result<Vec<u8>, u32>,
}

impl State {
    /// Carries out what waits in the send ring now. What is posted meanwhile waits for the next doorbell.
    pub(super) fn drain(&mut self, number: u32) {
        let waiting = self.qps.get(&number).map_or(0, |qp| qp.sends.available());
        for _ in 0..waiting {
            let Some(qp) = self.qps.get(&number) else { return };
            match qp.state {
                qp_state::RTS => {}
                // An earlier request, or its own frame coming back, broke the queue pair.
                qp_state::ERR => return self.flush(number),
                _ => return,
            }
            let (request, port) = (self.next_request(qp), qp.port);
            if let Some(qp) = self.qps.get_mut(&number) {
                qp.sends.advance();
                // Before the completion: who sees that may count on the slot.
                qp.sends.release();
            }
            let status = match request.frame {
                Ok(frame) => {
                    self.arrive(&frame, Origin::Sent { port, qp: number });
                    wc_status::SUCCESS
                }
                Err(status) => status,
            };
            self.sent(number, request.wr_id, request.flags, status);
        }
        self.flush_if_broken(number);
    }

    /// Reads the oldest request of the ring and collects its data.
    fn next_request(&self, qp: &Qp) -> Request {
        let mut wqe = SendWqe::new_zeroed();
        // A slot is never smaller than this.
        let read = qp.sends.read(0, wqe.as_mut_bytes());
        let flags = SendFlags::from_bits_retain(wqe.wr.send_flags);
        let frame = if !read || wqe.wr.opcode != wr_opcode::SEND {
            Err(wc_status::LOC_QP_OP_ERR)
        } else if flags.contains(SendFlags::INLINE) {
            inline(qp, wqe.dma.length)
        } else {
            self.gather(qp, wqe.dma.num_sge)
        };
        let frame = frame.and_then(|frame| {
            let fits = (MIN_FRAME..=MAX_FRAME).contains(&frame.len());
            if fits { Ok(frame) } else { Err(wc_status::LOC_LEN_ERR) }
        });
        Request { wr_id: wqe.wr.wr_id, flags, frame }
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
            let reached = self.reach(qp.pd, &sge, false);
            if !reached.is_some_and(|(memory, offset)| memory.read(offset, place)) {
                return Err(wc_status::LOC_PROT_ERR);
            }
        }
        Ok(frame)
    }

    /// A send has ended.
    fn sent(&mut self, number: u32, wr_id: u64, flags: SendFlags, status: u32) {
        let Some(qp) = self.qps.get(&number) else { return };
        let cq = qp.send_cq;
        let failed = status != wc_status::SUCCESS;
        if failed || qp.signal_all || flags.contains(SendFlags::SIGNALED) {
            let wc = Wc { wr_id, status, opcode: wc_opcode::SEND, qp_num: number, ..Wc::new_zeroed() };
            self.complete(cq, &wc);
        }
        if failed {
            self.break_qp(number);
        }
    }
}

/// Data that is inside the request.
fn inline(qp: &Qp, length: u32) -> Result<Vec<u8>, u32> {
    if length > qp.cap.max_inline_data {
        return Err(wc_status::LOC_LEN_ERR);
    }
    let mut frame = vec![0; length as usize];
    let read = qp.sends.read(size_of::<SendWqe>(), &mut frame);
    if read { Ok(frame) } else { Err(wc_status::LOC_QP_OP_ERR) }
}
