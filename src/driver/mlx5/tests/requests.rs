//! Requests in parts: begun and given data, with many slices, refused halfway, and with a faulty device.

use uverbs_abi::mlx5::wqe::{CQE_REQ, CQE_RESP_SEND, WqeCtrlSeg};
use uverbs_abi::types::SendFlags;
use zerocopy::FromBytes;

use super::{Bench, PIECE, all, cap, ends, frame, inline, limits, open, pieces, poll};
#[cfg(feature = "raw")]
use crate::driver::completion::Fields;
use crate::driver::completion::{Completion, Extended, Status};
#[cfg(feature = "raw")]
use crate::driver::cursor::Unread;
use crate::driver::mlx5::{Completions, Form, QpPlan, Registers};
use crate::driver::request::FRAMES;
use crate::driver::request::{Opcode, Refused, Remote, Request, Sge};
#[cfg(feature = "raw")]
use crate::driver::seam::CqSide;
use crate::driver::seam::{CompletionRing, Lower, QpQueues, ReceiveRing, SendRing};

/// Number, units and flags of the request in a block.
fn control(bench: &Bench, block: usize) -> (u32, u32, u8) {
    let control = WqeCtrlSeg::read_from_bytes(&bench.ring(block, 16)).unwrap();
    (control.opmod_idx_opcode.get(), control.qpn_ds.get() & 0xff, control.fm_ce_se)
}

/// Begins a frame, signaled.
fn begin(bench: &mut Bench, wr_id: u64) {
    bench.sends.begin::<FRAMES>(wr_id, SendFlags::SIGNALED, &Opcode::Send).unwrap();
}

/// A list of `count` pieces, with keys from zero on.
fn list(count: u32) -> Vec<Sge> {
    (0..count).map(|lkey| Sge { lkey, ..PIECE }).collect()
}

#[test]
fn a_request_that_is_begun_is_whole_and_is_given_data_as_often_as_wanted() {
    let mut bench = Bench::new(1, &cap(4, 1, 2, 40));
    begin(&mut bench, 1);
    assert_eq!((control(&bench, 0), bench.sends.next_slot()), ((0x0a, 2, 8), 1));
    bench.sends.set_data::<FRAMES, _, _>(None, &inline(&[&[7; 30], &[8; 10]])).unwrap();
    // 32 bytes, and 44 more.
    assert_eq!((control(&bench, 0), bench.sends.next_slot()), ((0x0a, 5, 8), 2));
    bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&[PIECE])).unwrap();
    assert_eq!((control(&bench, 0), bench.sends.next_slot()), ((0x0a, 3, 8), 1));
    assert_eq!(bench.ring(0, 48)[32..], *b"\x00\x00\x00\x99\xaa\xbb\xcc\xdd\x11\x22\x33\x44\x55\x66\x77\x88");
    begin(&mut bench, 2);
    assert_eq!((control(&bench, 1), bench.sends.next_slot()), ((0x10a, 2, 8), 2));
    bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(2))).unwrap();
    bench.sends.publish();
    assert_eq!((bench.counter(1), bench.doorbell(0x800)), (2, *b"\x00\x00\x01\x0a\x00\x12\x34\x04"));
    // A request that was announced to the device is not changed.
    assert_eq!(bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&[])), Err(Refused::NotBegun));
    assert_eq!(control(&bench, 1), (0x10a, 4, 8));
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_REQ, 1, |_| {});
    assert_eq!(bench.poll(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(bench.sends.free(), 4);
}

/// The posted request is identical to the one that `put` writes.
#[test]
fn a_request_that_was_begun_is_laid_out_as_one_that_was_put() {
    let head = std::array::from_fn(|i| i as u8 + 1);
    let parts: [&[u8]; 4] = [&[1; 7], &[], &[2; 20], &[3; 30]];
    for (mode, head) in [(1, None), (2, Some(head))] {
        let (mut put, mut begun) = (Bench::new(mode, &cap(4, 1, 3, 60)), Bench::new(mode, &cap(4, 1, 3, 60)));
        put.sends.put(&frame(1, head, inline(&parts))).unwrap();
        begin(&mut begun, 1);
        begun.sends.set_data::<FRAMES, _, _>(head.as_ref(), &inline(&parts)).unwrap();
        assert_eq!(put.ring(0, 128), begun.ring(0, 128));
        assert_eq!(put.sends.next_slot(), begun.sends.next_slot());
        put.sends.put(&frame(2, head, pieces(&list(3)))).unwrap();
        begin(&mut begun, 2);
        begun.sends.set_data::<FRAMES, _, _>(head.as_ref(), &pieces(&list(3))).unwrap();
        assert_eq!(put.ring(0, 256), begun.ring(0, 256));
        let opcode = Opcode::Large { header: &[9; 20], mss: 100 };
        put.sends.put(&Request { opcode, ..frame(3, None, pieces(&list(1))) }).unwrap();
        begun.sends.begin::<FRAMES>(3, SendFlags::SIGNALED, &opcode).unwrap();
        begun.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(1))).unwrap();
        assert_eq!(put.ring(0, 256), begun.ring(0, 256));
        assert_eq!(put.sends.next_slot(), begun.sends.next_slot());
    }
}

