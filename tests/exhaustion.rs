//! A device without a flow counter for the first flow of a counters object.
//!
//! In that case mlx5's driver keeps an error in the kernel's object, which the crate therefore never uses again, and the kernel does not
//! survive the end of the device file (docs/internals/kernels.md). So these tests use the soft device, which refuses in the same places, and
//! watch which commands are sent.
#![cfg(feature = "soft")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use nix::errno::Errno;
use nix::libc::{EFAULT, ENOSPC, EPERM, ETIMEDOUT};
use uverbs::command::Command;
use uverbs::soft::Profile;
use uverbs::transport::Watcher;
use uverbs::{ErrorKind, Eth, FlowRule, Point, SoftDevice};

fn to(last: u8) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, last]))
}

/// Runs a behaviour on a soft device that has exactly two counters.
fn with_two_counters(behaviour: impl Fn(&Target, &Raw)) {
    let target = Target::soft(Profile::default().with_max_bound_counters(2));
    behaviour(&target, &Raw::new(&target.open()));
}

#[test]
fn the_third_counters_find_none_left_the_others_go_on_and_they_get_one_that_becomes_free() {
    with_two_counters(|target, raw| {
        let [one, two, third] = [(); 3].map(|()| packets_and_bytes(&raw.context));
        let [first, _second] = [(1, &one), (2, &two)]
            .map(|(last, counters)| raw.qp.create_flow(&to(last).count(counters)).unwrap());
        let rule = to(3).count(&third);
        for _ in 0..3 {
            refuses(raw.qp.create_flow(&rule), ErrorKind::Exhausted, ENOMEM, "no counter");
            refuses(third.read(&mut [0; 2]), ErrorKind::InvalidInput, EINVAL, "no flow uses");
            third.attach(Point::Packets, 2).unwrap();
        }
        let wire = target.wire().unwrap();
        for last in [1, 2, 2, 3] {
            wire.inject(&frame([2, 0, 0, 0, 0, last], 60));
        }
        assert_eq!((read2(&one), read2(&two)), ([1, 60], [2, 120]));
        first.destroy().unwrap();
        one.destroy().unwrap();
        let flow = raw.qp.create_flow(&rule).unwrap();
        wire.inject(&frame([2, 0, 0, 0, 0, 3], 60));
        let mut values = [0; 3];
        third.read(&mut values).unwrap();
        assert_eq!(values, [1, 60, 3]);
        drop(rule);
        flow.destroy().unwrap();
        third.destroy().unwrap();
    });
}

#[test]
fn counters_that_found_none_left_are_destroyed_without_a_word_to_the_device() {
    let soft = SoftDevice::new(Profile::default().with_max_bound_counters(2));
    let seen = Arc::new(Seen::default());
    let raw = Raw::new(&soft.device().open_with(Refusing(seen.clone())).unwrap());
    let flows =
        [1, 2].map(|last| raw.qp.create_flow(&to(last).count(&packets_and_bytes(&raw.context))).unwrap());
    let [dropped, destroyed] = [(); 2].map(|()| packets_and_bytes(&raw.context));
    for counters in [&dropped, &destroyed] {
        refuses(raw.qp.create_flow(&to(3).count(counters)), ErrorKind::Exhausted, ENOMEM, "no counter");
    }
    drop(dropped);
    destroyed.destroy().unwrap();
    assert_eq!(seen.ended.load(Ordering::Relaxed), 0, "no command for what may be damaged");
    // The counters of destroyed flows are free again: two more flows get one.
    drop(flows);
    assert_eq!(seen.ended.load(Ordering::Relaxed), 2);
    let _flows =
        [1, 2].map(|last| raw.qp.create_flow(&to(last).count(&packets_and_bytes(&raw.context))).unwrap());
}

/// Answers the next CREATE_FLOW with an errno, and counts the counters objects.
#[derive(Debug)]
struct Refusing(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    next: Mutex<Option<Errno>>,
    made: AtomicUsize,
    ended: AtomicUsize,
}

