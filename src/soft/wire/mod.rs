//! The wire of a soft device that has an address: RoCE v2 packets in datagrams of an ordinary UDP socket.
//!
//! Connected queue pairs of such a device always use it, also to reach another queue pair of the same device. Datagrams do if their
//! destination is elsewhere. The state machines are those of [`crate::roce`]; this folder gives them the memory and the rings of the
//! queue pairs ([`link`], [`incoming`]), the socket and the time ([`driver`]).

mod answers;
pub(super) mod datagrams;
pub(super) mod driver;
mod faults;
mod incoming;
pub(super) mod link;
mod memory;
mod socket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::answers::ENOUGH;
use self::driver::Inbox;
use self::faults::Fate;
pub use self::faults::Faults;
use self::socket::Sent;
pub(super) use self::socket::{Socket, packet_size};
use super::gids::Gid;
use super::profile::Profile;
use super::state::{Frames, State};
use crate::roce::{BASE, PORT, Packet, icrc};

/// If so many bytes wait for the socket, requests of peers are dropped, which would cause more.
const MOST_WAITING: usize = 1 << 20;
/// Maximum number of datagrams that the kernel is given together, and of their bytes (`UDP_MAX_SEGMENTS`, udp.h, Linux 6.1).
const MOST_TOGETHER: usize = 64;
const LONGEST_TOGETHER: usize = 65_000;

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
    /// Datagrams that are to be sent now, and later; and the number of their bytes.
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    later: BTreeMap<(Instant, u64), (SocketAddr, Vec<u8>)>,
    waiting: usize,
    copies: u64,
    /// Whether datagrams of one length are sent together.
    is_joining: bool,
    /// What the numbers of datagrams that are sent or have arrived together change in checksums.
    numbers: icrc::Numbers,
    fate: Fate,
    pub(super) counts: Counts,
    /// Queue pairs that owe an acknowledgement, and those that have other responses to send, in turn.
    owing: BTreeSet<u32>,
    answering: VecDeque<u32>,
    /// Queue pairs with requests under way.
    busy: BTreeSet<u32>,
    /// The driver has more to do without waiting for anything.
    is_busy: bool,
    /// The earliest time at which a queue pair has something to do, and until when the driver waits.
    due: Option<Instant>,
    waits_until: Option<Instant>,
    /// When the program has last polled, and found nothing.
    polled: Option<Instant>,
    inbox: Inbox,
    /// Datagrams were handled, and what they cause was not sent yet.
    has_arrivals: bool,
}

