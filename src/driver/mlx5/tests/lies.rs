//! A faulty device: no request is reported twice, and nothing hangs.

use uverbs_abi::mlx5::wqe::{CQE_REQ_ERR, CQE_RESP_ERR, CQE_RESP_SEND, CQE_RESP_WR_IMM};

use super::*;
#[cfg(feature = "raw")]
use crate::driver::completion::Fields;
use crate::driver::seam::ReceiveRing;

fn bench() -> Bench {
    let mut bench = Bench::of(Form::Messages, 0, &cap(4, 4, 1, 0));
    bench.sends.set_ready(true);
    bench.receives.start();
    bench
}

fn send(bench: &mut Bench, wr_id: u64) -> Result<u16, Refused> {
    let place = bench.sends.next_slot() as u16;
    let opcode = Opcode::Send;
    let put = bench.sends.put(&Request {
        wr_id,
        flags: SendFlags::SIGNALED,
        opcode,
        data: pieces(&[]),
        head: None,
    });
    bench.sends.publish();
    put.map(|()| place)
}

fn receive(bench: &mut Bench, wr_id: u64) -> Result<(), Refused> {
    let put = bench.receives.put(wr_id, [PIECE].into_iter());
    bench.receives.publish();
    put
}

#[test]
fn a_completion_that_is_repeated_is_nobodys() {
    for kind in [CQE_REQ, CQE_REQ_ERR] {
        let mut bench = bench();
        let places = [1, 2].map(|wr_id| send(&mut bench, wr_id).unwrap());
        for place in [places[0], places[0], places[1], places[0], places[1]] {
            bench.complete(kind, place, |_| {});
        }
        assert_eq!(bench.poll().iter().map(|(wr_id, _)| *wr_id).collect::<Vec<_>>(), [1, 2]);
        // All places are free, as before.
        assert_eq!(bench.sends.free(), 4);
    }
    for kind in [CQE_RESP_SEND, CQE_RESP_WR_IMM, CQE_RESP_ERR] {
        let mut bench = bench();
        assert!((1..4).all(|wr_id| receive(&mut bench, wr_id).is_ok()));
        for counter in [0, 0, 2, 1, 2] {
            bench.complete(kind, counter, |_| {});
        }
        // They complete in the order in which they were posted: the requests before the one that completed are done.
        assert_eq!(bench.poll().iter().map(|(wr_id, _)| *wr_id).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(bench.receives.free(), 4);
    }
}

#[test]
fn a_place_where_nothing_waits_is_nobodys_and_the_queue_goes_on() {
    let mut bench = bench();
    for turn in 0..200_u64 {
        // Every counter, of places that were posted once and of places that were not.
        bench.complete(CQE_REQ, (turn * 331) as u16, |_| {});
        bench.complete(CQE_RESP_SEND, (turn * 331) as u16, |_| {});
        assert_eq!(bench.poll(), [], "{turn}");
        let place = send(&mut bench, turn).unwrap();
        receive(&mut bench, turn).unwrap();
        bench.complete(CQE_REQ, place, |_| {});
        bench.complete(CQE_RESP_SEND, turn as u16, |_| {});
        assert_eq!(bench.poll(), [(turn, Status::Success); 2]);
    }
}

#[test]
fn what_waited_in_an_earlier_life_is_nobodys_in_the_next() {
    let mut bench = bench();
    assert!((1..4).all(|wr_id| send(&mut bench, wr_id).is_ok() && receive(&mut bench, wr_id).is_ok()));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!(bench.poll(), [(1, Status::Success)]);
    bench.sends.reset();
    bench.receives.reset();
    // The device continues with what it had.
    for counter in 0..4 {
        bench.complete(CQE_REQ, counter * 4, |_| {});
        bench.complete(CQE_RESP_SEND, counter, |_| {});
    }
    assert_eq!(bench.poll(), []);
    bench.receives.start();
    assert!(send(&mut bench, 10).is_ok() && receive(&mut bench, 11).is_ok());
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_RESP_SEND, 0, |_| {});
    assert_eq!(bench.poll(), [(10, Status::Success), (11, Status::Success)]);
    assert_eq!((bench.sends.free(), bench.receives.free()), (4, 4));
}

