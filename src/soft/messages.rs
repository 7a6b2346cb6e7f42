//! Messages of connected queue pairs, RC, UC and XRC: the requester.
//!
//! There is no wire between two queue pairs of this device, so a request is executed immediately and as a whole: nothing is lost, repeated
//! or out of order. Where rxe uses timers, the result follows immediately:
//! - there is no queue pair at the other end, or it is not ready, not connected to this one, or expects another sequence number: RC runs
//!   out of retries (RETRY_EXC_ERR) whatever their number is, except on a profile like rxe
//!   ([`Profile::retries_for_ever`](super::profile::Profile::retries_for_ever)); UC reports success;
//! - no receive is posted: RC with an RNR retry count of 7 waits, and the request is retried when a receive is posted, and after every
//!   command; with a smaller count it runs out of retries (RNR_RETRY_EXC_ERR).
//!
//! Statuses are those of rxe (rxe_req.c, rxe_comp.c, Linux 6.1), except for local keys that do not exist or belong to another protection
//! domain: LOC_PROT_ERR as on cards, where rxe has LOC_QP_OP_ERR. A read with no read allowed in flight, for which rxe would wait for
//! ever, is LOC_QP_OP_ERR.

use uverbs_abi::rxe::SendWqe;
use uverbs_abi::types::{AccessFlags, SendFlags, qp_type, wc_status, wr_opcode};

use super::attributes;
use super::pieces;
use super::queue_pairs::{Qp, is_reliable};
use super::responder::{Answer, Effect, Message};
use super::state::State;
use super::windows;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
}

/// The properties of the operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) action: Action,
    pub(super) has_imm: bool,
    pub(super) invalidates: bool,
}

impl Operation {
    /// The operation for a queue pair of this type; `None` if it does not support it.
    pub(super) fn of(kind: u8, opcode: u32) -> Option<Self> {
        let plain = |action| Self { action, has_imm: false, invalidates: false };
        let is_reliable = is_reliable(kind);
        Some(match opcode {
            wr_opcode::SEND => plain(Action::Send),
            wr_opcode::SEND_WITH_IMM => Self { has_imm: true, ..plain(Action::Send) },
            wr_opcode::SEND_WITH_INV if is_reliable => Self { invalidates: true, ..plain(Action::Send) },
            wr_opcode::RDMA_WRITE => plain(Action::Write),
            wr_opcode::RDMA_WRITE_WITH_IMM => Self { has_imm: true, ..plain(Action::Write) },
            wr_opcode::RDMA_READ if is_reliable => plain(Action::Read),
            wr_opcode::ATOMIC_CMP_AND_SWP if is_reliable => plain(Action::CompareSwap),
            wr_opcode::ATOMIC_FETCH_AND_ADD if is_reliable => plain(Action::FetchAdd),
            _ => return None,
        })
    }

    /// Whether it consumes a receive of the peer.
    pub(super) fn takes_receive(self) -> bool {
        self.action == Action::Send || self.has_imm
    }

    /// Whether it returns data.
    pub(super) fn is_answered(self) -> bool {
        matches!(self.action, Action::Read | Action::CompareSwap | Action::FetchAdd)
    }
}

/// The result of a request.
struct End {
    status: u32,
    packets: u32,
    effect: Effect,
    is_reliable: bool,
}

