//! Checks that no read path allocates.
//!
//! # Safety
//! The allocator counts, and passes every call on to the system's allocator, with the same arguments.

#![allow(unsafe_code)]
#![cfg(feature = "soft")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::*;
use uverbs::mlx5::{CounterPool, Totals};
use uverbs::transport::Null;
use uverbs::{Counters, Flow, FlowRule, SoftDevice};

struct Counting;

thread_local! {
    /// Number of allocations of this thread.
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: `System` keeps the contract; a `Cell` of a number allocates nothing, and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on; the memory is of `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls a function a hundred times. Returns the number of allocations.
fn allocated(mut what: impl FnMut()) -> u64 {
    let before = ALLOCATED.get();
    for _ in 0..100 {
        what();
    }
    ALLOCATED.get() - before
}

/// On a transport that does everything that the real one does except the ioctl; the soft device would allocate in the kernel's place.
fn on_nothing(behaviour: impl FnOnce(&Counters, &Flow)) {
    let context = SoftDevice::default().device().open_through(|inner| Box::new(Null::new(inner))).unwrap();
    let raw = Raw::new(&context);
    let counters = packets_and_bytes(&context);
    let flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
    behaviour(&counters, &flow);
}

#[test]
fn the_count_is_one() {
    assert_eq!(allocated(|| drop(std::hint::black_box(Box::new(7)))), 100);
}

#[test]
fn volatile_reads_allocate_nothing() {
    on_nothing(|counters, flow| {
        let mut values = [0; 2];
        assert_eq!(allocated(|| counters.read(&mut values).unwrap()), 0);
        let mut reader = flow.reader().unwrap();
        assert_eq!(allocated(|| assert_eq!(reader.read().unwrap().len(), 2)), 0);
    });
}

#[test]
fn cached_reads_allocate_nothing_fresh_or_stale() {
    on_nothing(|counters, _| {
        let snapshot = counters.snapshot().unwrap();
        let mut values = [0; 2];
        for max_age in [Duration::ZERO, Duration::MAX] {
            assert_eq!(allocated(|| assert!(snapshot.read_cached::<2>(max_age).is_ok())), 0);
            assert_eq!(allocated(|| assert!(snapshot.read_cached_into(max_age, &mut values).is_ok())), 0);
            assert_eq!(allocated(|| assert!(snapshot.read_at::<2>(7, max_age).is_ok())), 0);
        }
        assert_eq!(allocated(|| assert!(snapshot.latest::<2>().is_ok())), 0);
        assert_eq!(allocated(|| snapshot.refresh().unwrap()), 0);
    });
}

#[test]
fn a_read_of_a_pool_allocates_nothing() {
    on_every_bulk_device(|_, _, raw| {
        let pool = CounterPool::new(&raw.context, 100).unwrap();
        let counters = [pool.take().unwrap()];
        let (mut reader, mut all) = (pool.reader(), [Totals::default()]);
        assert_eq!(allocated(|| assert_eq!(reader.read().unwrap().of(&counters[0]), Some(all[0]))), 0);
        assert_eq!(allocated(|| reader.read_all(&counters, &mut all).unwrap()), 0);
        let snapshot = counters[0].snapshot();
        let read = || assert_eq!(snapshot.read_cached::<2>(Duration::ZERO).unwrap().values(), [0; 2]);
        assert_eq!(allocated(read), 0);
    });
}

#[test]
fn a_read_of_a_devices_counters_allocates_nothing_after_the_first() {
    // By netlink for a device, and from files.
    let tree = std::env::temp_dir().join(format!("uverbs-allocations-{}", std::process::id()));
    let file = |path: &str, text: &str| {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    file("class/infiniband_verbs/uverbs0/ibdev", "some0\n");
    file("class/infiniband_verbs/uverbs0/abi_version", "1\n");
    file("class/infiniband/some0/ports/1/counters/port_rcv_data", "7\n");
    file("class/infiniband/some0/ports/1/hw_counters/out_of_buffer", "8\n");
    file("class/infiniband/some0/hw_counters/cmds_err", "9\n");
    let some = uverbs::devices_in(&tree).unwrap().named("some0").unwrap().clone();
    let real = std::env::var("UVERBS_TEST_DEVICE").ok();
    let real = real.map(|name| uverbs::devices().unwrap().named(&name).unwrap().clone());
    for device in [Some(SoftDevice::default().device()), Some(some), real].into_iter().flatten() {
        let mut statistics = device.statistics().unwrap();
        let count = statistics.read().unwrap().len();
        assert_eq!(allocated(|| assert_eq!(statistics.read().unwrap().len(), count)), 0, "{device:?}");
        assert!(count > 0 && statistics.missing().is_empty());
    }
    std::fs::remove_dir_all(&tree).unwrap();
}