impl Watcher for Refusing {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        match command.op() {
            "flow.create" => self.0.next.lock().unwrap().take().map_or(Ok(()), Err)?,
            "counters.create" => drop(self.0.made.fetch_add(1, Ordering::Relaxed)),
            "counters.destroy" => drop(self.0.ended.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn the_kernels_object_is_left_alone_after_a_first_flow_that_may_have_found_no_counter() {
    let soft = SoftDevice::default();
    let seen = Arc::new(Seen::default());
    let context = soft.device().open_with(Refusing(seen.clone())).unwrap();
    let raw = Raw::new(&context);
    let refuse = |rule: &FlowRule, errno| {
        *seen.next.lock().unwrap() = Some(Errno::from_raw(errno));
        assert_eq!(raw.qp.create_flow(rule).unwrap_err().errno(), Some(errno));
    };
    let before = soft.resources().counters;
    let never = [EFAULT, EOPNOTSUPP, EPROTONOSUPPORT, EPERM, ENOENT, EEXIST, ENOSPC];
    let perhaps = [EINVAL, EIO, EBUSY, ENOMEM, EAGAIN, ETIMEDOUT];
    for (errnos, made) in [(&never[..], 1), (&perhaps[..], 2)] {
        for &errno in errnos {
            seen.made.store(0, Ordering::Relaxed);
            let counters = packets_and_bytes(&context);
            let rule = to(1).count(&counters);
            refuse(&rule, errno);
            let flow = raw.qp.create_flow(&rule).unwrap();
            assert_eq!(seen.made.load(Ordering::Relaxed), made, "{errno}");
            // The device's counter exists by now, so no later failure concerns its allocation.
            refuse(&rule, errno);
            flow.destroy().unwrap();
            refuse(&rule, errno);
            let flow = raw.qp.create_flow(&rule).unwrap();
            assert_eq!(seen.made.load(Ordering::Relaxed), made, "{errno}");
            drop((flow, rule));
            counters.destroy().unwrap();
        }
    }
    assert_eq!(soft.resources().counters, before + perhaps.len());
    drop((raw, context));
    assert!(soft.resources().is_empty());
}

/// First flows whose failure cannot be distinguished from a refused counter are limited in number.
#[test]
fn after_many_first_flows_that_failed_no_other_is_tried() {
    let soft = SoftDevice::new(Profile::default().with_max_bound_counters(0));
    let log = Arc::new(Seen::default());
    let spy = log.clone();
    let context = soft.device().open_with(Refusing(spy)).unwrap();
    let raw = Raw::new(&context);
    let counters = packets_and_bytes(&context);
    let rule = to(1).count(&counters);
    for _ in 0..1024 {
        refuses(raw.qp.create_flow(&rule), ErrorKind::Exhausted, ENOMEM, "no counter");
    }
    let made = log.made.load(Ordering::Relaxed);
    assert_eq!(made, 1024);
    for counters in [counters, packets_and_bytes(&context)] {
        refuses(
            raw.qp.create_flow(&to(1).count(&counters)),
            ErrorKind::Exhausted,
            ENOMEM,
            "1024 first flows",
        );
    }
    // Only the counters of the last one were requested, and other rules continue.
    assert_eq!(log.made.load(Ordering::Relaxed), made + 1);
    drop(raw.qp.create_flow(&to(1)).unwrap());
}

/// EINVAL for a rule that is refused before a counter is requested has no consequences, however often it occurs.
#[test]
fn a_rule_that_is_refused_is_none_of_them() {
    let soft = SoftDevice::default();
    let log = Arc::new(Seen::default());
    let spy = log.clone();
    let context = soft.device().open_with(Refusing(spy)).unwrap();
    let raw = Raw::new(&context);
    let counters = packets_and_bytes(&context);
    for _ in 0..1025 {
        let rule = to(1).allow_loop_back().count(&counters);
        assert_eq!(raw.qp.create_flow(&rule).unwrap_err().errno(), Some(EINVAL));
        let rule = to(1).priority(16).count(&counters);
        assert_eq!(raw.qp.create_flow(&rule).unwrap_err().errno(), Some(ENOMEM));
    }
    assert_eq!(log.made.load(Ordering::Relaxed), 1);
    drop(raw.qp.create_flow(&to(1).count(&counters)).unwrap());
    assert_eq!(log.made.load(Ordering::Relaxed), 1);
}
