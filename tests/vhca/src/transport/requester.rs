//! The half of a queue pair that sends: it takes requests from the queue, makes packets from them, and keeps these until they are
//! acknowledged.

use std::collections::VecDeque;
use std::time::Duration;

use super::data::{gather, segments};
use super::message::message;
use super::path::Vector;
use super::qp::{Kind as Transport, Qp, state};
use super::wqe::{Body, Operation, Wqe};
use super::{Around, completion, path};
use crate::bits::Bits;
use crate::ifc::context::{ads, qpc};
use crate::mkey::{Access, Denied};
use crate::queue::{Segment, Syndrome};
use uverbs::raw::roce::psn;
use uverbs::raw::roce::{Operation as Kind, Packet, Remote};

/// Maximum number of requests in flight.
const MOST_FLIGHTS: usize = 64;

/// If there are more packets in flight, or outstanding responses, no other request is begun. More packets would wait on the wire for
/// longer than the timeout, and would be sent again behind those that wait.
const MOST_PACKETS: i32 = 128;

/// The state of the sender, and what it has sent.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// The next block of the queue to be read.
    pub(crate) consumer: u16,
    pub(crate) next_psn: u32,
    pub(super) flights: VecDeque<Flight>,
    /// Number of retries since the last acknowledgement: after a timeout, and if the peer had no receive request.
    pub(super) retries: u32,
    pub(super) unready: u32,
    /// The missing packets were sent again, and none of them was acknowledged since: further signs of the same loss are ignored.
    pub(super) has_asked: bool,
    /// When it stops waiting for a response.
    pub(super) deadline: Option<Duration>,
    /// When it retries after the peer was not ready.
    pub(super) resume: Option<Duration>,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) counter: u16,
    pub(super) opcode: u8,
    pub(super) wants_completion: bool,
    pub(super) first: u32,
    /// The number of its packet sequence numbers, and how many of them were acknowledged or answered.
    pub(super) span: u32,
    pub(super) acked: u32,
    /// The packets that were sent: all of a message, or the one packet of a request.
    pub(super) packets: Vec<Packet>,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    /// Done when it is acknowledged.
    Message,
    /// A response is written there.
    Read {
        to: Answer,
        len: u32,
    },
    Atomic(Answer),
    /// Done when the requests before it are.
    Nothing,
    Keys {
        key: u32,
        request: Vec<u8>,
    },
    Invalidate(u32),
    Fault(Syndrome),
}

/// The destination of a response: memory, or the completion if it is short.
#[derive(Debug)]
pub(super) enum Answer {
    Memory(Vec<Segment>),
    Inline(Vec<u8>),
}

impl Flight {
    pub(super) fn awaits_answer(&self) -> bool {
        matches!(self.work, Work::Read { .. } | Work::Atomic(_))
    }

    /// Whether no request after it may begin before it is done.
    fn bars(&self) -> bool {
        matches!(self.work, Work::Keys { .. } | Work::Invalidate(_) | Work::Fault(_))
    }

    pub(super) fn is_done(&self) -> bool {
        self.acked == self.span
    }
}

impl Requester {
    pub(crate) fn begin(&mut self, first: u32) {
        self.next_psn = first;
    }

    /// Number of packets that were sent and not acknowledged, and of outstanding responses.
    fn under_way(&self) -> i32 {
        let oldest = self.flights.iter().find(|flight| !flight.is_done());
        oldest.map_or(0, |flight| psn::distance(psn::add(flight.first, flight.acked), self.next_psn))
    }

    /// The time of the next action without an external cause.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.resume.or(self.deadline)
    }
}

impl Qp {
    /// Continues sending, as far as possible.
    pub(crate) fn advance(&mut self, around: &mut Around<'_>) {
        loop {
            match self.state() {
                state::READY_TO_SEND => {}
                state::ERROR | state::SEND_ERROR => return self.flush_sends(around),
                _ => return,
            }
            self.retire(around);
            if self.state() != state::READY_TO_SEND {
                continue;
            }
            let flights = &self.requester.flights;
            let is_barred = flights.back().is_some_and(Flight::bars);
            let is_full = flights.len() >= MOST_FLIGHTS || self.requester.under_way() >= MOST_PACKETS;
            if self.requester.resume.is_some() || is_barred || is_full {
                return;
            }
            // A request that has to wait for others stays in the queue.
            let consumer = self.requester.consumer;
            let Some(wqe) = self.take(around) else { return };
            let flights = &self.requester.flights;
            let answers = flights.iter().filter(|flight| flight.awaits_answer()).count();
            let asks = matches!(
                &wqe.body,
                Ok(Body {
                    operation: Operation::Read(_) | Operation::CompareSwap(_) | Operation::FetchAdd(_),
                    ..
                })
            );
            let waits = asks && answers >= 1 << self.context.num(qpc::log_sra_max)
                || wqe.is_fenced && answers > 0
                || is_barring(&wqe) && !flights.is_empty();
            if waits {
                self.requester.consumer = consumer;
                return;
            }
            self.launch(wqe, around);
        }
    }

