//! Messages of connected queue pairs, RC, UC and XRC: the responder.
//!
//! Order of checks, statuses, and which of them move the queue pair to the error state: rxe_resp.c, Linux 6.1. Two points follow cards
//! and the InfiniBand specification instead. If a message is too long for its receive, the status is LOC_LEN_ERR at the responder and
//! REM_INV_REQ_ERR at the requester; if a receive has a bad key, LOC_PROT_ERR and REM_OP_ERR (rxe has LOC_QP_OP_ERR and REM_OP_ERR for
//! both). And a queue pair that enters the error state without a completion raises an event, which rxe does not.

use uverbs_abi::rxe::{AtomicWr, RdmaWr, SendWqe, Sge};
use uverbs_abi::types::{AccessFlags, CompCntrOps, SendFlags, WcFlags, event_type, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
use zerocopy::{FromBytes, FromZeros};

use super::attributes;
use super::memory::Memory;
use super::messages::{Action, Operation};
use super::pieces::{self, Few, Place, Receive};
use super::profile::Profile;
use super::queue_pairs::{Qp, is_reliable};
use super::shared_receives::Srq;
use super::state::State;
use super::xrc::NONE;

/// A message that is being transferred.
pub(super) struct Message<'a> {
    pub(super) operation: Operation,
    pub(super) wqe: &'a SendWqe,
    /// The sender's memory, or the status with which accessing it ends.
    pub(super) local: Result<Few<Place<'a>>, u32>,
    pub(super) psn: u32,
    pub(super) packets: u32,
    /// It has already waited for a receive: all packets except the last were processed then.
    pub(super) was_tried: bool,
}

/// The responder of one message.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: u32,
    /// The protection domain whose memory is accessed.
    pub(super) pd: u32,
    /// The queue that the message names, if it arrives over an extended connection.
    pub(super) extended: Option<u32>,
}

/// The effect on the responder's queue pair.
#[derive(Debug, Default)]
pub(super) struct Effect {
    /// The sequence number that it expects next.
    next_psn: Option<u32>,
    /// The completion of its oldest receive, which is consumed.
    receive: Option<Wc>,
    /// The shared queue of that receive, if the message has named it.
    extended: Option<u32>,
    /// The key that is invalidated.
    invalidate: Option<u32>,
    /// The operations on its memory, as completion counters count them.
    touched: CompCntrOps,
    solicited: bool,
    pub(super) broken: bool,
    event: Option<u32>,
}

/// The result of a message.
#[derive(Debug)]
pub(super) enum Answer {
    /// There is no receive for it.
    NotReady,
    Ended {
        /// The status for the requester.
        status: u32,
        /// The responder itself is at fault.
        own_fault: bool,
        effect: Effect,
    },
}

impl Answer {
    /// The effect on a responder whose response goes elsewhere.
    pub(super) fn taken(self) -> Effect {
        match self {
            Self::NotReady => Effect::default(),
            Self::Ended { effect, .. } => effect,
        }
    }

    /// The effect on a responder that sends no response: a refused message is ignored. Only a receive from a shared queue cannot be put
    /// back.
    pub(super) fn unseen(self, is_shared: bool) -> Effect {
        match self {
            Self::Ended { status: wc_status::SUCCESS, effect, .. } => effect,
            Self::Ended { own_fault: true, effect, .. } => effect,
            Self::Ended { effect, .. } if is_shared => {
                Effect { receive: effect.receive, ..Effect::default() }
            }
            _ => Effect::default(),
        }
    }
}

/// Why a message is refused.
pub(super) struct Refusal {
    /// The status for the requester.
    pub(super) status: u32,
    /// The status of the receive, if there is one.
    pub(super) here: u32,
    pub(super) event: u32,
}

impl Refusal {
    pub(super) const INVALID: Self = Self {
        status: wc_status::REM_INV_REQ_ERR,
        here: wc_status::REM_INV_REQ_ERR,
        event: event_type::QP_REQ_ERR,
    };
    pub(super) const ACCESS: Self = Self {
        status: wc_status::REM_ACCESS_ERR,
        here: wc_status::REM_ACCESS_ERR,
        event: event_type::QP_ACCESS_ERR,
    };

