//! The half of a queue pair that receives: it executes the requests in packets, and responds.

use std::collections::VecDeque;

use super::data::scatter;
use super::qp::Qp;
use super::receives::Receiving;
use super::{Around, completion, path};
use crate::bits::Bits;
use crate::ifc::context::qpc;
use crate::mkey::{self, Access, Reach};
use crate::queue::{Opcode, ReceiveRing, Segment, Syndrome, event};
use crate::queue_counter::QueueEvent;
use crate::transport::route::Route;
use uverbs::raw::roce::psn;
use uverbs::raw::roce::{Operation as Kind, Packet, Remote, Service};

/// Number of responses of atomic operations that are kept for repeated requests.
const ATOMICS_KEPT: usize = 16;

// Syndromes of responses: the InfiniBand specification, 9.7.5.2.
const ACKNOWLEDGED: u8 = 0x1f;
const NOT_READY: u8 = 0x20;
const REFUSED: u8 = 0x60;

/// The state of the receiver.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) expected: u32,
    /// Number of finished messages.
    messages: u32,
    /// A loss was reported, and the missing packet has not arrived since.
    has_asked: bool,
    pub(super) receiving: Option<Receiving>,
    /// Where the rest of a message is written, and how many bytes have been written.
    writing: Option<Remote>,
    written: u32,
    /// The old values of atomic operations, by their sequence numbers.
    atomics: VecDeque<(u32, u64)>,
    /// The following packets belong to a message that is dropped.
    drops: bool,
}

/// Why a message is not continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotReady,
    InvalidRequest,
    Access,
    /// The receive request is invalid.
    Operation(Syndrome),
}

impl Responder {
    pub(crate) fn begin(&mut self, expected: u32) {
        self.expected = expected;
    }
}

/// The kind of message of which an operation is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Send,
    Write,
}

fn message_of(kind: Kind) -> Option<(Message, bool, bool)> {
    // The message, whether the packet begins it, and whether it ends it.
    Some(match kind {
        Kind::SendFirst => (Message::Send, true, false),
        Kind::SendMiddle => (Message::Send, false, false),
        Kind::SendLast | Kind::SendLastImmediate | Kind::SendLastInvalidate => (Message::Send, false, true),
        Kind::SendOnly | Kind::SendOnlyImmediate | Kind::SendOnlyInvalidate => (Message::Send, true, true),
        Kind::WriteFirst => (Message::Write, true, false),
        Kind::WriteMiddle => (Message::Write, false, false),
        Kind::WriteLast | Kind::WriteLastImmediate => (Message::Write, false, true),
        Kind::WriteOnly | Kind::WriteOnlyImmediate => (Message::Write, true, true),
        _ => return None,
    })
}

/// The counter of a packet that begins a request on the responder's memory.
fn request_of(kind: Kind) -> Option<QueueEvent> {
    Some(match kind {
        Kind::WriteFirst | Kind::WriteOnly | Kind::WriteOnlyImmediate => QueueEvent::Write,
        Kind::ReadRequest => QueueEvent::Read,
        Kind::CompareSwap | Kind::FetchAdd => QueueEvent::Atomic,
        _ => return None,
    })
}

impl Qp {
    /// A packet of the peer arrives.
    pub(crate) fn receive(&mut self, route: &Route, packet: &Packet, around: &mut Around<'_>) {
        if !self.is_receiving() || packet.service != self.kind.service() {
            return;
        }
        match packet.operation {
            Kind::Acknowledge
            | Kind::AtomicAcknowledge
            | Kind::ReadFirst
            | Kind::ReadMiddle
            | Kind::ReadLast
            | Kind::ReadOnly => self.answered(packet, around),
            _ if self.kind.is_datagram() => self.receive_datagram(route, packet, around),
            _ if self.kind.is_reliable() => self.receive_reliable(route, packet, around),
            _ => self.receive_unreliable(route, packet, around),
        }
    }

