//! Completion counters of the hardware, which Linux 7.3 added for one driver: on a soft device that has them, with the same calls as
//! those of software.

mod common;

use std::time::Duration;

use common::counted::{forbidden, make};
use common::counting::{LONG, values};
use common::*;
use uverbs::soft::Profile;
use uverbs::{
    CompletionCounter, Context, Counted, CounterEvents, CounterSource, ErrorKind, Operation, Rc, SendRequest,
    Status, WaitObject, WaitSet,
};

const MANY: u32 = 8;

fn target() -> Target {
    Target::soft(Profile::default().with_completion_counters(MANY))
}

fn counter(context: &Context) -> CompletionCounter {
    CompletionCounter::builder().wait_object(WaitObject::Yield).create_on(context).unwrap()
}

fn pair(context: &Context) -> (Side<Rc>, Side<Rc>) {
    let (mut one, mut two) = (Side::new(context, make), Side::new(context, make));
    connect(context, &mut one.qp, &mut two.qp);
    (one, two)
}

#[test]
fn a_device_without_them_says_so() {
    on_every_device(|target| {
        let context = target.open();
        let error = CompletionCounter::builder().create_on(&context).unwrap_err();
        assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::Unsupported, true), "{error}");
        assert_eq!(context.completion_counter_caps().unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn it_tells_what_it_can_do() {
    let caps = target().open().completion_counter_caps().unwrap();
    assert_eq!((caps.max_counters, caps.max_value), (MANY, u64::MAX));
    assert_eq!(caps.operations, Counted::all() - Counted::REMOTE_WRITE_IMMEDIATE);
}

#[test]
fn values_are_set_added_to_and_read() {
    let context = target().open();
    let counter = counter(&context);
    assert_eq!(values(&counter), (0, 0));
    counter.add(5).unwrap();
    counter.add_err(2).unwrap();
    assert_eq!(values(&counter), (5, 2));
    counter.set(100).unwrap();
    counter.set_err(9).unwrap();
    counter.add(1).unwrap();
    assert_eq!(values(&counter), (101, 9));
    counter.set(u64::MAX).unwrap();
    counter.add(1).unwrap();
    assert_eq!(values(&counter), (0, 9), "64 bits");
}

#[test]
fn where_the_values_live_is_told() {
    let context = target().open();
    assert_eq!(counter(&context).source(), CounterSource::DeviceInMemory);
    let software = CompletionCounter::new(WaitObject::None).unwrap();
    assert_eq!(software.source(), CounterSource::Software);
}

/// The kernel refuses simultaneous changes; the crate tries again.
#[test]
fn threads_change_one_counter_and_lose_nothing() {
    let context = target().open();
    let counter = counter(&context);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    counter.add(1).unwrap();
                    counter.add_err(2).unwrap();
                }
            });
        }
        while counter.read() < 400 {
            assert!(counter.read_err() <= 800);
            std::thread::yield_now();
        }
    });
    assert_eq!(values(&counter), (400, 800));
}

#[test]
fn a_wait_that_may_sleep_ends_too() {
    let context = target().open();
    let counter =
        CompletionCounter::builder().wait_object(WaitObject::Unspecified).create_on(&context).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            counter.add(2).unwrap();
        });
        counter.wait(2, LONG).unwrap();
    });
    let late = counter.wait(3, Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            counter.add_err(1).unwrap();
        });
        assert_eq!(counter.wait(3, LONG).unwrap_err().kind(), ErrorKind::OperationFailed);
    });
}

/// Objects that count into it may be dropped in any order: the memory of the values stays until the kernel has destroyed the counter.
#[test]
fn the_values_outlive_whatever_is_dropped_first() {
    let target = target();
    let context = target.open();
    let counter = counter(&context);
    let (mut one, two) = pair(&context);
    one.qp.bind_counter(&counter, Counted::WRITE).unwrap();
    one.send(1, Operation::Write(two.remote(0)), 0..8);
    assert_eq!(counter.read(), 1);
    drop(counter);
    one.send(2, Operation::Write(two.remote(0)), 0..8);
    drop(context);
    drop(one);
    drop(two);
    assert!(target.soft.unwrap().resources().is_empty());
}

