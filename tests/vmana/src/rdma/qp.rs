//! A queue pair: its queues and its state, and what it does in a step.

use std::time::Instant;

use uverbs::raw::roce::Packet;
use uverbs::raw::roce::psn;
use vpci::bytes::BytesMut as _;
use vpci::transport::Connection;
use vpci::transport::frame::Route;

use super::change::Attributes;
use super::error;
use super::host::{Around, Said};
use crate::device::Device;
use crate::queue::Wq;

/// The kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Connected,
    Datagram,
    /// The kernel's own, for connection managers.
    Management,
}

/// States of a queue pair (`enum ib_qp_state`).
pub(crate) mod state {
    pub(crate) const RESET: u32 = 0;
    pub(crate) const INIT: u32 = 1;
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const ERROR: u32 = 6;
}

/// The types of completions (`enum` in libmana's gdma.h).
pub(crate) mod kind {
    pub(crate) const DATAGRAM: u8 = 1;
    pub(crate) const SEND: u8 = 3;
    pub(crate) const SEND_IMMEDIATE: u8 = 4;
    pub(crate) const WRITE_IMMEDIATE: u8 = 6;
    pub(crate) const ARMED: u8 = 7;
    pub(crate) const ERROR: u8 = 34;
}

/// The numbers of the queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) base: u32,
    pub(crate) send: u32,
    pub(crate) receive: u32,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) kind: Kind,
    pub(crate) numbers: Numbers,
    pub(crate) pd: u64,
    /// For sends and receives.
    pub(crate) cqs: [u32; 2],
    pub(crate) requests: Wq,
    /// Where the answers to reads go.
    pub(crate) reads: Wq,
    pub(crate) receives: Wq,
    pub(crate) state: u32,
    pub(crate) attributes: Attributes,
    pub(crate) route: Route,
    pub(crate) connection: Option<Connection>,
    /// The packet whose acknowledgement the driver waits for, and the last one that was acknowledged.
    pub(crate) armed: Option<u32>,
    pub(super) acked: u32,
}

impl Qp {
    pub(crate) fn new(
        kind: Kind,
        numbers: Numbers,
        (pd, cqs): (u64, [u32; 2]),
        [requests, reads, receives]: [Wq; 3],
    ) -> Self {
        Self {
            kind,
            numbers,
            pd,
            cqs,
            requests,
            reads,
            receives,
            state: state::RESET,
            attributes: Attributes::default(),
            route: Route::default(),
            connection: None,
            armed: None,
            acked: 0,
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.connection.as_ref().and_then(Connection::due).is_some_and(|due| due <= now)
    }
}

impl Device {
    /// The driver has written requests, or the queue pair can send now.
    pub(super) fn advance(&mut self, qp: &mut Qp) {
        if qp.kind == Kind::Connected {
            self.advance_connection(qp);
        } else if qp.state == state::RTS {
            self.send_datagrams(qp);
        }
    }

    fn advance_connection(&mut self, qp: &mut Qp) {
        while qp.state == state::RTS && self.take_request(qp) {}
        self.step(qp, |connection, around, now| connection.advance(around, now));
    }

    pub(super) fn packet_arrives(&mut self, qp: &mut Qp, packet: &Packet) {
        self.step(qp, |connection, around, now| connection.arrive(packet, around, now));
        // There may be room for more requests.
        self.advance_connection(qp);
    }

    pub(super) fn tick_qp(&mut self, qp: &mut Qp) {
        self.step(qp, |connection, around, now| connection.tick(around, now));
        self.advance_connection(qp);
    }

    /// A step of a connection, which moves to the error state if a request fails in it.
    fn step(&mut self, qp: &mut Qp, step: impl FnOnce(&mut Connection, &mut Around<'_>, Instant)) {
        let ends = self.run(qp, step);
        if qp.connection.as_ref().is_some_and(Connection::has_failed) && qp.state != state::ERROR {
            self.fail(qp, ends);
        }
    }

    /// A step of a connection, and what follows from it. Returns what has failed.
    pub(super) fn run(
        &mut self,
        qp: &mut Qp,
        step: impl FnOnce(&mut Connection, &mut Around<'_>, Instant),
    ) -> error::Ends {
        let mut ends = error::Ends::default();
        let Some(connection) = &mut qp.connection else { return ends };
        let now = self.rdma.now();
        let mut around = Around {
            memory: &self.memory,
            regions: &self.regions,
            pd: qp.pd,
            access: qp.attributes.access,
            receives: &mut qp.receives,
            said: Vec::new(),
        };
        step(connection, &mut around, now);
        for said in around.said {
            self.said(qp, said, &mut ends);
        }
        ends
    }

    fn said(&mut self, qp: &mut Qp, said: Said, ends: &mut error::Ends) {
        match said {
            Said::Packet(packet) => self.rdma.transit.push_back((qp.route, *packet)),
            Said::Complaint(what) => {
                self.complain(format!("queue pair {:#x}: {what}", qp.numbers.receive));
            }
            Said::Sent { token, code: None } => {
                qp.acked = token as u32 & 0xff_ffff;
                self.complete_armed(qp);
            }
            Said::Sent { token, code: Some(code) } => {
                ends.sends.get_or_insert((code, (token >> 32) as u32));
            }
            Said::Received { code: Some(code), .. } => {
                ends.receives.get_or_insert(code);
            }
            Said::Received { code: None, token, received } => {
                let kind = match (received.is_write, received.immediate) {
                    (true, _) => kind::WRITE_IMMEDIATE,
                    (false, Some(_)) => kind::SEND_IMMEDIATE,
                    (false, None) => kind::SEND,
                };
                let mut data = [0; 20];
                data.put_u32(0, kind.into());
                data.put_u32(4, received.len);
                data.put_u32(12, received.immediate.unwrap_or(0));
                data.put_u32(16, token as u32);
                self.post_completion(qp.cqs[1], &data, qp.numbers.receive, false);
            }
        }
    }

    /// Completes what the driver waits for, if it has been acknowledged.
    pub(super) fn complete_armed(&mut self, qp: &mut Qp) {
        let is_there = qp.armed.is_some_and(|armed| psn::distance(armed, qp.acked) >= 0);
        if !is_there || qp.state != state::RTS {
            return;
        }
        qp.armed = None;
        let mut data = [0; 12];
        data.put_u32(0, kind::ARMED.into());
        data.put_u32(8, qp.acked);
        self.post_completion(qp.cqs[0], &data, qp.numbers.base | 1, false);
    }
}
