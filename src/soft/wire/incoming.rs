//! A connected queue pair on the wire, as the responder; and where each packet that arrives belongs.
//!
//! Order of checks, statuses, and which of them move the queue pair to the error state are those of messages inside the process
//! ([`crate::soft::responder`]).

use std::time::Instant;

use uverbs_abi::types::{AccessFlags, CompCntrOps, WcFlags, event_type, qp_type, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
use zerocopy::FromZeros;

use super::MOST_WAITING;
use super::link::Link;
use crate::roce::responder::{Message, Part, Refusal as Nak, Step};
use crate::roce::{Operation, Packet, Remote, Service};
use crate::soft::attributes;
use crate::soft::context::MAX_MESSAGE;
use crate::soft::gids::Gid;
use crate::soft::messages::Action;
use crate::soft::pieces::{self, Place, Receive};
use crate::soft::queue_pairs::Qp;
use crate::soft::responder::{Asked, Refusal, failed};
use crate::soft::state::State;

/// A receive that a message fills.
#[derive(Debug)]
pub(super) struct Receiving {
    receive: Receive,
    /// The shared queue from which it is, if the message has named it.
    extended: Option<u32>,
}

/// Why a packet is not taken.
enum No {
    NotReady,
    Refused(Refusal),
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn is_response(operation: Operation) -> bool {
    use Operation::*;
    matches!(operation, Acknowledge | AtomicAcknowledge | ReadFirst | ReadMiddle | ReadLast | ReadOnly)
}

fn invalidates(operation: Operation) -> bool {
    matches!(operation, Operation::SendLastInvalidate | Operation::SendOnlyInvalidate)
}

fn is_immediate(operation: Operation) -> bool {
    use Operation::*;
    matches!(operation, SendLastImmediate | SendOnlyImmediate | WriteLastImmediate | WriteOnlyImmediate)
}

/// The rights and resources that an operation needs (`allow` of messages inside the process).
fn check_right(qp: &Qp, needed: AccessFlags) -> Result<(), Refusal> {
    let is_allowed = AccessFlags::from_bits_retain(qp.attrs.qp_access_flags).contains(needed);
    if is_allowed { Ok(()) } else { Err(Refusal::INVALID) }
}

impl State {
    /// A packet arrives from this address. False if nobody takes it.
    pub(super) fn arrive_packet(
        &mut self,
        from: &Gid,
        packet: &Packet,
        payload: &[u8],
        now: Instant,
    ) -> bool {
        if packet.service == Service::Ud {
            return self.arrive_datagram_packet(from, packet, payload);
        }
        let Some(qp) = self.qps.get(&packet.to).filter(|qp| qp.can_receive() && qp.link.is_some()) else {
            return false;
        };
        let route = attributes::route(&self.profile, &qp.attrs.dest);
        if packet.service != qp.service() || route.is_none_or(|route| route.destination != *from) {
            return false;
        }
        // Requests go from an initiator to a target, and responses back.
        let is_answer = is_response(packet.operation);
        if qp.kind == if is_answer { qp_type::XRC_TGT } else { qp_type::XRC_INI } {
            return false;
        }
        let number = packet.to;
        self.with_link(number, |state, link| match packet.service {
            _ if is_answer => state.answered(number, link, packet, payload, now),
            Service::Uc => state.take_unreliable(number, link, packet, payload),
            _ => state.take_reliable(number, link, packet, payload),
        });
        true
    }

    fn take_reliable(&mut self, number: u32, link: &mut Link, packet: &Packet, payload: &[u8]) {
        let Some(qp) = self.qps.get(&number) else { return };
        let (service, mtu) = (qp.service(), attributes::packet_size(qp.attrs.path_mtu) as u32);
        // The peer asks again. Until then, nothing more is made that would have to wait for the socket.
        if self.wire.as_ref().is_none_or(|wire| wire.waiting > MOST_WAITING) {
            return;
        }
        let step = link.responder.arrive(packet, payload.len(), mtu);
        let Some(wire) = &mut self.wire else { return };
        let result = match step {
            Step::Drop => Ok(()),
            Step::Acknowledge => {
                wire.counts.duplicates += 1;
                wire.owing.insert(number);
                link.responder.owe();
                Ok(())
            }
            Step::Missing => {
                wire.counts.out_of_sequence += 1;
                let response = link.responder.missing(service);
                self.respond(number, link, response);
                Ok(())
            }
            Step::Part(part) => self.take_part(number, link, packet, part, payload).map(|()| {
                link.responder.taken(packet, payload.len(), 1);
                if packet.asks
                    && let Some(wire) = &mut self.wire
                    && !wire.owing.insert(number)
                {
                    wire.counts.deferred += 1;
                }
            }),
            Step::Read { is_new } => self.read(number, link, packet, is_new),
            Step::Atomic => self.atomic(number, link, packet),
            Step::AtomicAgain(original) => {
                wire.counts.duplicates += 1;
                self.repeat_answers(link, packet.psn);
                let response = link.responder.result(packet, original);
                self.respond(number, link, response);
                Ok(())
            }
            Step::Invalid => Err(No::from(Refusal::INVALID)),
        };
        match result {
            Ok(()) => {}
            Err(No::NotReady) => {
                let code = self.qps.get(&number).map_or(0, |qp| qp.attrs.min_rnr_timer);
                let response = link.responder.refuse(packet, Nak::NotReady(code));
                if let Some(wire) = &mut self.wire {
                    wire.counts.sent_unready += 1;
                }
                self.respond(number, link, response);
            }
            Err(No::Refused(refusal)) => {
                let nak = match refusal.status {
                    wc_status::REM_ACCESS_ERR => Nak::Access,
                    wc_status::REM_OP_ERR => Nak::Operation,
                    _ => Nak::InvalidRequest,
                };
                let response = link.responder.refuse(packet, nak);
                self.respond_at_last(number, link, response);
                self.end_badly(number, link, &refusal);
            }
        }
    }

    fn take_unreliable(&mut self, number: u32, link: &mut Link, packet: &Packet, payload: &[u8]) {
        let Some(qp) = self.qps.get(&number) else { return };
        let mtu = attributes::packet_size(qp.attrs.path_mtu) as u32;
        let Some(part) = link.responder.arrive_unreliable(packet, payload.len(), mtu) else { return };
        match self.take_part(number, link, packet, part, payload) {
            Ok(()) => link.responder.taken(packet, payload.len(), 1),
            Err(No::Refused(refusal)) if refusal.is_own_fault() => self.end_badly(number, link, &refusal),
            Err(_) => link.responder.drop_rest(),
        }
    }

    /// A request has moved the queue pair to the error state.
    pub(super) fn end_badly(&mut self, number: u32, link: &mut Link, refusal: &Refusal) {
        let is_told = self.profile.tells_of_refusal(refusal.event == event_type::QP_ACCESS_ERR);
        match link.receiving.take() {
            Some(Receiving { receive, extended }) => {
                let wc = failed(number, receive.wr_id, refusal.here);
                self.complete_receive(number, extended, &wc, false);
            }
            None if is_told => self.announce(number, refusal.event),
            None => {}
        }
        self.break_qp(number);
    }

    fn complete_receive(&mut self, number: u32, extended: Option<u32>, wc: &Wc, solicited: bool) {
        self.complete(self.receive_cq(number, extended), wc, solicited);
        self.count_receive(wc);
    }

    /// The receive in progress is flushed with the others.
    pub(in crate::soft) fn end_receiving(&mut self, number: u32) {
        let link = self.qps.get_mut(&number).and_then(|qp| qp.link.as_mut());
        let Some(Receiving { receive, extended }) = link.and_then(|link| link.receiving.take()) else {
            return;
        };
        self.flushed(number, self.receive_cq(number, extended), receive.wr_id, wc_opcode::RECV, true);
    }

    /// Takes the oldest receive for a message.
    fn begin_receiving(&mut self, asked: Asked, link: &mut Link) -> Result<(), No> {
        if link.receiving.is_some() {
            // It was taken for an unreliable message that was not finished.
            return Ok(());
        }
        let receive = self.receive_of(asked).ok_or(No::NotReady)?;
        self.take_receive_of(asked.number, asked.extended);
        link.receiving = Some(Receiving { receive, extended: asked.extended });
        Ok(())
    }

    /// Puts part of a message in its place.
    fn take_part(
        &mut self,
        number: u32,
        link: &mut Link,
        packet: &Packet,
        part: Part,
        payload: &[u8],
    ) -> Result<(), No> {
        let qp = self.qps.get(&number).ok_or(No::NotReady)?;
        let asked = self.asked(number, qp, packet.srq)?;
        // Lengths of packets have 16 bits.
        let end = part.offset.saturating_add(payload.len() as u32);
        match part.message {
            Message::Send => {
                if part.begins {
                    self.begin_receiving(asked, link)?;
                }
                let receiving = link.receiving.as_ref().ok_or(No::NotReady)?;
                let refuse = |status| Refusal::receive(&self.profile, status);
                if end > receiving.receive.room {
                    return Err(refuse(wc_status::LOC_LEN_ERR).into());
                }
                let places = self.landing(asked.pd, &receiving.receive, end as usize).map_err(refuse)?;
                if !pieces::put_part(&places, part.offset as usize, payload) {
                    return Err(refuse(wc_status::LOC_PROT_ERR).into());
                }
            }
            Message::Write => {
                if part.begins {
                    check_right(qp, AccessFlags::REMOTE_WRITE)?;
                    self.reach_all(asked, packet.remote, AccessFlags::REMOTE_WRITE)?;
                    link.writing = packet.remote;
                }
                let remote = link.writing;
                if end > remote.len || part.ends && end != remote.len {
                    return Err(Refusal::INVALID.into());
                }
                if is_immediate(packet.operation) {
                    self.begin_receiving(asked, link)?;
                }
                let address = remote.address.wrapping_add(part.offset.into());
                let remote = Remote { address, len: payload.len() as u32, ..remote };
                let place = self.reach_all(asked, remote, AccessFlags::REMOTE_WRITE)?;
                if !place.is_none_or(|place| pieces::put_part(&[place], 0, payload)) {
                    return Err(Refusal::ACCESS.into());
                }
            }
        }
        if part.ends {
            self.end_message(number, link, packet, part.message, end);
        }
        Ok(())
    }

    /// The last packet of a message has arrived.
    fn end_message(&mut self, number: u32, link: &mut Link, packet: &Packet, message: Message, len: u32) {
        if message == Message::Write {
            self.count_operation(number, CompCntrOps::REMOTE_RDMA_WRITE, wc_status::SUCCESS);
        }
        let Some(Receiving { receive, extended }) = link.receiving.take() else { return };
        if invalidates(packet.operation) && !self.invalidate(number, packet.immediate) {
            // The key is not that of a window that can be invalidated.
            let wc = failed(number, receive.wr_id, wc_status::REM_INV_REQ_ERR);
            self.complete_receive(number, extended, &wc, false);
            return self.break_qp(number);
        }
        let (flag, ex) = match packet.operation {
            operation if invalidates(operation) => (WcFlags::WITH_INVALIDATE, packet.immediate),
            operation if is_immediate(operation) => (WcFlags::WITH_IMM, packet.immediate.to_be()),
            _ => (WcFlags::empty(), 0),
        };
        let is_write = message == Message::Write;
        let wc = Wc {
            wr_id: receive.wr_id,
            status: wc_status::SUCCESS,
            opcode: if is_write { wc_opcode::RECV_RDMA_WITH_IMM } else { wc_opcode::RECV },
            byte_len: len,
            ex,
            qp_num: number,
            wc_flags: (WcFlags::GRH | flag).bits(),
            port_num: self.qps.get(&number).map_or(0, |qp| qp.port),
            ..Wc::new_zeroed()
        };
        self.complete_receive(number, extended, &wc, packet.solicited);
    }

    /// Checks a range of memory that the peer names; nothing for a length of zero, whatever the key is.
    pub(super) fn reach_all(
        &self,
        asked: Asked,
        Remote { address, key, len }: Remote,
        needed: AccessFlags,
    ) -> Result<Option<Place<'_>>, Refusal> {
        if len == 0 {
            return Ok(None);
        }
        let (memory, offset) = self.reach_remote(asked, address, len, key, needed)?;
        Ok(Some(Place::Region { memory, offset, len: len as usize }))
    }

    /// The peer reads: the response is added to those that wait.
    fn read(&mut self, number: u32, link: &mut Link, packet: &Packet, is_new: bool) -> Result<(), No> {
        let qp = self.qps.get(&number).ok_or(No::NotReady)?;
        check_right(qp, AccessFlags::REMOTE_READ)?;
        let remote = packet.remote;
        if qp.attrs.max_dest_rd_atomic == 0 || remote.len > MAX_MESSAGE {
            return Err(Refusal::INVALID.into());
        }
        let mtu = attributes::packet_size(qp.attrs.path_mtu) as u32;
        self.reach_all(self.asked(number, qp, packet.srq)?, remote, AccessFlags::REMOTE_READ)?;
        let count = remote.len.div_ceil(mtu).max(1);
        if !is_new {
            self.repeat_answers(link, packet.psn);
        }
        if !self.add_read(number, link, packet, count) {
            return Err(Refusal::INVALID.into());
        }
        if is_new {
            link.responder.taken(packet, 0, count);
            self.count_operation(number, CompCntrOps::REMOTE_RDMA_READ, wc_status::SUCCESS);
        } else if let Some(wire) = &mut self.wire {
            wire.counts.duplicates += 1;
        }
        Ok(())
    }

    fn atomic(&mut self, number: u32, link: &mut Link, packet: &Packet) -> Result<(), No> {
        let qp = self.qps.get(&number).ok_or(No::NotReady)?;
        check_right(qp, AccessFlags::REMOTE_ATOMIC)?;
        if qp.attrs.max_dest_rd_atomic == 0 {
            return Err(Refusal::INVALID.into());
        }
        let atomic = packet.atomic;
        let (action, compare_add) = match packet.operation {
            Operation::CompareSwap => (Action::CompareSwap, atomic.compare),
            _ => (Action::FetchAdd, atomic.operand),
        };
        let asked = self.asked(number, qp, packet.srq)?;
        let old = self.change(asked, action, (atomic.address, atomic.key), (compare_add, atomic.operand))?;
        self.count_operation(number, CompCntrOps::REMOTE_RDMA_READ, wc_status::SUCCESS);
        let response = link.responder.executed(packet, old);
        self.respond(number, link, response);
        Ok(())
    }
}
