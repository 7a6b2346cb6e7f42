//! Batches, whose first request gets its flag last.

use uverbs_abi::siw::WQE_SIGNALLED;

use super::queues::REMOTE;
use super::*;
use crate::driver::seam::{ReceiveRing, plain};

fn flags(bench: &Bench) -> [bool; ENTRIES as usize] {
    std::array::from_fn(|number| bench.slot(number as u32).flags & WQE_VALID != 0)
}

#[test]
fn the_kernel_comes_to_no_request_of_a_batch_before_it_is_published() {
    let mut bench = Bench::new();
    // The kernel is at the second slot.
    bench.send(0).unwrap();
    bench.take_send().unwrap();
    for wr_id in 1..4 {
        bench.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
        assert_eq!(bench.take_send(), None, "{wr_id}");
    }
    assert_eq!(flags(&bench), [false, false, true, true]);
    assert_eq!(bench.sends.publish(), Published::Shown);
    for wr_id in 1..4 {
        assert_eq!(bench.take_send().map(|slot| slot.id), Some(wr_id));
    }
    assert_eq!(bench.take_send(), None);
}

#[test]
fn of_a_batch_that_is_forgotten_no_slot_keeps_its_flag() {
    let mut bench = Bench::new();
    bench.send(0).unwrap();
    for wr_id in 1..4 {
        bench.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    }
    assert_eq!(bench.put(4, SendFlags::SIGNALED, Opcode::Send, &[PIECE]), Err(Refused::Full));
    bench.sends.rewind();
    assert_eq!(flags(&bench), [true, false, false, false]);
    assert_eq!(bench.send(5), Ok(Published::Told));
    assert_eq!([0, 1, 2].map(|_| bench.take_send().map(|slot| slot.id)), [Some(0), Some(5), None]);
    // The same for receives.
    for wr_id in 0..3 {
        bench.receives.writing::<false>().put(wr_id, [PIECE].iter()).unwrap();
        assert_eq!(bench.take_receive(), None);
    }
    bench.receives.rewind();
    assert!(bench.receives.is_idle() == Some(true));
    bench.receive(7, &[PIECE]).unwrap();
    assert_eq!([0, 1].map(|_| bench.take_receive().map(|slot| slot.id)), [Some(7), None]);
}

#[test]
fn several_receives_are_shown_at_once_or_one_by_one() {
    let mut bench = Bench::new();
    for round in 0..9_u64 {
        for wr_id in 0..3 {
            bench.receives.writing::<false>().put(round * 10 + wr_id, [PIECE].iter()).unwrap();
        }
        assert_eq!(bench.take_receive(), None);
        bench.receives.publish();
        for wr_id in 0..3 {
            assert_eq!(bench.take_receive().map(|slot| slot.id), Some(round * 10 + wr_id));
        }
        let mut writing = bench.receives.writing::<true>();
        for wr_id in 4..8 {
            writing.put(round * 10 + wr_id, [PIECE; 2].iter()).unwrap();
        }
        assert_eq!(writing.put(9, [PIECE].iter()), Err(Refused::Full));
        drop(writing);
        for wr_id in 4..8 {
            let slot = bench.take_receive().unwrap();
            assert_eq!((slot.id, slot.num_sge, slot.sge[1].laddr), (round * 10 + wr_id, 2, PIECE.addr));
        }
    }
    bench.receives.enter(qp_state::ERR);
    assert_eq!(bench.receives.writing::<false>().put(1, [PIECE].iter()), Err(Refused::NotReady));
}

