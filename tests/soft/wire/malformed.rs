//! Packets that no correct sender sends.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use uverbs::soft::Faults;
use uverbs::{Operation, Status};

use super::{address, counter, hosts, pair_with};

/// Bytes of a packet: opcode, flags, the queue pair, a word with the sequence number, and more.
fn packet(opcode: u8, flags: u8, qp: u32, psn: u32, rest: &[u8]) -> Vec<u8> {
    let head = [opcode, flags, 0xff, 0xff];
    [&head[..], &qp.to_be_bytes(), &psn.to_be_bytes(), rest].concat()
}

#[test]
fn what_is_malformed_is_dropped_and_counted() {
    let hosts = hosts(20, Faults::default());
    let [mut one, mut two] = pair_with(&hosts, |_| {});
    let number = two.qp.number();
    let socket = UdpSocket::bind((address(20, 9), 0)).unwrap();
    let all: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        vec![0xff; 11],
        vec![0; 15],
        vec![0; 16],
        vec![0xff; 4000],
        vec![0; 9000],
        // Without a checksum, and with those of a queue pair that is there.
        packet(0x04, 0x40, number, 0xff_fff0, b"dataSUMS"),
        packet(0x81, 0x40, number, 0, &[0; 20]),
        packet(0x0c, 0x40, number, 0xff_fff0, &[0xff; 20]),
    ];
    for bytes in &all {
        socket.send_to(bytes, (address(20, 2), 4791)).unwrap();
    }
    let start = Instant::now();
    while counter(&hosts[1], "rcvd_dropped_pkts") < all.len() as u64 {
        assert!(start.elapsed() < Duration::from_secs(20), "all are counted");
        std::thread::yield_now();
    }
    assert_eq!(counter(&hosts[1], "rcvd_pkts"), all.len() as u64);
    assert_eq!(counter(&hosts[1], "sent_pkts"), 0);
    two.receive(1, 0..8);
    one.send(2, Operation::Send, 0..8);
    assert_eq!((one.completion().status, two.completion().len), (Status::Success, 8));
}
