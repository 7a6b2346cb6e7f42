//! Queue pairs and their packets: the connected transports of InfiniBand, packet by packet, and datagrams.
//!
//! A requester makes packets from the requests in its queue and keeps them until they are acknowledged. A responder executes the packets'
//! requests. Source: InfiniBand Architecture Specification 1.4, volume 1, chapter 9; the layouts of what the driver writes and reads are
//! from the kernel's `include/linux/mlx5/{qp,cq,device}.h`, 6.1.

mod answers;
mod completion;
mod data;
mod datagram;
mod frame;
mod message;
mod path;
mod qp;
mod receives;
mod requester;
mod responder;
mod route;
#[cfg(test)]
mod tests;
mod wqe;

use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use self::frame::PORT;
use self::frame::{Refused, infiniband};
pub(crate) use self::qp::{Kind, Qp};
use crate::bits::Bits;
use crate::device::Device;
use crate::ifc::context::{mkc, qpc};
use crate::lies::Lie;
use crate::mkey::Mkeys;
use crate::object::{self, Handle, Objects};
use crate::port::{LinkLayer, Port};
use crate::port_counter::Cast;
use crate::queue::{CompletionEntry, Cq, ReceiveRing};
use crate::queue_counter::{QueueCounts, QueueEvent};
use crate::server::Shared;
use crate::transport::route::Route;
use crate::wire::Mishap;
use uverbs::raw::roce::{Packet, Service};
use vpci::Memory;
use vpci::lock;

/// All queue pairs, and the packets between them.
#[derive(Debug, Default)]
pub(crate) struct Transport {
    pub(crate) qps: BTreeMap<u32, Qp>,
    /// Queue pairs in groups, by the group's address.
    pub(crate) groups: BTreeMap<[u8; 16], Vec<u32>>,
    /// Packets that have left a queue pair.
    transit: VecDeque<(Route, Packet)>,
    /// The time for timers; see [`keep_time`].
    time: Duration,
}

/// The parts of the device that a queue pair can use, and the actions that result from a step.
pub(crate) struct Around<'a> {
    memory: &'a Memory,
    mkeys: &'a mut Mkeys,
    objects: &'a mut Objects,
    pools: &'a mut BTreeMap<u32, ReceiveRing>,
    cqs: &'a BTreeMap<u32, Cq>,
    port: &'a Port,
    faults: &'a mut u64,
    now: Duration,
    said: Vec<Said>,
    /// The events to count for this step.
    counts: QueueCounts,
}

/// The results of a step of a queue pair, in their order.
enum Said {
    Packet(Box<(Route, Packet)>),
    Completion(u32, Box<CompletionEntry>),
    Event(u8, u32),
}

impl Around<'_> {
    fn send(&mut self, route: Route, packet: Packet) {
        self.said.push(Said::Packet(Box::new((route, packet))));
    }

    /// A work request has changed a key, which may now belong to another domain.
    fn key_changed(&mut self, key: u32) {
        let index = key >> 8;
        let Some(context) = self.mkeys.context(index) else { return };
        let domain = Handle(object::Kind::Pd, context.wide(mkc::pd));
        let uses = if context.is(mkc::free) { Vec::new() } else { vec![domain] };
        // The driver's own keys belong to no domain.
        let _ = self.objects.rebind(Handle(object::Kind::Mkey, index.into()), uses);
    }

    fn complete(&mut self, cqn: u32, entry: CompletionEntry) {
        self.said.push(Said::Completion(cqn, Box::new(entry)));
    }

    fn count(&mut self, event: QueueEvent) {
        self.counts.count(event);
    }

    /// An event about an object with this number.
    fn event(&mut self, kind: u8, number: u32) {
        self.said.push(Said::Event(kind, number));
    }

    /// Size of an entry of a completion queue in bytes.
    fn entry_size(&self, cqn: u32) -> u64 {
        self.cqs.get(&cqn).map_or(0, Cq::entry_size)
    }
}

