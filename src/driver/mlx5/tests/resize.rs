//! A queue that is resized while it contains completions, and one that is not created yet.

use std::sync::atomic::Ordering;

use nix::errno::Errno;
use uverbs_abi::mlx5::ResizeCq;
use uverbs_abi::mlx5::wqe::{CQE_REQ, CQE_RESIZE_CQ, Cqe64};
use zerocopy::{FromZeros, IntoBytes};

use super::{Bench, PIECE, cap, limits};
use crate::driver::completion::Status;
use crate::driver::mlx5::{CqPlan, Registers};
use crate::driver::seam::{CompletionRing, Plan};
use crate::kernel::error::Error;
use crate::kernel::mapping::Mapping;

/// Resizes the queue to hold `wanted`: the device ends the old ring, and writes `more` completions of sends into the new.
fn resize(bench: &mut Bench, wanted: u32, more: &[u16]) -> ResizeCq {
    let (old, slots) = (bench.cq_memory.clone(), bench.cq_slots);
    let mut seen = None;
    let released = bench.queue.renew("test", wanted, |request, memory| {
        seen = Some(*request);
        bench.cq_memory = memory.clone();
        let cqe =
            Cqe64 { op_own: CQE_RESIZE_CQ << 4 | (bench.next / slots % 2) as u8, ..Cqe64::new_zeroed() };
        assert!(old.write((bench.next % slots) as usize * 64, cqe.as_bytes()));
        Ok(())
    });
    bench.cq_slots = (wanted + 1).next_power_of_two();
    bench.next += 1;
    for counter in more {
        bench.complete(CQE_REQ, *counter, |_| {});
    }
    let released = released.unwrap().map(|memory| memory.address());
    // The first ring stays, because it contains the doorbell record.
    let first = bench.cq_request.buf_addr;
    assert_eq!(released, (old.address() != first).then_some(old.address()));
    seen.unwrap()
}

#[test]
fn what_waits_in_a_queue_goes_along_when_it_is_resized() {
    let mut bench = Bench::new(1, &cap(32, 1, 1, 0));
    let mut counter = 0_u16;
    let mut send = |bench: &mut Bench| {
        assert!(bench.send(counter.into(), &[PIECE]));
        counter += 1;
        counter - 1
    };
    // The remaining completions then wrap around the end of the old ring, and its owner bit changes.
    for _ in 0..6 {
        let place = send(&mut bench);
        bench.complete(CQE_REQ, place, |_| {});
    }
    assert_eq!(bench.poll().len(), 6);
    let record = |bench: &Bench| {
        let at = (bench.cq_request.db_addr - bench.cq_request.buf_addr) as usize;
        u32::from_be(bench.first_memory.load(at, Ordering::Relaxed))
    };
    for (wanted, waiting) in [(31, 5), (15, 7), (7, 3), (1, 0), (100, 1)] {
        let mut expected = Vec::new();
        for _ in 0..waiting {
            let place = send(&mut bench);
            bench.complete(CQE_REQ, place, |_| {});
            expected.push((place.into(), Status::Success));
        }
        let late = send(&mut bench);
        let read = record(&bench);
        let request = resize(&mut bench, wanted, &[late]);
        expected.push((late.into(), Status::Success));
        assert_eq!((request.buf_addr, request.cqe_size), (bench.cq_memory.address(), 64));
        assert_eq!(bench.queue.capacity(), (wanted + 1).next_power_of_two() - 1);
        assert_eq!(record(&bench), read + 1, "the device's own entry is passed over");
        assert_eq!(bench.poll(), expected, "to {wanted}");
    }
    let same = bench.queue.renew("test", 100, |_, _| unreachable!("it has this size"));
    assert!(same.unwrap().is_none());
    assert!(bench.queue.renew("test", 0, |_, _| unreachable!()).is_err());
}

#[test]
fn a_refused_resize_changes_nothing() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    assert!(bench.send(1, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    let refused = bench.queue.renew("test", 100, |_, _| Err(Error::kernel("test", Errno::EINVAL)));
    assert!(refused.is_err());
    assert_eq!((bench.queue.capacity(), bench.poll()), (7, vec![(1, Status::Success)]));
}

#[test]
fn what_was_forgotten_by_a_reset_stays_so_when_the_queue_is_resized() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    assert!(bench.send(1, &[PIECE]) && bench.send(2, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_REQ, 1, |_| {});
    bench.sends.reset();
    assert!(bench.send(3, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    resize(&mut bench, 31, &[]);
    assert_eq!(bench.poll(), [(3, Status::Success)]);
}

/// The kernel checks the size against the device's limit. Until it has answered, a large queue takes address space but no memory.
#[test]
#[cfg_attr(miri, ignore = "it has no /proc/self")]
fn a_queue_that_the_kernel_has_not_made_yet_costs_no_memory() {
    let pages = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).and_then(|resident| resident.parse::<u64>().ok()).unwrap()
    };
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(0), offset: 0 };
    let before = pages();
    let plan = CqPlan::new("test", (1 << 24) - 1, &limits(1), page).unwrap();
    assert!(plan.memory().unwrap().len() > 1 << 30);
    // Other tests run at the same time.
    assert!(pages() < before + (1 << 16), "{} pages", pages() - before);
}
