//! A connected queue pair on the wire, as the requester: from its send ring to packets, and from responses to completions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use uverbs_abi::rxe::{AtomicWr, RdmaWr, SendWqe};
use uverbs_abi::types::{AccessFlags, SendFlags, event_type, qp_state, qp_type, wc_status};
use zerocopy::FromBytes;

use super::answers::Answers;
use super::incoming::Receiving;
use super::memory::Data;
use crate::roce::requester::{Emission, Fault, Meaning, Request, Requester, Settings, Work};
use crate::roce::responder::Responder;
use crate::roce::{Atomic, Packet, Remote, Service};
use crate::soft::attributes;
use crate::soft::messages::{Action, Operation};
use crate::soft::pieces;
use crate::soft::queue_pairs::Qp;
use crate::soft::state::State;
use crate::soft::windows;

/// Number of bytes that may be under way: of the device, as many as fit into a receive buffer of the usual size (`net.core.rmem_default`), and of a
/// queue pair at most.
const WINDOWS: u32 = 192 << 10;
const WINDOW: u32 = 128 << 10;

/// The shortest message of an atomic operation in bytes.
const ATOMIC: u32 = 8;

/// A request that was taken from the ring and has not ended.
#[derive(Debug)]
struct Taken {
    wqe: SendWqe,
    data: Data,
}

/// What a connected queue pair has on the wire.
#[derive(Debug, Default)]
pub(in crate::soft) struct Link {
    requester: Requester,
    taken: VecDeque<Taken>,
    pub(super) responder: Responder,
    /// The receive that the current message fills, and where the current write goes.
    pub(super) receiving: Option<Receiving>,
    pub(super) writing: Remote,
    pub(super) answers: Answers,
}

impl Qp {
    /// Whether it is of a kind that uses a wire.
    fn is_connected(&self) -> bool {
        matches!(self.kind, qp_type::RC | qp_type::UC | qp_type::XRC_INI | qp_type::XRC_TGT)
    }

    /// Whether requests are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.requester.is_empty())
    }

    /// When it has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.link.as_ref()?.requester.due()
    }

    /// Whether requests are on the wire.
    pub(in crate::soft) fn has_begun(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.taken.is_empty())
    }

    pub(super) fn service(&self) -> Service {
        match self.kind {
            qp_type::UC => Service::Uc,
            qp_type::XRC_INI | qp_type::XRC_TGT => Service::Xrc,
            _ => Service::Rc,
        }
    }

    fn settings(&self, window: u32) -> Settings {
        let timeout = self.attrs.timeout & 31;
        Settings {
            service: self.service(),
            to: self.attrs.dest_qp_num & 0xff_ffff,
            mtu: attributes::packet_size(self.attrs.path_mtu) as u32,
            timeout: (timeout > 0).then(|| Duration::from_nanos(4096 << timeout)),
            retries: self.attrs.retry_cnt,
            unready: self.attrs.rnr_retry,
            reads: self.attrs.max_rd_atomic.into(),
            window,
        }
    }
}

impl State {
    /// Whether this queue pair sends on a wire.
    pub(in crate::soft) fn is_on_wire(&self, number: u32) -> bool {
        self.wire.is_some() && self.qps.get(&number).is_some_and(Qp::is_connected)
    }

    /// The sequence numbers of a queue pair were set.
    pub(in crate::soft) fn begin_link(&mut self, number: u32, sends: bool, receives: bool) {
        if !self.is_on_wire(number) {
            return;
        }
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let link = qp.link.get_or_insert_default();
        if sends {
            link.requester.begin(qp.attrs.sq_psn);
            link.taken.clear();
        }
        if receives {
            link.responder.begin(qp.attrs.rq_psn);
            link.answers.clear();
        }
    }

    /// Performs a step of a queue pair on the wire, which is taken out of the map meanwhile.
    pub(super) fn with_link(&mut self, number: u32, step: impl FnOnce(&mut Self, &mut Link)) {
        let Some(mut link) = self.qps.get_mut(&number).and_then(|qp| qp.link.take()) else { return };
        step(self, &mut link);
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if matches!(qp.state, qp_state::ERR | qp_state::SQE | qp_state::RESET) {
            // Its requests were flushed.
            (link.requester, link.taken) = (Requester::default(), VecDeque::new());
            link.requester.begin(qp.attrs.sq_psn);
        } else {
            qp.attrs.sq_psn = link.requester.next_psn();
            qp.attrs.rq_psn = link.responder.expected();
        }
        let (due, is_busy) = (link.requester.due(), !link.requester.is_empty());
        let counts = link.requester.take_counts();
        let is_broken = qp.state == qp_state::ERR;
        qp.link = Some(link);
        if is_broken {
            self.end_receiving(number);
        }
        if let Some(wire) = &mut self.wire {
            wire.schedule(due);
            if is_busy {
                wire.busy.insert(number);
            } else {
                wire.busy.remove(&number);
            }
            wire.counts.received_sequence += counts.sequence;
            wire.counts.received_unready += counts.unready;
            wire.counts.retries += counts.retries;
        }
    }

