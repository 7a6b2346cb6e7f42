//! Mistakes of a program, the firmware or the kernel around counters and flows, on the soft device and on a card with a control line; and
//! a card that is removed. `threads.rs` has those of threads.
//!
//! `UVERBS_TEST_REMOVE` and `UVERBS_TEST_RESTORE` are commands that remove a real device and bring it back.
#![cfg(feature = "soft")]

mod common;

use std::process::Command;
use std::time::Instant;

use common::*;
use uverbs::mlx5::{CounterPool, Totals};
use uverbs::{ErrorKind, Eth, FlowRule, OpenOptions, Point, Result};

fn to_mac(mac: [u8; 6]) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(mac))
}

/// Number of commands for counters and rules on the control line.
fn commands(target: &Target) -> u32 {
    let count = |name| target.control.as_ref().map_or(0, |control| control.commands(name));
    ["ALLOC_FLOW_COUNTER", "SET_FLOW_TABLE_ENTRY", "QUERY_FLOW_COUNTER"].into_iter().map(count).sum()
}

/// Through libibverbs, the next attach never returns.
#[test]
fn a_flow_without_points_is_refused_before_a_command_and_the_counters_live_on() {
    on_every_counting_device(|target| {
        let raw = Raw::new(&target.open());
        let counters = raw.context.create_counters().unwrap();
        let before = commands(target);
        let rule = to_mac(MAC).count(&counters);
        refuses(raw.qp.create_flow(&rule), ErrorKind::InvalidInput, EINVAL, "attach a point");
        assert_eq!(commands(target), before);
        counters.attach(Point::Bytes, 0).unwrap();
        let flow = raw.qp.create_flow(&rule).unwrap();
        counters.read(&mut [0]).unwrap();
        drop(rule);
        flow.destroy().unwrap();
        counters.destroy().unwrap();
    });
}

/// Through libibverbs the kernel writes outside its memory at the next read.
#[test]
fn an_index_of_all_ones_is_refused_and_the_counters_live_on() {
    on_every_counting_device(|target| {
        let raw = Raw::new(&target.open());
        let counters = packets_and_bytes(&raw.context);
        refuses(counters.attach(Point::Packets, u32::MAX), ErrorKind::InvalidInput, EINVAL, "8190");
        let _flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        assert_eq!(read2(&counters), [0, 0]);
    });
}

/// EINVAL may also mean that the firmware has no counter. The crate finds out that the rule was the reason, so the device file is closed
/// as usual.
#[test]
fn a_first_rule_that_the_driver_refuses_costs_the_counters_nothing() {
    on_every_wire(|target, wire, raw| {
        if raw.context.create_counters().is_err() {
            return skip(target, "it has no flow counters");
        }
        let counters = packets_and_bytes(&raw.context);
        for _ in 0..3 {
            let refused = raw.qp.create_flow(&to_mac(MAC).allow_loop_back().count(&counters));
            assert_eq!(refused.unwrap_err().errno(), Some(EINVAL));
        }
        let rule = to_mac(MAC).count(&counters);
        let flow = raw.qp.create_flow(&rule).unwrap();
        wire.inject(&frame(MAC, 60));
        assert_eq!(read2(&counters), [1, 60]);
        drop(rule);
        flow.destroy().unwrap();
        counters.destroy().unwrap();
    });
}

/// They cannot contain a count ([`FlowRule::count`] is a method of normal rules).
#[test]
fn default_rules_take_what_no_other_takes_where_the_kernel_can_make_them() {
    on_every_wire(|target, wire, mut raw| {
        let mut answers = Answers::of(target);
        let kernel_can = |made: &Result<uverbs::Flow>| match made {
            Ok(_) => "success",
            Err(error) => {
                assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, Some(EINVAL)));
                assert!(error.hint().unwrap().contains("priority 15"), "{error}");
                "refused"
            }
        };
        raw.post_receives(4);
        let multicast = raw.qp.create_flow(&FlowRule::mc_default(1));
        answers.is("a rule for other multicast", kernel_can(&multicast), "success");
        if multicast.is_ok() {
            let taken = [MAC, [3, 0, 0, 0, 0, 1]].map(|mac| {
                wire.inject(&frame(mac, 60));
                raw.completions().len()
            });
            answers.is("of a frame for the card, and one of other multicast, it takes", taken, [0, 1]);
        }
        drop(multicast);
        let all = raw.qp.create_flow(&FlowRule::all_default(1));
        answers.is("a rule for all others", kernel_can(&all), "success");
        if all.is_ok() {
            wire.inject(&frame(MAC, 60));
            wire.inject(&frame([3, 0, 0, 0, 0, 1], 60));
            assert_eq!(raw.completions().len(), 2);
        }
    });
}

/// The two are one entry in the card's table.
#[test]
fn the_second_of_two_counters_on_one_match_goes_on_when_the_first_is_gone() {
    on_every_wire(|target, wire, raw| {
        let mut answers = Answers::of(target);
        let [one, two] = [(); 2].map(|()| packets_and_bytes(&raw.context));
        let first = raw.qp.create_flow(&to_mac(MAC).count(&one)).unwrap();
        let second = raw.qp.create_flow(&to_mac(MAC).count(&two));
        answers.is("two counters on one match", second.as_ref().err().and_then(uverbs::Error::errno), None);
        wire.inject(&frame(MAC, 60));
        assert_eq!(read2(&one), [1, 60]);
        if second.is_err() && target.soft.is_none() {
            // The driver refuses it after it has taken a counter, and returns only EINVAL.
            target.keeps_a_context();
        }
        if let Ok(_second) = second {
            assert_eq!(read2(&two), [1, 60]);
            drop(first);
            wire.inject(&frame(MAC, 60));
            answers.is("the second counter when the first is gone", read2(&two), [2, 120]);
        }
    });
}

