//! What the queues write, and what completes.

use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};

use super::*;
use crate::driver::mana::doorbell::Doorbell;

const OK: u32 = wc_status::SUCCESS;

#[test]
fn a_send_is_written_as_the_device_reads_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.bell(Doorbell::ARM), (ANSWERS, 1, FIRST));
    let flags = SendFlags::SIGNALED | SendFlags::FENCE | SendFlags::SOLICITED;
    bench.put(1, flags, Opcode::SendImmediate(0x0102_0304_u32.to_be()), &[PIECE]).unwrap();
    assert_eq!(bench.bell(Doorbell::SENDS), (0, 0, 0));
    assert_eq!(bench.sends.publish(), Published::Told);
    assert_eq!(bench.bell(Doorbell::SENDS), (SENDS, 0, 64));
    // One of two pieces fills the unit.
    let head = [1, 2 | 6 << 8 | MTU << 16 | 1 << 30, 3 | 7 << 5 | FIRST << 8, 1, 0x0102_0304, 0, 0, 0];
    let piece = [0x5566_7788, 0x1122_3344, PIECE.lkey, PIECE.length, 0, 0, 0, 0];
    assert_eq!((bench.words(0, 0), bench.words(0, 32)), (head, piece));
    // Behind the ring: the newest one.
    let trailer = [u32::from_le_bytes(*b"RLBK"), 16, 0, 0];
    assert_eq!(bench.words(0, RING), trailer);

    // A write has its remote memory in the place of the data, and immediate data in that of a piece. A message of 2100 bytes has three
    // packets, and the number of the first one has gone round.
    let long = Sge { length: 2100, ..PIECE };
    bench.put(2, SendFlags::empty(), Opcode::WriteImmediate(REMOTE, 7_u32.to_be()), &[long]).unwrap();
    bench.put(3, SendFlags::empty(), Opcode::Write(REMOTE), &[]).unwrap();
    bench.sends.publish();
    let head = [0, 1 | 7 << 8 | MTU << 16 | 1 << 30, 6 | 0xff_ffff << 8, 2];
    let remote = [0x0102_0304, 0x0506_0708, 0x99, 2100, 7, 0, 0, 0, 0x5566_7788];
    assert_eq!((bench.words(0, 64), bench.words(0, 80)), (head, remote));
    let head = [1, 2 | 6 << 8 | MTU << 16, 5 | 2 << 8, 3];
    assert_eq!(bench.words(0, 128), head);
    assert_eq!(bench.words(0, 160), [1, 0, 0, 0], "no pieces are one of no bytes");
    assert_eq!(bench.words::<4>(0, RING)[3], 4);
}

#[test]
fn the_place_of_an_answer_is_announced_before_its_read() {
    let mut bench = Bench::new();
    bench.put(1, SendFlags::SIGNALED, Opcode::Read(REMOTE), &[PIECE, PIECE]).unwrap();
    bench.put(2, SendFlags::SIGNALED, Opcode::Read(REMOTE), &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.bell(Doorbell::RECEIVES), (ANSWERS, 2, 96));
    assert_eq!(bench.words(2, 0), [0, 2 | 2 << 8 | 1 << 30, FIRST, 0]);
    assert_eq!(bench.words(2, 64), [0, 1 | 2 << 8 | 1 << 30, 0xff_ffff, 0]);
    let head = [1, 2 | 6 << 8 | MTU << 16, 7 | 1 << 6 | FIRST << 8, 1, 0x0102_0304, 0x0506_0708, 0x99, 200];
    assert_eq!((bench.words(0, 0), bench.words(0, 32)), (head, [1, 0, 0, 0]));
    bench.acknowledge(0xff_ffff);
    let found = bench.poll();
    let opcodes: Vec<_> = found.iter().map(|wc| (wc.wr_id, wc.opcode, wc.qp_num)).collect();
    assert_eq!(opcodes, [(1, wc_opcode::RDMA_READ, NUMBER), (2, wc_opcode::RDMA_READ, NUMBER)]);
    assert_eq!(
        bench.words::<4>(0, RING)[2],
        4,
        "the oldest one is after both: {:?}",
        bench.words::<4>(0, RING)
    );
}

#[test]
fn answers_wait_for_room_in_their_ring() {
    let mut bench = Bench::new();
    for round in 0..200 {
        bench.put(round, SendFlags::SIGNALED, Opcode::Read(REMOTE), &[PIECE, PIECE]).unwrap();
        bench.sends.publish();
        let psn = (FIRST + round as u32) & 0xff_ffff;
        bench.acknowledge(psn);
        assert_eq!(bench.done(), [(round, OK)]);
        assert_eq!(bench.bell(Doorbell::ARM), (ANSWERS, 1, (psn + 1) & 0xff_ffff));
    }
}