    /// Number of bytes that a queue pair may have under way.
    fn window(&self) -> u32 {
        let busy = self.wire.as_ref().map_or(1, |wire| wire.busy.len().max(1));
        WINDOW.min(WINDOWS / u32::try_from(busy).unwrap_or(u32::MAX))
    }

    /// Sends what can be sent.
    pub(in crate::soft) fn pump_link(&mut self, number: u32) {
        self.with_link(number, |state, link| state.pump(number, link));
    }

    fn pump(&mut self, number: u32, link: &mut Link) {
        let now = Instant::now();
        loop {
            self.retire(number, link);
            let Some(qp) = self.qps.get(&number) else { return };
            let may_begin = qp.state == qp_state::RTS;
            if !(may_begin || qp.state == qp_state::SQD && qp.draining) {
                return;
            }
            let settings = qp.settings(self.window());
            if let Some(emission) = link.requester.packet(&settings, now) {
                self.emit(number, link, emission);
                continue;
            }
            if !may_begin || !link.requester.wants_more() || !self.take_request(number, link, &settings) {
                return;
            }
        }
    }

    /// Takes the next request from the ring. False if there is none that can begin.
    fn take_request(&mut self, number: u32, link: &mut Link, settings: &Settings) -> bool {
        let Some(qp) = self.qps.get(&number) else { return false };
        let behind = link.taken.len() as u32;
        if qp.sends.available() <= behind {
            return false;
        }
        let wqe = pieces::send_behind(&qp.sends, behind);
        let is_local = windows::is_local(qp.kind, wqe.wr.opcode);
        let request = if is_local { Err(wc_status::SUCCESS) } else { self.request(qp, &wqe, behind) };
        match request {
            Ok((request, data)) => {
                link.requester.add(request, settings);
                link.taken.push_back(Taken { wqe, data });
            }
            // What is done here is done when everything before it has ended.
            Err(_) if behind > 0 => return false,
            Err(status) => {
                let status = if is_local { self.local_operation(number, &wqe) } else { status };
                self.take_send(number);
                self.sent(number, &wqe, self.profile.own_status(status));
            }
        }
        true
    }

    /// Reads a request. The error is the status with which it ends.
    fn request(&self, qp: &Qp, wqe: &SendWqe, behind: u32) -> Result<(Request, Data), u32> {
        let operation = Operation::of(qp.kind, wqe.wr.opcode).ok_or(wc_status::LOC_QP_OP_ERR)?;
        let is_answered = operation.is_answered();
        if is_answered && qp.attrs.max_rd_atomic == 0 {
            return Err(wc_status::LOC_QP_OP_ERR);
        }
        let is_atomic = matches!(operation.action, Action::CompareSwap | Action::FetchAdd);
        if is_atomic && wqe.dma.length < ATOMIC {
            return Err(wc_status::LOC_LEN_ERR);
        }
        let inline = if is_answered { Vec::new() } else { pieces::inline_behind(qp, behind, wqe)? };
        let pieces =
            if inline.is_empty() { pieces::sent_pieces(qp, behind, wqe)? } else { pieces::Few::None };
        let data = Data { pd: qp.pd, pieces, inline, len: wqe.dma.length };
        if !is_answered {
            self.check_data(&data, AccessFlags::empty())?;
        }
        let flags = SendFlags::from_bits_retain(wqe.wr.send_flags);
        let immediate = operation.has_imm.then(|| u32::from_be(wqe.wr.ex));
        let rkey = RdmaWr::read_from_prefix(&wqe.wr.wr).map_or(0, |(wr, _)| wr.rkey);
        let remote = Remote { address: wqe.iova, key: rkey, len: wqe.dma.length };
        let atomic = || -> Result<_, u32> {
            let (wr, _) = AtomicWr::read_from_prefix(&wqe.wr.wr).map_err(|_| wc_status::LOC_QP_OP_ERR)?;
            Ok((wr, Atomic { address: wqe.iova, key: wr.rkey, operand: wr.compare_add, compare: 0 }))
        };
        let work = match operation.action {
            Action::Send if operation.invalidates => Work::SendInvalidate(wqe.wr.ex),
            Action::Send => Work::Send(immediate),
            Action::Write => Work::Write(remote, immediate),
            Action::Read => Work::Read(remote),
            Action::FetchAdd => Work::FetchAdd(atomic()?.1),
            Action::CompareSwap => {
                let (wr, atomic) = atomic()?;
                Work::CompareSwap(Atomic { operand: wr.swap, compare: wr.compare_add, ..atomic })
            }
        };
        let request = Request {
            work,
            len: wqe.dma.length,
            solicited: flags.contains(SendFlags::SOLICITED),
            fence: flags.contains(SendFlags::FENCE),
            srq: if qp.kind == qp_type::XRC_INI { wqe.wr.reserved & 0xff_ffff } else { 0 },
        };
        Ok((request, data))
    }