    /// The receive is at fault.
    pub(super) fn receive(profile: &Profile, here: u32) -> Self {
        let here = profile.bad_receive(here);
        let too_long = here == wc_status::LOC_LEN_ERR;
        let status = if too_long { wc_status::REM_INV_REQ_ERR } else { wc_status::REM_OP_ERR };
        Self { status, here, event: event_type::QP_REQ_ERR }
    }

    pub(super) fn is_own_fault(&self) -> bool {
        matches!(self.here, wc_status::LOC_PROT_ERR | wc_status::LOC_QP_OP_ERR | wc_status::LOC_LEN_ERR)
    }
}

/// The status for the requester of a message that was executed.
type Told = u32;

impl State {
    /// Executes a message at a queue pair.
    pub(super) fn answer(&self, number: u32, qp: &Qp, message: &Message<'_>) -> Answer {
        let (mut receive, mut extended) = (None, None);
        let done = allow(qp, message.operation).and_then(|()| {
            let asked = self.asked(number, qp, message.wqe.wr.reserved)?;
            extended = asked.extended;
            if message.operation.action == Action::Write && message.packets > 1 && !message.was_tried {
                // The first packet contains the key, and the last one the immediate data (`check_rkey` and `check_resource`, rxe_resp.c).
                self.remote(asked, message, message.wqe.dma.length, AccessFlags::REMOTE_WRITE)?;
            }
            if message.operation.takes_receive() {
                receive = self.receive_of(asked);
                if receive.is_none() {
                    return Ok(None);
                }
            }
            self.execute(asked, message, receive.as_ref()).map(Some)
        });
        // A repeated request changes nothing.
        let is_repeated = is_reliable(qp.kind) && message.psn != qp.attrs.rq_psn;
        let next_psn = (!is_repeated).then(|| attributes::later(message.psn, message.packets));
        match done {
            Ok(None) => Answer::NotReady,
            Ok(Some(told)) => {
                let completion = receive.map(|receive| received(number, qp, message, &receive));
                let invalidates = message.operation.invalidates.then_some(message.wqe.wr.ex);
                let mut effect = Effect { next_psn, receive: completion, extended, ..Effect::default() };
                effect.touched = match message.operation.action {
                    Action::Send => CompCntrOps::empty(),
                    Action::Write => CompCntrOps::REMOTE_RDMA_WRITE,
                    Action::Read | Action::CompareSwap | Action::FetchAdd => CompCntrOps::REMOTE_RDMA_READ,
                };
                effect.solicited =
                    SendFlags::from_bits_retain(message.wqe.wr.send_flags).contains(SendFlags::SOLICITED);
                effect.invalidate = invalidates.filter(|key| self.can_invalidate(number, *key));
                if let Some(wc) = effect.receive.as_mut().filter(|_| effect.invalidate != invalidates) {
                    // The key is not that of a window that can be invalidated. rxe has acknowledged the message by then.
                    *wc = failed(number, wc.wr_id, wc_status::REM_INV_REQ_ERR);
                    effect.broken = true;
                }
                Answer::Ended { status: told, own_fault: false, effect }
            }
            Err(refusal) => {
                let own_fault = refusal.is_own_fault();
                let is_told = self.profile.tells_of_refusal(refusal.event == event_type::QP_ACCESS_ERR);
                let event = (receive.is_none() && is_told).then_some(refusal.event);
                let receive = receive.map(|receive| failed(number, receive.wr_id, refusal.here));
                let effect = Effect { receive, extended, broken: true, event, ..Effect::default() };
                Answer::Ended { status: refusal.status, own_fault, effect }
            }
        }
    }

    /// The memory and receives that a message uses. Over an extended connection they are those of the queue that the message names, which
    /// must be in the target's domain.
    pub(super) fn asked(&self, number: u32, qp: &Qp, named: u32) -> Result<Asked, Refusal> {
        let Some(domain) = qp.domain else { return Ok(Asked { number, pd: qp.pd, extended: None }) };
        let is_in = |srq: &&Srq| srq.xrc.is_some_and(|xrc| xrc.domain == domain);
        let srq = self.srqs.get(&named).filter(is_in).ok_or(Refusal::INVALID)?;
        Ok(Asked { number, pd: srq.pd, extended: Some(named) })
    }