#[test]
fn what_is_unsupported_makes_nothing() {
    let target = target();
    let context = target.open();
    let builder = CompletionCounter::builder;
    let bytes = builder().events(CounterEvents::Bytes).create_on(&context);
    assert_eq!(bytes.unwrap_err().kind(), ErrorKind::Unsupported);
    for object in [WaitObject::FileDescriptor, WaitObject::MutexCondvar, WaitObject::Set(WaitSet::new())] {
        let refused = builder().wait_object(object).create_on(&context);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(builder().flags(1).create_on(&context).unwrap_err().kind(), ErrorKind::InvalidInput);
    let all: Vec<_> = (0..MANY).map(|_| counter(&context)).collect();
    assert_eq!(builder().create_on(&context).unwrap_err().kind(), ErrorKind::Exhausted);
    drop(all);
    let none = builder().create_on(&context).unwrap();
    assert_eq!(none.wait(0, LONG).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop((none, context));
    assert!(target.soft.unwrap().resources().is_empty());
}

#[test]
fn it_counts_without_anybody_who_polls() {
    let context = target().open();
    let [sends, reads, writes] = [(); 3].map(|()| counter(&context));
    let [receives, remote_reads, remote_writes] = [(); 3].map(|()| counter(&context));
    let (mut one, mut two) = pair(&context);
    // At any time: operations are counted only while the counter is attached.
    one.send(1, Operation::Write(two.remote(0)), 0..8);
    one.qp.bind_counter(&sends, Counted::SEND).unwrap();
    one.qp.bind_counter(&reads, Counted::READ).unwrap();
    one.qp.bind_counter(&writes, Counted::WRITE).unwrap();
    two.qp.bind_counter(&receives, Counted::RECEIVE).unwrap();
    two.qp.bind_counter(&remote_reads, Counted::REMOTE_READ).unwrap();
    two.qp.bind_counter(&remote_writes, Counted::REMOTE_WRITE).unwrap();
    (0..3).for_each(|i| two.receive(i, 0..64));
    let remote = two.remote(1024);
    one.qp.post_send(&[SendRequest::inline(2, Operation::Write(remote), b"unsignaled")]).unwrap();
    one.send(3, Operation::WriteImmediate(remote, 1), 0..8);
    one.send(4, Operation::Send, 0..8);
    one.send(5, Operation::Read(remote), 0..8);
    one.send(6, Operation::FetchAdd { remote, add: 1 }, 0..8);
    writes.wait(2, LONG).unwrap();
    assert_eq!([&sends, &reads, &writes].map(values), [(1, 0), (2, 0), (2, 0)]);
    assert_eq!([&receives, &remote_reads, &remote_writes].map(values), [(1, 0), (2, 0), (2, 0)]);
}

#[test]
fn failures_go_to_the_error_value_and_end_a_wait() {
    let context = target().open();
    let [writes, receives] = [(); 2].map(|()| counter(&context));
    let (mut one, two) = pair(&context);
    one.qp.bind_counter(&writes, Counted::WRITE).unwrap();
    one.qp.bind_counter(&receives, Counted::RECEIVE).unwrap();
    (0..3).for_each(|i| one.receive(i, 0..64));
    one.send(1, Operation::Write(forbidden(&two)), 0..8);
    assert_eq!(one.completion().status, Status::RemoteAccess);
    assert_eq!(writes.wait_since(1, 0, LONG).unwrap_err().kind(), ErrorKind::OperationFailed);
    assert_eq!((values(&writes), values(&receives)), ((0, 1), (0, 3)));
    let late = writes.wait(1, Some(Duration::from_millis(5))).unwrap_err();
    assert_eq!((late.kind(), values(&writes)), (ErrorKind::TimedOut, (0, 1)));
}

#[test]
fn it_is_busy_while_it_is_attached() {
    let target = target();
    let context = target.open();
    let (first, second) = (counter(&context), counter(&context));
    let mut one = Side::new(&context, make);
    one.qp.bind_counter(&first, Counted::SEND | Counted::READ).unwrap();
    let twice = one.qp.bind_counter(&second, Counted::READ);
    refuses(twice, ErrorKind::Busy, EBUSY, "some of these operations");
    one.qp.bind_counter(&second, Counted::WRITE).unwrap();
    let (first, error) = first.destroy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(second);
    assert_eq!(target.soft.as_ref().unwrap().resources().completion_counters, 2, "the queue pair has it");
    drop(one);
    assert!(first.destroy().is_ok());
    drop(context);
    assert!(target.soft.unwrap().resources().is_empty());
}

#[test]
fn what_cannot_be_bound_is_told() {
    let target = target();
    let (context, other) = (target.open(), target.open());
    let (own, foreign) = (counter(&context), counter(&other));
    let mut one = Side::new(&context, make);
    refuses(one.qp.bind_counter(&own, Counted::empty()), ErrorKind::InvalidInput, EINVAL, "no operation");
    let unknown = one.qp.bind_counter(&own, Counted::REMOTE_WRITE_IMMEDIATE);
    refuses(unknown, ErrorKind::Unsupported, EOPNOTSUPP, "do not count these operations");
    let refused = one.qp.bind_counter(&foreign, Counted::SEND);
    refuses(refused, ErrorKind::InvalidInput, EINVAL, "another open device");
    assert!(own.destroy().is_ok() && foreign.destroy().is_ok());
}

#[test]
fn a_device_that_goes_away_ends_a_wait() {
    let target = target();
    let context = target.open();
    let counter = counter(&context);
    counter.add(3).unwrap();
    assert_eq!(counter.read(), 3);
    target.soft.unwrap().unplug();
    assert_eq!(counter.read(), 3, "what it told last");
    assert_eq!(counter.wait(4, None).unwrap_err().kind(), ErrorKind::Disassociated);
    assert_eq!(counter.add(1).unwrap_err().kind(), ErrorKind::Disassociated);
    assert!(counter.destroy().is_ok(), "the device took it along");
}

#[test]
fn software_and_hardware_count_side_by_side() {
    let context = target().open();
    let hardware = counter(&context);
    let software = CompletionCounter::new(WaitObject::Unspecified).unwrap();
    let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
    one.qp.bind_counter(&software, Counted::WRITE).unwrap();
    one.qp.bind_counter(&hardware, Counted::WRITE).unwrap();
    connect(&context, &mut one.qp, &mut two.qp);
    for round in 1..=10 {
        one.send(1, Operation::Write(two.remote(0)), 0..8);
        hardware.wait(round, LONG).unwrap();
        one.cq.progress_until(&software, round, LONG).unwrap();
    }
    assert_eq!((values(&hardware), values(&software)), ((10, 0), (10, 0)));
}

#[test]
fn a_thread_makes_progress_while_it_waits_for_the_device() {
    let target = target();
    let context = target.open();
    // The wait object does not matter.
    let hardware = CompletionCounter::builder().create_on(&context).unwrap();
    let software = CompletionCounter::new(WaitObject::None).unwrap();
    let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
    one.qp.bind_counter(&software, Counted::WRITE).unwrap();
    one.qp.bind_counter(&hardware, Counted::WRITE).unwrap();
    connect(&context, &mut one.qp, &mut two.qp);
    for round in 1..=10 {
        one.send(1, Operation::Write(two.remote(0)), 0..8);
        one.cq.progress_until(&hardware, round, LONG).unwrap();
    }
    assert_eq!((values(&hardware), values(&software)), ((10, 0), (10, 0)), "it has taken the completions");
    let late = one.cq.progress_until(&hardware, 11, Some(Duration::from_millis(5))).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    hardware.add_err(1).unwrap();
    one.cq.progress_until(&hardware, 10, LONG).expect("an error from before does not end it");
    let failed = std::thread::scope(|scope| {
        let failed = scope.spawn(|| one.cq.progress_until(&hardware, 11, LONG));
        while !failed.is_finished() {
            hardware.add_err(1).unwrap();
            std::thread::yield_now();
        }
        failed.join().unwrap().unwrap_err()
    });
    assert_eq!(failed.kind(), ErrorKind::OperationFailed);
    target.soft.unwrap().unplug();
    assert_eq!(one.cq.progress_until(&hardware, 11, LONG).unwrap_err().kind(), ErrorKind::Disassociated);
}