#[test]
fn the_head_of_a_frame_that_was_begun_comes_with_its_data_or_is_zero() {
    let mut bench = Bench::new(2, &cap(4, 1, 1, 0));
    begin(&mut bench, 1);
    assert_eq!(
        (control(&bench, 0).1, &bench.ring(0, 48)[28..]),
        (3, &[&[0, 18], [0; 18].as_slice()].concat()[..])
    );
    assert_eq!(
        bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&[PIECE])),
        Err(Refused::TooLarge),
        "the device wants it"
    );
    bench.sends.set_data::<FRAMES, _, _>(Some(&[5; 18]), &pieces(&[PIECE])).unwrap();
    let wqe = bench.ring(0, 64);
    assert_eq!((wqe[7], &wqe[30..48], &wqe[48..52]), (4, &[5; 18][..], &[0, 0, 0, 0x99 - 18][..]));
    let mut other = Bench::new(1, &cap(4, 1, 1, 0));
    begin(&mut other, 1);
    assert_eq!(
        other.sends.set_data::<FRAMES, _, _>(Some(&[5; 18]), &pieces(&[PIECE])),
        Err(Refused::TooLarge),
        "it does not"
    );
}

#[test]
fn data_may_grow_round_the_end_of_the_ring() {
    // Requests of up to two blocks in a ring of four.
    let mut bench = Bench::new(1, &cap(2, 1, 5, 76));
    for wr_id in 0..3 {
        assert!(bench.send(wr_id, &list(1)));
        bench.sends.publish();
        bench.complete(CQE_REQ, wr_id as u16, |_| {});
        assert_eq!(bench.poll(), [(wr_id, Status::Success)]);
    }
    begin(&mut bench, 3);
    bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(1))).unwrap();
    assert_eq!(bench.sends.next_slot(), 0);
    bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(5))).unwrap();
    assert_eq!((control(&bench, 3), bench.sends.next_slot()), ((3 << 8 | 0x0a, 7, 8), 1));
    // The third piece is the first unit of the ring.
    assert_eq!(bench.ring(0, 8), *b"\x00\x00\x00\x99\x00\x00\x00\x02");
    // In the last block there is room for 28 bytes after their length.
    let bytes: Vec<_> = (0..90).collect();
    for parts in
        [&[&bytes[..]][..], &[&bytes[..28], &bytes[28..]], &[&bytes[..10], &bytes[10..40], &bytes[40..]]]
    {
        bench.sends.set_data::<FRAMES, _, _>(None, &inline(parts)).unwrap();
        assert_eq!((control(&bench, 3).1, bench.sends.next_slot()), (8, 1));
        assert_eq!(bench.ring(3, 64)[32..36], [0x80, 0, 0, 90]);
        assert_eq!([&bench.ring(3, 64)[36..], &bench.ring(0, 62)[..]].concat(), bytes);
        bench.sends.set_data::<FRAMES, _, _>(None, &inline(&[&[0xff; 92]])).unwrap();
    }
    bench.sends.rewind();
    // As one slice into a new request.
    bench.sends.put(&frame(3, None, inline(&[&bytes]))).unwrap();
    assert_eq!((control(&bench, 3).1, bench.sends.next_slot()), (8, 1));
    assert_eq!(bench.ring(3, 64)[32..36], [0x80, 0, 0, 90]);
    assert_eq!([&bench.ring(3, 64)[36..], &bench.ring(0, 62)[..]].concat(), bytes);
    bench.sends.publish();
    assert_eq!(bench.counter(1), 5);
}

