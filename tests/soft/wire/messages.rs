//! Messages between two devices on a wire.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use uverbs::abi::types::mtu;
use uverbs::soft::{Faults, Profile};
use uverbs::{
    Completion, Datagram, Operation, QpState, ReceiveRequest, Remote, SendRequest, SoftDevice, Status, Uc,
    UcOperation, Ud, WcFlags,
};

use super::{address, counter, hosts, pair_with, profile};
use crate::common::*;

#[test]
fn the_first_gid_is_the_address_and_an_address_has_one_device() {
    let [one, _two] = hosts(1, Faults::default());
    let gids = one.context.gid_table().unwrap();
    assert_eq!(gids.len(), 1);
    assert_eq!(gids[0].raw, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 41, 1, 1]);
    assert_eq!(one.device.address(), Some(address(1, 1)));
    let again = || SoftDevice::on(address(1, 1), Profile::default()).map(drop).map_err(|error| error.kind());
    assert_eq!(again(), Err(std::io::ErrorKind::AddrInUse));
    drop(one);
    assert_eq!(again(), Ok(()));
    for nowhere in ["0.0.0.0", "224.0.0.1", "192.0.2.77"] {
        let error = SoftDevice::on(nowhere.parse().unwrap(), Profile::default()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable, "{nowhere}");
    }
}

#[test]
fn every_operation_reaches_the_other_device() {
    let hosts = hosts(2, Faults::default());
    for size in [mtu::MTU_256, mtu::MTU_1024, mtu::MTU_4096] {
        let [mut one, mut two] = pair_with(&hosts, |options| options.mtu = size);
        two.receive(5, 0..100);
        two.receive(6, 100..20_100);
        one.memory.write(0, b"a message").unwrap();
        one.send(1, Operation::Send, 0..9);
        one.send(2, Operation::SendImmediate(0x0102_0304), 0..20_000);
        assert_eq!(
            [one.completion(), one.completion()].map(|c| (c.wr_id, c.status)),
            [(1, Status::Success), (2, Status::Success)]
        );
        let first = two.completion();
        assert_eq!((first.wr_id, first.status, first.len), (5, Status::Success, 9));
        assert_eq!(&two.bytes::<9>(0), b"a message");
        let second = two.completion();
        assert_eq!((second.wr_id, second.immediate, second.len), (6, 0x0102_0304_u32.to_be(), 20_000));
        assert!(second.flags.contains(WcFlags::WITH_IMM));

        let long: Vec<u8> = (0..30_001).map(|i| (i % 251) as u8).collect();
        one.memory.write(0, &long).unwrap();
        one.send(3, Operation::Write(two.remote(1000)), 0..long.len());
        assert_eq!(one.completion().status, Status::Success);
        let mut back = vec![0; long.len()];
        two.memory.read(1000, &mut back).unwrap();
        assert!(back == long, "what was written is there");
        two.receive(7, 0..1);
        one.send(4, Operation::WriteImmediate(two.remote(0), 0x55), 10..20);
        assert_eq!(one.completion().wr_id, 4);
        assert_eq!((two.completion().wr_id, two.bytes::<10>(0)), (7, one.bytes::<10>(10)));
        one.send(5, Operation::Read(two.remote(1001)), 31_000..61_000);
        assert_eq!(one.completion().status, Status::Success);
        let mut read = vec![0; 30_000];
        one.memory.read(31_000, &mut read).unwrap();
        assert!(read == long[1..], "what was read is what was written");

        two.memory.write(64, &40_u64.to_ne_bytes()).unwrap();
        let remote = two.remote(64);
        one.send(1, Operation::FetchAdd { remote, add: 2 }, 0..8);
        one.send(2, Operation::CompareSwap { remote, compare: 42, swap: 7 }, 8..16);
        one.send(3, Operation::CompareSwap { remote, compare: 42, swap: 8 }, 16..24);
        for _ in 0..3 {
            assert_eq!(one.completion().status, Status::Success);
        }
        assert_eq!([0, 8, 16].map(|offset| u64::from_ne_bytes(one.bytes(offset))), [40, 42, 7]);
        assert_eq!(u64::from_ne_bytes(two.bytes(64)), 7);
    }
    assert_eq!(counter(&hosts[1], "rcvd_icrc_err"), 0);
}