    fn receive_reliable(&mut self, route: &Route, packet: &Packet, around: &mut Around<'_>) {
        let ahead = psn::distance(self.responder.expected, packet.psn);
        if ahead > 0 {
            around.count(QueueEvent::OutOfSequence);
            if !self.responder.has_asked {
                self.responder.has_asked = true;
                self.answer(self.responder.expected, REFUSED, around);
            }
            return;
        }
        if ahead < 0 {
            return self.repeat(packet, around);
        }
        self.responder.has_asked = false;
        let carried_out = match packet.operation {
            Kind::ReadRequest => self.read(packet, around).map(|count| (count, false)),
            Kind::CompareSwap | Kind::FetchAdd => self.atomic(packet, around).map(|()| (1, false)),
            _ => self.take_message(route, packet, around).map(|()| (1, packet.asks)),
        };
        match carried_out {
            Ok((count, asks)) => {
                request_of(packet.operation).into_iter().for_each(|request| around.count(request));
                self.responder.expected = psn::add(packet.psn, count);
                if asks {
                    self.answer(packet.psn, ACKNOWLEDGED, around);
                }
            }
            Err(Refusal::NotReady) => {
                // The peer repeats this packet, so the packets after it need not be reported as missing.
                self.responder.has_asked = true;
                let timer = self.context.num(qpc::min_rnr_nak) as u8;
                self.answer(packet.psn, NOT_READY | timer, around);
            }
            Err(refusal) => {
                let (code, kind) = match refusal {
                    Refusal::InvalidRequest => {
                        around.count(QueueEvent::ResponderInvalidRequest);
                        (1, Some(event::QP_REQUEST_ERROR))
                    }
                    Refusal::Operation(Syndrome::Length) => (1, Some(event::QP_REQUEST_ERROR)),
                    Refusal::Access => {
                        around.count(QueueEvent::ResponderAccess);
                        (2, Some(event::QP_ACCESS_ERROR))
                    }
                    _ => (3, None),
                };
                self.answer(packet.psn, REFUSED | code, around);
                if let Refusal::Operation(syndrome) = refusal {
                    self.end_receiving(syndrome, around);
                }
                kind.into_iter().for_each(|kind| around.event(kind, self.number));
                self.enter_error(around);
                self.flush_sends(around);
            }
        }
    }

    /// A packet that was executed before: the response is sent again.
    fn repeat(&mut self, packet: &Packet, around: &mut Around<'_>) {
        around.count(QueueEvent::Duplicate);
        match packet.operation {
            // It may request less than the first time.
            Kind::ReadRequest => drop(self.answer_read(packet, around)),
            Kind::CompareSwap | Kind::FetchAdd => {
                let found = self.responder.atomics.iter().find(|(psn, _)| *psn == packet.psn);
                if let Some((_, original)) = found.copied() {
                    self.answer_atomic(packet.psn, original, around);
                }
            }
            _ => self.answer(psn::add(self.responder.expected, 0xff_ffff), ACKNOWLEDGED, around),
        }
    }

    fn answer(&self, psn: u32, syndrome: u8, around: &mut Around<'_>) {
        let packet = Packet { psn, syndrome, msn: self.responder.messages, ..self.packet(Kind::Acknowledge) };
        around.send(path::of_path(self.path(), around.port), packet);
    }

    /// For unreliable transports: a packet that does not fit is dropped, with the rest of its message.
    fn receive_unreliable(&mut self, route: &Route, packet: &Packet, around: &mut Around<'_>) {
        let Some((_, begins, _)) = message_of(packet.operation) else { return };
        let gap = packet.psn != self.responder.expected;
        self.responder.expected = psn::add(packet.psn, 1);
        if begins {
            self.responder.drops = false;
            self.responder.writing = None;
        } else if gap {
            self.responder.drops = true;
        }
        if self.responder.drops {
            return;
        }
        match self.take_message(route, packet, around) {
            Ok(()) => request_of(packet.operation).into_iter().for_each(|request| around.count(request)),
            Err(Refusal::Operation(syndrome)) => {
                self.end_receiving(syndrome, around);
                self.enter_error(around);
                self.flush_sends(around);
            }
            Err(_) => self.responder.drops = true,
        }
    }