#[test]
fn bytes_in_a_request_have_the_room_of_whole_blocks() {
    for (wanted, room) in
        [(cap(4, 1, 1, 0), 12), (cap(4, 1, 17, 0), 268), (cap(4, 1, 1, 400), 460), (cap(0, 1, 1, 8), 8)]
    {
        assert_eq!(Bench::new(1, &wanted).cap.max_inline_data, room, "{wanted:?}");
    }
}

#[test]
fn one_slice_without_bytes_is_no_data_and_one_that_is_too_long_is_none() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    bench.sends.put(&frame(0, None, inline(&[&[1; 28]]))).unwrap();
    assert_eq!((control(&bench, 0), bench.sends.next_slot()), ((0x0a, 4, 8), 1));
    let before = bench.ring(1, 64);
    bench.sends.put(&frame(1, None, inline(&[&[]]))).unwrap();
    assert_eq!((control(&bench, 1), bench.sends.next_slot()), ((0x10a, 2, 8), 2));
    assert_eq!(bench.ring(1, 64)[32..], before[32..]);
    assert_eq!(bench.sends.put(&frame(2, None, inline(&[&[1; 29]]))), Err(Refused::TooLarge));
    assert_eq!(bench.sends.next_slot(), 2);
}

#[test]
fn a_place_is_taken_unseen_only_where_one_is_known_to_be_free() {
    let mut bench = Bench::new(1, &cap(2, 1, 1, 0));
    bench.sends.set_ready(true);
    let unseen = |bench: &mut Bench| {
        let data = pieces(&[PIECE]);
        bench.sends.one::<false, FRAMES>().put(1, SendFlags::SIGNALED, &Opcode::Send, None, &data)
    };
    assert_eq!(unseen(&mut bench), Err(Refused::Full));
    assert!(bench.send(0, &[PIECE]));
    assert_eq!([unseen(&mut bench), unseen(&mut bench)], [Ok(()), Err(Refused::Full)]);
    bench.sends.publish();
    bench.complete(CQE_REQ, 1, |_| {});
    assert_eq!(bench.poll(), [(1, Status::Success)]);
    assert_eq!(unseen(&mut bench), Err(Refused::Full), "nobody has looked since");
    assert!(bench.send(2, &[PIECE]));
    assert_eq!(unseen(&mut bench), Ok(()));
    bench.sends.rewind();
    assert!(bench.send(3, &[PIECE]));
    // Nor if room was known before the queue pair left its state.
    bench.sends.set_ready(false);
    let looking = |bench: &mut Bench| {
        let data = pieces(&[PIECE]);
        bench.sends.one::<true, FRAMES>().put(4, SendFlags::SIGNALED, &Opcode::Send, None, &data)
    };
    assert_eq!([unseen(&mut bench), looking(&mut bench)], [Err(Refused::Full), Err(Refused::NotReady)]);
    bench.sends.set_ready(true);
    assert_eq!([unseen(&mut bench), looking(&mut bench)], [Err(Refused::Full), Ok(())]);
}