#[test]
fn one_entry_completes_all_requests_up_to_its_packet() {
    let mut bench = Bench::new();
    bench.put(1, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.put(2, SendFlags::empty(), Opcode::Send, &[PIECE]).unwrap();
    bench.put(3, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.put(4, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.put(5, SendFlags::empty(), Opcode::Send, &[PIECE]), Err(Refused::Full));
    bench.acknowledge(FIRST + 2);
    let mut one = [Extended::default()];
    assert_eq!((bench.queue.poll(&mut one, || false), bench.queue.poll(&mut one, || true)), (0, 1));
    assert_eq!((one[0].wc.wr_id, one[0].wc.opcode), (1, wc_opcode::SEND));
    assert_eq!(bench.bell(Doorbell::ARM), (ANSWERS, 1, FIRST), "not before all have completed");
    assert_eq!(bench.done(), [(3, OK)]);
    assert_eq!(bench.bell(Doorbell::ARM), (ANSWERS, 1, (FIRST + 3) & 0xff_ffff));
    assert_eq!(bench.sends.is_idle(), Some(false));
    bench.acknowledge(FIRST + 3);
    assert_eq!((bench.done(), bench.sends.is_idle()), (vec![(4, OK)], Some(true)));
    assert_eq!(bench.bell(Doorbell::ARM), (ANSWERS, 1, (FIRST + 4) & 0xff_ffff));
}

#[test]
fn receives_complete_in_their_order() {
    let mut bench = Bench::fresh();
    assert_eq!(bench.receive(&[1]), Err(Refused::NotReady), "in the reset state");
    bench.connect(FIRST);
    bench.receive(&[1, 2]).unwrap();
    assert_eq!(bench.bell(Doorbell::RECEIVES), (NUMBER, 2, 64));
    bench.receive(&[3, 4]).unwrap();
    assert_eq!(bench.receive(&[5]), Err(Refused::Full));
    assert_eq!(bench.words(3, 0), [0, 1 | 2 << 8, 0, 0, 0x5566_7788, 0x1122_3344, PIECE.lkey, PIECE.length]);
    bench.arrive(kind::SEND, 9, 0);
    bench.arrive(kind::SEND_IMMEDIATE, 100, 1);
    bench.arrive(kind::WRITE_IMMEDIATE, 4096, 2);
    let found = bench.poll();
    let fields: Vec<_> =
        found.iter().map(|wc| (wc.wr_id, wc.opcode, wc.byte_len, wc.wc_flags, wc.ex)).collect();
    let immediate = 0x0a0b_0c0d_u32.to_be();
    let with = WcFlags::WITH_IMM.bits();
    assert_eq!(
        fields,
        [
            (1, wc_opcode::RECV, 9, 0, 0),
            (2, wc_opcode::RECV, 100, with, immediate),
            (3, wc_opcode::RECV_RDMA_WITH_IMM, 4096, with, immediate),
        ]
    );
    assert!(found.iter().all(|wc| wc.status == OK && wc.qp_num == NUMBER));
}

#[test]
fn after_a_reset_nothing_of_the_life_before_completes() {
    let mut bench = Bench::new();
    bench.receive(&[10]).unwrap();
    (1..4).for_each(|wr_id| bench.send(wr_id).unwrap());
    bench.acknowledge(FIRST);
    bench.arrive(kind::SEND, 5, 0);
    bench.enter(qp_state::RESET, QpAttrMask::empty(), 0);
    assert_eq!((bench.sends.is_idle(), bench.receives.is_idle()), (Some(true), Some(true)));
    bench.connect(FIRST);
    assert_eq!(bench.words::<4>(0, RING)[2..], [0, 0]);
    bench.receive(&[20]).unwrap();
    bench.send(21).unwrap();
    assert_eq!(bench.done(), [], "both entries are old, though they fit");
    bench.acknowledge(FIRST);
    bench.arrive(kind::SEND, 5, 0);
    assert_eq!(bench.done(), [(21, OK), (20, OK)]);
    assert_eq!(bench.bell(Doorbell::SENDS), (SENDS, 0, 64));
}

#[test]
fn no_more_is_taken_than_was_granted() {
    for most in [0, 1, 3] {
        let mut bench = Bench::fresh();
        let plain = shape(QpCreateFlags::empty());
        let cap = QpCap { max_send_wr: most, max_recv_wr: most, ..plain.cap };
        bench.pair_of(&QpShape { cap, ..plain }, None);
        bench.connect(FIRST);
        for wr_id in 0..most.into() {
            assert_eq!((bench.send(wr_id), bench.receive(&[wr_id])), (Ok(()), Ok(())), "{most}");
        }
        assert_eq!((bench.send(9), bench.receive(&[9])), (Err(Refused::Full), Err(Refused::Full)), "{most}");
    }
}

#[test]
fn what_is_discarded_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.put(1, SendFlags::SIGNALED, Opcode::Read(REMOTE), &[PIECE]).unwrap();
    bench.put(2, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.sends.rewind();
    assert_eq!((bench.sends.publish(), bench.done()), (Published::Nothing, vec![]));
    bench.send(3).unwrap();
    assert_eq!(bench.words(0, 8), [2 | 1 << 6 | FIRST << 8, 1]);
    assert_eq!(bench.bell(Doorbell::RECEIVES), (0, 0, 0));
    bench.acknowledge(FIRST);
    assert_eq!(bench.done(), [(3, OK)]);
}

#[test]
fn what_the_device_lacks_is_refused() {
    let mut bench = Bench::new();
    let lacks = Err(Refused::Lacks);
    assert_eq!(
        bench.put(1, SendFlags::empty(), Opcode::FetchAdd { remote: REMOTE, add: 1 }, &[PIECE]),
        lacks
    );
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::SendInvalidate(1), &[PIECE]), lacks);
    assert_eq!(bench.put(1, SendFlags::INLINE, Opcode::Send, &[PIECE]), lacks);
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE; 3]), Err(Refused::TooLarge));
    let long = Sge { length: u32::MAX, ..PIECE };
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::Send, &[long, long]), Err(Refused::TooLarge));
    assert_eq!(bench.sends.publish(), Published::Nothing);
    let mut bench = Bench::fresh();
    assert_eq!(bench.send(1), Err(Refused::NotReady));
}