impl State {
    /// Executes the oldest request. False if it has to wait.
    pub(super) fn send_message(&mut self, number: u32, was_tried: bool) -> bool {
        let Some(qp) = self.qps.get(&number) else { return true };
        let wqe = pieces::oldest_send(&qp.sends);
        if windows::is_local(qp.kind, wqe.wr.opcode) {
            let status = self.local_operation(number, &wqe);
            self.take_send(number);
            self.sent(number, &wqe, self.profile.own_status(status));
            return true;
        }
        let end = self.carry_out(number, qp, &wqe, was_tried);
        let (peer, kind) = (qp.attrs.dest_qp_num, qp.kind);
        let is_tried_again = match end.as_ref().map(|end| end.status) {
            Some(wc_status::RETRY_EXC_ERR) => qp.attrs.retry_cnt > 0,
            Some(wc_status::RNR_RETRY_EXC_ERR) => qp.attrs.rnr_retry > 0,
            Some(_) => false,
            None => true,
        };
        let stuck_after = is_tried_again.then(|| self.waits_for_itself(qp)).flatten();
        if let Some(qp) = self.qps.get_mut(&number).filter(|_| stuck_after.is_some()) {
            qp.stuck_after = stuck_after;
        }
        self.flush_when_asked(peer, kind);
        let Some(end) = end.filter(|_| stuck_after != Some(0)) else { return false };
        self.take_send(number);
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.attrs.sq_psn = attributes::later(qp.attrs.sq_psn, end.packets);
        }
        let (mut effect, mut status) = (end.effect, end.status);
        if peer == number && effect.broken {
            // Sent to itself: the request ends first and moves the queue pair to the error state, which flushes the others
            // (`rxe_completer`, rxe_comp.c, 6.1).
            status = self.profile.status_to_itself(status);
            effect.broken = status == wc_status::SUCCESS;
        }
        let is_told = self.take_effect(peer, effect);
        // rxe does not acknowledge a message whose completion it could not write (`RESPST_ERR_CQ_OVERFLOW`, rxe_resp.c).
        let is_lost = !is_told && self.profile.is_rxe() && end.is_reliable;
        self.sent(number, &wqe, if is_lost { wc_status::RETRY_EXC_ERR } else { status });
        true
    }

    /// The position, counted from the oldest request, which is to be retried, of a request that will wait for itself for ever.
    fn waits_for_itself(&self, qp: &Qp) -> Option<u32> {
        if !self.profile.waits_for_itself() {
            return None;
        }
        let mut fenced = None;
        for behind in 0..qp.sends.available() {
            let wqe = pieces::send_behind(&qp.sends, behind);
            if SendFlags::from_bits_retain(wqe.wr.send_flags).contains(SendFlags::FENCE) {
                fenced = fenced.or(Some(behind));
            }
            // Requests behind a later fence have not started yet.
            if Operation::of(qp.kind, wqe.wr.opcode).is_some_and(Operation::is_answered) {
                return fenced;
            }
        }
        None
    }

    /// The result of a request; `None` if it has to wait for a receive.
    fn carry_out(&self, number: u32, qp: &Qp, wqe: &SendWqe, was_tried: bool) -> Option<End> {
        let local_end = |status| {
            let status = self.profile.own_status(status);
            Some(End { status, packets: 0, effect: Effect::default(), is_reliable: false })
        };
        let Some(operation) = Operation::of(qp.kind, wqe.wr.opcode) else {
            return local_end(wc_status::LOC_QP_OP_ERR);
        };
        if operation.is_answered() && qp.attrs.max_rd_atomic == 0 {
            // It waits until one of the earlier ones has ended (`check_init_depth`, rxe_req.c).
            return if self.profile.is_rxe() { None } else { local_end(wc_status::LOC_QP_OP_ERR) };
        }
        let is_atomic = matches!(operation.action, Action::CompareSwap | Action::FetchAdd);
        if is_atomic && wqe.dma.length < 8 && !self.profile.sends_without_room() {
            return local_end(wc_status::LOC_LEN_ERR);
        }
        let inline = if operation.is_answered() { Ok(Vec::new()) } else { pieces::inline(qp, wqe) };
        let inline = match inline {
            Ok(inline) => inline,
            Err(status) => return local_end(status),
        };
        let needed = if operation.is_answered() { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() };
        let local = self.local(qp, wqe, &inline, needed);
        let local = match local {
            // The destination of a response is checked when the response has arrived (`do_read` and `do_atomic`, rxe_comp.c).
            Err(status) if operation.is_answered() && status != wc_status::LOC_LEN_ERR => {
                Err(wc_status::LOC_PROT_ERR)
            }
            Err(status) => return local_end(status),
            local => local,
        };
        let size = attributes::packet_size(qp.attrs.path_mtu);
        let packets = (wqe.dma.length as usize).div_ceil(size).max(1) as u32;
        let message = Message { operation, wqe, local, psn: qp.attrs.sq_psn, packets, was_tried };
        let is_reliable = is_reliable(qp.kind);
        let peer = self.peer(number, qp);
        let is_answered = peer.is_none_or(|(_, peer)| peer.attrs.dest_qp_num == number);
        let is_old = |peer: &Qp| attributes::is_before(qp.attrs.sq_psn, packets, peer.attrs.rq_psn);
        let is_ended = |peer: &Qp| {
            // An acknowledgement of what came before has the number before the one that is expected.
            let is_latest = attributes::later(qp.attrs.sq_psn, packets) == peer.attrs.rq_psn;
            is_old(peer) && (is_latest || self.profile.ends_by_old_number())
        };
        let ends = is_reliable && is_answered && !operation.is_answered();
        if ends && peer.is_some_and(|(_, peer)| is_ended(peer)) {
            return Some(End { status: wc_status::SUCCESS, packets, effect: Effect::default(), is_reliable });
        }
        let is_read = operation.action == Action::Read && self.profile.reads_again();
        let is_taken = |peer: &Qp| peer.attrs.rq_psn == qp.attrs.sq_psn || is_read && is_old(peer);
        let peer = peer.filter(|(_, peer)| !is_reliable || is_taken(peer));
        let is_shared = peer.is_some_and(|(_, peer)| peer.srq.is_some());
        let answer = peer.map(|(to, peer)| self.answer(to, peer, &message));
        let (status, effect) = match answer {
            _ if !is_reliable => {
                (wc_status::SUCCESS, answer.map(|answer| answer.unseen(is_shared)).unwrap_or_default())
            }
            None if self.profile.retries_for_ever(qp.attrs.retry_cnt) => return None,
            None => (wc_status::RETRY_EXC_ERR, Effect::default()),
            // The request was executed, and another queue pair gets the response.
            Some(_) if !is_answered && self.profile.retries_for_ever(qp.attrs.retry_cnt) => return None,
            Some(answer) if !is_answered => (wc_status::RETRY_EXC_ERR, answer.taken()),
            Some(Answer::NotReady) if qp.attrs.rnr_retry >= 7 => {
                if !self.profile.tires_of_waiting(qp.attrs.retry_cnt) {
                    return None;
                }
                (wc_status::RETRY_EXC_ERR, Effect::default())
            }
            Some(Answer::NotReady) => (wc_status::RNR_RETRY_EXC_ERR, Effect::default()),
            Some(Answer::Ended { status, effect, .. }) => (status, effect),
        };
        Some(End { status, packets, effect, is_reliable })
    }

    /// The queue pair at the other end, if messages arrive there: it has the same type, or is a target for an initiator; it is ready, and
    /// connected to this one by number and by path (`check_type_state` and `check_addr`, rxe_recv.c, Linux 6.1). Cards check that the
    /// numbers agree in both directions; rxe does not.
    fn peer(&self, number: u32, qp: &Qp) -> Option<(u32, &Qp)> {
        let to = qp.attrs.dest_qp_num;
        let peer = self.qps.get(&to)?;
        let (there, back) =
            [&qp.attrs.dest, &peer.attrs.dest].map(|path| attributes::route(&self.profile, path)).into();
        let (there, back) = (there?, back?);
        let kind = if qp.kind == qp_type::XRC_INI { qp_type::XRC_TGT } else { qp.kind };
        let is_connected = peer.kind == kind
            && peer.can_receive()
            && (peer.attrs.dest_qp_num == number || self.profile.takes_from_anybody())
            && there.destination == back.source
            && back.destination == there.source;
        is_connected.then_some((to, peer))
    }
}