#[test]
fn a_request_that_is_refused_halfway_goes_with_the_batch_and_not_with_what_was_published() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    assert_eq!(
        bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&[PIECE])),
        Err(Refused::NotBegun),
        "nothing was begun"
    );
    assert!(bench.send(1, &[PIECE]));
    bench.sends.publish();
    assert!(bench.send(2, &[PIECE]));
    // A request that was put may also be given other data.
    bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(2))).unwrap();
    assert_eq!(control(&bench, 1), (1 << 8 | 0x0a, 4, 8));
    begin(&mut bench, 3);
    for length in [0x8000_0000, u32::MAX] {
        let long = [Sge { length, ..PIECE }];
        assert_eq!(
            bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&long)),
            Err(Refused::TooLarge),
            "{length:#x}"
        );
    }
    assert_eq!(bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(3))), Err(Refused::TooLarge));
    assert_eq!(bench.sends.set_data::<FRAMES, _, _>(None, &inline(&[&[0; 29]])), Err(Refused::TooLarge));
    for opcode in [Opcode::SendImmediate(1), Opcode::Write(Remote { address: 0, rkey: 0 })] {
        assert_eq!(bench.sends.begin::<FRAMES>(4, SendFlags::empty(), &opcode), Err(Refused::Lacks));
        assert_eq!(bench.sends.put(&Request { opcode, ..frame(4, None, pieces(&[])) }), Err(Refused::Lacks));
    }
    for len in [0, 200] {
        let opcode = Opcode::Large { header: &[0; 200][..len], mss: u16::from(len > 0) };
        assert_eq!(bench.sends.begin::<FRAMES>(4, SendFlags::empty(), &opcode), Err(Refused::TooLarge));
    }
    bench.sends.rewind();
    assert_eq!(
        bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&[PIECE])),
        Err(Refused::NotBegun),
        "it was taken back"
    );
    assert_eq!((bench.sends.next_slot(), bench.sends.free(), bench.counter(1)), (1, 3, 1));
    for wr_id in 5..8 {
        begin(&mut bench, wr_id);
    }
    assert_eq!(bench.sends.begin::<FRAMES>(8, SendFlags::empty(), &Opcode::Send), Err(Refused::Full));
    // The last request is not changed by that.
    bench.sends.set_data::<FRAMES, _, _>(None, &pieces(&list(2))).unwrap();
    bench.sends.publish();
    assert_eq!((bench.counter(1), control(&bench, 3)), (4, (3 << 8 | 0x0a, 4, 8)));
    for counter in 0..4 {
        bench.complete(CQE_REQ, counter, |_| {});
    }
    assert_eq!(bench.poll(), [1, 5, 6, 7].map(|wr_id| (wr_id, Status::Success)));
}

#[test]
fn what_there_is_nothing_of_takes_no_segment() {
    let mut bench = Bench::new(1, &cap(8, 1, 2, 8));
    let none = Sge { length: 0, ..PIECE };
    bench.sends.put(&frame(1, None, pieces(&[none, PIECE, none]))).unwrap();
    bench.sends.put(&frame(2, None, pieces(&[none; 9]))).unwrap();
    bench.sends.put(&frame(3, None, inline(&[&[], &[]]))).unwrap();
    bench.sends.put(&frame(4, None, inline(&[]))).unwrap();
    assert_eq!([0, 1, 2, 3].map(|block| control(&bench, block).1), [3, 2, 2, 2]);
    // A frame shorter than its head: no caller creates one. All of it is written, and nothing else happens.
    let mut bench = Bench::new(2, &cap(8, 1, 2, 8));
    bench.sends.put(&frame(5, Some([0; 18]), inline(&[&[1; 7]]))).unwrap();
    bench.sends.put(&frame(6, Some([0; 18]), pieces(&[Sge { length: 17, ..PIECE }]))).unwrap();
    assert_eq!([0, 1].map(|block| control(&bench, block).1), [3, 3]);
}