    /// One packet of a message that is sent or written.
    fn take_message(
        &mut self,
        route: &Route,
        packet: &Packet,
        around: &mut Around<'_>,
    ) -> Result<(), Refusal> {
        let (message, begins, ends) = message_of(packet.operation).ok_or(Refusal::InvalidRequest)?;
        let fits = packet.payload.len() <= self.mtu() && (ends || packet.payload.len() == self.mtu());
        if !fits {
            return Err(Refusal::InvalidRequest);
        }
        let reach = self.remote_reach(packet, around)?;
        match message {
            Message::Send => {
                if begins && self.responder.receiving.is_none() {
                    self.responder.receiving = Some(self.take_receive(packet, around)?);
                }
                let invalidates =
                    matches!(packet.operation, Kind::SendLastInvalidate | Kind::SendOnlyInvalidate);
                let receiving = self.responder.receiving.as_ref().ok_or(Refusal::InvalidRequest)?;
                let len = packet.payload.len() as u32;
                let is_inline =
                    begins && ends && len > 0 && len <= completion::responder_inline(self, around);
                let room: u64 = receiving.segments.iter().map(|segment| u64::from(segment.len)).sum();
                if (receiving.filled + packet.payload.len()) as u64 > room {
                    return Err(Refusal::Operation(Syndrome::Length));
                }
                if !is_inline {
                    let at = receiving.filled;
                    scatter(around, receiving.reach, &receiving.segments, at, &packet.payload)
                        .map_err(Refusal::Operation)?;
                }
                if let Some(receiving) = &mut self.responder.receiving {
                    receiving.filled += packet.payload.len();
                }
                if invalidates {
                    around.mkeys.invalidate(reach, packet.immediate).map_err(|_| Refusal::Access)?;
                }
                if ends {
                    let opcode = match packet.operation {
                        Kind::SendLastImmediate | Kind::SendOnlyImmediate => Opcode::ResponderImmediate,
                        Kind::SendLastInvalidate | Kind::SendOnlyInvalidate => Opcode::ResponderInvalidate,
                        _ => Opcode::Responder,
                    };
                    self.complete_receive(opcode, is_inline, route, packet, around);
                }
            }
            Message::Write => {
                if begins {
                    self.begin_write(packet, reach, around)?;
                }
                let rest = self.responder.writing.ok_or(Refusal::InvalidRequest)?;
                let len = packet.payload.len() as u32;
                if len > rest.len || ends && len != rest.len {
                    return Err(Refusal::InvalidRequest);
                }
                let takes_receive =
                    matches!(packet.operation, Kind::WriteLastImmediate | Kind::WriteOnlyImmediate);
                if takes_receive && self.responder.receiving.is_none() {
                    self.responder.receiving = Some(self.take_receive(packet, around)?);
                }
                let place = Segment { len, key: rest.key, address: rest.address };
                around
                    .mkeys
                    .write(around.memory, reach, place, &packet.payload, Access::RemoteWrite)
                    .map_err(|_| Refusal::Access)?;
                let address = rest.address.wrapping_add(len.into());
                self.responder.writing = (!ends).then_some(Remote { address, len: rest.len - len, ..rest });
                if takes_receive {
                    if let Some(receiving) = &mut self.responder.receiving {
                        receiving.filled = self.responder.written as usize + packet.payload.len();
                    }
                    self.complete_receive(Opcode::ResponderWriteImmediate, false, route, packet, around);
                }
                self.responder.written = if ends { 0 } else { self.responder.written + len };
            }
        }
        if ends {
            self.responder.messages = psn::add(self.responder.messages, 1);
        }
        Ok(())
    }

    fn begin_write(&mut self, packet: &Packet, reach: Reach, around: &Around<'_>) -> Result<(), Refusal> {
        let remote = packet.remote;
        if !self.context.is(qpc::rwe) {
            return Err(Refusal::InvalidRequest);
        }
        if remote.len > 0 {
            let all = Segment { len: remote.len, key: remote.key, address: remote.address };
            around
                .mkeys
                .check(reach, all, remote.len.into(), Access::RemoteWrite)
                .map_err(|_| Refusal::Access)?;
        }
        (self.responder.writing, self.responder.written) = (Some(remote), 0);
        Ok(())
    }