impl Wire {
    fn new(socket: Arc<Socket>, profile: &Profile) -> Self {
        Self {
            address: socket.address.ip(),
            socket,
            is_strict: profile.strict_checksums,
            out: VecDeque::new(),
            waiting: 0,
            later: BTreeMap::new(),
            copies: 0,
            is_joining: profile.segmentation,
            numbers: icrc::Numbers::of(0),
            fate: Fate::new(profile.faults),
            counts: Counts::default(),
            owing: BTreeSet::new(),
            answering: VecDeque::new(),
            busy: BTreeSet::new(),
            is_busy: false,
            due: None,
            waits_until: None,
            polled: None,
            inbox: Inbox::default(),
            has_arrivals: false,
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
            self.waiting += bytes.len();
            if delay == Duration::ZERO {
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

    /// Whether the checksum is right. That of an IPv4 packet covers its identification, which the socket does not show. It is zero, or the
    /// place of the packet among those that were sent together.
    fn is_intact(
        &mut self,
        from: SocketAddr,
        transport: &[u8],
        found: [u8; icrc::SIZE],
        place: usize,
    ) -> bool {
        let to = SocketAddr::new(self.address, PORT);
        let sum = self.sum(from, to, transport);
        if sum == found || self.address.is_ipv6() {
            return sum == found;
        }
        let is_numbered = place > 0
            && u8::try_from(place)
                .is_ok_and(|place| self.numbers_of(transport.len()).change(sum, place) == found);
        is_numbered || !self.is_strict && icrc::solve(sum, found, transport.len()).is_some()
    }

    /// What numbers change in the checksums of packets of this length.
    fn numbers_of(&mut self, len: usize) -> icrc::Numbers {
        if self.numbers.len() != len {
            self.numbers = icrc::Numbers::of(len);
        }
        self.numbers
    }

    /// Gives the socket what it takes.
    fn transmit(&mut self) {
        while let Some((to, bytes)) = self.out.front() {
            let to = *to;
            let count = self.joined();
            let sent = if count > 1 { self.send_together(count, to) } else { self.socket.send(bytes, to) };
            match sent {
                Sent::Yes => {}
                Sent::Full => return,
                Sent::Never => self.counts.send_errors += count as u64,
                Sent::Apart => {
                    self.is_joining = false;
                    continue;
                }
            }
            let sent: usize = self.out.drain(..count).map(|(_, bytes)| bytes.len()).sum();
            self.waiting = self.waiting.saturating_sub(sent);
        }
    }

    /// Number of datagrams that can be sent together: to one peer, and of one length, of which the last may be shorter.
    fn joined(&self) -> usize {
        let Some((peer, first)) = self.out.front().filter(|_| self.is_joining) else { return 1 };
        let (mut count, mut sum) = (0, 0);
        for (to, bytes) in self.out.iter().take(MOST_TOGETHER) {
            sum += bytes.len();
            if to != peer || bytes.len() > first.len() || sum > LONGEST_TOGETHER {
                break;
            }
            count += 1;
            if bytes.len() < first.len() {
                break;
            }
        }
        count.max(1)
    }

    /// Sends so many datagrams together. The kernel numbers them, which their checksums cover.
    fn send_together(&mut self, count: usize, to: SocketAddr) -> Sent {
        self.renumber(count);
        let all: Vec<_> = self.out.iter().take(count).map(|(_, bytes)| IoSlice::new(bytes)).collect();
        let sent = self.socket.send_together(&all, all.first().map_or(0, |first| first.len()), to);
        if sent != Sent::Yes {
            // They are sent again later, in other company.
            self.renumber(count);
        }
        sent
    }

    /// Changes checksums from those of packets without numbers to those of packets with their places as numbers, or back.
    fn renumber(&mut self, count: usize) {
        if self.address.is_ipv6() {
            return;
        }
        for place in 1..count {
            let Some(len) = self.out.get(place).map(|(_, bytes)| bytes.len().saturating_sub(icrc::SIZE))
            else {
                return;
            };
            let numbers = self.numbers_of(len);
            let sum = self.out.get_mut(place).and_then(|(_, bytes)| bytes.last_chunk_mut());
            if let Some(sum) = sum {
                // Fewer than MOST_TOGETHER.
                *sum = numbers.change(*sum, place as u8);
            }
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

    /// A datagram arrives, in this place of those that arrived together.
    fn arrive_datagram(&mut self, from: SocketAddr, bytes: &[u8], place: usize, now: Instant) {
        let Some(wire) = &mut self.wire else { return };
        wire.counts.received += 1;
        wire.counts.received_bytes += wire.on_wire(bytes.len());
        let parsed = bytes.split_last_chunk().filter(|(transport, _)| transport.len() >= BASE);
        let Some((transport, found)) = parsed else {
            wire.counts.dropped += 1;
            return;
        };
        if !wire.is_intact(from, transport, *found, place) {
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
        wire.has_arrivals = false;
        for number in std::mem::take(&mut wire.owing) {
            self.with_link(number, |state, link| state.acknowledge_owed(number, link));
        }
        let Some(wire) = &mut self.wire else { return };
        while let Some(entry) = wire.later.first_entry().filter(|entry| entry.key().0 <= now) {
            wire.out.push_back(entry.remove());
        }
        if wire.due.is_some_and(|due| due <= now) {
            wire.due = wire.later.first_key_value().map(|((due, _), _)| *due);
            // Without those that are gone.
            wire.busy = self.qps.iter().filter(|(_, qp)| qp.is_busy()).map(|(number, _)| *number).collect();
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
        self.give_answers();
        self.transmit();
        if let Some(wire) = &mut self.wire {
            // Otherwise the driver waits for room in the socket, or for the time of what waits.
            wire.is_busy = !wire.answering.is_empty() && wire.out.is_empty() && wire.waiting < ENOUGH;
        }
    }
}
