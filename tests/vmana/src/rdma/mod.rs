//! Queue pairs: connections, and the datagrams of the kernel.

mod change;
pub(crate) mod counts;
mod datagram;
mod error;
mod host;
mod qp;
mod send;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use uverbs::raw::roce::{Packet, Service};
use vpci::timers::{TICK, Timed};
use vpci::transport::frame::{self, Route};
use vpci::wire::Line;

pub(crate) use self::change::Change;
use self::counts::Counts;
pub(crate) use self::qp::{Kind, Numbers, Qp};
use crate::device::Device;
use crate::queue::event;

/// Bytes behind the ring of a connection's requests, in which the driver says where the oldest and the newest are.
pub(crate) const TRAILER: u32 = 16;

/// The state of the RDMA device.
#[derive(Debug)]
pub(crate) struct Rdma {
    qps: BTreeMap<u32, Qp>,
    next: u32,
    /// The queue of events about queue pairs that have failed.
    pub(crate) fatal_eq: Option<u32>,
    /// The device's IP addresses.
    pub(crate) addresses: Vec<[u8; 16]>,
    /// Packets that have left a queue pair.
    transit: VecDeque<(Route, Packet)>,
    pub(crate) counts: Counts,
    /// The time for timers; see [`vpci::timers`].
    time: Duration,
    begun: Instant,
}

impl Default for Rdma {
    fn default() -> Self {
        Self {
            qps: BTreeMap::new(),
            next: 1,
            fatal_eq: None,
            addresses: Vec::new(),
            transit: VecDeque::new(),
            counts: Counts::default(),
            time: Duration::ZERO,
            begun: Instant::now(),
        }
    }
}

impl Rdma {
    /// As after a reset.
    pub(crate) fn clear(&mut self) {
        *self = Self { time: self.time, begun: self.begun, ..Self::default() };
    }

    pub(crate) fn uses_pd(&self, pd: u64) -> bool {
        self.qps.values().any(|qp| qp.pd == pd)
    }

    pub(crate) fn uses_cq(&self, cq: u32) -> bool {
        self.qps.values().any(|qp| qp.cqs.contains(&cq))
    }

    pub(crate) fn insert(&mut self, qp: Qp) {
        self.qps.insert(qp.numbers.base, qp);
    }

    pub(crate) fn remove(&mut self, base: u32) -> Option<Qp> {
        self.qps.remove(&base)
    }

    pub(crate) fn qps(&self) -> impl Iterator<Item = &Qp> {
        self.qps.values()
    }

    /// Numbers for the queues of a new queue pair. The low two bits of each are its kind; the kernel and the library find the queue pair by
    /// the others.
    pub(crate) fn next_numbers(&mut self, most: u32, kind: Kind) -> Option<Numbers> {
        if kind == Kind::Management {
            return (!self.qps.contains_key(&0)).then_some(Numbers { base: 0, send: 0, receive: 1 });
        }
        if self.qps.len() >= most as usize {
            return None;
        }
        loop {
            let base = self.next * 4;
            self.next = if self.next == 0x1f_ffff { 1 } else { self.next + 1 };
            if !self.qps.contains_key(&base) {
                let receive = if kind == Kind::Connected { base } else { base | 1 };
                return Some(Numbers { base, send: base, receive });
            }
        }
    }

    fn now(&self) -> Instant {
        // The actual time may be later than the stored one by this much.
        self.begun + self.time + TICK
    }
}

impl Device {
    /// Performs a step of a queue pair, and what follows from it.
    fn with_qp(&mut self, base: u32, step: impl FnOnce(&mut Device, &mut Qp)) {
        let Some(mut qp) = self.rdma.qps.remove(&base) else { return };
        step(self, &mut qp);
        self.rdma.qps.insert(base, qp);
    }