#[test]
fn a_receive_of_too_many_pieces_takes_no_place() {
    let mut bench = Bench::new(1, &cap(1, 4, 2, 0));
    assert_eq!(bench.receives.put(1, [PIECE; 3].into_iter()), Err(Refused::TooLarge));
    bench.receives.put(2, [].into_iter()).unwrap();
    assert_eq!((bench.receives.next_slot(), bench.receives.free()), (1, 3));
    bench.receives.rewind();
    for wr_id in 0..4 {
        bench.receives.put(wr_id, [PIECE].into_iter()).unwrap();
    }
    assert_eq!(bench.receives.put(4, [PIECE].into_iter()), Err(Refused::Full));
    // The first place is used again; the second is unchanged.
    bench.receives.publish();
    bench.receives.start();
    bench.complete(CQE_RESP_SEND, 0, |_| {});
    assert_eq!(bench.poll(), [(0, Status::Success)]);
    bench.receives.put(4, [].into_iter()).unwrap();
    let mut places = [0; 48];
    assert!(bench.qp_memory.read(0, &mut places));
    assert_eq!((&places[..8], &places[32..36]), (&[0, 0, 0, 0, 0, 0, 1, 0][..], &[0, 0, 0, 0x99][..]));
}

#[test]
fn a_queue_pair_of_one_direction_takes_nothing_in_the_other() {
    let mut bench = Bench::new(1, &cap(0, 0, 1, 8));
    assert!(!bench.send(1, &[PIECE]));
    assert_eq!(bench.sends.begin::<FRAMES>(1, SendFlags::empty(), &Opcode::Send), Err(Refused::Full));
    assert_eq!(bench.receives.put(1, [PIECE].into_iter()), Err(Refused::Full));
    assert_eq!((bench.sends.free(), bench.receives.free()), (0, 0));
    let mut all = vec![1; bench.qp_memory.len()];
    assert!(bench.qp_memory.read(0, &mut all));
    assert!(all.iter().all(|byte| *byte == 0));
}

/// A device reports requests as done that are not, or that were done long ago: whatever it reports, counting free places does not panic,
/// and never exceeds their number.
#[test]
fn completions_that_were_made_up_free_no_more_places_than_there_are() {
    let mut bench = Bench::new(1, &cap(4, 4, 5, 0));
    for turn in 0..200_u16 {
        let blocks = if turn % 3 == 0 { 5 } else { 1 };
        let posted = bench.send(turn.into(), &list(blocks));
        let received = bench.receives.put(turn.into(), [PIECE].into_iter());
        if turn % 5 == 0 {
            bench.sends.rewind();
            bench.receives.rewind();
        }
        bench.sends.publish();
        bench.receives.publish();
        let (sends, receives) = (bench.sends.free(), bench.receives.free());
        assert!(sends <= 4 && receives <= 4, "{turn}: {sends} {receives} {posted} {received:?}");
        bench.complete(CQE_REQ, turn.wrapping_mul(7), |_| {});
        bench.complete(CQE_RESP_SEND, turn.wrapping_mul(5), |_| {});
        assert!(bench.poll().len() <= 2);
    }
}

/// The next completion if it may be taken; its place is not given back.
fn poll_next(queue: &mut Completions, may_take: impl Fn() -> bool) -> Option<Extended> {
    queue.next_if(may_take, |found| found.said()).ok()
}

