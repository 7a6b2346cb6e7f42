//! The path of messages between queue pairs of one device, and over a wire to another device.
//!
//! The packets of reliable datagrams are in a pool, from which they are taken at random: requests overtake each other, and so do their
//! completions. A few stay a little longer, so that those of later doorbells overtake them too.

mod packet;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use vpci::wire::{Ends, Line};
use vpci::{Shared, lock};

pub(crate) use self::packet::{Gid, Kind, Packet};
use self::requester::Request;
use self::responder::Arriving;
use crate::device::Device;
use crate::random::Random;

/// Maximum size of a packet in bytes.
const SEGMENT: usize = 16 << 10;
/// How long packets are held back.
const MOMENT: Duration = Duration::from_micros(300);
/// How long to wait before a receiver without a receive is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// The messages in progress.
#[derive(Debug)]
pub(crate) struct Fabric {
    pool: VecDeque<Packet>,
    random: Random,
    /// Maximum number of packets that stay in the pool.
    pub(crate) hold: usize,
    /// How long a request waits for the response of another device.
    pub(crate) patience: Duration,
    requests: BTreeMap<u64, Request>,
    next: u64,
    /// Requests that are to be sent again, and when.
    again: Vec<(Instant, u64)>,
    /// Writes of which not all parts have arrived, by their sender.
    arriving: BTreeMap<(Gid, u16, u64), Arriving>,
    /// The devices that have responded before.
    heard: BTreeSet<Gid>,
    line: Option<Line>,
    /// Wakes the thread that delivers packets that were held back.
    bell: Option<SyncSender<()>>,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            pool: VecDeque::new(),
            random: Random::new(1),
            hold: 4,
            patience: Duration::from_secs(3),
            requests: BTreeMap::new(),
            next: 1,
            again: Vec::new(),
            arriving: BTreeMap::new(),
            heard: BTreeSet::new(),
            line: None,
            bell: None,
        }
    }
}

impl Fabric {
    /// Discards everything in progress.
    pub(crate) fn clear(&mut self) {
        self.pool.clear();
        self.requests.clear();
        self.again.clear();
        self.arriving.clear();
    }

    /// From now on random numbers come from this seed.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub(crate) fn under_way(&self) -> usize {
        self.requests.len()
    }

    /// The next packet: a random one, or the oldest if none are held back.
    fn take(&mut self, all: bool) -> Option<Packet> {
        if self.hold == 0 {
            return self.pool.pop_front();
        }
        let stay = if all { 0 } else { self.random.below(self.hold + 1) };
        if self.pool.len() <= stay {
            return None;
        }
        let which = self.random.below(self.pool.len());
        self.pool.swap_remove_back(which)
    }

    fn is_idle(&self) -> bool {
        self.pool.is_empty() && self.again.is_empty()
    }
}

impl Device {
    /// Delivers packets: all of them, or all except a few.
    pub(crate) fn run_fabric(&mut self, all: bool) {
        while let Some(packet) = self.fabric.take(all) {
            self.carry(packet);
        }
        if !self.fabric.is_idle()
            && let Some(bell) = &self.fabric.bell
        {
            // If there is no room, it is already being rung.
            let _ = bell.try_send(());
        }
    }

    fn carry(&mut self, packet: Packet) {
        if packet.destination == self.gid {
            return self.deliver(packet);
        }
        match &self.fabric.line {
            Some(line) => drop(line.send(packet.encode())),
            None => self.nobody_there(&packet),
        }
    }

    /// Sends a packet. Datagrams are delivered immediately and in their order.
    fn send_packet(&mut self, packet: Packet) {
        self.statistics.tx_packets += 1;
        self.statistics.tx_bytes += packet.data.len() as u64;
        if packet.kind == Kind::Datagram {
            self.carry(packet);
        } else {
            self.fabric.pool.push_back(packet);
        }
    }

    /// A packet arrives.
    fn deliver(&mut self, packet: Packet) {
        self.statistics.rx_packets += 1;
        self.statistics.rx_bytes += packet.data.len() as u64;
        match packet.kind {
            Kind::Datagram => self.datagram_arrives(&packet),
            Kind::Send => self.send_arrives(&packet),
            Kind::Write => self.write_arrives(&packet),
            Kind::Read => self.read_arrives(&packet),
            Kind::Part => self.part_arrives(&packet),
            Kind::Answer => self.answer_arrives(&packet),
        }
    }

    /// A frame arrives over the wire.
    pub(crate) fn frame_arrives(&mut self, frame: &[u8]) {
        match Packet::decode(frame) {
            Some(packet) if packet.destination == self.gid && packet.source != self.gid => {
                self.deliver(packet);
                self.run_fabric(false);
            }
            Some(_) => {}
            None => self.complain(format!("a frame of {} bytes that is none", frame.len())),
        }
    }

    /// Handles what is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        let (due, later) =
            std::mem::take(&mut self.fabric.again).into_iter().partition(|(when, _)| *when <= now);
        self.fabric.again = later;
        let due: Vec<(Instant, u64)> = due;
        due.into_iter().for_each(|(_, id)| self.send_again(id));
        self.give_up(now);
        self.run_fabric(true);
    }
}

/// Connects a device to another.
///
/// # Errors
/// If its own socket cannot be created. The other one may be created later.
pub(crate) fn connect(ends: &Ends, device: &Shared<Device>) -> io::Result<()> {
    let to = Shared::clone(device);
    let line = vpci::wire::connect(ends, move |frame| lock(&to).frame_arrives(frame))?;
    lock(device).fabric.line = Some(line);
    Ok(())
}

/// Delivers packets that were held back, as long as the device exists.
pub(crate) fn keep_time(device: &Shared<Device>) {
    let (bell, rung): (_, Receiver<()>) = sync_channel(1);
    lock(device).fabric.bell = Some(bell);
    loop {
        // The timeouts of requests to another device have no doorbell.
        let is_rung = rung.recv_timeout(Duration::from_millis(100)).is_ok();
        if is_rung {
            thread::sleep(MOMENT);
        }
        lock(device).tick(Instant::now());
    }
}
