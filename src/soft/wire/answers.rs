//! Responses that wait: the packets of reads, and what follows them.
//!
//! The packets of a read are made when the socket takes them, so a request of a peer costs one entry here, however long it is; and only as many
//! entries as the queue pair allows reads. Responses are sent in the order of the requests, because each says that everything before
//! it has arrived.

use std::collections::VecDeque;

use uverbs_abi::types::{AccessFlags, qp_state};

use super::link::Link;
use crate::roce::responder::Refusal as Nak;
use crate::roce::{Packet, Remote, psn};
use crate::soft::attributes;
use crate::soft::pieces;
use crate::soft::responder::Refusal;
use crate::soft::state::State;

/// Number of packets that a queue pair sends before others do, and all of them before the device looks for new datagrams.
const TURN: u32 = 16;
const ROUND: u32 = 64;
/// If so many bytes wait for the socket, no more packets are made.
pub(super) const ENOUGH: usize = 256 << 10;
/// Maximum number of responses that wait for a queue pair, beside its reads: what is lost is requested again.
const MOST: usize = 256;

/// A response.
#[derive(Debug)]
pub(super) enum Answer {
    /// That to a read, of which `next` of `count` packets were sent.
    Read {
        request: Packet,
        next: u32,
        count: u32,
    },
    Packet(Packet),
}

impl Answer {
    /// Whether it belongs to requests before this sequence number.
    fn is_before(&self, psn: u32) -> bool {
        let last = match self {
            Self::Read { request, count, .. } => psn::add(request.psn, count - 1),
            Self::Packet(packet) => packet.psn,
        };
        psn::distance(last, psn) > 0
    }
}

/// The responses of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: VecDeque<Answer>,
    /// The last one is the refusal with which the queue pair has ended.
    is_last: bool,
}

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The queue pair has ended: what waits is sent, if it ends with the reason.
    pub(super) fn end(&mut self) {
        if !self.is_last {
            self.clear();
        }
    }

    /// Number of reads that were not answered in full.
    fn reads(&self) -> usize {
        self.waiting.iter().filter(|answer| matches!(answer, Answer::Read { .. })).count()
    }
}

impl State {
    /// Adds the response to a read. False if the peer asks for more at once than the queue pair allows. A peer that has repeated its reads
    /// may get the first responses meanwhile and go on, so that as many are new.
    pub(super) fn add_read(&mut self, number: u32, link: &mut Link, request: &Packet, count: u32) -> bool {
        let most = self.qps.get(&number).map_or(0, |qp| qp.attrs.max_dest_rd_atomic);
        if link.answers.reads() >= 2 * usize::from(most) {
            return false;
        }
        link.answers.waiting.push_back(Answer::Read { request: request.clone(), next: 0, count });
        if let Some(wire) = self.wire.as_mut().filter(|wire| !wire.answering.contains(&number)) {
            wire.answering.push_back(number);
        }
        true
    }

    /// The peer repeats its requests from this one on, so it gets their responses again.
    pub(super) fn repeat_answers(&mut self, link: &mut Link, psn: u32) {
        link.answers.waiting.retain(|answer| answer.is_before(psn));
    }

    /// Sends a response of one packet, after those that wait.
    pub(super) fn respond(&mut self, number: u32, link: &mut Link, packet: Packet) {
        if link.answers.is_empty() {
            self.send_response(number, packet, &[]);
        } else if link.answers.waiting.len() < MOST {
            link.answers.waiting.push_back(Answer::Packet(packet));
        }
    }

    /// Sends the refusal with which a queue pair ends.
    pub(super) fn respond_at_last(&mut self, number: u32, link: &mut Link, packet: Packet) {
        link.answers.is_last = !link.answers.is_empty();
        self.respond(number, link, packet);
    }

    /// Sends packets of responses that wait, as many as the socket takes and others can wait for.
    pub(super) fn give_answers(&mut self) {
        let mut left = ROUND;
        while let Some(wire) = &mut self.wire {
            if wire.waiting >= ENOUGH || left == 0 {
                return;
            }
            let Some(number) = wire.answering.pop_front() else { return };
            let turn = left.min(TURN);
            left -= turn;
            let mut has_more = false;
            self.with_link(number, |state, link| has_more = state.give(number, link, turn));
            if let Some(wire) = self.wire.as_mut().filter(|_| has_more) {
                wire.answering.push_back(number);
            }
        }
    }

    /// Sends up to `turn` packets of a queue pair. True if it has more.
    fn give(&mut self, number: u32, link: &mut Link, turn: u32) -> bool {
        if self.qps.get(&number).is_some_and(|qp| qp.state == qp_state::ERR) {
            link.answers.end();
        }
        for _ in 0..turn {
            let Some(answer) = link.answers.waiting.front_mut() else { break };
            match answer {
                Answer::Packet(packet) => {
                    let packet = packet.clone();
                    link.answers.waiting.pop_front();
                    self.send_response(number, packet, &[]);
                }
                Answer::Read { request, next, count } => {
                    let (request, index, count) = (request.clone(), *next, *count);
                    *next += 1;
                    if *next == count {
                        link.answers.waiting.pop_front();
                    }
                    if let Err(refusal) = self.give_part(number, link, &request, (index, count)) {
                        // The memory was deregistered meanwhile.
                        link.answers.clear();
                        let packet = Packet { psn: psn::add(request.psn, index), ..request };
                        let nak = link.responder.refuse(&packet, Nak::Access);
                        self.send_response(number, nak, &[]);
                        self.end_badly(number, link, &refusal);
                        return false;
                    }
                }
            }
        }
        if link.answers.is_empty() {
            self.acknowledge_owed(number, link);
        }
        !link.answers.is_empty()
    }

    /// Sends one packet of a read.
    fn give_part(
        &mut self,
        number: u32,
        link: &Link,
        request: &Packet,
        (index, count): (u32, u32),
    ) -> Result<(), Refusal> {
        let Some(qp) = self.qps.get(&number) else { return Ok(()) };
        let (remote, mtu) = (request.remote, attributes::packet_size(qp.attrs.path_mtu) as u32);
        let len = mtu.min(remote.len.saturating_sub(index.saturating_mul(mtu)));
        let mut data = Vec::with_capacity(len as usize);
        let address = remote.address.wrapping_add(u64::from(index) * u64::from(mtu));
        let asked = self.asked(number, qp, request.srq)?;
        let place = self.reach_all(asked, Remote { address, len, ..remote }, AccessFlags::REMOTE_READ)?;
        if place.is_some_and(|place| !pieces::append(&[place], &mut data)) {
            return Err(Refusal::ACCESS);
        }
        self.send_response(number, link.responder.read_response(request, index, count), &data);
        Ok(())
    }

    /// Sends the acknowledgement that a queue pair owes, unless other responses come before it.
    pub(super) fn acknowledge_owed(&mut self, number: u32, link: &mut Link) {
        let Some(qp) = self.qps.get(&number) else { return };
        if link.answers.is_empty() && link.responder.is_owed() {
            let response = link.responder.acknowledgement(qp.service());
            self.send_response(number, response, &[]);
        }
    }

    /// Sends a packet to the peer of a queue pair.
    fn send_response(&mut self, number: u32, packet: Packet, data: &[u8]) {
        let Some(qp) = self.qps.get(&number) else { return };
        let packet = Packet { to: qp.attrs.dest_qp_num & 0xff_ffff, ..packet };
        let mut bytes = Vec::with_capacity(packet.size() + data.len() + 8);
        packet.write_headers(data.len(), &mut bytes);
        bytes.extend_from_slice(data);
        self.send_to_peer(number, bytes);
    }
}