#[test]
fn completions_are_taken_one_by_one_and_given_back_together() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    let mut other = Bench::new(1, &cap(8, 1, 1, 0));
    let record = (bench.cq_request.db_addr - bench.cq_request.buf_addr) as usize;
    let read =
        |bench: &Bench| bench.cq_memory.load(record, std::sync::atomic::Ordering::Relaxed).swap_bytes();
    assert!((1..4).all(|wr_id| bench.send(wr_id, &[PIECE])));
    assert!(poll_next(&mut bench.queue, || unreachable!()).is_none(), "there is nothing to ask for");
    bench.complete(CQE_REQ, 0, |_| {});
    // Without a queue pair.
    bench.complete(CQE_REQ, 1, |cqe| cqe.srqn_uidx = 0x77.into());
    bench.complete(CQE_REQ, 2, |_| {});
    assert!(poll_next(&mut bench.queue, || false).is_none());
    assert_eq!(poll_next(&mut bench.queue, || true).map(|got| got.wc.wr_id), Some(1));
    assert_eq!(poll_next(&mut bench.queue, || true).map(|got| got.wc.wr_id), Some(3));
    assert!(poll_next(&mut bench.queue, || unreachable!()).is_none());
    assert_eq!(read(&bench), 0);
    // A reset on another thread also handles entries that were not given back, and a request for an event is for completions after those.
    bench.sends.reset();
    bench.queue.release();
    assert_eq!(read(&bench), 3);
    assert!(bench.send(4, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!((poll(&mut bench.queue, &mut Completion::batch::<4>()), read(&bench)), (1, 4));
    bench.queue.release();
    assert_eq!((read(&bench), poll(&mut other.queue, &mut [])), (4, 0));
}

/// A poll of the extended interface that finds nothing is not followed by a release, so the entries that it skipped must be given back.
#[cfg(feature = "raw")]
#[test]
fn what_is_nobodys_is_given_back_where_a_poll_finds_nothing() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    let record = (bench.cq_request.db_addr - bench.cq_request.buf_addr) as usize;
    let read =
        |bench: &Bench| bench.cq_memory.load(record, std::sync::atomic::Ordering::Relaxed).swap_bytes();
    let mut place = Unread::default();
    (0..3).for_each(|counter| bench.complete(CQE_REQ, counter, |cqe| cqe.srqn_uidx = 0x77.into()));
    assert_eq!((bench.queue.next_unread(|| false, &mut place), read(&bench)), (Err(false), 0));
    assert_eq!((bench.queue.next_unread(|| true, &mut place), read(&bench)), (Err(true), 3));
    // A child of `fork` gives nothing back, and does not request an event.
    assert!(bench.send(1, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!((bench.queue.next_unread(|| true, &mut place), place.wr_id()), (Ok(()), 1));
    assert_eq!((bench.queue.next_unread(|| false, &mut place), read(&bench)), (Err(true), 3));
}

/// As libmlx5 does (`mlx5_arm_cq`, cq.c, 44): otherwise the device would immediately announce what the poll has returned.
#[cfg(feature = "raw")]
#[test]
fn an_event_that_is_asked_for_in_the_middle_of_a_poll_is_for_what_comes_behind_it() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    let record = (bench.cq_request.db_addr - bench.cq_request.buf_addr) as usize;
    let read = |bench: &Bench, word: usize| {
        bench.cq_memory.load(record + 4 * word, std::sync::atomic::Ordering::Relaxed).swap_bytes()
    };
    assert!((1..4).all(|wr_id| bench.send(wr_id, &[PIECE])));
    (0..3).for_each(|counter| bench.complete(CQE_REQ, counter, |_| {}));
    let mut place = Unread::default();
    let shared = bench.queue.shared().clone();
    assert_eq!(bench.queue.next_unread(|| true, &mut place), Ok(()));
    assert!(shared.arm_behind(0, false));
    assert_eq!((read(&bench, 0), read(&bench, 1)), (0, 1));
    assert_eq!(bench.queue.short_unread(|| true, &mut place), Ok(()));
    assert!(shared.arm_behind(0, false));
    assert_eq!((read(&bench, 0), read(&bench, 1)), (0, 2));
    bench.queue.release();
    assert_eq!(read(&bench, 0), 2);
    // The device uses two bits of the number of events that were read.
    assert!(shared.arm_behind(3 << 30, true));
    assert_eq!(read(&bench, 1), 3 << 28 | 1 << 24 | 2);
}

/// Between two completions of one poll anything may have happened elsewhere, such as binding a counter to another queue pair.
#[test]
fn each_completion_of_a_poll_is_asked_for() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    for wr_id in [1, 2] {
        bench.sends.put(&frame(wr_id, None, pieces(&[PIECE]))).unwrap();
    }
    bench.sends.publish();
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_REQ, 1, |_| {});
    let asked = std::cell::Cell::new(0);
    let once = || asked.replace(asked.get() + 1) == 0;
    let mut batch = Completion::batch::<4>();
    let count = bench.queue.poll(&mut batch, once);
    assert_eq!((count, batch[0].wr_id, asked.get()), (1, 1, 2));
    assert_eq!(bench.poll(), [(2, Status::Success)]);
}

