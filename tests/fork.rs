//! A process that opened a device forks: what the child may do, and what becomes of the parent's objects.
//!
//! # Safety
//! This test has no harness, so the process has one thread, and the child of `fork` may do all that the parent may.

#![allow(unsafe_code)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::*;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use uverbs::{Completion, ErrorKind, Operation, QpState, Rc, SendRequest, Status};

const EIO: i32 = 5;

fn main() {
    on_every_connecting_device(a_child_cannot_touch_the_objects_of_its_parent);
    println!("test result: ok. 1 passed; a_child_cannot_touch_the_objects_of_its_parent");
}

fn a_child_cannot_touch_the_objects_of_its_parent(target: &Target) {
    let (mut one, mut two) = rc_pair(target);
    two.receive(1, 0..8);
    two.receive(2, 8..16);
    one.send(1, Operation::Send, 0..8);
    assert_eq!(one.completion().status, Status::Success);

    // SAFETY: there is one thread.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            let done = catch_unwind(AssertUnwindSafe(|| child(target, one, two)));
            std::process::exit(i32::from(done.is_err()));
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).expect("wait"), WaitStatus::Exited(child, 0));
        }
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