#[test]
fn events_are_requested_by_the_index_of_the_next_entry() {
    let mut bench = Bench::new();
    let side = bench.queue.side();
    let armed = |index: u32| (CQ, 0, index | 1 << 31);
    assert!(!side.arm(true) && side.lacks_events(true).is_some(), "there are no solicited events");
    assert!(side.arm(false));
    assert_eq!(bench.bell(Doorbell::ENTRIES), armed(bench.entries));
    // It is still requested.
    assert!(side.arm(false));
    assert_eq!(bench.bell(Doorbell::ENTRIES), armed(bench.entries));
    bench.send(1).unwrap();
    bench.acknowledge(FIRST);
    // The entry has made the event, and is not taken: the next event is that of the next entry.
    assert!(side.arm(false));
    assert_eq!(bench.bell(Doorbell::ENTRIES), armed(bench.entries + 1));
    assert_eq!(bench.done(), [(1, OK)]);
    assert!(side.arm(false));
    assert_eq!(bench.bell(Doorbell::ENTRIES), armed(bench.entries + 1), "nothing has come since");
}

#[test]
fn the_device_is_told_of_taken_entries_in_time() {
    let mut bench = Bench::new();
    let most = bench.entries * 4;
    for round in 0..u64::from(bench.entries) * 20 {
        bench.send(round).unwrap();
        bench.acknowledge(FIRST + round as u32);
        assert_eq!(bench.done(), [(round, OK)]);
        let (queue, _, index) = bench.bell(Doorbell::ENTRIES);
        let told = if queue == CQ { index } else { bench.entries };
        let ahead = bench.written.wrapping_sub(told) % (bench.entries * 8);
        assert!(ahead < most, "{round}: {ahead}");
    }
}

#[test]
fn a_request_for_an_event_ahead_stays() {
    let mut bench = Bench::new();
    let side = bench.queue.side();
    for round in 0..u64::from(bench.entries) * 4 {
        bench.send(round).unwrap();
        bench.acknowledge(FIRST + round as u32);
        let is_last = (bench.written).is_multiple_of(bench.entries);
        if is_last {
            // The first request is for the entry that is there already, the second one for the next one, which is of another round.
            assert!(side.arm(false) && side.arm(false));
        }
        assert_eq!(bench.done(), [(round, OK)]);
        if is_last {
            assert_eq!(
                bench.bell(Doorbell::ENTRIES),
                (CQ, 0, (bench.written % (bench.entries * 8)) | 1 << 31)
            );
        }
    }
}
