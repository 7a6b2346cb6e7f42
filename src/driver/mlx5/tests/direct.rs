//! Requests and completions in the device's format.

use uverbs_abi::types::qp_state;

use super::*;
use crate::driver::mlx5::direct::Unit;
use crate::driver::seam::ReceiveRing;

/// A control segment with this opcode and its modifier, that asks for a completion. Everything else is set, and wrong.
fn control(modifier: u8, opcode: u8) -> Unit {
    let mut unit = [0xff; 16];
    (unit[0], unit[3]) = (modifier, opcode);
    (unit[10], unit[11]) = (0, 8);
    unit
}

#[test]
fn a_request_gets_its_place_its_length_and_its_number() {
    let mut bench = Bench::new(1, &cap(8, 4, 2, 0));
    assert_eq!(bench.sends.put_units(1, &[control(0, 0)]), Err(Refused::NotReady));
    assert_eq!(bench.sends.free_blocks(), 0);
    bench.sends.enter(qp_state::RTS);
    let blocks = bench.sends.slots() as u32;
    assert_eq!((bench.sends.free_blocks(), bench.sends.next_block()), (blocks, 0));
    // One of the usual ones, and one of five units between two others.
    assert!(bench.send(1, &[PIECE]));
    let units: [Unit; 5] = [control(2, 0x25), [1; 16], [2; 16], [3; 16], [4; 16]];
    bench.sends.put_units(2, &units).unwrap();
    assert_eq!((bench.sends.next_block(), bench.sends.free_blocks()), (3, blocks - 3));
    assert!(bench.send(3, &[PIECE]));
    assert_eq!(bench.counter(1), 0, "nothing is told before the doorbell");
    bench.sends.publish();
    assert_eq!((bench.counter(1), bench.doorbell(0x800)), (4, bench.ring(3, 8).try_into().unwrap()));
    let wqe = bench.ring(1, 80);
    assert_eq!(wqe[..8], [2, 0, 1, 0x25, 0, 0x12, 0x34, 5], "place 1, five units");
    assert_eq!(wqe[8..16], units[0][8..], "the rest is the program's");
    assert_eq!(wqe[16..], units[1..].concat());
    // They complete as all do.
    bench.complete(CQE_REQ, 1, |_| {});
    bench.complete(CQE_REQ, 3, |_| {});
    assert_eq!(bench.poll(), [(2, Status::Success), (3, Status::Success)]);
    assert_eq!(bench.sends.free_blocks(), blocks);
}

#[test]
fn a_request_goes_around_the_end_of_the_ring() {
    let mut bench = Bench::new(1, &cap(4, 4, 1, 0));
    let blocks = bench.sends.slots() as u32;
    bench.sends.start_at(blocks - 1);
    bench.sends.enter(qp_state::RTS);
    let units: Vec<Unit> = (0..8).map(|at| if at == 0 { control(0, 0) } else { [at; 16] }).collect();
    bench.sends.put_units(9, &units).unwrap();
    assert_eq!(bench.ring(blocks as usize - 1, 64)[16..], units[1..4].concat());
    assert_eq!(bench.ring(0, 64), units[4..].concat());
    bench.sends.publish();
    assert_eq!(bench.counter(1), blocks + 1);
}

#[test]
fn what_does_not_fit_is_refused_and_writes_nothing() {
    let mut bench = Bench::new(1, &cap(4, 4, 2, 0));
    bench.sends.enter(qp_state::RTS);
    let (blocks, before) = (bench.sends.slots() as u32, bench.ring(0, 64));
    for units in [0, 64, 1000] {
        assert_eq!(bench.sends.put_units(1, &vec![control(0, 0); units]), Err(Refused::TooLarge), "{units}");
    }
    if blocks * 4 < 63 {
        assert_eq!(bench.sends.put_units(1, &[control(0, 0); 63]), Err(Refused::Full));
    }
    assert_eq!((bench.ring(0, 64), bench.sends.next_block()), (before, 0));
    for number in 0..blocks {
        bench.sends.put_units(number.into(), &[control(0, 0)]).unwrap();
    }
    assert_eq!(bench.sends.put_units(1, &[control(0, 0)]), Err(Refused::Full));
    assert!(!bench.send(1, &[PIECE]), "full for all");
    // What is not published can be discarded.
    bench.sends.rewind();
    assert_eq!((bench.sends.free_blocks(), bench.sends.next_block()), (blocks, 0));
    assert!(bench.send(1, &[PIECE]));
}

#[test]
fn a_receive_is_written_as_it_is_given_and_ends_where_it_says() {
    let mut bench = Bench::new(1, &cap(4, 4, 2, 0));
    let [one, two] = [[0x11; 16], [0x22; 16]];
    assert_eq!(bench.receives.segments(), 2);
    assert_eq!(bench.receives.put_units(1, &[one; 3]), Err(Refused::TooLarge));
    assert_eq!(bench.receives.free(), 4);
    bench.receives.put_units(7, &[one, two]).unwrap();
    bench.receives.put_units(8, &[two]).unwrap();
    let mut ring = [0; 64];
    assert!(bench.qp_memory.read(0, &mut ring));
    assert_eq!((&ring[..32], &ring[32..48]), (&[one, two].concat()[..], &two[..]));
    assert_eq!(ring[48..56], [0, 0, 0, 0, 0, 0, 1, 0], "behind the last piece");
    bench.receives.enter(qp_state::RTR);
    bench.receives.publish();
    assert_eq!(bench.counter(0), 2);
    bench.complete(CQE_RESP_SEND, 0, |cqe| cqe.byte_cnt = 60.into());
    assert_eq!(bench.poll(), [(7, Status::Success)]);
}

#[test]
fn a_completion_comes_with_the_entry_of_the_device() {
    let mut bench = Bench::new(1, &cap(8, 4, 1, 0));
    bench.sends.enter(qp_state::RTS);
    assert!(bench.queue.take_entry(|| true).is_none());
    for number in 0..2 {
        bench.sends.put_units(number, &[control(0, 0)]).unwrap();
    }
    // An entry of a queue pair that is not there is skipped, and given back also if nothing follows.
    bench.complete(CQE_REQ, 0, |cqe| cqe.srqn_uidx = 0x999.into());
    assert!(bench.queue.take_entry(|| true).is_none());
    let consumer = |bench: &Bench| u32::from_be(bench.cq_memory.load(8 * 64, Ordering::Relaxed));
    assert_eq!(consumer(&bench), 1);
    bench.complete(CQE_REQ, 0, |cqe| cqe.timestamp = 0x1122.into());
    bench.complete(CQE_REQ, 1, |cqe| cqe.timestamp = 0x3344.into());
    assert!(bench.queue.take_entry(|| false).is_none(), "it may not");
    let (said, entry) = bench.queue.take_entry(|| true).unwrap();
    assert_eq!((said.wc.wr_id, entry.timestamp.get(), entry.wqe_counter.get()), (0, 0x1122, 0));
    assert_eq!(consumer(&bench), 2);
    assert_eq!(bench.poll(), [(1, Status::Success)], "the usual poll goes on");
    assert_eq!(consumer(&bench), 3);
}
