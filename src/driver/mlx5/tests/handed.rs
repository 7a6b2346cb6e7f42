//! Rings that were handed over to a program.

use nix::errno::Errno;
use uverbs_abi::types::qp_state;

use super::*;
use crate::driver::mlx5::SrqPlan;
use crate::driver::seam::{DriverCq, OwnRing, ReceiveRing};

#[test]
fn a_ring_is_described_by_its_addresses() {
    let mut bench = Bench::new(1, &cap(4, 4, 2, 0));
    let record = bench.request.db_addr;
    let sends = bench.sends.hand_over().unwrap();
    let start = bench.request.sq_buf_addr;
    assert_eq!((sends.address, sends.entry_size, sends.entries), (start, 64, bench.request.sq_wqe_count));
    assert_eq!((sends.record, sends.doorbell), (record + 4, bench.registers.address() + 0x800));
    let receives = bench.receives.hand_over().unwrap();
    assert_eq!((receives.address, receives.entry_size, receives.entries), (bench.request.buf_addr, 32, 4));
    assert_eq!((receives.record, receives.doorbell), (record, 0));
    let queue = bench.queue.hand_over().unwrap();
    let CreateCq { buf_addr, db_addr, .. } = bench.cq_request;
    assert_eq!((queue.address, queue.entry_size, queue.entries, queue.record), (buf_addr, 64, 8, db_addr));
    assert_eq!(queue.doorbell, bench.registers.address() + 0x20);
}

#[test]
fn a_ring_that_is_the_programs_is_left_alone() {
    let mut bench = Bench::new(1, &cap(4, 4, 1, 0));
    let [OwnRing { .. }, OwnRing { .. }, OwnRing { .. }] =
        [bench.sends.hand_over(), bench.receives.hand_over(), bench.queue.hand_over()].map(Option::unwrap);
    // The program has posted three receives, and sends.
    let record = (bench.request.db_addr - bench.request.buf_addr) as usize;
    bench.qp_memory.store(record, 3_u32.to_be(), Ordering::Relaxed);
    bench.qp_memory.store(record + 4, 5_u32.to_be(), Ordering::Relaxed);
    bench.receives.enter(qp_state::RTR);
    bench.sends.enter(qp_state::RTS);
    assert_eq!((bench.counter(0), bench.counter(1)), (3, 5), "the state does not concern them");
    // A reset looks for completions neither of this queue pair nor of others. The device then begins at zero.
    bench.complete(CQE_RESP_SEND, 0, |_| {});
    let before = bench.queue.shared().at_end(|position| position);
    bench.receives.enter(qp_state::RESET);
    bench.sends.enter(qp_state::RESET);
    assert_eq!((before, bench.counter(0), bench.counter(1)), (0, 0, 0));
    let error = bench.queue.renew("test", 63, |_, _| Ok(())).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EBUSY as i32), "the program would have an old ring");
}

#[test]
fn compressed_completions_are_never_polled() {
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0x3000 };
    let plan = CqPlan::new("test", 7, &limits(1), page).unwrap();
    let driver = DriverCq { flags: 1, compression: Some(4), ..DriverCq::default() };
    let mut plan = plan.with("test", driver).unwrap();
    let request = CreateCq::read_from_bytes(plan.payload().0).unwrap();
    assert_eq!((request.cqe_comp_en, request.cqe_comp_res_format, request.flags & 1), (1, 4, 1));
    let memory = plan.memory().unwrap().clone();
    let mut queue = open(plan, 0);
    assert_eq!(queue.capacity(), 7);
    // Whatever the device writes there.
    assert!(memory.write(0, &[0; 512]));
    assert_eq!(poll(&mut queue, &mut Completion::batch::<4>()), 0);
    assert!(queue.renew("test", 63, |_, _| Ok(())).is_err());
    let ring = queue.hand_over().unwrap();
    assert_eq!((ring.address, ring.entries), (request.buf_addr, 8));
}

#[test]
fn of_a_shared_queue_a_program_learns_the_list() {
    let plan = SrqPlan::new("test", 7, 3, &limits(1), None, || unreachable!()).unwrap();
    let memory = plan.memory().unwrap().clone();
    let ring = open(plan, 0).hand_over().unwrap();
    // A head and three segments; all entries but the last one are free.
    assert_eq!((ring.address, ring.entry_size, ring.entries), (memory.address(), 64, 8));
    assert_eq!((ring.list, ring.record), ([0, 7], memory.address() + 4096));
}
