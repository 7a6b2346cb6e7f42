//! A device without a flow counter for the first flow of a counters object.
//!
//! In that case mlx5's driver stores an error in the kernel's object, and dereferences it when the device file is closed
//! (docs/internals/kernels.md). The crate keeps the file open, but the end of the process closes it. On a card these tests therefore run
//! only if `UVERBS_TEST_SWITCHED_OFF` promises that the machine will be switched off without a shutdown, and they pass the device file to
//! a process that never ends, or are that process.
#![cfg(feature = "soft")]

mod common;

use std::io::{BufRead, BufReader, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use nix::errno::Errno;
use nix::libc::{EFAULT, ENOSPC, EPERM, ETIMEDOUT};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use uverbs::command::Command;
use uverbs::soft::Profile;
use uverbs::transport::Watcher;
use uverbs::{ErrorKind, Eth, FlowRule, Point, SoftDevice};

fn to(last: u8) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, last]))
}

/// Passes the device files of this process to another, on a socket that is never read.
fn keep_open() {
    let (here, there) = UnixStream::pair().unwrap();
    let of_a_device = |fd: &std::fs::DirEntry| {
        std::fs::read_link(fd.path()).is_ok_and(|path| path.starts_with("/dev/infiniband"))
    };
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(of_a_device);
    let fds: Vec<RawFd> = fds.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()).collect();
    assert!(!fds.is_empty());
    let files = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(here.as_raw_fd(), &[IoSlice::new(&[0])], &files, MsgFlags::empty(), None).unwrap();
    let mut keeper = Process::new("sleep");
    keeper.arg("infinity").stdin(OwnedFd::from(there)).stdout(Stdio::null()).stderr(Stdio::null());
    drop(keeper.spawn().unwrap());
}

/// Runs a behaviour on every device with counters, if it has exactly two.
fn with_two_counters(behaviour: impl Fn(&Target, &Raw)) {
    on_every_device_and(Profile::default().with_max_bound_counters(2), |target| {
        let context = target.open();
        match context.create_counters() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return skip(target, "it has no flow counters");
            }
            other => drop(other.unwrap()),
        }
        if target.soft.is_none() {
            let Some(control) = target.control.as_ref().filter(|_| is_switched_off_afterwards()) else {
                return skip(target, "the kernel would not survive the close of the device file");
            };
            keep_open();
            target.keeps_a_context();
            // A process that never ends holds the other counters.
            let there = control.ask("counters").len();
            control.ask(&format!("limit counters {}", there + 2));
        }
        behaviour(target, &Raw::new(&context));
    });
}

/// Number of commands for counters that a card has received.
fn commands(target: &Target) -> u32 {
    let count = |name| target.control.as_ref().map_or(0, |control| control.commands(name));
    ["ALLOC_FLOW_COUNTER", "DEALLOC_FLOW_COUNTER", "QUERY_FLOW_COUNTER"].into_iter().map(count).sum()
}

/// Through libibverbs, the kernel dereferences an error pointer at the second flow with the third counters.
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
    with_two_counters(|target, raw| {
        let flows =
            [1, 2].map(|last| raw.qp.create_flow(&to(last).count(&packets_and_bytes(&raw.context))).unwrap());
        let [dropped, destroyed] = [(); 2].map(|()| packets_and_bytes(&raw.context));
        for counters in [&dropped, &destroyed] {
            refuses(raw.qp.create_flow(&to(3).count(counters)), ErrorKind::Exhausted, ENOMEM, "no counter");
        }
        let before = commands(target);
        drop(dropped);
        destroyed.destroy().unwrap();
        assert_eq!(commands(target), before);
        // The counters of destroyed flows are free again: two more flows get one.
        drop(flows);
        let _flows =
            [1, 2].map(|last| raw.qp.create_flow(&to(last).count(&packets_and_bytes(&raw.context))).unwrap());
    });
}

#[test]
fn whatever_the_firmware_says_when_it_is_asked_for_a_counter_the_next_try_finds_one() {
    with_two_counters(|target, raw| {
        let Some(control) = &target.control else {
            return skip(target, "its firmware cannot be told to fail");
        };
        for status in [1, 2, 3, 4, 5, 6, 8, 9, 0xa, 0xf, 0x10, 0x30, 0x40, 0x50, 0x51, 0xff] {
            let counters = packets_and_bytes(&raw.context);
            let rule = to(1).count(&counters);
            control.ask(&format!("fail ALLOC_FLOW_COUNTER {status}"));
            let error = raw.qp.create_flow(&rule).unwrap_err();
            let expected = match status {
                6 => (ErrorKind::Busy, EBUSY),
                8 => (ErrorKind::Exhausted, ENOMEM),
                0xf => (ErrorKind::Exhausted, EAGAIN),
                2 | 3 | 5 | 9 | 0xa | 0x10 | 0x30 | 0x40 => (ErrorKind::InvalidInput, EINVAL),
                _ => (ErrorKind::Other, EIO),
            };
            assert_eq!((error.kind(), error.errno()), (expected.0, Some(expected.1)), "{status:#x}: {error}");
            let flow = raw.qp.create_flow(&rule).unwrap();
            target.wire().unwrap().inject(&frame([2, 0, 0, 0, 0, 1], 60));
            assert_eq!(read2(&counters), [1, 60]);
            drop(rule);
            flow.destroy().unwrap();
            counters.destroy().unwrap();
        }
    });
}