    /// Sends the requested data, and returns the number of packets.
    fn read(&mut self, packet: &Packet, around: &mut Around<'_>) -> Result<u32, Refusal> {
        self.responder.messages = psn::add(self.responder.messages, 1);
        self.answer_read(packet, around)
    }

    fn answer_read(&self, packet: &Packet, around: &mut Around<'_>) -> Result<u32, Refusal> {
        let reach = self.remote_reach(packet, around)?;
        let Remote { address, key, len } = packet.remote;
        if !self.context.is(qpc::rre) || len > 1 << 31 {
            return Err(Refusal::InvalidRequest);
        }
        let place = Segment { len, key, address };
        around.mkeys.check(reach, place, len.into(), Access::RemoteRead).map_err(|_| Refusal::Access)?;
        let mut bytes = vec![0; len as usize];
        around
            .mkeys
            .read(around.memory, reach, place, &mut bytes, Access::RemoteRead)
            .map_err(|_| Refusal::Access)?;
        let route = path::of_path(self.path(), around.port);
        let count = bytes.len().div_ceil(self.mtu()).max(1);
        for index in 0..count {
            let kind = match (index, index + 1 == count) {
                (0, true) => Kind::ReadOnly,
                (0, false) => Kind::ReadFirst,
                (_, true) => Kind::ReadLast,
                (_, false) => Kind::ReadMiddle,
            };
            let end = bytes.len().min((index + 1) * self.mtu());
            let answer = Packet {
                psn: psn::add(packet.psn, index as u32),
                syndrome: ACKNOWLEDGED,
                msn: self.responder.messages,
                payload: bytes[index * self.mtu()..end].to_vec(),
                ..self.packet(kind)
            };
            around.send(route, answer);
        }
        Ok(count as u32)
    }

    fn atomic(&mut self, packet: &Packet, around: &mut Around<'_>) -> Result<(), Refusal> {
        let reach = self.remote_reach(packet, around)?;
        if !self.context.is(qpc::rae) {
            return Err(Refusal::InvalidRequest);
        }
        let asked = packet.atomic;
        let operation = match packet.operation {
            Kind::CompareSwap => mkey::Atomic::Swap { compare: asked.compare, swap: asked.operand },
            _ => mkey::Atomic::Add(asked.operand),
        };
        let done = around.mkeys.atomic(around.memory, reach, asked.address, asked.key, operation);
        let original = done.map_err(|denied| match denied {
            mkey::Denied::Alignment => Refusal::InvalidRequest,
            _ => Refusal::Access,
        })?;
        if self.responder.atomics.len() == ATOMICS_KEPT {
            self.responder.atomics.pop_front();
        }
        self.responder.atomics.push_back((packet.psn, original));
        self.responder.messages = psn::add(self.responder.messages, 1);
        self.answer_atomic(packet.psn, original, around);
        Ok(())
    }

    fn answer_atomic(&self, psn: u32, original: u64, around: &mut Around<'_>) {
        let packet = Packet {
            psn,
            original,
            syndrome: ACKNOWLEDGED,
            msn: self.responder.messages,
            ..self.packet(Kind::AtomicAcknowledge)
        };
        around.send(path::of_path(self.path(), around.port), packet);
    }

    /// The memory that the peer may name: that of the queue pair's domain, or of the shared queue that the packet names.
    fn remote_reach(&self, packet: &Packet, around: &Around<'_>) -> Result<Reach, Refusal> {
        let mut reach = self.reach();
        if packet.service == Service::Xrc {
            let domain = self.context.num(qpc::xrcd);
            let is_own = |ring: &&ReceiveRing| ring.xrc.is_some_and(|xrc| xrc.domain == domain);
            let shared = around.pools.get(&packet.srq).filter(is_own);
            reach.pd = Some(shared.ok_or(Refusal::InvalidRequest)?.work.pd);
        }
        Ok(reach)
    }
}
