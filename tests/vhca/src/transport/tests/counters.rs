//! The counters of queue pairs and of the port for the packets between queue pairs.

use super::*;
use crate::counter::Counter;
use crate::ifc::counter::query_q_counter_out as out;
use crate::port_counter::Traffic;

const WRITE: u8 = 0x08;
const FETCH_ADD: u8 = 0x12;

/// The pair, with each queue pair in the set with its own number.
fn counted_pair() -> Device {
    let mut device = pair();
    for number in [A, B] {
        device.counter_sets.insert(number);
        let context = &mut device.transport.qps.get_mut(&number).unwrap().context;
        context.set(qpc::counter_set_id, number);
        context.set(qpc::rwe, 1_u32);
        context.set(qpc::rae, 1_u32);
        // 4.096 us, which is shorter than a tick.
        context.part_mut(qpc::primary_address_path).set(ads::ack_timeout, 1_u32);
        context.set(qpc::retry_count, 3_u32);
    }
    device
}

fn counts(device: &mut Device, set: u32) -> Vec<u8> {
    let mut shown = vec![0; 256];
    device.counter_sets.read(set, false).unwrap().show(&mut shown);
    shown
}

/// Asserts that a set has counted these events and no others.
#[track_caller]
fn assert_counts(device: &mut Device, set: u32, expected: &[(Field, u32)]) {
    let found = counts(device, set);
    let mut wanted = vec![0; 256];
    expected.iter().for_each(|(field, count)| wanted.set(*field, *count));
    let named = |bytes: &[u8]| {
        let counted = out::ALL.iter().map(|(name, field)| (*name, bytes.num(*field)));
        counted.filter(|(_, count)| *count != 0).collect::<Vec<_>>()
    };
    assert_eq!((named(&found), found), (named(&wanted), wanted));
}

fn remote(key: u32) -> Vec<u8> {
    [&0x8000_u64.to_be_bytes()[..], &key.to_be_bytes(), &[0; 4]].concat()
}

/// Posts `count` receives of 4096 bytes.
fn post_receives(device: &Device, number: u32, count: u32) {
    let all = vec![segment(4096, 0x9000); count as usize].concat();
    device.memory.write(place(number, 0), &all).unwrap();
    device.memory.write(place(number, 1), &count.to_be_bytes()).unwrap();
}

fn tick(device: &mut Device, times: u32) {
    (0..times).for_each(|_| device.tick(TICK));
}