    pub(crate) fn ring_rdma_send(&mut self, page: u32, id: u32, position: u32) {
        let is_it = |qp: &&Qp| qp.numbers.send == id && qp.requests.doorbell == page;
        let Some(base) = self.rdma.qps.get(&(id & !3)).filter(is_it).map(|qp| qp.numbers.base) else {
            return self.complain(format!("doorbell page {page}: no send queue {id:#x}"));
        };
        self.with_qp(base, |device, qp| {
            qp.requests.set_producer(position);
            device.advance(qp);
        });
        self.carry();
    }

    pub(crate) fn ring_rdma_receive(&mut self, page: u32, id: u32, position: u32) {
        let qp = self.rdma.qps.get_mut(&(id & !3)).filter(|qp| qp.requests.doorbell == page);
        match qp {
            Some(qp) if qp.numbers.receive == id => qp.receives.set_producer(position),
            Some(qp) if qp.kind == Kind::Connected && qp.numbers.base | 1 == id => {
                qp.reads.set_producer(position)
            }
            _ => self.complain(format!("doorbell page {page}: no receive queue {id:#x}")),
        }
    }

    /// The driver wants a completion when this packet is acknowledged.
    pub(crate) fn arm_requester(&mut self, page: u32, id: u32, psn: u32) {
        let is_it = |qp: &&Qp| {
            qp.kind == Kind::Connected && qp.numbers.base | 1 == id && qp.requests.doorbell == page
        };
        let Some(base) = self.rdma.qps.get(&(id & !3)).filter(is_it).map(|qp| qp.numbers.base) else {
            return self.complain(format!("doorbell page {page}: no requester {id:#x}"));
        };
        self.with_qp(base, |device, qp| {
            qp.armed = Some(psn);
            device.complete_armed(qp);
        });
    }

    /// Delivers packets, and the packets that result from them, until there are none.
    fn carry(&mut self) {
        while let Some((route, packet)) = self.rdma.transit.pop_front() {
            self.rdma.counts.sent(&packet);
            if self.rdma.addresses.contains(&route.dgid) {
                self.arrive(&route, &packet);
            } else {
                self.net.send(frame::build(&route, &packet));
            }
        }
    }

    /// A frame from the wire; false if it is none of RoCE, or for others.
    pub(crate) fn rdma_arrives(&mut self, frame: &[u8]) -> bool {
        let Ok((route, packet)) = frame::parse(frame) else { return false };
        if !self.rdma.addresses.contains(&route.dgid) {
            return false;
        }
        self.arrive(&route, &packet);
        self.carry();
        true
    }

    fn arrive(&mut self, route: &Route, packet: &Packet) {
        self.rdma.counts.received(packet);
        if packet.service == Service::Ud {
            return self.datagram_arrives(route, packet);
        }
        let is_it = |qp: &&Qp| {
            qp.kind == Kind::Connected && packet.service == Service::Rc && qp.route.dgid == route.sgid
        };
        let Some(base) = self.rdma.qps.get(&packet.to).filter(is_it).map(|qp| qp.numbers.base) else {
            return;
        };
        self.with_qp(base, |device, qp| device.packet_arrives(qp, packet));
    }

    /// Tells the driver of a queue pair that a peer's request has ended.
    fn tell_fatal(&mut self, qp: &Qp) {
        if let Some(eq) = self.rdma.fatal_eq {
            self.post_event(eq, event::QP_FATAL, qp.numbers.receive);
        }
    }
}

impl Timed for Device {
    fn time(&self) -> Duration {
        self.rdma.time
    }

    fn line(&self) -> Option<&Line> {
        self.net.line.as_ref()
    }

    fn tick(&mut self, elapsed: Duration) {
        self.rdma.time += elapsed;
        let now = self.rdma.now();
        let due: Vec<_> =
            self.rdma.qps.values().filter(|qp| qp.is_due(now)).map(|qp| qp.numbers.base).collect();
        for base in due {
            self.with_qp(base, Device::tick_qp);
        }
        self.carry();
    }
}