    /// Sends a packet.
    fn emit(&mut self, number: u32, link: &mut Link, emission: Emission) {
        let Emission { packet, request, offset, len } = emission;
        let Some(taken) = link.taken.get(request) else { return };
        let mut bytes = Vec::with_capacity(packet.size() + len as usize + 8);
        packet.write_headers(len as usize, &mut bytes);
        if len > 0
            && let Err(status) = self.append_data(&taken.data, (offset, len), &mut bytes)
        {
            let status = self.profile.own_status(status);
            // An unreliable request has ended when its last packet was made, and so have those before it.
            let is_unreliable = packet.service == Service::Uc;
            return if is_unreliable {
                self.fail_at(number, link, request, status)
            } else {
                self.fail(number, link, status)
            };
        }
        self.send_to_peer(number, bytes);
    }

    /// Sends bytes to the peer of a queue pair.
    pub(super) fn send_to_peer(&mut self, number: u32, bytes: Vec<u8>) {
        let Some(qp) = self.qps.get(&number) else { return };
        let Some(route) = attributes::route(&self.profile, &qp.attrs.dest) else { return };
        if let Some(wire) = &mut self.wire {
            wire.send(&route.destination, bytes);
        }
    }

    /// A response of the peer arrives.
    pub(super) fn answered(
        &mut self,
        number: u32,
        link: &mut Link,
        packet: &Packet,
        payload: &[u8],
        now: Instant,
    ) {
        let Some(qp) = self.qps.get(&number) else { return };
        if !matches!(qp.state, qp_state::RTS | qp_state::SQD) {
            return;
        }
        match link.requester.answer(packet, payload.len(), &qp.settings(WINDOW), now) {
            Meaning::Nothing => {}
            Meaning::Data { request, offset } => {
                let original = packet.original.to_ne_bytes();
                let Some(taken) = link.taken.get(request) else { return };
                let is_atomic = packet.operation == crate::roce::Operation::AtomicAcknowledge;
                let bytes = if is_atomic { &original[..] } else { payload };
                if let Err(status) = self.put_data(&taken.data, offset, bytes) {
                    return self.fail_at(number, link, request, status);
                }
            }
            Meaning::Fault(_, fault) => {
                let status = self.status_of(fault);
                return self.fail(number, link, status);
            }
        }
        self.pump(number, link);
    }

    fn status_of(&mut self, fault: Fault) -> u32 {
        if let Some(wire) = &mut self.wire {
            wire.counts.retries_exceeded += u64::from(fault == Fault::Retries);
            wire.counts.unready_exceeded += u64::from(fault == Fault::Unready);
        }
        match fault {
            Fault::Retries => wc_status::RETRY_EXC_ERR,
            Fault::Unready => wc_status::RNR_RETRY_EXC_ERR,
            Fault::InvalidRequest => wc_status::REM_INV_REQ_ERR,
            Fault::Access => wc_status::REM_ACCESS_ERR,
            Fault::Operation => wc_status::REM_OP_ERR,
            Fault::BadResponse => wc_status::BAD_RESP_ERR,
        }
    }

    /// Completes the requests that have ended, in their order.
    fn retire(&mut self, number: u32, link: &mut Link) {
        while link.requester.take_done() {
            let Some(Taken { wqe, .. }) = link.taken.pop_front() else { return };
            self.take_send(number);
            self.sent(number, &wqe, wc_status::SUCCESS);
        }
        if let Some(qp) = self.qps.get_mut(&number).filter(|qp| qp.draining && link.taken.is_empty()) {
            qp.draining = false;
            self.announce(number, event_type::SQ_DRAINED);
        }
    }

    /// The oldest request that has not ended fails, and the queue pair with it.
    fn fail(&mut self, number: u32, link: &mut Link, status: u32) {
        self.retire(number, link);
        self.fail_oldest(number, link, status);
    }

    /// A request whose packets have all been exchanged fails, and the queue pair with it. Those before it have ended.
    fn fail_at(&mut self, number: u32, link: &mut Link, request: usize, status: u32) {
        for _ in 0..request {
            let Some(Taken { wqe, .. }) = link.taken.pop_front() else { return };
            self.take_send(number);
            self.sent(number, &wqe, wc_status::SUCCESS);
        }
        self.fail_oldest(number, link, status);
    }

    fn fail_oldest(&mut self, number: u32, link: &mut Link, status: u32) {
        let Some(Taken { wqe, .. }) = link.taken.pop_front() else { return };
        (link.requester, link.taken) = (Requester::default(), VecDeque::new());
        self.take_send(number);
        self.sent(number, &wqe, status);
    }

    /// Does what is due.
    pub(super) fn tick_link(&mut self, number: u32, now: Instant) {
        self.with_link(number, |state, link| {
            let Some(qp) = state.qps.get(&number) else { return };
            match link.requester.tick(&qp.settings(WINDOW), now) {
                Some(fault) => {
                    let status = state.status_of(fault);
                    state.fail(number, link, status);
                }
                None => state.pump(number, link),
            }
        });
    }
}