    /// The oldest receive that a message can use, if there is one.
    pub(super) fn receive_of(&self, asked: Asked) -> Option<Receive> {
        match asked.extended {
            Some(srq) => self.srqs.get(&srq).and_then(Srq::oldest),
            None => self.next_receive(self.qps.get(&asked.number)?),
        }
    }

    /// Removes the receive that a message uses.
    pub(super) fn take_receive_of(&mut self, number: u32, extended: Option<u32>) {
        match extended {
            Some(srq) => self.take_shared(srq),
            None => self.take_receive(number),
        }
    }

    /// The completion queue of the receives that messages use.
    pub(super) fn receive_cq(&self, number: u32, extended: Option<u32>) -> u32 {
        let extended = extended.and_then(|id| self.srqs.get(&id)?.xrc);
        extended.map_or_else(|| self.qps.get(&number).map_or(NONE, |qp| qp.recv_cq), |xrc| xrc.cq)
    }

    /// Applies the effect to the responder's queue pair. False if the completion of its receive is lost.
    pub(super) fn take_effect(&mut self, number: u32, effect: Effect) -> bool {
        let Some(qp) = self.qps.get_mut(&number) else { return true };
        let mut is_told = true;
        if let Some(psn) = effect.next_psn {
            qp.attrs.rq_psn = psn;
        }
        let cq = self.receive_cq(number, effect.extended);
        if let Some(key) = effect.invalidate {
            self.invalidate(number, key);
        }
        if let Some(wc) = effect.receive {
            self.take_receive_of(number, effect.extended);
            is_told = self.complete(cq, &wc, effect.solicited);
            self.count_receive(&wc);
        }
        self.count_operation(number, effect.touched, wc_status::SUCCESS);
        if let Some(event) = effect.event {
            self.announce(number, event);
        }
        if effect.broken || (!is_told && (self.profile.is_rxe() || effect.extended.is_some())) {
            self.break_qp(number);
        }
        is_told
    }

    /// Transfers the data.
    fn execute(
        &self,
        asked: Asked,
        message: &Message<'_>,
        receive: Option<&Receive>,
    ) -> Result<Told, Refusal> {
        let len = message.wqe.dma.length;
        let local = message.local.as_deref().map_err(|status| *status);
        match message.operation.action {
            Action::Send => {
                let Some(receive) = receive else { return Err(Refusal::INVALID) };
                let places = self.landing(asked.pd, receive, len as usize);
                let fits = if len <= receive.room { Ok(()) } else { Err(wc_status::LOC_LEN_ERR) };
                let refuse = |status| Refusal::receive(&self.profile, status);
                let places = fits.and(places).map_err(refuse)?;
                let moved = pieces::copy(local.unwrap_or_default(), &places);
                if moved { Ok(wc_status::SUCCESS) } else { Err(refuse(wc_status::LOC_PROT_ERR)) }
            }
            Action::Write => {
                let region = self.remote(asked, message, len, AccessFlags::REMOTE_WRITE)?;
                let moved = pieces::copy(local.unwrap_or_default(), region.as_slice());
                if moved { Ok(wc_status::SUCCESS) } else { Err(Refusal::ACCESS) }
            }
            Action::Read => {
                let region = self.remote(asked, message, len, AccessFlags::REMOTE_READ)?;
                Ok(fetch(region.as_slice(), local))
            }
            Action::CompareSwap | Action::FetchAdd => {
                let wr = AtomicWr::read_from_prefix(&message.wqe.wr.wr);
                let wr = wr.map_or_else(|_| AtomicWr::new_zeroed(), |(wr, _)| wr);
                let (place, operands) = ((message.wqe.iova, wr.rkey), (wr.compare_add, wr.swap));
                let old = self.change(asked, message.operation.action, place, operands)?;
                // Bytes in the byte order of the machine, as for all of an atomic operation.
                Ok(fetch(&[Place::Bytes(&old.to_ne_bytes())], local))
            }
        }
    }

