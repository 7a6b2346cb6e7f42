//! Counters to which queue pairs are bound (`Device::queue_pair_counters`), on devices whose drivers count per queue pair.

use std::panic::Location;

use crate::common::*;
use uverbs::statistics::{BindBy, CounterMode, QueuePairCounter, QueuePairCounters};
use uverbs::{Context, ErrorKind, Operation, Rc, Status};

/// A number that no queue pair has.
const NOBODY: u32 = 0xff_ffff;

/// Runs a behaviour on devices that can bind queue pairs; reports the others as skipped.
#[track_caller]
fn on_every_binding_device(behaviour: impl Fn(&Target, QueuePairCounters)) {
    let at = Location::caller();
    on_every_connecting_device(|target| {
        let counters = target.device.queue_pair_counters(1);
        let probed = counters.and_then(|mut counters| {
            counters.mode()?;
            match counters.bind(NOBODY) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(counters),
                other => Err(other.expect_err("nobody is bound")),
            }
        });
        match probed {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                skip_at(at, target, "its driver does not count per queue pair");
            }
            counters => behaviour(target, counters.unwrap()),
        }
    });
}

/// Two connected queue pairs.
struct Pair(Side<Rc>, Side<Rc>);

impl Pair {
    fn new(target: &Target) -> Self {
        let (one, two) = rc_pair(target);
        Self(one, two)
    }

    /// Both are connected while a rule is set.
    fn of(context: &Context) -> Self {
        let make = |pd: &uverbs::ProtectionDomain, cq: &uverbs::CompletionQueue| pd.rc(cq).create().unwrap();
        let (mut one, mut two) = (Side::new(context, make), Side::new(context, make));
        connect(context, &mut one.qp, &mut two.qp);
        Self(one, two)
    }

    /// The first side reads from the second, so that the second counts this.
    fn read(&mut self, times: u64) {
        for number in 0..times {
            let remote = self.1.remote(1024);
            self.0.send(number, Operation::Read(remote), 0..8);
            assert_eq!(self.0.completion().status, Status::Success);
        }
    }

    fn numbers(&self) -> [u32; 2] {
        [self.0.qp.number(), self.1.qp.number()]
    }
}

/// Number of read requests in a counter.
fn reads(counter: &QueuePairCounter) -> u64 {
    let row = counter.counters.iter().find(|row| row.name() == "rx_read_requests");
    row.expect("a counter of reads").value()
}

/// Those of the port, which include everything that was ever counted.
fn reads_of_port(target: &Target) -> u64 {
    let mut statistics = target.device.port_statistics(1).unwrap();
    let rows = statistics.read().unwrap();
    rows.iter().find(|row| row.name() == "rx_read_requests").expect("a counter of reads").value()
}

