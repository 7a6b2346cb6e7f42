//! The wire of a soft device that has an address: RoCE v2 packets in datagrams of an ordinary UDP socket.
//!
//! Connected queue pairs of such a device always use it, also to reach another queue pair of the same device. Datagrams do if their
//! destination is elsewhere. The state machines are those of [`crate::roce`]; this folder gives them the memory and the rings of the
//! queue pairs ([`link`], [`incoming`]), the socket and the time ([`driver`]).

pub(super) mod datagrams;
pub(super) mod driver;
mod faults;
mod incoming;
pub(super) mod link;
mod memory;
mod socket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::faults::Fate;
pub use self::faults::Faults;
pub(super) use self::socket::{Socket, packet_size};
use super::gids::Gid;
use super::state::{Frames, State};
use crate::roce::{BASE, PORT, Packet, icrc};

/// If so much waits for the socket, requests of peers that cause more are dropped.
const MOST_WAITING: usize = 16 << 20;
/// The longest datagram: the largest packet with all headers.
const LONGEST: usize = 4096 + 128;

/// Counters with the names that rxe has for them (`rxe_counter_descs`, rxe_hw_counters.c, Linux 7.3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) duplicates: u64,
    pub(crate) out_of_sequence: u64,
    pub(crate) received_unready: u64,
    pub(crate) sent_unready: u64,
    pub(crate) received_sequence: u64,
    pub(crate) deferred: u64,
    pub(crate) retries_exceeded: u64,
    pub(crate) unready_exceeded: u64,
    pub(crate) retries: u64,
    pub(crate) send_errors: u64,
    pub(crate) dropped: u64,
    pub(crate) wrong_sums: u64,
}

impl Counts {
    /// With the frames of raw packet queue pairs added.
    pub(crate) fn with_frames(self, frames: &Frames) -> Self {
        Self {
            sent: self.sent + frames.sent,
            sent_bytes: self.sent_bytes + frames.sent_bytes,
            received: self.received + frames.received,
            received_bytes: self.received_bytes + frames.received_bytes,
            ..self
        }
    }

    /// All counters by name. rxe counts neither what it drops nor wrong checksums.
    pub(crate) fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("sent_pkts", self.sent),
            ("rcvd_pkts", self.received),
            ("sent_bytes", self.sent_bytes),
            ("rcvd_bytes", self.received_bytes),
            ("duplicate_request", self.duplicates),
            ("out_of_seq_request", self.out_of_sequence),
            ("rcvd_rnr_err", self.received_unready),
            ("send_rnr_err", self.sent_unready),
            ("rcvd_seq_err", self.received_sequence),
            ("ack_deferred", self.deferred),
            ("retry_exceeded_err", self.retries_exceeded),
            ("retry_rnr_exceeded_err", self.unready_exceeded),
            ("completer_retry_err", self.retries),
            ("send_err", self.send_errors),
            ("rcvd_dropped_pkts", self.dropped),
            ("rcvd_icrc_err", self.wrong_sums),
        ]
    }
}

/// The wire of a device.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Arc<Socket>,
    address: IpAddr,
    is_strict: bool,
    /// Datagrams that are to be sent now, and later.
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    waiting: usize,
    later: BTreeMap<(Instant, u64), (SocketAddr, Vec<u8>)>,
    copies: u64,
    fate: Fate,
    pub(super) counts: Counts,
    /// Queue pairs that owe an acknowledgement.
    owing: BTreeSet<u32>,
    /// The earliest time at which a queue pair has something to do, and until when the driver waits.
    due: Option<Instant>,
    waits_until: Option<Instant>,
}

impl Wire {
    fn new(socket: Arc<Socket>, faults: Faults, is_strict: bool) -> Self {
        Self {
            address: socket.address.ip(),
            socket,
            is_strict,
            out: VecDeque::new(),
            waiting: 0,
            later: BTreeMap::new(),
            copies: 0,
            fate: Fate::new(faults),
            counts: Counts::default(),
            owing: BTreeSet::new(),
            due: None,
            waits_until: None,
        }
    }

    /// A queue pair has something to do at this time.
    fn schedule(&mut self, due: Option<Instant>) {
        if let Some(due) = due {
            self.due = Some(self.due.map_or(due, |earliest| earliest.min(due)));
        }
    }

    /// Sends a packet whose data was appended to `bytes` after its headers.
    fn send(&mut self, to: &Gid, mut bytes: Vec<u8>) {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let to = self.socket.peer(address_of(to));
        let sum = self.sum(self.socket.address, to, &bytes);
        bytes.extend(sum);
        self.counts.sent += 1;
        self.counts.sent_bytes += self.on_wire(bytes.len());
        let now = Instant::now();
        let mut delays = self.fate.next().peekable();
        while let Some(delay) = delays.next() {
            let bytes = if delays.peek().is_some() { bytes.clone() } else { std::mem::take(&mut bytes) };
            if delay == Duration::ZERO {
                self.waiting += bytes.len();
                self.out.push_back((to, bytes));
            } else {
                let due = now + delay;
                self.copies += 1;
                self.later.insert((due, self.copies), (to, bytes));
                self.schedule(Some(due));
            }
        }
    }