    /// The memory that a message accesses; empty for a length of zero, whatever the key is.
    fn remote(
        &self,
        asked: Asked,
        message: &Message<'_>,
        length: u32,
        needed: AccessFlags,
    ) -> Result<Option<Place<'_>>, Refusal> {
        if length == 0 {
            return Ok(None);
        }
        let rkey = RdmaWr::read_from_prefix(&message.wqe.wr.wr).map_or(0, |(wr, _)| wr.rkey);
        let (memory, offset) = self.reach_remote(asked, message.wqe.iova, length, rkey, needed)?;
        Ok(Some(Place::Region { memory, offset, len: length as usize }))
    }

    pub(super) fn reach_remote(
        &self,
        Asked { number, pd, .. }: Asked,
        addr: u64,
        length: u32,
        rkey: u32,
        needed: AccessFlags,
    ) -> Result<(&Memory, usize), Refusal> {
        // Local and remote keys of a region are the same here.
        let region = self.reach(pd, &Sge { addr, length, lkey: rkey }, needed);
        region
            .or_else(|| self.reach_window((number, pd), (addr, length.into()), rkey, needed))
            .ok_or(Refusal::ACCESS)
    }

    /// Changes eight bytes at an address with a key, and returns the old value. Atomic with respect to everything that uses this device.
    pub(super) fn change(
        &self,
        asked: Asked,
        action: Action,
        (addr, rkey): (u64, u32),
        (compare_add, swap): (u64, u64),
    ) -> Result<u64, Refusal> {
        let (memory, offset) = self.reach_remote(asked, addr, 8, rkey, AccessFlags::REMOTE_ATOMIC)?;
        if !addr.is_multiple_of(8) {
            return Err(Refusal::INVALID);
        }
        let mut bytes = [0; 8];
        if !memory.read(offset, &mut bytes) {
            return Err(Refusal::ACCESS);
        }
        let old = u64::from_ne_bytes(bytes);
        let new = match action {
            Action::CompareSwap if old == compare_add => swap,
            Action::CompareSwap => old,
            _ => old.wrapping_add(compare_add),
        };
        if memory.write(offset, &new.to_ne_bytes()) { Ok(old) } else { Err(Refusal::ACCESS) }
    }
}

/// `check_op_valid`, and the checks of `check_resource` for reads and atomic operations.
fn allow(qp: &Qp, operation: Operation) -> Result<(), Refusal> {
    let needed = match operation.action {
        Action::Send => AccessFlags::empty(),
        Action::Write => AccessFlags::REMOTE_WRITE,
        Action::Read => AccessFlags::REMOTE_READ,
        Action::CompareSwap | Action::FetchAdd => AccessFlags::REMOTE_ATOMIC,
    };
    let is_allowed = AccessFlags::from_bits_retain(qp.attrs.qp_access_flags).contains(needed);
    let has_room = !operation.is_answered() || qp.attrs.max_dest_rd_atomic > 0;
    if is_allowed && has_room { Ok(()) } else { Err(Refusal::INVALID) }
}

/// Copies the response to the requester's memory, and returns the status.
fn fetch(from: &[Place<'_>], local: Result<&[Place<'_>], u32>) -> Told {
    match local {
        Ok(local) if pieces::copy(from, local) => wc_status::SUCCESS,
        Ok(_) => wc_status::LOC_PROT_ERR,
        Err(status) => status,
    }
}

/// The completion of a receive (`do_complete`). rxe sets the GRH flag on every one.
fn received(number: u32, qp: &Qp, message: &Message<'_>, receive: &Receive) -> Wc {
    let Operation { action, has_imm, .. } = message.operation;
    let write = action == Action::Write;
    let invalidates = message.operation.invalidates;
    let more = [(has_imm, WcFlags::WITH_IMM), (invalidates, WcFlags::WITH_INVALIDATE)];
    let more = more.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag));
    let flags = WcFlags::GRH | more.collect();
    Wc {
        wr_id: receive.wr_id,
        status: wc_status::SUCCESS,
        opcode: if write { wc_opcode::RECV_RDMA_WITH_IMM } else { wc_opcode::RECV },
        byte_len: message.wqe.dma.length,
        ex: if has_imm || invalidates { message.wqe.wr.ex } else { 0 },
        qp_num: number,
        wc_flags: flags.bits(),
        port_num: qp.port,
        ..Wc::new_zeroed()
    }
}

pub(super) fn failed(number: u32, wr_id: u64, status: u32) -> Wc {
    Wc { wr_id, status, opcode: wc_opcode::RECV, qp_num: number, ..Wc::new_zeroed() }
}