    fn take(&mut self, around: &mut Around<'_>) -> Option<Wqe> {
        Wqe::take(self, around.memory).unwrap_or_else(|_| {
            *around.faults += 1;
            None
        })
    }

    /// Makes packets from a request and sends them.
    fn launch(&mut self, wqe: Wqe, around: &mut Around<'_>) {
        let mut flight = Flight {
            counter: wqe.counter,
            opcode: wqe.opcode,
            wants_completion: wqe.wants_completion,
            first: self.requester.next_psn,
            span: 0,
            acked: 0,
            packets: Vec::new(),
            work: Work::Nothing,
        };
        let built = wqe.body.clone().and_then(|body| self.build(&wqe, body, &mut flight, around));
        if let Err(syndrome) = built {
            flight.work = Work::Fault(syndrome);
            (flight.span, flight.packets) = (0, Vec::new());
        }
        self.requester.next_psn = psn::add(flight.first, flight.span);
        if self.kind.is_reliable() {
            flight
                .packets
                .iter()
                .for_each(|packet| around.send(path::of_path(self.path(), around.port), packet.clone()));
            if flight.span > 0 && self.requester.deadline.is_none() {
                self.requester.deadline = self.deadline(around.now);
            }
        } else {
            // It is not acknowledged, so it is done when it is sent.
            flight.acked = flight.span;
        }
        self.requester.flights.push_back(flight);
    }

