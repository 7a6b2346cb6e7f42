//! Posted requests have the layout that the kernel reads, and what the kernel writes is reported.

use uverbs_abi::siw::{
    MAX_INLINE, OP_SEND_REMOTE_INV, WQE_INLINE, WQE_READ_FENCE, WQE_SIGNALLED, WQE_SOLICITED,
};

use super::*;
use crate::driver::seam::ReceiveRing;

pub(super) const REMOTE: Remote = Remote { address: 0x0102_0304_0506_0708, rkey: 0xabcd };

#[test]
fn a_request_stands_in_its_slot_and_is_the_kernels_when_it_is_published() {
    let mut bench = Bench::new();
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED | SendFlags::FENCE;
    bench.put(0x55_0000_0001, flags, Opcode::Write(REMOTE), &[PIECE, Sge { length: 1, ..PIECE }]).unwrap();
    assert_eq!(bench.slot(0).flags, 0, "a queue pair that fails now flushes nothing here");
    assert_eq!(bench.sends.publish(), Published::Shown);
    let slot = bench.take_send().unwrap();
    let wanted = WQE_VALID | WQE_SIGNALLED | WQE_SOLICITED | WQE_READ_FENCE;
    assert_eq!((slot.id, slot.flags, slot.num_sge, slot.opcode), (0x55_0000_0001, wanted, 2, OP_WRITE));
    assert_eq!((slot.rkey, slot.raddr), (REMOTE.rkey, REMOTE.address));
    let piece = |at: usize| (slot.sge[at].laddr, slot.sge[at].length, slot.sge[at].lkey);
    assert_eq!((piece(0), piece(1)), ((PIECE.addr, 100, 0x2a01), (PIECE.addr, 1, 0x2a01)));
}

#[test]
fn operations_have_their_numbers_and_others_are_lacked() {
    let mut bench = Bench::new();
    for (opcode, number) in [
        (Opcode::Send, OP_SEND),
        (Opcode::SendInvalidate(9), OP_SEND_REMOTE_INV),
        (Opcode::Write(REMOTE), OP_WRITE),
        (Opcode::Read(REMOTE), OP_READ),
    ] {
        bench.put(1, SendFlags::empty(), opcode, &[PIECE]).unwrap();
        assert_eq!(bench.sends.publish(), Published::Shown);
        let slot = bench.take_send().unwrap();
        assert_eq!((slot.opcode, slot.flags, slot.num_sge), (number, WQE_VALID, 1));
    }
    for opcode in [
        Opcode::SendImmediate(1),
        Opcode::WriteImmediate(REMOTE, 1),
        Opcode::FetchAdd { remote: REMOTE, add: 1 },
        Opcode::CompareSwap { remote: REMOTE, compare: 1, swap: 2 },
        Opcode::AtomicWrite(REMOTE),
        Opcode::Bind(Default::default()),
        Opcode::LocalInvalidate(1),
        Opcode::Large { header: &[], mss: 1 },
    ] {
        assert_eq!(bench.put(1, SendFlags::SIGNALED, opcode, &[PIECE]), Err(Refused::Lacks), "{opcode:?}");
    }
    assert_eq!(bench.put(1, SendFlags::IP_CSUM, Opcode::Send, &[PIECE]), Err(Refused::Lacks));
    assert_eq!((bench.sends.publish(), bench.take_send()), (Published::Nothing, None));
}

/// The kernel leaves such requests in their slots, and the queue is blocked for good (`siw_activate_tx_from_sq`, siw_qp.c, Linux 6.1 and
/// 7.3).
#[test]
fn inline_data_of_a_send_that_invalidates_would_stop_the_queue_and_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.put_inline(Opcode::SendInvalidate(5), &[b"abc"]), Err(Refused::Lacks));
    assert_eq!(bench.put_inline(Opcode::Read(REMOTE), &[b"abc"]), Err(Refused::Lacks));
    // In parts.
    bench.sends.writing().begin(1, SendFlags::SIGNALED, &Opcode::SendInvalidate(5)).unwrap();
    let data = Data::<NoPieces, _>::Inline(std::iter::once(&b"abc"[..]));
    assert_eq!(bench.sends.writing().set_data(SendFlags::SIGNALED, None, &data), Err(Refused::Lacks));
    bench.sends.rewind();
    assert_eq!((bench.sends.publish(), bench.take_send()), (Published::Nothing, None));
    assert_eq!(bench.send(2), Ok(Published::Shown));
}

