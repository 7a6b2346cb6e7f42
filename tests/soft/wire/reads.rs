//! Reads of a peer that asks for more than the device sends at once.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use uverbs::abi::types::mtu;
use uverbs::raw::roce::{Operation, PORT, Packet, Remote, Service, icrc};
use uverbs::soft::Faults;
use uverbs::{AccessFlags, MemoryRegion, QpState, Rc, SoftDevice};

use super::{Host, address, counter, profile};
use crate::common::*;

/// The longest message.
const LONG: u32 = 8 << 20;
const FIRST: u32 = 5;
/// Number of reads that the peer may have under way.
const READS: u32 = 4;

/// A peer that is a program with a socket.
struct Peer {
    socket: UdpSocket,
    own: IpAddr,
    to: SocketAddr,
    qp: u32,
}

impl Peer {
    fn send(&self, packet: &Packet) {
        let mut bytes = packet.to_bytes();
        let mut head = [0; 28];
        let len = (8 + bytes.len() + icrc::SIZE) as u16;
        head[0] = 0x45;
        head[2..4].copy_from_slice(&(20 + len).to_be_bytes());
        head[6] = 0x40;
        head[9] = 17;
        let both = [(self.own, 12), (self.to.ip(), 16)];
        for (address, at) in both {
            let IpAddr::V4(address) = address else { panic!("an IPv4 address") };
            head[at..at + 4].copy_from_slice(&address.octets());
        }
        let own = self.socket.local_addr().unwrap().port();
        head[20..22].copy_from_slice(&own.to_be_bytes());
        head[22..24].copy_from_slice(&PORT.to_be_bytes());
        head[24..26].copy_from_slice(&len.to_be_bytes());
        bytes.extend(icrc::of_packet(&head, &bytes));
        self.socket.send_to(&bytes, self.to).unwrap();
    }

    /// A request to read all of the memory.
    fn read(&self, psn: u32, memory: &MemoryRegion) {
        self.read_part(psn, memory, LONG);
    }

    fn read_part(&self, psn: u32, memory: &MemoryRegion, len: u32) {
        let remote = Remote { address: memory.address(), key: memory.rkey(), len };
        let base = Packet::new(Service::Rc, Operation::ReadRequest, self.qp);
        self.send(&Packet { psn, remote, asks: true, ..base });
    }
}

/// A device with a queue pair whose peer is the second address of a test, and memory that the peer may read.
fn victim(test: u8, faults: Faults) -> (Host, Side<Rc>, MemoryRegion, Peer) {
    // An ordinary socket chooses the identification, which the checksum covers.
    let profile = profile(faults).with_strict_checksums(false);
    let device = SoftDevice::on(address(test, 1), profile).expect("the port is free");
    let context = device.device().open().expect("it opens");
    let host = Host { device, context };
    let mut side = Side::new(&host.context, |pd, cq| pd.rc(cq).create().expect("a queue pair"));
    let mut options = options(&host.context);
    (options.mtu, options.incoming_reads) = (mtu::MTU_4096, Some(READS as u8));
    let own = side.qp.endpoint(&options, 1).expect("an endpoint");
    let mut there = own;
    there.gid[15] = 2;
    (there.qp_num, there.psn) = (77, FIRST);
    side.qp.connect(&options, &own, &there).expect("connected");
    let memory = side.pd.register(LONG as usize, AccessFlags::REMOTE_READ).expect("memory");
    let socket = UdpSocket::bind((address(test, 2), 0)).expect("a socket");
    let to = SocketAddr::new(address(test, 1), PORT);
    let peer = Peer { socket, own: address(test, 2), to, qp: side.qp.number() };
    (host, side, memory, peer)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The packets of a long read.
const PACKETS: u64 = (LONG / 4096) as u64;

/// The packets wait for half a second, so all that are made are still there when they are counted.
#[test]
fn a_long_read_takes_no_memory_before_it_is_sent() {
    let (host, _side, memory, peer) = victim(21, Faults::default().with_delay(Duration::from_millis(500)));
    for number in 0..4 {
        peer.read(FIRST + number * PACKETS as u32, &memory);
    }
    until("they arrive", || counter(&host, "rcvd_pkts") == 4);
    std::thread::sleep(Duration::from_millis(100));
    let made = counter(&host, "sent_pkts");
    assert!((1..=PACKETS / 8).contains(&made), "{made} packets of {}", PACKETS);
}

#[test]
fn every_packet_of_a_long_read_is_sent_once() {
    let (host, _side, memory, peer) = victim(22, Faults::default());
    peer.read(FIRST, &memory);
    until("all are sent", || counter(&host, "sent_pkts") >= PACKETS);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counter(&host, "sent_pkts"), PACKETS);
    assert_eq!((counter(&host, "rcvd_dropped_pkts"), counter(&host, "duplicate_request")), (0, 0));
}

#[test]
fn more_reads_than_the_queue_pair_allows_are_refused() {
    let (host, side, memory, peer) = victim(23, Faults::default().with_delay(Duration::from_millis(500)));
    for number in 0..200 {
        peer.read(FIRST + number * PACKETS as u32, &memory);
    }
    until("the queue pair fails", || side.qp.state() == Ok(QpState::Error));
    assert!(counter(&host, "sent_pkts") < PACKETS);
}

/// The rest of a read fails when its memory goes, and so does the queue pair.
#[test]
fn memory_that_goes_is_read_no_further() {
    let (host, side, memory, peer) = victim(24, Faults::default().with_delay(Duration::from_millis(200)));
    peer.read(FIRST, &memory);
    until("it begins", || counter(&host, "sent_pkts") > 0);
    drop(memory);
    until("the queue pair fails", || side.qp.state() == Ok(QpState::Error));
    assert!(counter(&host, "sent_pkts") < PACKETS / 8);
}

/// The peer may have had the responses by the time at which its repeated requests arrive, and go on.
#[test]
fn repeated_reads_take_no_place_of_new_ones() {
    let (host, side, memory, peer) = victim(25, Faults::default());
    for _ in 0..20 {
        (0..READS).for_each(|number| peer.read_part(FIRST + number, &memory, 8));
    }
    (READS..2 * READS).for_each(|number| peer.read_part(FIRST + number, &memory, 8));
    until("all arrive", || counter(&host, "rcvd_pkts") == u64::from(21 * READS));
    until("the last are answered", || counter(&host, "sent_pkts") >= u64::from(2 * READS));
    assert_eq!(side.qp.state(), Ok(QpState::ReadyToSend));
}