    /// Number of bytes of a packet from its IP header on.
    fn on_wire(&self, len: usize) -> u64 {
        (len + if self.address.is_ipv4() { 28 } else { 48 }) as u64
    }

    /// The checksum of a packet: its identification is zero, and it cannot be fragmented.
    fn sum(&self, from: SocketAddr, to: SocketAddr, transport: &[u8]) -> [u8; icrc::SIZE] {
        let mut head = [0; 48];
        let udp = (8 + transport.len() + icrc::SIZE) as u16;
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes(), udp.to_be_bytes(), [0; 2]];
        let len = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                head[0] = 0x45;
                head[2..4].copy_from_slice(&(20 + udp).to_be_bytes());
                head[6] = 0x40;
                head[9] = 17;
                head[12..16].copy_from_slice(&from.octets());
                head[16..20].copy_from_slice(&to.octets());
                20
            }
            (from, to) => {
                head[0] = 0x60;
                head[4..6].copy_from_slice(&udp.to_be_bytes());
                head[6] = 17;
                head[8..24].copy_from_slice(&gid_of(from));
                head[24..40].copy_from_slice(&gid_of(to));
                40
            }
        };
        head[len..len + 8].copy_from_slice(ports.as_flattened());
        icrc::of_packet(&head[..len + 8], transport)
    }

    /// Whether the checksum is right. That of an IPv4 packet covers its identification, which the socket does not show.
    fn is_intact(&self, from: SocketAddr, transport: &[u8], found: [u8; icrc::SIZE]) -> bool {
        let to = SocketAddr::new(self.address, PORT);
        let sum = self.sum(from, to, transport);
        let is_hidden = self.address.is_ipv4() && !self.is_strict;
        sum == found || is_hidden && icrc::solve(sum, found, transport.len()).is_some()
    }

    /// Gives the socket what it takes.
    fn transmit(&mut self) {
        while let Some((to, bytes)) = self.out.front() {
            match self.socket.send(bytes, *to) {
                socket::Sent::Yes => {}
                socket::Sent::Full => return,
                socket::Sent::Never => self.counts.send_errors += 1,
            }
            self.waiting = self.waiting.saturating_sub(bytes.len());
            self.out.pop_front();
        }
    }
}

/// The GID of an address.
pub(super) fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn address_of(gid: &Gid) -> IpAddr {
    IpAddr::V6((*gid).into()).to_canonical()
}

impl State {
    /// Sends what is to be sent, and tells the driver if it waits for too long.
    pub(super) fn transmit(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        wire.transmit();
        let is_late = wire.due.is_some_and(|due| wire.waits_until.is_none_or(|until| due < until));
        if is_late || !wire.out.is_empty() {
            wire.socket.wake();
        }
    }

    /// A datagram arrives.
    fn arrive_datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) {
        let Some(wire) = &mut self.wire else { return };
        wire.counts.received += 1;
        wire.counts.received_bytes += wire.on_wire(bytes.len());
        let parsed = bytes.split_last_chunk().filter(|(transport, _)| transport.len() >= BASE);
        let Some((transport, found)) = parsed else {
            wire.counts.dropped += 1;
            return;
        };
        if !wire.is_intact(from, transport, *found) {
            wire.counts.wrong_sums += 1;
            wire.counts.dropped += 1;
            return;
        }
        let taken = Packet::split(transport).is_ok_and(|(packet, payload)| {
            let from = gid_of(from.ip());
            self.arrive_packet(&from, &packet, payload, now)
        });
        if let Some(wire) = self.wire.as_mut().filter(|_| !taken) {
            wire.counts.dropped += 1;
        }
    }

    /// Everything that arrived together was handled: sends what it has caused.
    fn after_arrivals(&mut self, now: Instant) {
        let Some(wire) = &mut self.wire else { return };
        for number in std::mem::take(&mut wire.owing) {
            self.pay_acknowledgement(number);
        }
        let Some(wire) = &mut self.wire else { return };
        while let Some(entry) = wire.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let datagram = entry.remove();
            wire.waiting += datagram.1.len();
            wire.out.push_back(datagram);
        }
        if wire.due.is_some_and(|due| due <= now) {
            wire.due = wire.later.first_key_value().map(|((due, _), _)| *due);
            let dues: Vec<_> =
                self.qps.iter().filter_map(|(number, qp)| Some((*number, qp.due()?))).collect();
            for (number, due) in dues {
                if due <= now {
                    self.tick_link(number, now);
                } else if let Some(wire) = &mut self.wire {
                    wire.schedule(Some(due));
                }
            }
        }
        self.transmit();
    }
}