fn only(counters: &mut QueuePairCounters) -> QueuePairCounter {
    let mut found = counters.list().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_bound_queue_pair_is_counted_by_itself() {
    on_every_binding_device(|target, mut counters| {
        let before = reads_of_port(target);
        let mut pair = Pair::new(target);
        let [one, two] = pair.numbers();
        pair.read(2);
        let id = counters.bind(two).unwrap();
        assert_eq!(counters.mode().unwrap(), CounterMode::OneByOne);
        pair.read(7);
        let found = only(&mut counters);
        assert_eq!((found.id, found.port, found.mode), (id, 1, CounterMode::OneByOne));
        assert_eq!((&found.queue_pairs[..], reads(&found)), (&[two][..], 7), "only since it is bound");
        assert_eq!(reads_of_port(target), before + 9, "the port has all");

        // A refused call changes nothing.
        for (refused, kind) in [
            (counters.bind(two).map(drop), ErrorKind::Exhausted),
            (counters.bind_to(two, id), ErrorKind::InvalidInput),
            (counters.bind(NOBODY).map(drop), ErrorKind::NotFound),
            (counters.bind_to(one, id + 1000), ErrorKind::NotFound),
            (counters.unbind(one, id), ErrorKind::InvalidInput),
            (counters.unbind(NOBODY, id), ErrorKind::NotFound),
        ] {
            assert_eq!(refused.unwrap_err().kind(), kind);
        }
        assert_eq!(only(&mut counters).queue_pairs, [two]);

        // A second one shares it.
        counters.bind_to(one, id).unwrap();
        let mut both = only(&mut counters).queue_pairs;
        both.sort_unstable();
        assert_eq!(both, {
            let mut all = [one, two];
            all.sort_unstable();
            all
        });
        pair.read(3);
        assert_eq!(reads(&only(&mut counters)), 10);
        counters.unbind(two, id).unwrap();
        pair.read(5);
        let found = only(&mut counters);
        assert_eq!((&found.queue_pairs[..], reads(&found)), (&[one][..], 10), "nobody reads from it");
        counters.unbind(one, id).unwrap();
        assert_eq!(counters.list().unwrap(), []);
        assert_eq!(counters.mode().unwrap(), CounterMode::Off);
        assert_eq!(reads_of_port(target), before + 17);
    });
}

#[test]
fn what_a_queue_pair_has_counted_outlives_it() {
    on_every_binding_device(|target, mut counters| {
        let before = reads_of_port(target);
        let mut pair = Pair::new(target);
        counters.bind(pair.numbers()[1]).unwrap();
        pair.read(4);
        drop(pair);
        assert_eq!(counters.list().unwrap(), []);
        assert_eq!(reads_of_port(target), before + 4);
        // The next one begins at zero.
        let mut pair = Pair::new(target);
        counters.bind(pair.numbers()[1]).unwrap();
        assert_eq!(reads(&only(&mut counters)), 0);
        pair.read(1);
        assert_eq!(reads(&only(&mut counters)), 1);
    });
}

#[test]
fn a_rule_binds_those_that_are_connected_from_now_on() {
    on_every_binding_device(|target, mut counters| {
        let before = reads_of_port(target);
        let context = target.open();
        let mut earlier = Pair::of(&context);
        counters.bind_by(BindBy::PROCESS).unwrap();
        let by = |by| CounterMode::ByRule { by, with_optional: false };
        assert_eq!(counters.mode().unwrap(), by(BindBy::PROCESS));
        let mut pair = Pair::of(&context);
        pair.read(6);
        earlier.read(1);
        let found = only(&mut counters);
        let mut numbers = found.queue_pairs.clone();
        numbers.sort_unstable();
        let mut wanted = pair.numbers();
        wanted.sort_unstable();
        assert_eq!((&numbers[..], reads(&found)), (&wanted[..], 6));
        assert_eq!(found.owner.as_ref().and_then(|owner| owner.pid()), Some(std::process::id()));
        assert_eq!(found.mode, by(BindBy::PROCESS));

        // Meanwhile another rule, or binding one queue pair individually, is refused.
        assert_eq!(counters.bind_by(BindBy::TYPE).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(counters.bind(earlier.numbers()[0]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(only(&mut counters).queue_pairs.len(), 2);
        drop(pair);
        assert_eq!(counters.list().unwrap(), []);
        counters.bind_by(BindBy::empty()).unwrap();
        assert_eq!(counters.mode().unwrap(), CounterMode::Off);
        let _unbound = Pair::of(&context);
        assert_eq!(counters.list().unwrap(), []);
        assert_eq!(reads_of_port(target), before + 7);
    });
}

#[test]
fn what_the_firmware_refuses_binds_nothing() {
    on_every_binding_device(|target, mut counters| {
        let Some(control) = &target.control else {
            return skip(target, "its firmware cannot be told to fail");
        };
        let mut pair = Pair::new(target);
        let two = pair.numbers()[1];
        for (request, kind) in
            [("fail ALLOC_Q_COUNTER 8", Some(ErrorKind::Exhausted)), ("fail RTS2RTS_QP 16", None)]
        {
            control.ask(request);
            let error = counters.bind(two).unwrap_err();
            assert!(kind.is_none_or(|kind| kind == error.kind()), "{request}: {error}");
            control.heal();
            assert_eq!(counters.list().unwrap(), [], "{request}");
            pair.read(2);
        }
        let id = counters.bind(two).unwrap();
        pair.read(3);
        assert_eq!(reads(&only(&mut counters)), 3);
        counters.unbind(two, id).unwrap();
    });
}
