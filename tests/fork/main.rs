//! A process that opened a device forks: what the child may do, and the state of the parent's objects.
//!
//! # Safety
//! This test has no harness, so that a process has only the threads that it starts itself. A child of `fork` may do what needs no lock
//! held by a thread that does not exist in it: for this crate, that is what is tested here; the C library releases the allocator's locks
//! in a child (fork(2) of glibc); and a child that hangs is ended by SIGALRM, and the test has failed.

#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod connections;
mod counting;
mod inherited;
mod locks;
mod look_ups;
mod objects;
#[cfg(feature = "raw")]
mod polls;
mod rings;
mod statistics;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::*;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use uverbs::ErrorKind;

/// The behaviours, each on every device that it concerns.
const TESTS: &[(&str, fn())] = &[
    ("a_child_may_measure_the_clock_that_a_thread_measures", locks::measured_clock),
    ("a_child_is_refused_everything_of_connected_queue_pairs", objects::connected),
    ("a_child_is_refused_everything_of_extended_connections", objects::extended),
    ("a_child_is_refused_everything_of_a_connection_manager", connections::everything),
    ("a_child_is_refused_completion_counters", objects::completion_counters),
    ("a_child_is_refused_everything_of_look_ups_and_groups", look_ups::datagrams),
    ("a_child_is_refused_everything_of_counting", counting::counters),
    ("a_child_is_refused_everything_of_spreading", counting::spreading),
    ("a_child_is_refused_everything_of_pools", counting::pools),
    ("a_child_is_refused_rings_that_its_parent_has_borrowed", rings::borrowed),
    ("a_childs_reads_do_not_meet_the_parents_first_and_last_flows", counting::reads_in_a_loop),
    ("a_child_waits_for_no_lock_of_counters", locks::counters),
    ("a_child_waits_for_no_lock_of_a_refresh", locks::refresh),
    ("a_child_waits_for_nothing_that_threads_were_at", locks::everything),
    #[cfg(feature = "raw")]
    ("a_child_gives_no_completions_back_that_its_parent_is_at", polls::in_the_middle),
    ("what_was_only_asked_is_the_first_users", inherited::first_user),
    ("each_of_several_devices_has_an_owner_of_its_own", inherited::several),
    ("a_domain_in_two_processes_is_destroyed_by_its_owner", inherited::domain),
    ("a_grandchild_has_what_is_its_own", inherited::grandchild),
    ("a_childs_readings_of_a_device_do_not_meet_its_parents", statistics::readers),
];

fn main() {
    // As for other tests, a part of the names may be given.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        // The line is printed completely before a child can have a copy of it.
        println!("test {name} ...");
        match catch_unwind(test) {
            Ok(()) => passed += 1,
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED");
            }
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed");
    std::process::exit(if failed == 0 { 0 } else { 101 });
}

/// Forks. Returns the child in the parent, and `None` in the child, which continues with [`in_the_child`].
fn split() -> Option<Pid> {
    // SAFETY: see the begin of this file.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => None,
        ForkResult::Parent { child } => Some(child),
    }
}

/// The completions of a queue, read in the ring.
#[cfg(feature = "raw")]
fn in_place(cq: &uverbs::CompletionQueue) -> Option<uverbs::raw::InPlace> {
    // SAFETY: in the middle of a poll no test takes completions in another way; what a child asks for is refused.
    unsafe { cq.in_place() }
}

/// Maximum time of a child in seconds.
const LIMIT: u32 = 60;

fn in_the_child(what: impl FnOnce()) -> ! {
    nix::unistd::alarm::set(LIMIT);
    let done = catch_unwind(AssertUnwindSafe(what));
    // Not `std::process::exit`: it takes a lock of the standard library, which a thread that began or ended at the fork may have held
    // (rt::cleanup, stack_overflow::drop_handler; Rust 1.95). SAFETY: it ends the process, and runs none of its code before.
    unsafe { nix::libc::_exit(i32::from(done.is_err())) }
}

/// The child must not have failed.
#[track_caller]
fn wait_for(child: Pid) {
    assert_eq!(waitpid(child, None).expect("wait"), WaitStatus::Exited(child, 0));
}

/// Checks that the object belongs to the other process.
#[track_caller]
fn gone<T>(result: uverbs::Result<T>) {
    refuses(result.map(drop), ErrorKind::Disassociated, EIO, "open or create it again");
}

/// A device that the child opens itself, on which everything works.
fn own(target: &Target) -> uverbs::Context {
    // A soft device, on a wire or not, is that of one process.
    let is_soft = target.device.name() == "soft0";
    let soft = is_soft.then(|| uverbs::SoftDevice::default().device());
    let context = soft.as_ref().unwrap_or(&target.device).open().expect("a device of its own");
    let pd = context.alloc_pd().unwrap();
    pd.register(100, uverbs::AccessFlags::LOCAL_WRITE)
        .unwrap()
        .destroy()
        .map_err(|(_, error)| error)
        .unwrap();
    context
}
