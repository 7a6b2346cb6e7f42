//! Soft devices on a wire: messages between two of them, on good and on bad wires, and packets that belong to nobody.
//!
//! Each test has addresses of its own, all of the loopback interface. Behaviours of `tests/any` that need no device file run on such a
//! device with `UVERBS_TEST_DEVICE=soft@127.0.0.2`.

mod malformed;
mod messages;
#[cfg(feature = "raw")]
mod reads;
mod ways;

use std::net::{IpAddr, Ipv4Addr};

use uverbs::soft::{Faults, Profile};
use uverbs::{ConnectionOptions, Context, QueuePair, Rc, SoftDevice};

use crate::common::*;

/// A device on the wire.
struct Host {
    device: SoftDevice,
    context: Context,
}

fn address(test: u8, number: u8) -> IpAddr {
    Ipv4Addr::new(127, 41, test, number).into()
}

/// A wire with these faults. Checksums are checked in full.
fn profile(faults: Faults) -> Profile {
    Profile::default().with_strict_checksums(true).with_faults(faults)
}

/// Two devices of a test.
fn hosts(test: u8, faults: Faults) -> [Host; 2] {
    [1, 2].map(|number| {
        let faults = faults.with_seed(faults.seed + u64::from(number));
        let device = SoftDevice::on(address(test, number), profile(faults)).expect("the port is free");
        let context = device.device().open().expect("it opens");
        Host { device, context }
    })
}

/// A queue pair of each of two devices, connected to the other.
fn pair_with(hosts: &[Host; 2], change: impl Fn(&mut ConnectionOptions)) -> [Side<Rc>; 2] {
    let sides = hosts
        .each_ref()
        .map(|host| Side::new(&host.context, |pd, cq| pd.rc(cq).inline(64).create().expect("a queue pair")));
    connect(hosts, sides, change)
}

/// Connects a queue pair of each of two devices.
fn connect(
    hosts: &[Host; 2],
    [mut one, mut two]: [Side<Rc>; 2],
    change: impl Fn(&mut ConnectionOptions),
) -> [Side<Rc>; 2] {
    let mut options = options(&hosts[0].context);
    change(&mut options);
    // Numbers that overflow soon.
    let [a, b] = [(&one.qp, 0xff_fff0), (&two.qp, 5)]
        .map(|(qp, psn): (&QueuePair<Rc>, u32)| qp.endpoint(&options, psn).expect("an endpoint"));
    let own = [&one, &two].map(|side| side.qp.number());
    assert_eq!([a.qp_num, b.qp_num], own);
    one.qp.connect(&options, &a, &b).expect("connected");
    two.qp.connect(&options, &b, &a).expect("connected");
    [one, two]
}

/// The value of one counter of a device.
fn counter(host: &Host, name: &str) -> u64 {
    let mut statistics = host.device.device().statistics().expect("statistics");
    let all = statistics.read().expect("they can be read");
    all.iter().find(|counter| counter.name() == name).unwrap_or_else(|| panic!("no {name}")).value()
}
