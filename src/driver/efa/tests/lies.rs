//! Wrong responses of a device or a kernel: no completion is reported twice, and nothing stops.

use super::*;

#[test]
fn a_completion_that_is_repeated_is_nobodys() {
    let mut bench = Bench::ready();
    let numbers = [1, 2].map(|wr_id| bench.send(wr_id).unwrap());
    for (ring, number) in [(0, numbers[0]), (1, numbers[0]), (0, numbers[1]), (1, numbers[1])] {
        bench.complete(ring, number, 0);
    }
    let mut found = bench.wr_ids();
    found.sort_unstable();
    assert_eq!((found, bench.sends.is_idle()), (vec![1, 2], Some(true)));
    assert!((3..7).all(|wr_id| bench.send(wr_id).is_ok()));
    assert_eq!(bench.send(7), Err(Refused::Full), "no number was given back twice");
}

#[test]
fn a_number_that_nobody_has_is_nobodys_and_the_queue_goes_on() {
    let mut bench = Bench::ready();
    for turn in 0..if cfg!(miri) { 9 } else { 200_u64 } {
        bench.complete(0, (turn * 331) as u16, 0);
        bench.deliver(1, (turn * 331) as u16, |_| {});
        assert_eq!(bench.wr_ids(), [], "{turn}");
        let number = bench.send(turn).unwrap();
        let received = bench.receive(turn, &[PIECE]).unwrap();
        bench.complete(1, number, 0);
        bench.deliver(0, received, |_| {});
        assert_eq!(bench.wr_ids(), [turn; 2]);
    }
}

/// The entry of a send that names the receive queue, and one of a queue pair that does not complete here.
#[test]
fn a_completion_of_the_other_direction_or_queue_pair_is_nobodys() {
    let mut bench = Bench::ready();
    let number = bench.send(1).unwrap();
    bench.deliver(0, number, |_| {});
    let mut other = entry(SEND_QUEUE, SEND, number, 0);
    other.base.common.qp_num = 0xb09.into();
    bench.write(1, other);
    assert_eq!(bench.wr_ids(), []);
    bench.complete(0, number, 0);
    assert_eq!(bench.wr_ids(), [1]);
}

#[test]
fn any_entry_is_read() {
    let mut bench = Bench::ready();
    let mut random = 1_u64;
    let turns: u64 = if cfg!(miri) { 40 } else { 5_000 };
    for turn in 0..turns {
        let _posted = [bench.send(turn).is_ok(), bench.receive(turn, &[PIECE]).is_ok()];
        let mut bytes = [0_u8; 32];
        for byte in &mut bytes {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 40) as u8;
        }
        let mut entry = RxCdescEx::read_from_bytes(&bytes).unwrap();
        if bytes[31] % 4 != 0 {
            entry.base.common.qp_num = (NUMBER as u16).into();
            entry.base.common.req_id = (u16::from(bytes[0]) % 8).into();
        }
        bench.write(turn as usize % 2, entry);
        let found = bench.poll();
        assert!(found.len() <= 1 && found.iter().all(|found| found.wr_id <= turn));
    }
}

/// Responses of the kernel with sizes that no ring can have.
#[test]
fn a_queue_of_no_possible_size_is_an_error() {
    let state = state(|_, _| {});
    let memory = Memory::default();
    memory.put(CQ, 4096);
    memory.put(PAGE, page_size());
    let open = |entries, change: &dyn Fn(&mut CreateCqResp)| {
        let mut plan = state.plan_cq("test", &cq_shape(4, false), &memory).unwrap();
        let mut response = CreateCqResp {
            comp_mask: CREATE_CQ_RESP_DB_OFF,
            q_mmap_key: CQ,
            q_mmap_size: 4096,
            db_mmap_key: PAGE,
            ..CreateCqResp::new_zeroed()
        };
        change(&mut response);
        plan.payload().1.copy_from_slice(response.as_bytes());
        plan.open(Created { op: "test", number: 0, size: entries, kernel: &memory }).map(drop)
    };
    assert!(open(4, &|_| {}).is_ok() && open(64, &|_| {}).is_ok());
    for entries in [0, 3, 128, u32::MAX, 1 << 31] {
        assert!(open(entries, &|_| {}).is_err(), "{entries}");
    }
    assert!(open(4, &|response| response.q_mmap_size = u64::MAX).is_err());
    // A doorbell may be anywhere in the page that the system uses, even if that has 16 KiB.
    let size = page_size() as u32;
    assert!(open(4, &|response| response.db_off = size - 4).is_ok());
    assert!(open(4, &|response| response.db_off = size).is_err());
    assert!(open(4, &|response| response.db_off = 2).is_err());
    assert!(open(4, &|response| response.db_mmap_key = 9).is_err());
}

#[test]
fn rings_of_a_queue_pair_that_do_not_fit_are_an_error() {
    let state = state(|_, _| {});
    let memory = Memory::default();
    for (key, len) in [(CQ, 4096), (LLQ, 8192), (RQ, 4096), (PAGE, page_size())] {
        memory.put(key, len);
    }
    let side = queue(&state, &memory).side();
    let open = |change: &dyn Fn(&mut CreateQpResp)| {
        let shape = shape(qp_type::DRIVER, cap(64, 64, 1, 0));
        let sides = Sides { queues: [&side; 2], shared: None };
        let mut plan = state.plan_qp("test", &shape, sides, &memory).unwrap();
        let mut response = CreateQpResp {
            rq_mmap_key: RQ,
            rq_mmap_size: 4096,
            rq_db_mmap_key: PAGE,
            sq_db_mmap_key: PAGE,
            llq_desc_mmap_key: LLQ,
            ..CreateQpResp::new_zeroed()
        };
        change(&mut response);
        plan.payload().1.copy_from_slice(response.as_bytes());
        plan.open(Created { op: "test", number: NUMBER, size: shape.cap, kernel: &memory }).map(drop)
    };
    assert!(open(&|_| {}).is_ok());
    assert!(open(&|response| response.rq_mmap_size = 1023).is_err());
    assert!(open(&|response| response.rq_mmap_size = u64::MAX).is_err());
    assert!(open(&|response| response.llq_desc_offset = u32::MAX).is_err());
    assert!(open(&|response| response.llq_desc_offset = 4).is_err());
    assert!(open(&|response| response.sq_db_offset = 4097).is_err());
    assert!(open(&|response| response.rq_db_offset = u32::MAX).is_err());
}

/// A context whose limits are zero.
#[test]
fn a_device_without_limits_has_no_queues() {
    let state = State::default();
    let memory = Memory::default();
    memory.put(CQ, 4096);
    memory.put(PAGE, page_size());
    let mut plan = state.plan_cq("test", &cq_shape(4, false), &memory).unwrap();
    let response = CreateCqResp { q_mmap_key: CQ, q_mmap_size: 4096, ..CreateCqResp::new_zeroed() };
    plan.payload().1.copy_from_slice(response.as_bytes());
    let made = Created { op: "test", number: 0, size: 4, kernel: &memory };
    assert!(plan.open(made).is_err(), "a queue of no rings");
}