fn run(variable: &str) -> bool {
    let Ok(command) = std::env::var(variable) else { return false };
    Command::new("sh").args(["-c", &command]).status().expect("sh").success()
}

#[test]
fn a_device_that_is_taken_away_with_flows_in_force_ends_everything_and_nothing_hangs() {
    on_every_wire(|target, wire, mut raw| {
        let counters = packets_and_bytes(&raw.context);
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let mut reader = flow.reader().unwrap();
        raw.post_receives(4);
        wire.inject(&frame(MAC, 60));
        assert_eq!(reader.read().unwrap(), [1, 60]);
        let begun = Instant::now();
        match &target.soft {
            Some(soft) => soft.unplug(),
            None if run("UVERBS_TEST_REMOVE") => {}
            None => return skip(target, "no command takes it away"),
        }
        let gone = |what: &str, error: Option<uverbs::Error>| {
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Disassociated), "{what}");
        };
        gone("a read", counters.read(&mut [0; 2]).err());
        gone("a reader", reader.read().err());
        gone("a flow", raw.qp.create_flow(&to_mac([2, 0, 0, 0, 0, 2])).err());
        gone("counters", raw.context.create_counters().err());
        gone("a query", raw.context.query_port(1).err());
        gone("a state", raw.qp.state().err());
        // Posting to it and polling harm nothing.
        raw.post_receives(1);
        raw.completions();
        drop((reader, flow));
        counters.destroy().unwrap();
        drop(raw);
        assert!(begun.elapsed().as_secs() < 60);
        if target.soft.is_none() {
            assert!(run("UVERBS_TEST_RESTORE"), "it comes back");
            let again = Raw::new(&target.open_again());
            let counters = packets_and_bytes(&again.context);
            let _flow = again.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
            wire.inject(&frame(MAC, 60));
            assert_eq!(read2(&counters), [1, 60]);
        }
    });
}

/// The errors for a program with a pool when its device is removed; all its objects end.
#[test]
fn a_device_that_is_taken_away_with_a_pool_in_use_ends_it_too() {
    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, 8).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to_mac(MAC)).unwrap();
        let (snapshot, mut reader, mut queries) =
            (flow.counter().snapshot(), pool.reader(), pool.queries().unwrap());
        wire.inject(&frame(MAC, 60));
        let old = std::time::Duration::from_secs(3600);
        assert_eq!(snapshot.read_cached::<2>(old).unwrap().values(), [1, 60]);
        if !run("UVERBS_TEST_REMOVE") {
            return skip(target, "no command takes it away");
        }
        let gone = |what: &str, error: Option<uverbs::Error>| {
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Disassociated), "{what}");
        };
        gone("a read", reader.read().err());
        gone("a snapshot", snapshot.read_cached::<2>(std::time::Duration::ZERO).err());
        assert!(snapshot.has_ended());
        gone("a counter", pool.take().err());
        gone("a flow", flow.counter().create_flow(&raw.qp, &to_mac([2, 0, 0, 0, 0, 2])).err());
        gone("a query", queries.start().err());
        gone("its answer", queries.try_next().err());
        gone("another pool", CounterPool::new(&raw.context, 1).err());
        flow.destroy().unwrap();
        drop((reader, queries, snapshot));
        assert_eq!(pool.available(), 8);
        pool.destroy().unwrap();
        assert!(run("UVERBS_TEST_RESTORE"), "it comes back");
        let again = OpenOptions::new().devx(true).open(target.open_again().device()).unwrap();
        let raw = Raw::new(&again);
        let pool = CounterPool::new(&again, 8).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to_mac(MAC)).unwrap();
        wire.inject(&frame(MAC, 60));
        let counted = Totals { packets: 1, bytes: 60 };
        assert_eq!(pool.reader().read().unwrap().of(flow.counter()), Some(counted));
    });
}

/// The driver would give such a flow receiver number 0, which it has not created and which may belong to anyone.
#[test]
fn a_queue_pair_that_cannot_receive_is_the_destination_of_nothing() {
    on_every_wire(|target, wire, raw| {
        let raw_packets = raw.pd.raw_packet(&raw.cq).send_depth(4).receive_depth(0).connect(1);
        let sends_only = match raw_packets {
            Ok(qp) => qp,
            Err(error) => return skip(target, &format!("it has no queue pair that only sends: {error}")),
        };
        for rule in [to_mac(MAC), to_mac(MAC).dont_trap(), FlowRule::normal(1)] {
            refuses(sends_only.create_flow(&rule), ErrorKind::InvalidInput, EINVAL, "no receive queue");
        }
        refuses(
            sends_only.create_flow(&FlowRule::all_default(1)),
            ErrorKind::InvalidInput,
            EINVAL,
            "no receive queue",
        );
        // Dropped packets have no destination.
        let counters = packets_and_bytes(&raw.context);
        let drops = sends_only.create_flow(&to_mac(MAC).drop().count(&counters)).unwrap();
        wire.inject(&frame(MAC, 60));
        assert_eq!(read2(&counters), [1, 60]);
        drop(drops);
    });
}