impl Device {
    /// Performs a step of a queue pair, and the resulting actions.
    fn with_qp(&mut self, number: u32, step: impl FnOnce(&mut Qp, &mut Around<'_>)) {
        // It is removed from the map meanwhile. If it sends to itself, that is handled later.
        let Some(mut qp) = self.transport.qps.remove(&number) else { return };
        let mut around = Around {
            memory: &self.memory,
            mkeys: &mut self.mkeys,
            objects: &mut self.objects,
            pools: &mut self.pools,
            cqs: &self.cqs,
            port: &self.port,
            faults: &mut self.statistics.faults,
            // The actual time may be later than the stored one by this much.
            now: self.transport.time + TICK,
            said: Vec::new(),
            counts: QueueCounts::default(),
        };
        step(&mut qp, &mut around);
        let Around { said, counts, .. } = around;
        self.counter_sets.add(qp.counter_set(), &counts);
        self.transport.qps.insert(number, qp);
        for said in said {
            match said {
                Said::Packet(packet) => {
                    let (cast, octets) = (self.cast(&packet.0), self.octets(&packet.0, &packet.1));
                    self.port_counts.function.rdma.sent.count(cast, octets);
                    self.transport.transit.push_back(*packet);
                }
                Said::Completion(cqn, entry) => self.complete(cqn, *entry),
                Said::Event(kind, number) => {
                    let mut data = [0; 28];
                    data[24..].copy_from_slice(&number.to_be_bytes());
                    self.event(kind, 0, &data);
                }
            }
        }
    }

    /// The doorbell of a queue pair was rung.
    pub(crate) fn ring_qp(&mut self, number: u32) {
        self.with_qp(number, Qp::advance);
        self.carry();
    }

    /// A queue pair was changed: its waiting requests are processed.
    pub(crate) fn qp_changed(&mut self, number: u32) {
        self.with_qp(number, Qp::state_changed);
        self.carry();
    }

    /// Delivers packets, and the packets that result from them, until there are none.
    fn carry(&mut self) {
        while let Some((route, mut packet)) = self.transport.transit.pop_front() {
            if !packet.payload.is_empty() && self.lies.occurs(Lie::Data) {
                packet.payload.iter_mut().last().into_iter().for_each(|byte| *byte ^= 0x40);
            }
            match self.wire.mishaps.next(self.transport.transit.is_empty()) {
                Some(Mishap::Drop) => continue,
                Some(Mishap::Repeat) => self.pass(&route, &packet),
                Some(Mishap::Swap) => {
                    if let Some((route, packet)) = self.transport.transit.pop_front() {
                        self.pass(&route, &packet);
                    }
                }
                None => {}
            }
            self.pass(&route, &packet);
        }
    }

    /// The kind of destination of a packet, by its address.
    fn cast(&self, route: &Route) -> Cast {
        if path::is_group(route, &self.port) { Cast::Multicast } else { Cast::Unicast }
    }

    /// Size of a packet on the wire in bytes, whether or not it is sent there.
    fn octets(&self, route: &Route, packet: &Packet) -> usize {
        match self.port.link {
            LinkLayer::InfiniBand => infiniband::len(route, packet),
            LinkLayer::Roce | LinkLayer::Ethernet => frame::len(route, packet),
        }
    }

    /// A packet leaves: it returns if it is for this card, and goes to the other end of the wire if it is for others.
    fn pass(&mut self, route: &Route, packet: &Packet) {
        let is_group = path::is_group(route, &self.port);
        let is_own = path::is_own(route, &self.port);
        if is_own || is_group {
            self.arrive(route, packet);
        }
        if is_own {
            return;
        }
        let frame = match self.port.link {
            LinkLayer::Roce => frame::build(route, packet),
            LinkLayer::InfiniBand => infiniband::build(route, packet),
            LinkLayer::Ethernet => return,
        };
        self.port_counts.link.frames.sent.count(self.cast(route), frame.len());
        self.wire.send(&frame);
    }

    /// A frame arrives from the other end of the wire. RoCE frames for this card do not pass the flow tables, and an InfiniBand port has
    /// no flow tables.
    pub(crate) fn frame_arrives(&mut self, bytes: &[u8]) {
        let parsed = match self.port.link {
            LinkLayer::InfiniBand => infiniband::parse(bytes),
            _ if self.port.roce_enabled => frame::parse(bytes),
            _ => Err(Refused::Other),
        };
        let cast = match (&parsed, self.port.link) {
            (Ok((route, _)), LinkLayer::InfiniBand) => self.cast(route),
            (Err(_), LinkLayer::InfiniBand) => Cast::Unicast,
            _ => Cast::of_frame(bytes),
        };
        self.port_counts.link.frames.received.count(cast, bytes.len());
        match parsed {
            Ok((route, packet)) if path::is_own(&route, &self.port) || path::is_group(&route, &self.port) => {
                self.arrive(&route, &packet);
                self.carry();
            }
            Ok(_) | Err(Refused::Other) if self.port.link != LinkLayer::InfiniBand => self.steer(bytes),
            // For others.
            Ok(_) => {}
            Err(refused) => {
                self.statistics.refused += 1;
                self.port_counts.link.refused += 1;
                self.port_counts.link.wrong_sums += u64::from(refused == Refused::Sum);
            }
        }
    }

    /// A packet arrives at this card, from itself or from the wire.
    fn arrive(&mut self, route: &Route, packet: &Packet) {
        let (cast, octets) = (self.cast(route), self.octets(route, packet));
        // Packets to a group are ignored if no queue pair is a member.
        if cast == Cast::Unicast || self.transport.groups.get(&route.dgid).is_some_and(|all| !all.is_empty())
        {
            self.port_counts.function.rdma.received.count(cast, octets);
            let is_marked = self.port.link == LinkLayer::Roce && route.traffic_class & CONGESTED == CONGESTED;
            self.port_counts.marked += u64::from(is_marked);
        }
        if packet.service == Service::Ud && path::is_group(route, &self.port) {
            for member in self.transport.groups.get(&route.dgid).cloned().unwrap_or_default() {
                self.with_qp(member, |qp, around| qp.receive(route, packet, around));
            }
            return;
        }
        let number = match packet.to {
            number @ 0..=1 => {
                let is_it = |qp: &&Qp| qp.kind == Kind::Management(number);
                let Some(qp) = self.transport.qps.values().find(is_it) else { return };
                qp.number
            }
            number => number,
        };
        self.with_qp(number, |qp, around| qp.receive(route, packet, around));
    }

    /// Advances the time, and does what is due and what has no doorbell.
    fn tick(&mut self, elapsed: Duration) {
        self.transport.time += elapsed;
        let now = self.transport.time;
        let due: Vec<_> =
            self.transport.qps.values().filter(|qp| qp.is_due(now)).map(|qp| qp.number).collect();
        for number in due {
            self.with_qp(number, Qp::tick);
        }
        self.carry();
    }

    /// The context of a queue pair as a query shows it.
    pub(crate) fn qp_context(&self, number: u32) -> Option<Vec<u8>> {
        self.transport.qps.get(&number).map(Qp::shown)
    }
}

impl Qp {
    /// A command has changed the state.
    fn state_changed(&mut self, around: &mut Around<'_>) {
        if self.state() == qp::state::ERROR {
            self.fail_all(around);
        }
        self.advance(around);
    }

    fn is_due(&self, now: Duration) -> bool {
        self.state() == qp::state::ERROR && self.context.is(qpc::dbr_addr)
            || self.requester.due().is_some_and(|due| due <= now)
    }
}

/// The congestion mark, in the traffic class of IP (RFC 3168).
const CONGESTED: u8 = 3;

/// Time between two checks of queue pairs.
const TICK: Duration = Duration::from_millis(1);

/// Maximum by which the time advances in one step.
const STEP: Duration = Duration::from_millis(4);

/// Runs the timers as long as the process lives.
///
/// The time stops while the process does not run, and while the card at the other end of the wire does not: on a busy host either may be
/// suspended for longer than the response timeout, although the response is already there.
pub(crate) fn keep_time(device: &Shared) {
    let mut last = Instant::now();
    loop {
        thread::sleep(TICK);
        let mut device = lock(device);
        let now = Instant::now();
        let time = device.transport.time;
        let until = device.wire.keep_pace(time);
        device.tick((now - last).min(STEP).min(until.saturating_sub(time)));
        last = now;
    }
}