/// A completion that was taken and not given back does not permit taking the next: this must be checked again in a child of `fork`.
#[test]
fn a_completion_behind_one_that_was_taken_is_asked_for() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    for wr_id in [1, 2] {
        bench.sends.put(&frame(wr_id, None, pieces(&[PIECE]))).unwrap();
    }
    bench.sends.publish();
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_REQ, 1, |_| {});
    assert_eq!(poll_next(&mut bench.queue, || true).map(|completion| completion.wc.wr_id), Some(1));
    assert!(poll_next(&mut bench.queue, || false).is_none());
    assert_eq!(bench.poll(), [(2, Status::Success)]);
}

/// One thread polls while another creates a queue pair; or one thread does both, between two completions of an extended poll.
#[test]
fn a_queue_pair_that_was_made_behind_a_completion_completes_too() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    assert!(bench.send(1, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!(poll_next(&mut bench.queue, || true).map(|completion| completion.wc.wr_id), Some(1));
    let page = Registers { page: bench.registers.clone(), id: Some(9), offset: 0 };
    let (wanted, shared) = (cap(4, 1, 1, 0), [bench.queue.shared(); 2]);
    let plan =
        QpPlan::new("test", Form::Frames { header: 0 }, &all(wanted), &limits(1), page, ends(shared), || 77)
            .unwrap();
    let QpQueues { mut sends, .. } = open(plan, 0x77);
    sends.put(&frame(2, None, pieces(&[PIECE]))).unwrap();
    sends.publish();
    bench.complete(CQE_REQ, 0, |cqe| cqe.srqn_uidx = 77.into());
    let next =
        poll_next(&mut bench.queue, || true).map(|completion| (completion.wc.wr_id, completion.wc.qp_num));
    assert_eq!(next, Some((2, 0x77)));
}

/// A piece of zero bytes has no segment: a device takes zero for the largest length, and would write beyond the piece.
#[test]
fn a_receive_has_no_segment_for_a_piece_of_no_bytes_and_none_for_one_that_is_too_long() {
    let mut bench = Bench::new(1, &cap(1, 4, 2, 0));
    let empty = Sge { length: 0, ..PIECE };
    let ring = |bench: &Bench| {
        let mut bytes = vec![0; 32];
        assert!(bench.qp_memory.read(0, &mut bytes));
        bytes
    };
    let end = *b"\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0";
    for list in [&[empty, PIECE][..], &[PIECE, empty], &[PIECE]] {
        bench.receives.put(1, list.iter().copied()).unwrap();
        bench.receives.rewind();
        let (first, second) = (ring(&bench)[..16].to_vec(), ring(&bench)[16..].to_vec());
        assert_eq!(first, *b"\x00\x00\x00\x99\xaa\xbb\xcc\xdd\x11\x22\x33\x44\x55\x66\x77\x88");
        assert_eq!(second, end);
    }
    bench.receives.put(1, [empty, empty].into_iter()).unwrap();
    assert_eq!(ring(&bench)[..16], end);
    for length in [1 << 31, (1 << 31) + 64, u32::MAX] {
        let long = Sge { length, ..PIECE };
        assert_eq!(bench.receives.put(2, [long].into_iter()), Err(Refused::TooLarge), "{length}");
    }
    bench.receives.put(2, [Sge { length: (1 << 31) - 1, ..PIECE }].into_iter()).unwrap();
    assert_eq!(bench.receives.put(3, [PIECE; 3].into_iter()), Err(Refused::TooLarge));
    assert_eq!(bench.receives.next_slot(), 2, "what is refused takes no place");
}