/// Sends `count` messages with their numbers, and additions between them; all must arrive once and in order.
fn everything_arrives_once(test: u8, faults: Faults, count: u64) {
    let hosts = hosts(test, faults);
    // Losses that nothing shows are found by the timer.
    let [mut one, mut two] = pair_with(&hosts, |options| (options.timeout, options.rnr_timer) = (8, 1));
    const WINDOW: u64 = 16;
    let (mut posted, mut sent, mut received, mut expected) = (0, 0, 0, 0);
    let place = |number: u64| (number % WINDOW) as usize * 2048;
    // Long ones have several packets.
    let len = |number: u64| if number % 10 == 9 { 2000 } else { 8 + (number % 50) as usize };
    let sum_at = two.remote(60_000);
    let start = Instant::now();
    let mut batch = Completion::batch::<16>();
    while sent < count || received < count {
        assert!(start.elapsed() < Duration::from_secs(120), "{sent} sent and {received} received of {count}");
        while posted < count && posted < sent + WINDOW && posted < received + WINDOW {
            let at = place(posted);
            two.receive(posted, at..at + 2048);
            one.memory.write(at, &posted.to_ne_bytes()).unwrap();
            if posted % 20 == 7 {
                one.send(u64::MAX, Operation::FetchAdd { remote: sum_at, add: 1 }, 60_000..60_008);
                expected += 1;
            }
            one.send(posted, Operation::Send, at..at + len(posted));
            posted += 1;
        }
        let ended = one.cq.poll(&mut batch);
        for done in &batch[..ended] {
            assert_eq!(done.status, Status::Success);
            if done.wr_id != u64::MAX {
                assert_eq!(done.wr_id, sent, "in their order");
                sent += 1;
            }
        }
        let arrived = two.cq.poll(&mut batch);
        for done in &batch[..arrived] {
            assert_eq!(
                (done.status, done.wr_id, done.len as usize),
                (Status::Success, received, len(received))
            );
            assert_eq!(
                u64::from_ne_bytes(two.bytes(place(received))),
                received,
                "the message with this number"
            );
            received += 1;
        }
        if ended + arrived == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(u64::from_ne_bytes(two.bytes(60_000)), expected, "each addition was made once");
    assert_eq!(two.cq.poll(&mut batch), 0);
    if faults.loss > 0 {
        assert!(counter(&hosts[0], "completer_retry_err") > 0, "some were repeated");
    }
    if faults.duplicates > 0 {
        assert!(counter(&hosts[1], "duplicate_request") > 0, "some arrived twice");
    }
}

#[test]
fn ten_thousand_messages_arrive_once_on_a_good_wire() {
    everything_arrives_once(3, Faults::default(), 10_000);
}

#[test]
fn ten_thousand_messages_arrive_once_on_a_bad_wire() {
    let faults = Faults::seeded(41).with_loss(10_000).with_duplicates(10_000).with_reordering(10_000);
    everything_arrives_once(4, faults, 10_000);
}

#[test]
fn messages_arrive_once_on_a_wire_that_is_very_bad_and_slow() {
    let faults = Faults::seeded(42).with_loss(100_000).with_duplicates(100_000).with_reordering(100_000);
    everything_arrives_once(5, faults.with_delay(Duration::from_micros(300)), 500);
}

#[test]
fn long_reads_and_writes_arrive_on_a_bad_wire() {
    let faults = Faults::seeded(43).with_loss(20_000).with_duplicates(20_000).with_reordering(20_000);
    let hosts = hosts(6, faults);
    let [mut one, two] = pair_with(&hosts, |options| (options.timeout, options.mtu) = (8, mtu::MTU_256));
    for round in 0..10_u8 {
        let bytes: Vec<u8> = (0..60_000_u32).map(|i| (i % 253) as u8 ^ round).collect();
        two.memory.write(0, &bytes).unwrap();
        one.send(1, Operation::Read(two.remote(0)), 0..60_000);
        assert_eq!(one.completion().status, Status::Success);
        let mut read = vec![0; 60_000];
        one.memory.read(0, &mut read).unwrap();
        assert!(read == bytes, "round {round}: what was read");
        one.memory.write(0, &bytes[1..]).unwrap();
        one.send(2, Operation::Write(two.remote(100)), 0..50_000);
        assert_eq!(one.completion().status, Status::Success);
        two.memory.read(100, &mut read[..50_000]).unwrap();
        assert!(read[..50_000] == bytes[1..50_001], "round {round}: what was written");
    }
}

#[test]
fn a_message_without_a_receive_waits_or_ends() {
    let hosts = hosts(7, Faults::default());
    let [mut one, mut two] = pair_with(&hosts, |options| options.rnr_timer = 1);
    one.send(1, Operation::Send, 0..5000);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(one.cq.poll(&mut Completion::batch::<1>()), 0);
    two.receive(2, 0..5000);
    assert_eq!((one.completion().status, two.completion().len), (Status::Success, 5000));
    assert!(counter(&hosts[1], "send_rnr_err") > 0);
    let [mut one, _two] = pair_with(&hosts, |options| (options.rnr_timer, options.rnr_retries) = (1, 2));
    one.send(1, Operation::Send, 0..8);
    assert_eq!(one.completion().status, Status::RnrRetryExceeded);
    assert_eq!(one.qp.state().unwrap(), QpState::Error);
}

#[test]
fn a_peer_that_is_gone_is_noticed_after_its_time() {
    let [one, two] = hosts(8, Faults::default());
    let hosts = [one, two];
    let [mut side, other] = pair_with(&hosts, |options| (options.timeout, options.retries) = (14, 2));
    let [one, two] = hosts;
    drop((other, two));
    let start = Instant::now();
    side.send(1, Operation::Send, 0..8);
    side.send(2, Operation::Send, 0..8);
    let (first, second) = (side.completion(), side.completion());
    assert_eq!((first.wr_id, first.status), (1, Status::RetryExceeded));
    assert_eq!((second.wr_id, second.status), (2, Status::Flushed));
    // Three times 67 ms.
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert_eq!(counter(&one, "retry_exceeded_err"), 1);
}

#[test]
fn a_refused_request_ends_on_both_sides() {
    let hosts = hosts(9, Faults::default());
    let [mut one, mut two] = pair_with(&hosts, |_| {});
    let wrong = Remote { rkey: two.memory.rkey() ^ 0xff00, ..two.remote(0) };
    two.receive(7, 0..8);
    one.send(1, Operation::Write(wrong), 0..8);
    one.send(2, Operation::Send, 0..8);
    assert_eq!(
        [one.completion(), one.completion()].map(|c| c.status),
        [Status::RemoteAccess, Status::Flushed]
    );
    assert_eq!((two.completion().status, two.qp.state().unwrap()), (Status::Flushed, QpState::Error));
    // A message that is longer than its receive.
    let [mut one, mut two] = pair_with(&hosts, |_| {});
    two.receive(7, 0..1500);
    one.send(1, Operation::Send, 0..5000);
    assert_eq!(one.completion().status, Status::RemoteInvalidRequest);
    assert_eq!(two.completion().status, Status::LocalLength);
}

#[test]
fn datagrams_and_unreliable_connections_cross_the_wire() {
    let hosts = hosts(10, Faults::default());
    let options = options(&hosts[0].context);
    let [mut one, mut two] = hosts.each_ref().map(|host| {
        let mut side = Side::<Ud>::new(&host.context, |pd, cq| pd.ud(cq).create().unwrap());
        side.qp.activate(&options, 0x1234, 0).unwrap();
        side
    });
    let there = two.qp.endpoint(&options, 0).unwrap();
    let ah = one.pd.create_ah(&options.route(&there)).unwrap();
    two.receive(4, 0..2000);
    one.memory.write(0, b"datagram").unwrap();
    let datagram = Datagram { to: &ah, qp_num: there.qp_num, qkey: 0x1234, immediate: Some(9) };
    one.send(3, datagram, 0..8);
    assert_eq!(one.completion().status, Status::Success);
    let got = two.completion();
    assert_eq!((got.wr_id, got.len, got.source_qp, got.immediate), (4, 48, one.qp.number(), 9_u32.to_be()));
    assert_eq!(&two.bytes::<8>(40), b"datagram");

    let [mut one, mut two] =
        hosts.each_ref().map(|host| Side::<Uc>::new(&host.context, |pd, cq| pd.uc(cq).create().unwrap()));
    let [a, b] = [&one, &two].map(|side| side.qp.endpoint(&options, 77).unwrap());
    one.qp.connect(&options, &a, &b).unwrap();
    two.qp.connect(&options, &b, &a).unwrap();
    two.receive(1, 0..9000);
    one.send(2, UcOperation::Send, 0..9000);
    assert_eq!((one.completion().status, two.completion().len), (Status::Success, 9000));
}

#[test]
fn queue_pairs_of_a_device_share_receives() {
    let hosts = hosts(11, Faults::default());
    let pd = hosts[1].context.alloc_pd().unwrap();
    let mut srq = pd.srq(64).create().unwrap();
    let memory = pd.register(1 << 16, ALL).unwrap();
    let mut pairs: Vec<_> = (0..4)
        .map(|_| {
            let one = Side::new(&hosts[0].context, |pd, cq| pd.rc(cq).create().unwrap());
            let cq = hosts[1].context.create_cq(32).unwrap();
            let qp = pd.rc(&cq).srq(&srq).create().unwrap();
            let two = Side { qp, cq, memory: memory.clone(), pd: pd.clone() };
            super::connect(&hosts, [one, two], |options| options.rnr_timer = 1)
        })
        .collect();
    for wr_id in 0..40 {
        let segments = [memory.segment(1000 * wr_id..1000 * (wr_id + 1)).unwrap()];
        srq.post_receive(&[ReceiveRequest::new(wr_id as u64, &segments)]).unwrap();
    }
    for [one, _] in &mut pairs {
        (0..10).for_each(|wr_id| one.send(wr_id, Operation::Send, 0..1000));
    }
    let mut used = BTreeSet::new();
    for [one, two] in &mut pairs {
        for _ in 0..10 {
            assert_eq!(one.completion().status, Status::Success);
            assert!(used.insert(two.completion().wr_id), "each receive is used once");
        }
    }
}

/// A queue pair whose address handle is that of another device's packets.
#[test]
fn packets_from_elsewhere_are_not_taken() {
    let hosts = hosts(12, Faults::default());
    let third = SoftDevice::on(address(12, 3), profile(Faults::default())).unwrap();
    let [mut one, mut two] = pair_with(&hosts, |_| {});
    let context = third.device().open().unwrap();
    let mut stranger = Side::new(&context, |pd, cq| pd.rc(cq).create().unwrap());
    let mut options = options(&context);
    (options.timeout, options.retries) = (10, 1);
    let own = stranger.qp.endpoint(&options, 0).unwrap();
    let there = two.qp.endpoint(&options, 0xff_fff0).unwrap();
    stranger.qp.connect(&options, &own, &there).unwrap();
    two.receive(1, 0..8);
    stranger.send(1, Operation::Send, 0..8);
    assert_eq!(stranger.completion().status, Status::RetryExceeded);
    assert!(counter(&hosts[1], "rcvd_dropped_pkts") > 0);
    one.qp.post_send(&[SendRequest::inline(2, Operation::Send, b"mine").signaled()]).unwrap();
    assert_eq!((one.completion().status, two.completion().len), (Status::Success, 4));
}