/// Counters overflow: those of places after 2^16, those of the poster after 2^32.
#[test]
fn counters_go_round() {
    let mut bench = bench();
    bench.sends.start_at(u32::MAX - 40);
    bench.receives.start_at(u32::MAX - 5);
    for turn in 0..100_u64 {
        let counter = bench.receives.next_slot();
        let places = [0, 1].map(|more| send(&mut bench, 2 * turn + more).unwrap());
        assert!((0..2).all(|more| receive(&mut bench, 2 * turn + more).is_ok()));
        for (number, place) in places.into_iter().enumerate() {
            bench.complete(CQE_REQ, place, |_| {});
            bench.complete(CQE_RESP_SEND, (counter as u16).wrapping_add(number as u16), |_| {});
        }
        let wanted = [2 * turn, 2 * turn, 2 * turn + 1, 2 * turn + 1];
        assert_eq!(bench.poll(), wanted.map(|wr_id| (wr_id, Status::Success)));
        assert_eq!((bench.sends.free(), bench.receives.free()), (4, 4));
    }
}

/// Entries with an unknown opcode, queue pair, place or direction, and data that was not requested.
#[test]
fn any_entry_is_read() {
    let mut bench = bench();
    let mut random = 1_u64;
    let turns: u64 = if cfg!(miri) { 100 } else { 2_000 };
    for turn in 0..turns {
        let posted = [send(&mut bench, turn).is_ok(), receive(&mut bench, turn).is_ok()];
        let mut bytes = [0_u8; 64];
        for byte in &mut bytes {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 40) as u8;
        }
        let (kind, counter) = (bytes[63] >> 4, u16::from(bytes[61]) % 20);
        if kind == 0xf {
            continue;
        }
        bench.complete(kind, counter, |cqe| {
            *cqe = Cqe64 {
                srqn_uidx: cqe.srqn_uidx,
                wqe_counter: cqe.wqe_counter,
                ..Cqe64::read_from_bytes(&bytes).unwrap()
            };
            if bytes[0] % 4 == 0 {
                cqe.srqn_uidx = (u32::from(bytes[1]) << 16).into();
            }
        });
        let mut batch = Completion::batch::<4>();
        let count = poll(&mut bench.queue, &mut batch);
        assert!(count <= 1 && batch[..count].iter().all(|completion| completion.wr_id <= turn), "{posted:?}");
    }
}

/// The requested data is not in the entry, so it is not in memory either.
#[test]
fn an_answer_that_stands_in_the_entry_is_an_error() {
    for number in [0x1000_1234_u32, 0x1100_1234, 0x1200_1234] {
        let mut bench = bench();
        let place = send(&mut bench, 1).unwrap();
        bench.complete(CQE_REQ, place, |cqe| {
            cqe.sop_drop_qpn = number.into();
            cqe.op_own = 1 << 2;
        });
        assert_eq!(bench.poll(), [(1, Status::General)], "{number:x}");
        #[cfg(feature = "raw")]
        {
            let place = send(&mut bench, 2).unwrap();
            bench.complete(CQE_REQ, place, |cqe| {
                cqe.sop_drop_qpn = number.into();
                cqe.op_own = 1 << 2;
            });
            let mut unread = super::super::Unread::default();
            assert!(bench.queue.short_unread(|| true, &mut unread).is_err());
            bench.queue.next_unread(|| true, &mut unread).unwrap();
            assert_eq!((unread.wr_id(), unread.status()), (2, uverbs_abi::types::wc_status::GENERAL_ERR));
        }
    }
}
