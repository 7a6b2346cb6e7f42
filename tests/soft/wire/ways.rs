//! Ways to send and to make progress: addresses of both kinds, packets together or one by one, the device's thread and the program's polls.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use uverbs::soft::Faults;
use uverbs::{Completion, Operation, Rc, SoftDevice, Status};

use super::{Host, address, connect, counter, hosts, pair_with, profile};
use crate::common::*;

/// A side's memory is written by the other, in messages of several packets.
fn writes(one: &mut Side<Rc>, two: &Side<Rc>) {
    let bytes: Vec<u8> = (0..60_001_u32).map(|i| (i % 251) as u8).collect();
    one.memory.write(0, &bytes).unwrap();
    one.send(1, Operation::Write(two.remote(2)), 0..bytes.len());
    assert_eq!(one.completion().status, Status::Success);
    let mut back = vec![0; bytes.len()];
    two.memory.read(2, &mut back).unwrap();
    assert!(back == bytes, "what was written is there");
}

#[test]
fn an_ipv6_address_reaches_itself() {
    let address = Ipv6Addr::LOCALHOST.into();
    let device = match SoftDevice::on(address, profile(Faults::default())) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            return skipped("a wire with IPv6: this machine has no address ::1");
        }
        device => device.expect("the port is free"),
    };
    let context = device.device().open().unwrap();
    assert_eq!(context.gid(1, 0).unwrap().raw, Ipv6Addr::LOCALHOST.octets());
    let hosts = [device.clone(), device].map(|device| Host { device, context: context.clone() });
    let [mut one, two] = pair_with(&hosts, |_| {});
    writes(&mut one, &two);
    assert_eq!(counter(&hosts[0], "rcvd_icrc_err"), 0);
}

#[test]
fn packets_may_be_sent_one_by_one() {
    let devices = [1, 2].map(|number| {
        let profile = profile(Faults::default()).with_segmentation(number == 2);
        SoftDevice::on(address(30, number), profile).expect("the port is free")
    });
    let hosts = devices.map(|device| Host { context: device.device().open().unwrap(), device });
    let [mut one, mut two] = pair_with(&hosts, |_| {});
    writes(&mut one, &two);
    writes(&mut two, &one);
    assert_eq!([0, 1].map(|host| counter(&hosts[host], "rcvd_icrc_err")), [0, 0]);
}

#[test]
fn polls_make_progress_and_the_thread_goes_on_after_them() {
    let hosts = hosts(31, Faults::default());
    let [mut one, mut two] = pair_with(&hosts, |_| {});
    let mut batch = Completion::batch::<4>();
    for round in 0..200 {
        two.receive(round, 0..8);
        one.send(round, Operation::Send, 0..8);
        let (mut sent, mut received) = (0, 0);
        let start = Instant::now();
        while sent == 0 || received == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{sent} sent, {received} received");
            hosts.iter().for_each(|host| {
                host.device.progress();
            });
            sent += one.cq.poll(&mut batch);
            received += two.cq.poll(&mut batch);
        }
    }
    // Nobody polls for the device that answers.
    writes(&mut one, &two);
    assert_eq!(counter(&hosts[0], "completer_retry_err"), 0, "the thread came before the timer");
}

#[test]
fn a_program_that_polled_gets_the_event_that_it_asks_for() {
    let hosts = hosts(32, Faults::default());
    let channel = hosts[1].context.create_comp_channel().unwrap();
    let side = |host: &Host| Side::new(&host.context, |pd, cq| pd.rc(cq).create().unwrap());
    let (one, two) = (side(&hosts[0]), side(&hosts[1]));
    let cq = hosts[1].context.cq(8).channel(&channel).create().unwrap();
    let two = Side { qp: two.pd.rc(&cq).create().unwrap(), cq, ..two };
    let [mut one, mut two] = connect(&hosts, [one, two], |_| {});
    let mut batch = Completion::batch::<4>();
    let start = Instant::now();
    for round in 0..100 {
        two.receive(round, 0..8);
        two.cq.notify(false).unwrap();
        hosts[1].device.progress();
        assert_eq!(two.cq.poll(&mut batch), 0);
        one.send(round, Operation::Send, 0..8);
        assert!(channel.wait(Some(Duration::from_secs(10))).unwrap(), "an event");
        assert!(channel.next_event().unwrap().is_some());
        assert_eq!(two.cq.poll(&mut batch), 1);
        assert_eq!(one.completion().status, Status::Success);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
