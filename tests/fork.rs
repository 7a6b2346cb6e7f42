//! A process that opened a device forks: what the child may do, and what becomes of the parent's objects.
//!
//! # Safety
//! This test has no harness, so the process has one thread, and the child of `fork` may do all that the parent may. Where a
//! sampler's thread runs too, the child takes none of its locks; and the C library sees to it that its allocator can be used in a
//! child (fork(2) of glibc).

#![allow(unsafe_code)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::*;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use uverbs::{
    Completion, ErrorKind, FlowRule, Operation, QpState, Rc, Sampler, SamplerReport, SendRequest, Snapshot,
    Status,
};

const EIO: i32 = 5;

fn main() {
    on_every_connecting_device(a_child_cannot_touch_the_objects_of_its_parent);
    on_every_counting_device(a_snapshot_says_in_a_child_that_it_is_its_parents);
    println!("test result: ok. 2 passed");
}

fn in_the_child(what: impl FnOnce()) -> ! {
    let done = catch_unwind(AssertUnwindSafe(what));
    std::process::exit(i32::from(done.is_err()));
}

/// The child must not have failed.
fn wait_for(child: Pid) {
    assert_eq!(waitpid(child, None).expect("wait"), WaitStatus::Exited(child, 0));
}

fn a_snapshot_says_in_a_child_that_it_is_its_parents(target: &Target) {
    const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);
    let raw = Raw::new(&target.open());
    let counters = packets_and_bytes(&raw.context);
    let flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
    let snapshot = counters.snapshot().unwrap();
    let mut sampler = Sampler::new(std::time::Duration::ZERO);
    sampler.add(&snapshot);
    let says = |snapshot: &Snapshot| {
        let gone =
            |result: uverbs::Result<()>| refuses(result, ErrorKind::Disassociated, EIO, "open it again");
        gone(snapshot.read_cached::<2>(HOUR).map(drop));
        gone(snapshot.read_cached::<2>(std::time::Duration::ZERO).map(drop));
        gone(snapshot.read_at::<2>(0, HOUR).map(drop));
        gone(snapshot.latest::<2>().map(drop));
        gone(snapshot.refresh());
    };
    sampler.tick();
    // SAFETY: there is one thread.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => in_the_child(|| {
            says(&snapshot);
            let tick = sampler.tick();
            assert_eq!((tick.refreshed, tick.ended), (0, 1), "it is let go");
            // Also when the child has a device of its own.
            let own = target.open();
            says(&snapshot);
            drop(own);
        }),
        ForkResult::Parent { child } => wait_for(child),
    }
    let thread = Sampler::new(HOUR).spawn().unwrap();
    thread.add(&snapshot);
    while thread.report().rounds == 0 {
        std::thread::yield_now();
    }
    // SAFETY: whatever the other thread is doing, the child takes no lock that it may hold, and its allocator can be used.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => in_the_child(move || {
            says(&snapshot);
            // The thread is not here: no lock of its is waited for, nor its end.
            assert_eq!((thread.report(), thread.remove(&snapshot)), (SamplerReport::default(), false));
            thread.add(&snapshot);
            drop(thread);
            drop((flow, counters, raw));
        }),
        ForkResult::Parent { child } => wait_for(child),
    }
    snapshot.read_cached::<2>(std::time::Duration::ZERO).expect("the parent's goes on");
}

fn a_child_cannot_touch_the_objects_of_its_parent(target: &Target) {
    let (mut one, mut two) = rc_pair(target);
    two.receive(1, 0..8);
    two.receive(2, 8..16);
    one.send(1, Operation::Send, 0..8);
    assert_eq!(one.completion().status, Status::Success);

    // SAFETY: there is one thread.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => in_the_child(|| child(target, one, two)),
        ForkResult::Parent { child } => wait_for(child),
    }

    assert_eq!(two.completion().wr_id, 1, "the child has not taken it");
    one.send(2, Operation::Send, 0..8);
    assert_eq!((one.completion().wr_id, two.completion().wr_id), (2, 2));
    assert_eq!(one.qp.state().unwrap(), QpState::ReadyToSend);
}

fn child(target: &Target, mut one: Side<Rc>, mut two: Side<Rc>) {
    let gone = |result: uverbs::Result<()>| refuses(result, ErrorKind::Disassociated, EIO, "open it again");
    let segments = [one.memory.segment(0..8).unwrap()];
    gone(one.qp.post_send(&[SendRequest::new(9, Operation::Send, &segments)]));
    gone(two.qp.post_receive(&[]));
    gone(one.qp.to_error());
    gone(one.pd.context().alloc_pd().map(drop));
    gone(one.pd.context().next_event().map(drop));
    assert_eq!(two.cq.poll(&mut Completion::batch::<4>()), 0);
    let old = one.pd.context().clone();
    // Dropped in silence, and nothing is destroyed.
    one.qp.destroy().map_err(|(_, error)| error).unwrap();
    drop((one.memory, one.cq, one.pd, two));
    // A device that is opened here is the child's own, and the parent's stays the parent's.
    let pd = target.open().alloc_pd().unwrap();
    pd.register(100, ALL).unwrap().destroy().map_err(|(_, error)| error).unwrap();
    gone(old.alloc_pd().map(drop));
}