    fn build(
        &mut self,
        wqe: &Wqe,
        body: Body,
        flight: &mut Flight,
        around: &mut Around<'_>,
    ) -> Result<(), Syndrome> {
        let answer = |around: &Around<'_>| -> Result<(Answer, u32), Syndrome> {
            let segments = segments(&body.data)?;
            let len = segments.iter().map(|segment| u64::from(segment.len)).sum::<u64>();
            let len = u32::try_from(len).ok().filter(|len| *len <= 1 << 31).ok_or(Syndrome::Length)?;
            for segment in &segments {
                around
                    .mkeys
                    .check(self.reach(), *segment, segment.len.into(), Access::LocalWrite)
                    .map_err(|_| Syndrome::Protection)?;
            }
            let inline = completion::requester_inline(self, around) >= len && len > 0 && wqe.wants_completion;
            let to = if inline { Answer::Inline(vec![0; len as usize]) } else { Answer::Memory(segments) };
            Ok((to, len))
        };
        let packet =
            |operation| Packet { srq: body.srq, solicited: wqe.is_solicited, ..self.packet(operation) };
        match body.operation {
            Operation::Nop => {}
            Operation::Keys(key) => flight.work = Work::Keys { key, request: body.data },
            Operation::LocalInvalidate(key) => flight.work = Work::Invalidate(key),
            Operation::Read(remote) => {
                let (to, len) = answer(around)?;
                flight.span = len.div_ceil(self.mtu() as u32).max(1);
                flight.packets = vec![Packet {
                    psn: flight.first,
                    asks: true,
                    remote: Remote { len, ..remote },
                    ..packet(Kind::ReadRequest)
                }];
                flight.work = Work::Read { to, len };
            }
            Operation::CompareSwap(atomic) | Operation::FetchAdd(atomic) => {
                let (to, len) = answer(around)?;
                if len != 8 {
                    return Err(Syndrome::Length);
                }
                let is_swap = matches!(body.operation, Operation::CompareSwap(_));
                let kind = if is_swap { Kind::CompareSwap } else { Kind::FetchAdd };
                flight.span = 1;
                flight.packets = vec![Packet { psn: flight.first, asks: true, atomic, ..packet(kind) }];
                flight.work = Work::Atomic(to);
            }
            Operation::Send
            | Operation::SendImmediate(_)
            | Operation::SendInvalidate(_)
            | Operation::Write(_)
            | Operation::WriteImmediate(..) => {
                let limit = if self.kind.is_datagram() {
                    self.mtu() as u64
                } else {
                    1 << self.context.num(qpc::log_msg_max).min(31)
                };
                let bytes = gather(around, self.reach(), &body.data, limit)?;
                if let Some(vector) = &body.address {
                    return self.send_datagram(
                        wqe,
                        &body.operation,
                        &Vector::parse(vector, around.port),
                        bytes,
                        flight,
                        around,
                    );
                }
                flight.packets =
                    message(&packet(Kind::SendOnly), &body.operation, flight.first, &bytes, self.mtu());
                flight.span = flight.packets.len() as u32;
                flight.work = Work::Message;
                if !self.kind.is_reliable() {
                    let route = path::of_path(self.path(), around.port);
                    std::mem::take(&mut flight.packets)
                        .into_iter()
                        .for_each(|packet| around.send(route, packet));
                }
            }
        }
        Ok(())
    }

    fn send_datagram(
        &self,
        wqe: &Wqe,
        operation: &Operation,
        vector: &Vector,
        payload: Vec<u8>,
        flight: &mut Flight,
        around: &mut Around<'_>,
    ) -> Result<(), Syndrome> {
        let (operation, immediate) = match operation {
            Operation::SendImmediate(immediate) => (Kind::SendOnlyImmediate, *immediate),
            _ => (Kind::SendOnly, 0),
        };
        let qkey = if vector.qkey >> 31 == 1 { self.context.num(qpc::q_key) } else { vector.qkey };
        let from = match self.kind {
            Transport::Management(number) => number,
            _ => self.number,
        };
        let packet = Packet {
            to: vector.to,
            psn: flight.first,
            qkey,
            from,
            solicited: wqe.is_solicited,
            immediate,
            payload,
            ..self.packet(operation)
        };
        (flight.span, flight.work) = (1, Work::Message);
        around.send(vector.route, packet);
        Ok(())
    }

    /// A packet for the peer, without the fields of the operation.
    pub(super) fn packet(&self, operation: Kind) -> Packet {
        Packet::new(self.kind.service(), operation, self.context.num(qpc::remote_qpn))
    }

    pub(super) fn deadline(&self, now: Duration) -> Option<Duration> {
        let code = self.path().num(ads::ack_timeout);
        (code > 0).then(|| now + Duration::from_nanos(4096 << code))
    }

    /// Completes the requests that are done, in the order in which they were posted.
    pub(super) fn retire(&mut self, around: &mut Around<'_>) {
        while self.requester.flights.front().is_some_and(Flight::is_done) {
            let Some(mut flight) = self.requester.flights.pop_front() else { return };
            let result = match std::mem::replace(&mut flight.work, Work::Nothing) {
                Work::Fault(syndrome) => Err(syndrome),
                Work::Keys { key, request } => {
                    let changed = around.mkeys.modify(around.memory, self.reach(), key, &request);
                    if changed.is_ok() {
                        around.key_changed(key);
                    }
                    changed.map(|()| None).map_err(|denied| match denied {
                        Denied::Request => Syndrome::Operation,
                        _ => Syndrome::Bind,
                    })
                }
                Work::Invalidate(key) => {
                    around.mkeys.invalidate(self.reach(), key).map(|()| None).map_err(|_| Syndrome::Bind)
                }
                Work::Read { to: Answer::Inline(bytes), .. } | Work::Atomic(Answer::Inline(bytes)) => {
                    Ok(Some((bytes.len() as u32, bytes)))
                }
                Work::Read { len, .. } => Ok(Some((len, Vec::new()))),
                Work::Atomic(_) => Ok(Some((8, Vec::new()))),
                Work::Message | Work::Nothing => Ok(None),
            };
            match result {
                Ok(answer) if flight.wants_completion => {
                    let done = completion::requester(self, flight.counter, flight.opcode, answer);
                    around.complete(self.context.num(qpc::cqn_snd), done);
                }
                Ok(_) => {}
                Err(syndrome) => {
                    self.end_request(flight.counter, flight.opcode, syndrome, around);
                    if self.kind.is_reliable() {
                        self.enter_error(around);
                    } else {
                        self.set_state(state::SEND_ERROR);
                    }
                    return self.flush_sends(around);
                }
            }
        }
    }

    /// Completes every request in the queue as flushed.
    pub(super) fn flush_sends(&mut self, around: &mut Around<'_>) {
        (self.requester.deadline, self.requester.resume) = (None, None);
        while let Some(flight) = self.requester.flights.pop_front() {
            self.end_request(flight.counter, flight.opcode, Syndrome::Flushed, around);
        }
        while let Some(wqe) = self.take(around) {
            self.end_request(wqe.counter, wqe.opcode, Syndrome::Flushed, around);
        }
    }

    /// A request ends with an error.
    fn end_request(&self, counter: u16, opcode: u8, syndrome: Syndrome, around: &mut Around<'_>) {
        around.counts.count_requester(syndrome);
        let entry = completion::requester_error(self, counter, opcode, syndrome);
        around.complete(self.context.num(qpc::cqn_snd), entry);
    }
}

fn is_barring(wqe: &Wqe) -> bool {
    matches!(&wqe.body, Ok(Body { operation: Operation::Keys(_) | Operation::LocalInvalidate(_), .. }))
}