#[test]
fn requests_are_counted_by_who_receives_them() {
    let mut device = counted_pair();
    let add = vec![0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    post_receives(&device, B, 1);
    post(&device, A, 0, SEND, &[segment(8, 0x8000)]);
    // With three packets, and with one.
    post(&device, A, 1, WRITE, &[remote(KEY), segment(600, 0xa000)]);
    post(&device, A, 2, WRITE, &[remote(KEY), segment(8, 0xa000)]);
    post(&device, A, 3, READ, &[remote(KEY), segment(1000, 0xa000)]);
    post(&device, A, 4, FETCH_ADD, &[remote(KEY), add, segment(8, 0xa000)]);
    device.ring_qp(A);
    assert_eq!(completions(&device, A), [REQUESTER; 5]);
    assert_counts(&mut device, A, &[]);
    let requests = [(out::rx_write_requests, 2), (out::rx_read_requests, 1), (out::rx_atomic_requests, 1)];
    assert_counts(&mut device, B, &requests);
}

#[test]
fn a_set_counts_what_happens_while_a_queue_is_in_it() {
    let mut device = counted_pair();
    device.counter_sets.insert(9);
    for (counter, set) in [(0, 9), (1, 0), (2, B)] {
        device.transport.qps.get_mut(&B).unwrap().context.set(qpc::counter_set_id, set);
        post(&device, A, counter, READ, &[remote(KEY), segment(8, 0xa000)]);
        device.ring_qp(A);
    }
    assert_eq!(completions(&device, A), [REQUESTER; 3]);
    assert_counts(&mut device, B, &[(out::rx_read_requests, 1)]);
    assert_counts(&mut device, 9, &[(out::rx_read_requests, 1)]);
}

#[test]
fn a_lost_packet_is_missed_by_time() {
    let mut device = counted_pair();
    post_receives(&device, B, 1);
    post(&device, A, 0, SEND, &[segment(8, 0x8000)]);
    device.wire.mishaps.set(Mishap::Drop, 1);
    device.ring_qp(A);
    assert!(completions(&device, A).is_empty());
    tick(&mut device, 3);
    assert_eq!(completions(&device, A), [REQUESTER]);
    assert_counts(&mut device, A, &[(out::local_ack_timeout_err, 1)]);
    assert_counts(&mut device, B, &[]);
}

#[test]
fn a_lost_acknowledgement_brings_the_same_again() {
    let mut device = counted_pair();
    post_receives(&device, B, 1);
    post(&device, A, 0, SEND, &[segment(8, 0x8000)]);
    device.with_qp(A, Qp::advance);
    let (route, packet) = device.transport.transit.pop_front().unwrap();
    device.arrive(&route, &packet);
    device.transport.transit.clear();
    tick(&mut device, 3);
    assert_eq!(completions(&device, A), [REQUESTER]);
    assert_counts(&mut device, A, &[(out::local_ack_timeout_err, 1)]);
    assert_counts(&mut device, B, &[(out::duplicate_request, 1)]);
}

#[test]
fn packets_behind_a_lost_one_are_out_of_sequence_and_asked_for_once() {
    let mut device = counted_pair();
    post_receives(&device, B, 1);
    post(&device, A, 0, SEND, &[segment(1024, 0x8000)]);
    device.wire.mishaps.set(Mishap::Drop, 1);
    device.ring_qp(A);
    assert_eq!(completions(&device, A), [REQUESTER]);
    assert_counts(&mut device, A, &[(out::packet_seq_err, 1)]);
    assert_counts(&mut device, B, &[(out::out_of_sequence, 3)]);
}

#[test]
fn a_lost_answer_is_missed_by_what_comes_behind_it() {
    let mut device = counted_pair();
    post(&device, A, 0, READ, &[remote(KEY), segment(1000, 0xa000)]);
    device.with_qp(A, Qp::advance);
    let (route, request) = device.transport.transit.pop_front().unwrap();
    device.arrive(&route, &request);
    device.transport.transit.remove(1);
    device.carry();
    assert_eq!(completions(&device, A), [REQUESTER]);
    assert_counts(&mut device, A, &[(out::implied_nak_seq_err, 1)]);
    assert_counts(&mut device, B, &[(out::rx_read_requests, 1), (out::duplicate_request, 1)]);
}

#[test]
fn a_receiver_that_is_not_ready_is_counted_on_both_sides() {
    let mut device = counted_pair();
    post(&device, A, 0, SEND, &[segment(8, 0x8000)]);
    device.ring_qp(A);
    post_receives(&device, B, 1);
    tick(&mut device, 3);
    assert_eq!(completions(&device, A), [REQUESTER]);
    assert_counts(&mut device, A, &[(out::rnr_nak_retry_err, 1)]);
    assert_counts(&mut device, B, &[(out::out_of_buffer, 1)]);
}

#[test]
fn retries_that_are_used_up_are_no_retries() {
    let mut device = counted_pair();
    device.transport.qps.get_mut(&A).unwrap().context.set(qpc::rnr_retry, 1_u32);
    post(&device, A, 0, SEND, &[segment(8, 0x8000)]);
    device.ring_qp(A);
    tick(&mut device, 4);
    assert_eq!(completions(&device, A), [REQUESTER_ERROR]);
    let exceeded = Field::new(0x380, 32);
    assert_counts(&mut device, A, &[(out::rnr_nak_retry_err, 1), (out::req_cqe_error, 1), (exceeded, 1)]);
    assert_counts(&mut device, B, &[(out::out_of_buffer, 2)]);

    let mut device = counted_pair();
    device.wire.mishaps.lose(100.0, 1);
    post(&device, A, 0, SEND, &[segment(8, 0x8000)]);
    device.ring_qp(A);
    tick(&mut device, 9);
    assert_eq!(completions(&device, A), [REQUESTER_ERROR]);
    let given_up =
        [(out::local_ack_timeout_err, 3), (out::req_cqe_error, 1), (out::req_transport_retries_exceeded, 1)];
    assert_counts(&mut device, A, &given_up);
    assert_counts(&mut device, B, &[]);
}

#[test]
fn what_is_refused_is_counted_by_who_refuses_and_who_is_refused() {
    // A wrong key, an operation that is not allowed, and a receive that is too short. The requests behind it are flushed.
    for (fault, refused, refuses) in [
        ("key", out::req_remote_access_errors, out::resp_remote_access_errors),
        ("right", out::req_remote_invalid_request, out::resp_remote_invalid_request),
        ("length", out::req_remote_invalid_request, out::resp_local_length_error),
    ] {
        let mut device = counted_pair();
        post_receives(&device, B, 2);
        let request = match fault {
            "key" => (WRITE, vec![remote(KEY + 1), segment(8, 0xa000)]),
            "right" => (READ, vec![remote(KEY), segment(8, 0xa000)]),
            _ => (SEND, vec![segment(5000, 0x8000)]),
        };
        device.transport.qps.get_mut(&B).unwrap().context.set(qpc::rre, u32::from(fault != "right"));
        post(&device, A, 0, request.0, &request.1);
        post(&device, A, 1, SEND, &[segment(8, 0x8000)]);
        device.ring_qp(A);
        assert_eq!(completions(&device, A), [REQUESTER_ERROR; 2], "{fault}");
        let requester = [(out::req_cqe_error, 2), (out::req_cqe_flush_error, 1), (refused, 1)];
        assert_counts(&mut device, A, &requester);
        let flushed = if fault == "length" { 1 } else { 2 };
        let responder = [(out::resp_cqe_error, 2), (out::resp_cqe_flush_error, flushed), (refuses, 1)];
        assert_counts(&mut device, B, &responder);
    }
}

/// One message of 8 bytes, its acknowledgement, and a datagram to a group without members.
#[test]
fn the_port_counts_packets_as_long_as_on_the_wire() {
    let mut device = counted_pair();
    post_receives(&device, B, 1);
    post(&device, A, 0, SEND, &[segment(7, 0x8000)]);
    device.wire.mishaps.set(Mishap::Repeat, 1);
    device.ring_qp(A);
    let packets = |packets, octets| Counter { packets, octets };
    let Traffic { sent, received } = device.port_counts.function.rdma;
    // Link header, base header, data in whole words, checksum; an acknowledgement has four more bytes. The packet that arrived twice was
    // sent once, and was acknowledged twice.
    let (message, acknowledgement) = (8 + 12 + 8 + 4, 8 + 12 + 4 + 4);
    assert_eq!(sent.unicast, packets(3, message + 2 * acknowledgement));
    assert_eq!(received.unicast, packets(4, 2 * message + 2 * acknowledgement));
    // None of this has left the card.
    assert_eq!(device.port_counts.link, Default::default());

    let group = Route { dlid: 0xc001, has_grh: true, dgid: [0xff; 16], ..Route::default() };
    let datagram =
        Packet { payload: vec![0; 16], ..Packet::new(Service::Ud, Operation::SendOnly, 0xff_ffff) };
    let octets = 8 + 40 + 12 + 8 + 16 + 4;
    for (members, number) in [(0, 0), (1, 1)] {
        device.transport.groups.insert(group.dgid, vec![B; members]);
        device.pass(&group, &datagram);
        let counts = device.port_counts;
        assert_eq!(counts.function.rdma.received.multicast, packets(number, number * octets));
        assert_eq!(counts.link.frames.sent.multicast, packets(number + 1, (number + 1) * octets));
    }
}

#[test]
fn frames_from_the_wire_are_counted_whatever_is_in_them() {
    let mut device = counted_pair();
    let route = Route { dlid: LID, ..Route::default() };
    // Without a destination: the packet arrives at the card all the same.
    let packet = Packet { payload: vec![1; 16], ..Packet::new(Service::Rc, Operation::SendOnly, 0x99) };
    let good = infiniband::build(&route, &packet);
    let mut wrong = good.clone();
    wrong[20] ^= 1;
    let other = infiniband::build(&Route { dlid: LID + 1, ..route }, &packet);
    [&good, &wrong, &other, &good[..3].to_vec()].into_iter().for_each(|frame| device.frame_arrives(frame));
    let counts = device.port_counts;
    let len = good.len() as u64;
    assert_eq!(counts.link.frames.received.unicast, Counter { packets: 4, octets: 3 * len + 3 });
    assert_eq!(counts.function.rdma.received.unicast, Counter { packets: 1, octets: len });
    assert_eq!((counts.link.refused, counts.link.wrong_sums), (2, 1));
}

#[test]
fn marks_of_congestion_are_those_of_roce() {
    for (link, marked) in [(LinkLayer::Roce, 1), (LinkLayer::InfiniBand, 0)] {
        let mut device = counted_pair();
        device.port.link = link;
        for traffic_class in [0, 2, 3] {
            let route = Route { dlid: LID, traffic_class, ..Route::default() };
            device.arrive(&route, &Packet::new(Service::Rc, Operation::Acknowledge, A));
        }
        assert_eq!(device.port_counts.marked, marked);
        assert_eq!(device.port_counts.function.rdma.received.unicast.packets, 3);
    }
}
