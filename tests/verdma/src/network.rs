//! Packets between queue pairs of this device, and over a wire to another; datagrams; and time.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use uverbs::raw::roce::{Operation, Packet, Service};
use vpci::timers::Timed;
use vpci::transport::frame::{self, Route};
use vpci::transport::{Access, Host as _, Piece, Received, Status};
use vpci::wire::{Ends, Line};
use vpci::{Shared, lock};

use crate::bytes::BytesMut as _;
use crate::cq::{Entry, Queue};
use crate::device::Device;
use crate::qp::state;
use crate::work::opcode;

/// Bytes before the data of a datagram: its addresses.
const ADDRESSES: usize = 40;

/// The packets under way.
#[derive(Debug)]
pub(crate) struct Network {
    transit: VecDeque<(Route, Packet)>,
    line: Option<Line>,
    begun: Instant,
    time: Duration,
    /// One in so many packets is lost; 0 for none.
    pub(crate) lose: u32,
    count: u32,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            transit: VecDeque::new(),
            line: None,
            begun: Instant::now(),
            time: Duration::ZERO,
            lose: 0,
            count: 0,
        }
    }
}

impl Network {
    pub(crate) fn clear(&mut self) {
        self.transit.clear();
    }

    /// The time for timers; see [`vpci::timers`].
    pub(crate) fn now(&self) -> Instant {
        self.begun + self.time
    }
}

impl Device {
    /// A packet leaves a queue pair.
    pub(crate) fn leave(&mut self, route: Route, packet: Packet) {
        self.statistics.sent[0] += 1;
        self.statistics.sent[1] += packet.size() as u64;
        self.network.transit.push_back((route, packet));
    }

    /// Delivers packets, and those that result from them, until there are none.
    pub(crate) fn carry(&mut self) {
        while let Some((route, packet)) = self.network.transit.pop_front() {
            self.network.count = self.network.count.wrapping_add(1);
            if self.network.lose > 0 && self.network.count.is_multiple_of(self.network.lose) {
                self.statistics.sends_dropped += 1;
                continue;
            }
            if self.gids.values().any(|gid| *gid == route.dgid) {
                self.arrive(&route, &packet);
            } else if let Some(line) = &self.network.line {
                line.send(frame::build(&route, &packet));
            }
        }
    }

    /// A frame arrives over the wire.
    fn frame_arrives(&mut self, bytes: &[u8]) {
        match frame::parse(bytes) {
            Ok((route, packet)) if self.gids.values().any(|gid| *gid == route.dgid) => {
                self.arrive(&route, &packet);
                self.carry();
            }
            Ok(_) | Err(frame::Refused::Other) => {}
            Err(_) => self.statistics.receives_dropped += 1,
        }
    }

    fn arrive(&mut self, route: &Route, packet: &Packet) {
        self.statistics.received[0] += 1;
        self.statistics.received[1] += packet.size() as u64;
        let Some(qp) = self.qps.get(&packet.to).filter(|qp| qp.is_receiving()) else {
            self.statistics.receives_dropped += 1;
            return;
        };
        match (packet.service, qp.is_datagram) {
            (Service::Ud, true) => self.datagram_arrives(route, packet),
            (Service::Rc, false) if qp.path.peer() == route.sgid => {
                self.with_qp(packet.to, |step, connection, now| {
                    if let Some(connection) = connection {
                        connection.arrive(packet, step, now);
                    }
                });
            }
            _ => self.statistics.receives_dropped += 1,
        }
    }

    /// Sends what is in the queue of a queue pair of datagrams.
    pub(crate) fn send_datagrams(&mut self, number: u32) {
        let mut sent = Vec::new();
        self.with_qp(number, |step, _, _| {
            while step.qp.state == state::READY_TO_SEND
                && let Some(sqe) = step.take()
            {
                let data = sqe.body.clone().and_then(|body| Ok((step.gather(&body.source)?, body)));
                match data {
                    Ok((payload, body)) => {
                        let from = step.qp.number;
                        let (immediate, to) = match (body.operation, body.to) {
                            (vpci::transport::Work::Send(immediate), Some(to)) => (immediate, to),
                            _ => continue,
                        };
                        let operation = if immediate.is_some() {
                            Operation::SendOnlyImmediate
                        } else {
                            Operation::SendOnly
                        };
                        let packet = Packet {
                            qkey: to.qkey,
                            from,
                            immediate: immediate.unwrap_or(0),
                            solicited: sqe.is_solicited,
                            payload,
                            ..Packet::new(Service::Ud, operation, to.qp)
                        };
                        sent.push((to.ah, packet));
                        step.sent(sqe.token(), Status::Success, 0);
                    }
                    Err(status) => step.sent(sqe.token(), status, 0),
                }
            }
        });
        for (ah, packet) in sent {
            match self.addresses.get(&ah).and_then(|path| path.route(self)) {
                Some(route) => self.leave(route, packet),
                None => self.complain(format!("a datagram to address {ah}, which is not there")),
            }
        }
    }

    fn datagram_arrives(&mut self, route: &Route, packet: &Packet) {
        let is_v4 = route.sgid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        let mut head = [0; ADDRESSES];
        if is_v4 {
            head[20] = 0x45;
            head.put(32, &route.sgid[12..]);
            head.put(36, &route.dgid[12..]);
        } else {
            head[0] = 6 << 4;
            head.put(8, &route.sgid);
            head.put(24, &route.dgid);
        }
        let bytes = [&head[..], &packet.payload].concat();
        let mut dropped = false;
        self.with_qp(packet.to, |step, _, _| {
            let receive = if step.qp.qkey == packet.qkey { step.receive() } else { None };
            let Some(receive) = receive else {
                dropped = true;
                return;
            };
            let place = receive.to.first().copied().unwrap_or_default();
            let fits = place.len as usize >= bytes.len();
            let piece = Piece { len: bytes.len() as u32, ..place };
            if !fits || step.write(piece, Access::LocalWrite, &bytes).is_err() {
                return step.received(receive.token, Status::LocalLength, Received::default());
            }
            let entry = Entry {
                opcode: if packet.operation == Operation::SendOnlyImmediate {
                    opcode::RECEIVED_IMMEDIATE
                } else {
                    opcode::RECEIVED
                },
                queue: Queue::Receive,
                syndrome: 0,
                slot: receive.token as u32,
                words: [step.qp.number, packet.immediate.swap_bytes(), bytes.len() as u32, 0],
                is_solicited: packet.solicited,
                info: u32::from(!is_v4) << 31 | packet.from & 0xf_ffff,
            };
            step.entries.push((step.qp.cqs[1], entry));
        });
        self.statistics.receives_dropped += u64::from(dropped);
    }
}

impl Timed for Device {
    fn time(&self) -> Duration {
        self.network.time
    }

    fn line(&self) -> Option<&Line> {
        self.network.line.as_ref()
    }

    fn tick(&mut self, elapsed: Duration) {
        self.network.time += elapsed;
        for number in self.waiting.clone() {
            self.with_qp(number, |step, connection, now| {
                if let Some(connection) =
                    connection.filter(|connection| connection.due().is_some_and(|due| due <= now))
                {
                    connection.tick(step, now);
                }
            });
        }
        self.carry();
    }
}

/// Connects a device to another.
///
/// # Errors
/// If its own socket cannot be created. The other one may be created later.
pub(crate) fn connect(ends: &Ends, device: &Shared<Device>) -> io::Result<()> {
    let to = Shared::clone(device);
    let line = vpci::wire::connect(ends, move |frame| lock(&to).frame_arrives(frame))?;
    lock(device).network.line = Some(line);
    Ok(())
}