/// The kernel leaves a read with a fence in its slot, and the queue is blocked for good (`siw_activate_tx_from_sq`, siw_qp.c, Linux 6.1 and
/// 7.3).
#[test]
fn a_read_with_a_fence_would_stop_the_queue_and_is_refused() {
    let mut bench = Bench::new();
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    assert_eq!(bench.put(1, fenced, Opcode::Read(REMOTE), &[PIECE]), Err(Refused::Lacks));
    bench.sends.writing().begin(1, SendFlags::SIGNALED, &Opcode::Read(REMOTE)).unwrap();
    let data = Data::<_, NoBytes>::Pieces([PIECE].into_iter());
    assert_eq!(bench.sends.writing().set_data(fenced, None, &data), Err(Refused::Lacks));
    bench.sends.rewind();
    assert_eq!(bench.sends.publish(), Published::Nothing);
}

#[test]
fn inline_bytes_stand_behind_the_first_piece() {
    let mut bench = Bench::new();
    let bytes: Vec<u8> = (1..=MAX_INLINE as u8).collect();
    for len in 0..=MAX_INLINE {
        let (head, tail) = bytes[..len].split_at(len / 3);
        for parts in [&[&bytes[..len]][..], &[head, tail]] {
            bench.put_inline(Opcode::Write(REMOTE), parts).unwrap();
            assert_eq!(bench.sends.publish(), Published::Shown);
            let slot = bench.take_send().unwrap();
            let (flags, count) = if len == 0 { (0, 0) } else { (WQE_INLINE, 1) };
            assert_eq!((slot.flags, slot.num_sge), (WQE_VALID | WQE_SIGNALLED | flags, count));
            assert_eq!(slot.sge[0].length as usize, len);
            assert_eq!(&slot.sge[1..].as_bytes()[..len], &bytes[..len]);
        }
    }
    let long = [0; MAX_INLINE + 1];
    assert_eq!(bench.put_inline(Opcode::Send, &[&long]), Err(Refused::TooLarge));
    assert_eq!(bench.put_inline(Opcode::Send, &[&long[..60], &long[..60]]), Err(Refused::TooLarge));
    assert_eq!(bench.sends.publish(), Published::Nothing);
}

#[test]
fn a_read_has_one_place_and_others_six_pieces() {
    let mut bench = Bench::new();
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::Read(REMOTE), &[PIECE; 2]), Err(Refused::TooLarge));
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE; 7]), Err(Refused::TooLarge));
    assert_eq!(bench.receive(1, &[PIECE; 7]), Err(Refused::TooLarge));
    bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE; 6]).unwrap();
    // The kernel takes the first piece of a read in any case; it must not be that of an earlier request.
    (1..ENTRIES).for_each(|_| bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE; 6]).unwrap());
    bench.sends.publish();
    while bench.take_send().is_some() {}
    bench.put(1, SendFlags::empty(), Opcode::Read(REMOTE), &[]).unwrap();
    bench.sends.publish();
    let slot = bench.take_send().unwrap();
    assert_eq!((slot.sge[0].laddr, slot.sge[0].length, slot.sge[0].lkey), (0, 0, 0));
}

#[test]
fn the_kernel_is_told_when_it_has_stopped_and_not_else() {
    let mut bench = Bench::new();
    assert_eq!(bench.send(1), Ok(Published::Shown), "the first");
    assert_eq!(bench.send(2), Ok(Published::Told), "it has one before it");
    bench.take_send().unwrap();
    assert_eq!(bench.send(3), Ok(Published::Told));
    for _ in 0..2 {
        bench.take_send().unwrap();
    }
    assert_eq!(bench.send(4), Ok(Published::Shown), "it has taken all");
    bench.take_send().unwrap();
    for wr_id in 0..u64::from(ENTRIES) {
        bench.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    }
    assert_eq!(bench.sends.publish(), Published::Shown, "the slot before is of the same batch");
    assert_eq!(bench.sends.publish(), Published::Nothing);
}

