//! Sizes beyond those of the device or the machine are an error: they take no memory, and never end the process.

use std::process::Command;

use crate::common::*;
use uverbs::soft::Profile;
use uverbs::{AccessFlags, Context, Error, ErrorKind, Point, Result, SoftDevice};

/// Checks the kind of the error, which may come from the kernel or from the crate: invalid, or exhausted.
#[track_caller]
fn is_refused<T>(result: Result<T>, what: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what} was made"));
    let kinds = [ErrorKind::InvalidInput, ErrorKind::Exhausted, ErrorKind::Unsupported];
    assert!(kinds.contains(&error.kind()), "{what}: {error}");
}

const SIZES: [u32; 5] = [u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1, 1 << 28];

fn everything_too_large(context: &Context) {
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(4).unwrap();
    for size in SIZES {
        is_refused(context.create_cq(size), "a completion queue");
        is_refused(cq.resize(size), "a larger completion queue");
        is_refused(pd.raw_packet(&cq).send_depth(size).create(), "a raw send queue");
        is_refused(pd.raw_packet(&cq).receive_depth(size).create(), "a raw receive queue");
        is_refused(pd.raw_packet(&cq).inline(size).create(), "a raw send queue with data inside");
        is_refused(pd.rc(&cq).send_depth(size).create(), "a send queue");
        is_refused(pd.rc(&cq).receive_depth(size).create(), "a receive queue");
        is_refused(pd.rc(&cq).inline(size).create(), "a send queue with data inside");
        is_refused(pd.rc(&cq).segments(size).create(), "a queue pair of long lists");
        is_refused(pd.work_queue(&cq).depth(size).create(), "a work queue");
        is_refused(pd.work_queue(&cq).segments(size).create(), "a work queue of long lists");
        is_refused(pd.srq(size).create(), "a shared receive queue");
    }
    for len in [usize::MAX, usize::MAX / 2, 1 << 60, 1 << 50] {
        is_refused(pd.register(len, AccessFlags::LOCAL_WRITE), "a region");
    }
    if let Ok(counters) = context.create_counters() {
        is_refused(counters.attach(Point::Packets, u32::MAX), "a point");
    }
    assert_eq!(cq.capacity().max(4), cq.capacity());
}

#[test]
fn what_is_too_large_is_refused_and_costs_no_memory() {
    on_every_device(|target| {
        let context = target.open();
        let before = resident();
        everything_too_large(&context);
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 << 10, "{grown} KiB more");
    });
}

/// The environment variable for the process with little memory.
const SMALL: &str = "UVERBS_TEST_SMALL";

#[test]
fn without_memory_there_is_an_error_and_the_process_goes_on() {
    let program = std::env::current_exe().unwrap();
    let script = "ulimit -v 400000 && exec \"$0\" --exact too_large::a_process_with_little_memory --ignored --nocapture";
    let small = Command::new("sh").args(["-c", script]).arg(program).env(SMALL, "yes").output().unwrap();
    let said = String::from_utf8_lossy(&small.stdout);
    let wrong = String::from_utf8_lossy(&small.stderr);
    assert!(small.status.success() && said.contains("small: done"), "{}\n{said}\n{wrong}", small.status);
}

#[test]
#[ignore = "a part of the one before, which starts it as a process"]
fn a_process_with_little_memory() {
    if std::env::var_os(SMALL).is_none() {
        return;
    }
    // The maximum of a soft device: rings of 1 GiB.
    let profile = Profile::default().with_max_cqe(0xff_ffff);
    let context = SoftDevice::new(profile).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(4).unwrap();
    let many = 0xff_fffe;
    let no_room = |error: Option<Error>, what: &str| {
        let error = error.unwrap_or_else(|| panic!("{what} was made"));
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Exhausted, Some(ENOMEM)), "{what}: {error}");
    };
    no_room(context.create_cq(many).err(), "a completion queue");
    no_room(cq.resize(many).err(), "a larger completion queue");
    no_room(pd.register(1 << 30, AccessFlags::LOCAL_WRITE).err(), "a region");
    assert_eq!(cq.capacity().max(4), cq.capacity());
    drop(pd.rc(&cq).create().unwrap());
    println!("small: done");
}
