//! What is granted and refused.

use uverbs_abi::mana::CreateRcQp;
use uverbs_abi::write::QueryDeviceResp;
use zerocopy::FromBytes;

use super::*;
use crate::driver::seam::{Control, CqShape, DriverCq, Queues, Sides};

/// The state of a device with these limits of entries.
fn state(entries: u32) -> State {
    let limits = Limits { requests: 8, pieces: 4, entries };
    let state = State::default();
    *state.page.lock().unwrap() = Some(Mapping::block(PAGE).unwrap());
    state.limits.set(limits).unwrap();
    state
}

fn asked(state: &State, entries: u32) -> Result<u32> {
    let shape = CqShape { entries, has_channel: false, memory: None, driver: DriverCq::default() };
    Ok(state.plan_cq("test", &shape, &Nobody)?.asked(entries))
}

#[test]
fn what_is_granted_can_be_asked_for_again() {
    let state = state(100);
    let ring = asked(&state, 100).unwrap();
    assert_eq!((ring, state.granted_entries(100, ring, ring)), (128, 100));
    assert_eq!(state.granted_entries(5, 64, 64), 64);
    assert!(asked(&state, 0).is_err() && asked(&state, 101).is_err());
}

#[test]
fn no_limit_of_a_device_is_too_large() {
    let base = QueryDeviceResp { max_cqe: u32::MAX, ..QueryDeviceResp::new_zeroed() };
    let state = state(Limits::new(&base).entries);
    assert!(asked(&state, u32::MAX).is_err() && asked(&state, (1 << 28) + 1).is_err());
    assert_eq!(asked(&state, 3).unwrap(), 64);
}

#[test]
fn options_of_a_queue_pair_are_refused() {
    let (state, bench) = (state(64), Bench::fresh());
    let side = bench.queue.side();
    let sides = Sides { queues: [&side, &side], shared: None };
    let refused = |shape: QpShape| -> std::result::Result<(), Option<i32>> {
        state.plan_qp("test", &shape, sides, &Nobody).map(|_| ()).map_err(|error| error.errno())
    };
    let plain = || shape(QpCreateFlags::empty());
    assert_eq!((refused(plain()), refused(shape(QpCreateFlags::SQ_SIG_ALL))), (Ok(()), Ok(())));
    let lacks = Err(Some(Errno::EOPNOTSUPP as i32));
    assert_eq!(refused(QpShape { type_: qp_type::UD, ..plain() }), lacks);
    assert_eq!(refused(QpShape { is_shared: true, ..plain() }), lacks);
    let of = |operations| refused(QpShape { operations: Some(operations), ..plain() });
    // Writes, messages and reads; atomic operations, invalidations, windows.
    assert_eq!((of(0x1f), of(0)), (Ok(()), Ok(())));
    for bit in 5..13 {
        assert_eq!(of(1 << bit | 1), lacks, "{bit}");
    }
    for flags in QpCreateFlags::all().iter().filter(|flags| *flags != QpCreateFlags::SQ_SIG_ALL) {
        assert_eq!(refused(shape(flags | QpCreateFlags::SQ_SIG_ALL)), lacks, "{flags:?}");
    }
}

#[test]
fn all_rings_are_in_the_memory_that_the_object_keeps() {
    let (state, bench) = (state(64), Bench::fresh());
    let side = bench.queue.side();
    let sides = Sides { queues: [&side, &side], shared: None };
    let mut plan = state.plan_qp("test", &shape(QpCreateFlags::empty()), sides, &Nobody).unwrap();
    let memory = plan.memory().unwrap().clone();
    let request = CreateRcQp::read_from_bytes(plan.payload().0).unwrap();
    let mut end = memory.address();
    for (at, size) in request.queue_buf.into_iter().zip(request.queue_size) {
        assert!(at >= end && at.is_multiple_of(4096), "{request:?}");
        end = at + u64::from(size);
    }
    assert!(end <= memory.address() + memory.len() as u64, "{request:?}");
}