#[test]
fn a_queue_is_full_until_the_kernel_gives_a_slot_back() {
    let mut bench = Bench::new();
    for round in 0..100_u64 {
        for wr_id in 0..u64::from(ENTRIES) {
            bench.put(round * 10 + wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
            bench.receive(round * 10 + wr_id, &[PIECE]).unwrap();
        }
        assert_eq!(bench.put(9, SendFlags::SIGNALED, Opcode::Send, &[PIECE]), Err(Refused::Full));
        bench.sends.publish();
        assert_eq!(bench.send(9), Err(Refused::Full));
        assert_eq!(bench.receive(9, &[]), Err(Refused::Full));
        assert!(bench.sends.is_idle() == Some(false) && bench.receives.is_idle() == Some(false));
        for wr_id in 0..u64::from(ENTRIES) {
            assert_eq!(bench.take_send().map(|slot| slot.id), Some(round * 10 + wr_id));
            let slot = bench.take_receive().unwrap();
            assert_eq!((slot.id, slot.num_sge, slot.sge[0].lkey), (round * 10 + wr_id, 1, PIECE.lkey));
        }
        assert!(bench.sends.is_idle() == Some(true) && bench.receives.is_idle() == Some(true));
    }
}

/// When a place is used again, the request after it was taken.
#[test]
fn what_requests_need_has_twice_as_many_places_as_there_are_slots() {
    let mut bench = Bench::new();
    assert_eq!((bench.sends.slots(), bench.receives.slots()), (8, 8));
    for wr_id in 0..100_u64 {
        assert_eq!([bench.sends.next_slot(), bench.receives.next_slot()], [wr_id as u32 % 8; 2]);
        bench.send(wr_id).unwrap();
        bench.receive(wr_id, &[]).unwrap();
        bench.take_send().unwrap();
        bench.take_receive().unwrap();
    }
}

#[test]
fn what_was_not_published_is_forgotten_and_what_was_refused_is_taken_back() {
    let mut bench = Bench::new();
    bench.put(1, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.sends.rewind();
    assert_eq!(bench.sends.publish(), Published::Nothing);
    bench.receives.writing::<false>().put(1, [PIECE].iter()).unwrap();
    bench.receives.rewind();
    bench.receives.publish();
    assert_eq!(bench.take_receive(), None);
    for wr_id in 2..4 {
        bench.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    }
    assert_eq!((bench.sends.publish(), bench.sends.next_slot()), (Published::Shown, 2));
    bench.sends.retract();
    assert_eq!((bench.take_send(), bench.sends.next_slot(), bench.sends.is_idle()), (None, 0, Some(true)));
    // Only once.
    bench.sends.retract();
    assert_eq!(bench.send(5), Ok(Published::Shown));
    assert_eq!(bench.take_send().map(|slot| slot.id), Some(5));
}

#[test]
fn a_request_is_told_in_parts() {
    let mut bench = Bench::new();
    let data = Data::<NoPieces, _>::Inline(std::iter::once(&b"inline"[..]));
    assert_eq!(bench.sends.writing().set_data(SendFlags::empty(), None, &data), Err(Refused::NotBegun));
    bench.sends.writing().begin(7, SendFlags::empty(), &Opcode::Write(REMOTE)).unwrap();
    bench.sends.writing().set_data(SendFlags::SIGNALED, None, &data).unwrap();
    assert_eq!(bench.sends.writing().set_address(Default::default(), 1, 2), Err(Refused::Lacks));
    assert_eq!(bench.sends.writing().set_srq(1), Err(Refused::Lacks));
    bench.sends.writing().begin(8, SendFlags::SIGNALED, &Opcode::Send).unwrap();
    bench.sends.publish();
    let (first, second) = (bench.take_send().unwrap(), bench.take_send().unwrap());
    assert_eq!((first.id, first.flags), (7, WQE_VALID | WQE_SIGNALLED | WQE_INLINE));
    assert_eq!((first.raddr, &first.sge[1..].as_bytes()[..6]), (REMOTE.address, &b"inline"[..]));
    assert_eq!((second.id, second.num_sge), (8, 0));
}

#[test]
fn completions_are_told_and_their_entries_given_back() {
    let mut bench = Bench::new();
    for turn in 0..50_u64 {
        for (opcode, said) in [
            (OP_SEND, wc_opcode::SEND),
            (OP_SEND_REMOTE_INV, wc_opcode::SEND),
            (OP_WRITE, wc_opcode::RDMA_WRITE),
            (OP_READ, wc_opcode::RDMA_READ),
            (OP_RECEIVE, wc_opcode::RECV),
        ] {
            assert!(bench.complete(entry(turn, opcode, 0)));
            let [wc] = bench.poll()[..] else { panic!("one") };
            assert_eq!((wc.wr_id, wc.opcode, wc.status, wc.byte_len), (turn, said, wc_status::SUCCESS, 9));
            assert_eq!((wc.qp_num, wc.wc_flags, wc.ex), (NUMBER, 0, 0));
        }
    }
    (0..u64::from(ENTRIES)).for_each(|id| assert!(bench.complete(entry(id, OP_SEND, 4))));
    assert!(!bench.complete(entry(9, OP_SEND, 0)), "there is no room");
    assert_eq!(bench.queue.take(&mut [Extended::default()], || false), 0, "none is taken");
    let found: Vec<_> = bench.poll().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(found, [0, 1, 2, 3].map(|id| (id, wc_status::WR_FLUSH_ERR)));
    assert!(bench.poll().is_empty());
}

#[test]
fn one_completion_is_taken_at_a_time() {
    let mut bench = Bench::new();
    let mut next = |may_take: bool| bench.queue.next(&|| may_take).map(|told| told.wc.wr_id);
    assert_eq!(next(true), None);
    (1..3).for_each(|id| assert!(bench.complete(entry(id, OP_READ, 0))));
    let mut next = |may_take: bool| bench.queue.next(&|| may_take).map(|told| told.wc.wr_id);
    assert_eq!((next(false), next(true)), (None, Some(1)));
    assert_eq!(bench.poll().len(), 1);
}

/// By the path on which a binding requests each field of a completion separately.
#[cfg(feature = "raw")]
#[test]
fn a_binding_is_told_what_a_completion_says() {
    use crate::driver::completion::Fields;
    use crate::driver::cq::{Completions, Rings};
    use crate::driver::cursor::{Cursor, Told};

    let mut bench = Bench::new();
    assert!(bench.complete(entry(7, OP_READ, 0)));
    let (mut queue, mut told) = (Completions(Rings::Siw(Box::new(bench.queue))), Told::default());
    assert_eq!(told.next(&mut queue, || false), None, "it may not be taken");
    assert_eq!(told.next(&mut queue, || true), Some((7, wc_status::SUCCESS)));
    assert_eq!((told.wr_id(), told.status(), told.qp_num()), (7, wc_status::SUCCESS, NUMBER));
    assert_eq!((told.opcode(), told.byte_len()), (wc_opcode::RDMA_READ, 9));
    assert_eq!((told.flags(), told.source_qp(), told.source_lid(), told.immediate()), (0, 0, 0, 0));
    assert_eq!((told.wc().wr_id, told.wc().opcode), (7, wc_opcode::RDMA_READ));
    assert!(told.end(&mut queue, || true));
    assert_eq!(told.next(&mut queue, || true), None, "there is none");
}

#[test]
fn an_event_is_asked_for_by_a_word() {
    let bench = Bench::new();
    assert!(bench.queue.side().arm_apart(true, false));
    assert_eq!(bench.alarm(), 1);
    assert!(bench.queue.side().arm_apart(false, false));
    assert_eq!(bench.alarm(), 3);
}

#[test]
fn in_the_error_state_nothing_is_posted_and_what_came_late_is_taken_out() {
    let mut bench = Bench::new();
    for wr_id in 1..4 {
        bench.send(wr_id).unwrap();
        bench.receive(wr_id + 10, &[]).unwrap();
    }
    bench.take_send().unwrap();
    bench.take_receive().unwrap();
    for state in [qp_state::INIT, qp_state::RTR, qp_state::RESET] {
        bench.sends.enter(state);
        bench.receives.enter(state);
    }
    bench.send(4).unwrap();
    bench.sends.enter(qp_state::ERR);
    bench.receives.enter(qp_state::ERR);
    assert_eq!(bench.send(5), Err(Refused::NotReady));
    assert_eq!(bench.receive(5, &[]), Err(Refused::NotReady));
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    bench.sends.take_late(|late| sends.push(late));
    bench.receives.take_late(|late| receives.push(late));
    let late = |wr_id, opcode| Late { wr_id, opcode };
    assert_eq!(sends, [2, 3, 4].map(|wr_id| late(wr_id, wc_opcode::SEND)));
    assert_eq!(receives, [12, 13].map(|wr_id| late(wr_id, wc_opcode::RECV)));
    assert!(bench.sends.is_idle() == Some(true) && bench.receives.is_idle() == Some(true));
    assert_eq!((bench.take_send(), bench.take_receive()), (None, None));
    bench.sends.take_late(|late| panic!("{late:?}"));
}

#[test]
fn a_poster_and_a_kernel_on_two_threads_lose_nothing() {
    let mut bench = Bench::new();
    let (sq, turns) = (bench.sq.clone(), if cfg!(miri) { 50 } else { 20_000 });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..turns {
                let at = number % ENTRIES as usize * size_of::<Sqe>();
                while sq.load(at + FLAG, Ordering::Acquire).to_ne_bytes()[0] & 1 == 0 {
                    std::thread::yield_now();
                }
                let mut slot = Sqe::new_zeroed();
                assert!(sq.read(at, slot.as_mut_bytes()));
                assert_eq!((slot.id, slot.sge[0].laddr), (number as u64, PIECE.addr));
                sq.store(at + FLAG, 0, Ordering::Release);
            }
        });
        for wr_id in 0..turns as u64 {
            while bench.send(wr_id).is_err() {
                std::thread::yield_now();
            }
        }
    });
    assert!(bench.sends.is_idle() == Some(true));
}