#[test]
fn a_later_request_of_a_batch_is_told_in_parts_too() {
    let mut bench = Bench::new();
    bench.put(1, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.sends.writing().begin(2, SendFlags::empty(), &Opcode::Read(REMOTE)).unwrap();
    let data = Data::<_, NoBytes>::Pieces([PIECE].into_iter());
    bench.sends.writing().set_data(SendFlags::SIGNALED, None, &data).unwrap();
    bench.sends.publish();
    assert_eq!(bench.take_send().map(|slot| slot.id), Some(1));
    let slot = bench.take_send().unwrap();
    assert_eq!((slot.id, slot.flags, slot.num_sge), (2, WQE_VALID | WQE_SIGNALLED, 1));
    assert_eq!((slot.rkey, slot.sge[0].lkey), (REMOTE.rkey, PIECE.lkey));
}

#[test]
fn receives_of_one_piece_are_posted_all_at_once_or_not_at_all() {
    let mut bench = Bench::new();
    let is_free = |bench: &Bench| bench.receives.is_idle() == Some(true);
    for round in 0..9_u64 {
        let plain = |from: u64, to: u64| plain(round * 10 + from..round * 10 + to, &PIECE);
        // The kernel would take each that it sees, from the first on.
        for other in 0..3 {
            let mut requests = plain(0, 3);
            requests[other] = None;
            assert!(!bench.receives.post_list_fast(requests.into_iter()));
            assert!(is_free(&bench) && bench.take_receive().is_none(), "one is another: {other}");
        }
        assert!(
            !bench.receives.post_list_fast(plain(0, 5).into_iter()) && is_free(&bench),
            "there is no such room"
        );
        assert!(bench.receives.post_list_fast(plain(0, 0).into_iter()) && is_free(&bench), "none");
        assert!(bench.receives.post_list_fast(plain(0, 3).into_iter()));
        assert!(!bench.receives.post_list_fast(plain(3, 5).into_iter()), "there is room for one");
        assert_eq!(bench.receives.post_fast(round * 10 + 3, &PIECE), Some((round * 4 + 3) as u32 % 8));
        assert_eq!(bench.receives.post_fast(4, &PIECE), None, "it is full");
        assert!(!bench.receives.post_list_fast(plain(4, 5).into_iter()));
        for wr_id in 0..4 {
            let slot = bench.take_receive().unwrap();
            assert_eq!((slot.id, slot.num_sge, slot.sge[0].laddr), (round * 10 + wr_id, 1, PIECE.addr));
        }
        assert_eq!(bench.take_receive(), None);
    }
    bench.receives.enter(qp_state::ERR);
    assert!(!bench.receives.post_list_fast([Some((1, &PIECE))].into_iter()));
    assert_eq!(bench.receives.post_fast(1, &PIECE), None);
    assert!(is_free(&bench));
}

/// A request that was not published is not taken out as late.
#[test]
fn what_was_not_published_is_not_taken_out_as_late() {
    let mut bench = Bench::new();
    bench.send(1).unwrap();
    for wr_id in 2..5 {
        bench.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    }
    bench.sends.enter(qp_state::ERR);
    let mut late = Vec::new();
    bench.sends.take_late(|Late { wr_id, .. }| late.push(wr_id));
    assert_eq!((late, bench.sends.is_idle()), (vec![1], Some(true)));
}

#[cfg(feature = "raw")]
#[test]
fn completions_that_have_failed_are_for_the_long_way() {
    let mut bench = Bench::new();
    let mut places = [Extended::default(); 4];
    assert_eq!(bench.queue.poll_fast(&mut places, || panic!("there is none")), Some(0));
    for (id, status) in [(1, 0), (2, 0), (3, 4), (4, 0)] {
        assert!(bench.complete(entry(id, OP_SEND, status)));
    }
    assert_eq!(bench.queue.poll_fast(&mut places[..0], || true), Some(0));
    assert_eq!(bench.queue.poll_fast(&mut places, || false), None, "it may not");
    assert_eq!(bench.queue.poll_fast(&mut places, || true), Some(2));
    assert_eq!(places.map(|place| place.wc.wr_id), [1, 2, 0, 0]);
    assert_eq!((bench.queue.poll_fast(&mut places, || true), bench.queue.is_empty()), (None, false));
    let wcs = bench.poll();
    assert_eq!([wcs[0].wr_id, wcs[1].wr_id], [3, 4]);
    assert_eq!([wcs[0].status, wcs[1].status], [wc_status::WR_FLUSH_ERR, wc_status::SUCCESS]);
    assert_eq!(bench.queue.poll_fast(&mut places, || true), Some(0));
}