/// Answers the next CREATE_FLOW with an errno, and counts the counters objects.
#[derive(Debug)]
struct Refusing(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    next: Mutex<Option<Errno>>,
    made: AtomicUsize,
}

impl Watcher for Refusing {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        match command.op() {
            "flow.create" => self.0.next.lock().unwrap().take().map_or(Ok(()), Err)?,
            "counters.create" => drop(self.0.made.fetch_add(1, Ordering::Relaxed)),
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

/// The environment variable of the process that never ends: its task.
const ENDLESS: &str = "UVERBS_TEST_ENDLESS";

/// Statuses of the firmware, and the commands for the first flow of some counters that they refuse.
const REFUSALS: &[(&str, u8, i32)] = &[
    ("ALLOC_FLOW_COUNTER", 8, ENOMEM),
    ("ALLOC_FLOW_COUNTER", 3, EINVAL),
    ("ALLOC_FLOW_COUNTER", 1, EIO),
    ("ALLOC_FLOW_COUNTER", 0xf, EAGAIN),
    // The counter exists at that time, but nothing shows this.
    ("SET_FLOW_TABLE_ENTRY", 3, EINVAL),
];

/// After a refused counter, everything may be dropped without harm to the kernel. Only the end of the process would crash it, so the
/// process that does this never ends.
#[test]
fn after_a_refused_counter_all_can_be_dropped_and_the_kernel_goes_on() {
    on_every_device(|target| {
        let Some(control) = target.control.as_ref().filter(|_| is_switched_off_afterwards()) else {
            return skip(
                target,
                "its firmware cannot be told to fail, or its kernel would not survive the test's end",
            );
        };
        // Other objects that the driver creates when they are first needed.
        drop(Raw::new(&target.open()));
        for (command, status, errno) in REFUSALS {
            control.ask(&format!("fail {command} {status} 1"));
            let mut endless = Process::new(std::env::current_exe().unwrap());
            endless.args(["--exact", "a_process_that_never_ends", "--ignored", "--nocapture"]);
            endless.env(ENDLESS, errno.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
            let said = BufReader::new(endless.spawn().unwrap().stdout.take().unwrap());
            let mut said = said.lines().map_while(Result::ok).filter(|line| line.starts_with("endless: "));
            for expected in ["refused", "dropped", "goes on"] {
                let line = said
                    .next()
                    .unwrap_or_else(|| panic!("{command} {status:#x}: it ended before {expected:?}"));
                assert_eq!(line, format!("endless: {expected}"), "{command} {status:#x}");
            }
            let log = Process::new("dmesg").output().unwrap().stdout;
            let log = String::from_utf8_lossy(&log);
            assert!(!["BUG: ", "Oops", "general protection"].iter().any(|word| log.contains(word)), "{log}");
        }
    });
}

#[test]
#[ignore = "a part of the one before, which starts it as a process"]
fn a_process_that_never_ends() {
    let Ok(errno) = std::env::var(ENDLESS) else { return };
    let name = std::env::var("UVERBS_TEST_DEVICE").unwrap();
    let open = || uverbs::devices().unwrap().named(&name).unwrap().open().unwrap();
    let context = open();
    let raw = Raw::new(&context);
    let counters = packets_and_bytes(&context);
    let rule = to(1).count(&counters);
    let error = raw.qp.create_flow(&rule).unwrap_err();
    assert_eq!(error.errno(), Some(errno.parse().unwrap()), "{error}");
    // The harness has begun a line.
    println!("\nendless: refused");
    // The same counters, which now have another object of the kernel.
    drop(raw.qp.create_flow(&rule).unwrap());
    drop(rule);
    counters.destroy().unwrap();
    drop((raw, context));
    println!("endless: dropped");
    let again = Raw::new(&open());
    let counters = packets_and_bytes(&again.context);
    let flow = again.qp.create_flow(&to(1).count(&counters)).unwrap();
    assert_eq!(read2(&counters), [0, 0]);
    drop((flow, counters, again));
    println!("endless: goes on");
    loop {
        std::thread::park();
    }
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
