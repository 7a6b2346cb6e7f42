//! Requests as the device reads them, and completions as the program does.

use std::sync::atomic::Ordering;

use uverbs_abi::efa::io::{CDESC_OP_TYPE, CDESC_UNSOLICITED};
use uverbs_abi::types::{WcFlags, wc_opcode};

use super::*;
use crate::driver::seam::ReceiveRing;

/// Words that libefa 65 wrote to a ring, except for the addresses: `0x4, 0x90, 0x1c` are the bytes 04, 90, 1c.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

#[test]
fn a_message_with_immediate_data_is_as_libefa_writes_it() {
    let mut bench = Bench::ready();
    bench.put(7, Opcode::SendImmediate(1234_u32.to_be()), &[Sge { lkey: 0x101, ..PIECE }]).unwrap();
    assert_eq!(bench.sent(0), [0; 64], "the device sees nothing before it is told");
    bench.sends.publish();
    assert_eq!(bench.doorbell(SQ_DOORBELL), 1);
    let mut wanted = [0_u32; 16];
    // The number is the generation of the queue pair's first life, above the index of the first of four entries.
    wanted[..5].copy_from_slice(&[0x0400_901c, 0x080b_0100, 0xd204_0000, 0x0100_0000, 0x1111_1111]);
    wanted[8..12].copy_from_slice(&[0x0004_0000, 0x0101_0000, 0x0506_0708, 0x090a_0b0c]);
    assert_eq!(words(&bench.sent(0)), wanted);
}

#[test]
fn a_flag_that_nobody_knows_is_refused() {
    let mut bench = Bench::ready();
    for bit in (0..32).filter(|bit| ![1, 3].contains(bit)) {
        let flags = SendFlags::SIGNALED | SendFlags::from_bits_retain(1 << bit);
        let put = bench.sends.one::<true, ADDRESSED>().begin(1, flags, &Opcode::Send);
        assert_eq!(put, Err(Refused::Lacks), "{flags:?}");
    }
}

#[test]
fn a_read_names_both_memories_and_completes_as_a_read() {
    let mut bench = Bench::ready();
    bench.put(9, Opcode::Read(REMOTE), &[PIECE]).unwrap();
    bench.sends.publish();
    let mut wanted = [0_u32; 16];
    wanted[..5].copy_from_slice(&[0x0400_811c, 0x080b_0100, 0, 0x0100_0000, 0x1111_1111]);
    wanted[8..].copy_from_slice(&[
        0x0004_0000,
        0x4002_0040,
        0x8877_6655,
        0x4433_2211,
        0x0004_0000,
        0x3701_0000,
        0x0506_0708,
        0x090a_0b0c,
    ]);
    assert_eq!(words(&bench.sent(0)), wanted);
    bench.write(1, entry(SEND_QUEUE, RDMA_READ, 4, 0));
    let found = bench.poll();
    assert_eq!((found[0].wr_id, found[0].opcode, found[0].len), (9, wc_opcode::RDMA_READ, 0x400));
    assert_eq!((found[0].qp_num, found[0].status), (NUMBER, Status::Success));
}

#[test]
fn a_write_with_immediate_data_completes_on_both_sides() {
    let mut bench = Bench::ready();
    bench.put(9, Opcode::WriteImmediate(REMOTE, 5_u32.to_be()), &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.head(0).ctrl1, 0x92);
    bench.write(0, entry(SEND_QUEUE, RDMA_WRITE, 4, 0));
    let number = bench.receive(3, &[PIECE]).unwrap();
    bench.deliver(1, number, |entry| {
        entry.base.common.flags |= RDMA_WRITE << 4 | CDESC_HAS_IMM;
        (entry.base.length, entry.base.imm) = (8.into(), 5.into());
        entry.src_addr[0] = 1;
    });
    bench.deliver(0, 0x7777, |entry| {
        entry.base.common.flags |= RDMA_WRITE << 4 | CDESC_HAS_IMM | CDESC_UNSOLICITED;
    });
    let found = bench.poll();
    assert_eq!(found.len(), 3);
    let by =
        |opcode, wr_id| found.iter().find(|found| (found.opcode, found.wr_id) == (opcode, wr_id)).unwrap();
    by(wc_opcode::RDMA_WRITE, 9);
    let came = by(wc_opcode::RECV_RDMA_WITH_IMM, 3);
    assert_eq!((came.len, u32::from_be(came.immediate), came.flags), (0x1_0008, 5, WcFlags::WITH_IMM));
    let unasked = by(wc_opcode::RECV_RDMA_WITH_IMM, 0);
    assert_eq!(unasked.flags.bits() & UNSOLICITED, UNSOLICITED);
    assert_eq!(CDESC_OP_TYPE & RDMA_WRITE << 4, RDMA_WRITE << 4);
}

#[test]
fn a_receive_is_as_libefa_writes_it_and_tells_its_sender() {
    let mut bench = Bench::ready();
    let number = bench.receive(5, &[Sge { lkey: 0x20a, ..PIECE }]).unwrap();
    assert_eq!(bench.doorbell(RQ_DOORBELL), 1);
    let piece = words(&bench.received(0));
    assert_eq!((piece[..2].to_vec(), piece[3]), (vec![0x0506_0708, 0x090a_0b0c], 0x0a02_00c0));
    assert_eq!(piece[2], u32::from(number.swap_bytes()) << 16 | 0x0004);
    bench.deliver(0, number, |entry| {
        (entry.base.length, entry.base.ah, entry.base.src_qp_num) = (0x400.into(), 2.into(), 0x12.into());
    });
    let found = bench.poll()[0];
    assert_eq!((found.wr_id, found.opcode, found.len), (5, wc_opcode::RECV, 0x400));
    assert_eq!((found.source_qp, found.source_lid(), found.flags), (0x12, 2, WcFlags::empty()));
}

#[test]
fn a_receive_of_several_pieces_has_marks_at_its_ends() {
    let mut bench = Bench::ready();
    bench.receive(1, &[PIECE, Sge { length: 1 << 20, ..PIECE }]).unwrap();
    bench.receive(2, &[]).unwrap();
    let marks = [0, 1, 2].map(|index| bench.received(index)[15] >> 6);
    assert_eq!(marks, [1, 2, 3], "first, last, both");
    // A message has at most 65535 bytes. Of a length of 1 << 20, the lower 16 bits would be zero.
    assert_eq!(bench.received(1)[10..12], [0xff, 0xff]);
    assert_eq!(bench.received(2)[..8], [0; 8]);
    assert_eq!(bench.doorbell(RQ_DOORBELL), 3);
    assert_eq!(bench.receives.staging().put(3, [PIECE; 3].iter()), Err(Refused::TooLarge));
}

#[test]
fn the_ring_goes_round_and_its_phase_turns() {
    let mut bench = Bench::ready();
    for turn in 0..40_u64 {
        let number = bench.send(turn).unwrap();
        let head = bench.head(turn as usize % 4);
        assert_eq!(head.ctrl2 & TX_PHASE, (turn / 4 % 2) as u8, "{turn}");
        bench.complete(turn as usize % 2, number, 0);
        assert_eq!(bench.wr_ids(), [turn]);
    }
    assert_eq!(bench.doorbell(SQ_DOORBELL), 40);
}

#[test]
fn a_full_queue_takes_more_when_any_request_is_done() {
    let mut bench = Bench::ready();
    let numbers: Vec<_> = (0..4).map(|wr_id| bench.send(wr_id).unwrap()).collect();
    assert_eq!(bench.send(4), Err(Refused::Full));
    bench.complete(1, numbers[2], 0);
    assert_eq!(bench.wr_ids(), [2]);
    let again = bench.send(4).unwrap();
    assert_eq!((again, bench.send(5)), (numbers[2], Err(Refused::Full)));
    for number in [numbers[3], again, numbers[0], numbers[1]] {
        bench.complete(0, number, 0);
    }
    assert_eq!((bench.wr_ids(), bench.sends.is_idle()), (vec![3, 4, 0, 1], Some(true)));
}

#[test]
fn a_batch_is_forgotten_as_a_whole() {
    let mut bench = Bench::ready();
    assert!((0..3).all(|wr_id| bench.put(wr_id, Opcode::Send, &[PIECE]).is_ok()));
    assert_eq!([0, 1, 2, 3].map(|number| bench.sends.filled(number)), [Some(0), Some(1), Some(2), None]);
    bench.sends.rewind();
    bench.sends.publish();
    assert_eq!((bench.sends_so_far(), bench.sent(0)), (0, vec![0; 64]));
    let numbers: Vec<_> = (10..14).map(|wr_id| bench.send(wr_id).unwrap()).collect();
    for number in numbers {
        bench.complete(0, number, 0);
    }
    assert_eq!(bench.wr_ids(), [10, 11, 12, 13]);
    // A request that is refused takes neither a slot nor a number.
    assert_eq!(bench.put(20, Opcode::Send, &[PIECE; 3]), Err(Refused::TooLarge));
    assert_eq!((bench.sends.filled(0), bench.send(21).is_ok()), (None, true));
}

#[test]
fn no_more_is_told_at_once_than_the_device_takes() {
    // At most two slots at once; `straight.rs` shows each doorbell.
    let mut bench = Bench::of(state(|answer, _| answer.max_tx_batch = 2), qp_type::DRIVER, cap(4, 4, 2, 0));
    bench.bring_up();
    assert!((0..4).all(|wr_id| bench.put(wr_id, Opcode::Send, &[PIECE]).is_ok()));
    bench.sends.publish();
    assert_eq!(bench.doorbell(SQ_DOORBELL), 4);
    assert!((0..4).all(|index| bench.head(index).length.get() == 1));
    let bench = Bench::of(state(|answer, _| answer.min_sq_wr = 8), qp_type::DRIVER, cap(4, 4, 2, 0));
    assert_eq!(bench.cap.max_send_wr, 8, "the device has no shorter queue");
}

#[test]
fn bytes_stand_in_the_request() {
    let mut bench = Bench::of(state(|_, _| {}), qp_type::UD, cap(4, 4, 1, 32));
    bench.bring_up();
    assert_eq!(bench.slot, 64);
    bench.put_inline(1, Opcode::Send, &[7; 32]).unwrap();
    bench.sends.publish();
    assert_eq!((bench.head(0).ctrl1, bench.head(0).length.get()), (0xa0, 32));
    assert_eq!(bench.sent(0)[32..], [7; 32]);

    let mut bench = Bench::of(state(|_, _| {}), qp_type::DRIVER, cap(4, 4, 1, 80));
    bench.bring_up();
    assert_eq!(bench.slot, 128);
    bench.put_inline(1, Opcode::Write(REMOTE), &[8; 80]).unwrap();
    assert_eq!(bench.put_inline(2, Opcode::Read(REMOTE), &[8; 8]), Err(Refused::TooLarge));
    assert_eq!(bench.put_inline(2, Opcode::Send, &[8; 81]), Err(Refused::TooLarge));
    bench.sends.publish();
    assert_eq!(bench.head(0).ctrl1 & TX_OP_TYPE, RDMA_WRITE);
    assert_eq!(bench.sent(0)[48..], [8; 80]);
    assert_eq!(bench.sent(0)[32..36], [80, 0, 0, 0]);
}

#[test]
fn a_request_is_begun_and_gets_its_data_and_address_later() {
    let mut bench = Bench::ready();
    let mut lower = bench.sends.one::<true, ADDRESSED>();
    lower.begin(3, SendFlags::SIGNALED, &Opcode::Write(REMOTE)).unwrap();
    lower.set_address(Address { number: 6, ..Address::default() }, 0x55, 0x66).unwrap();
    let data = Data::<_, NoBytes>::Pieces([PIECE].iter());
    lower.set_data(SendFlags::SIGNALED, None, &data).unwrap();
    drop(lower);
    bench.sends.publish();
    let head = bench.head(0);
    assert_eq!((head.ah.get(), head.dest_qp_num.get(), head.qkey.get()), (6, 0x55, 0x66));
    assert_eq!(bench.sent(0)[32..36], [0, 4, 0, 0]);
    let mut lower = bench.sends.one::<true, ADDRESSED>();
    assert_eq!(lower.set_data(SendFlags::SIGNALED, None, &data), Err(Refused::NotBegun));
}

#[test]
fn what_the_device_has_not_is_refused() {
    let mut bench = Bench::ready();
    let (flags, data) = (SendFlags::SIGNALED, Data::<_, NoBytes>::Pieces([PIECE].iter()));
    let to = |opcode| ToDestination(opcode, TO);
    let mut lower = bench.sends.one::<true, ADDRESSED>();
    assert_eq!(lower.put(1, flags, &Opcode::Send, None, &data), Err(Refused::Lacks), "for nobody");
    assert_eq!(lower.put(1, flags, &to(Opcode::LocalInvalidate(1)), None, &data), Err(Refused::Lacks));
    let unsignaled = lower.put(1, SendFlags::empty(), &to(Opcode::Send), None, &data);
    assert_eq!(unsignaled, Err(Refused::Unsignaled));
    let fenced = lower.put(1, flags | SendFlags::FENCE, &to(Opcode::Send), None, &data);
    assert_eq!(fenced, Err(Refused::Lacks));
    drop(lower);
    let long = [Sge { length: (1 << 20) + 1, ..PIECE }];
    assert_eq!(bench.put(1, Opcode::Read(REMOTE), &long), Err(Refused::TooLarge));
    assert_eq!(bench.put(1, Opcode::Read(REMOTE), &[PIECE; 2]), Err(Refused::TooLarge));
    bench.sends.enter(qp_state::ERR);
    assert_eq!(bench.send(1), Err(Refused::NotReady));
    let mut bench = Bench::of(state(|_, caps| caps.device_caps = 4), qp_type::DRIVER, cap(4, 4, 1, 0));
    bench.bring_up();
    assert_eq!(bench.put(1, Opcode::Read(REMOTE), &[PIECE]), Err(Refused::Lacks));
    assert_eq!(bench.put(1, Opcode::Write(REMOTE), &[PIECE]), Err(Refused::Lacks));
    let mut bench = Bench::of(state(|_, _| {}), qp_type::UD, cap(4, 4, 1, 0));
    bench.bring_up();
    assert_eq!(bench.put(1, Opcode::Read(REMOTE), &[PIECE]), Err(Refused::Lacks));
}

#[test]
fn receives_of_before_are_told_when_the_queue_pair_takes_them() {
    let mut bench = Bench::of(state(|_, _| {}), qp_type::DRIVER, cap(4, 4, 2, 0));
    bench.receives.staging().put(1, [PIECE].iter()).unwrap();
    bench.receives.publish();
    assert_eq!(bench.doorbell(RQ_DOORBELL), 0);
    bench.bring_up();
    assert_eq!(bench.doorbell(RQ_DOORBELL), 1);
    bench.receives.enter(qp_state::ERR);
    assert_eq!(bench.receives.staging().put(2, [PIECE].iter()), Err(Refused::NotReady));
}

#[test]
fn a_reset_begins_a_new_life() {
    let mut bench = Bench::ready();
    let number = bench.send(1).unwrap();
    let received = bench.receive(2, &[PIECE]).unwrap();
    bench.sends.enter(qp_state::RESET);
    bench.receives.enter(qp_state::RESET);
    assert!(bench.sends.is_idle() == Some(true) && bench.receives.is_idle() == Some(true));
    bench.complete(0, number, 0);
    bench.deliver(1, received, |_| {});
    assert_eq!(bench.wr_ids(), [], "they are of the life before");
    bench.bring_up();
    let page = bench.map(PAGE);
    page.store(SQ_DOORBELL, 0, Ordering::Relaxed);
    let again = bench.send(3).unwrap();
    assert_ne!(again, number);
    assert_eq!((bench.sends_so_far(), bench.head(0).ctrl2 & TX_PHASE), (1, 0));
    bench.complete(0, again, 0);
    assert_eq!(bench.wr_ids(), [3]);
}

#[test]
fn the_doorbell_of_completions_tells_how_many_were_taken_and_asks_for_events() {
    let mut bench = Bench::ready();
    let arm = |bench: &Bench| {
        assert!(bench.queue.side().arm_apart(false, false));
        bench.doorbell(CQ_DOORBELL)
    };
    assert_eq!(arm(&bench), 1 << 31);
    assert_eq!(
        (bench.poll().len(), bench.doorbell(CQ_DOORBELL)),
        (0, 1 << 31),
        "an empty poll tells nothing"
    );
    let number = bench.send(1).unwrap();
    bench.complete(0, number, 0);
    assert_eq!(bench.wr_ids(), [1]);
    // That completion has made the event.
    assert_eq!(bench.doorbell(CQ_DOORBELL), 1 << 29 | 1);
    assert_eq!(arm(&bench), 1 << 31 | 1 << 29 | 1);
    assert_eq!(arm(&bench), 1 << 31 | 1 << 29 | 1, "asked twice");
    for turn in 2..9 {
        let number = bench.send(turn).unwrap();
        bench.complete(1, number, 0);
        assert_eq!(bench.wr_ids(), [turn]);
        arm(&bench);
    }
    assert_eq!(bench.doorbell(CQ_DOORBELL), 1 << 31 | 8);
    assert!(!bench.queue.side().arm_apart(true, false), "there are no events of solicited messages");
}

#[test]
fn failures_have_the_names_that_verbs_have() {
    let cases = [
        (1, Status::Flushed),
        (2, Status::LocalQpOperation),
        (3, Status::LocalQpOperation),
        (4, Status::LocalQpOperation),
        (5, Status::LocalProtection),
        (6, Status::LocalLength),
        (7, Status::RemoteAccess),
        (8, Status::RemoteAborted),
        (9, Status::RemoteInvalidRdRequest),
        (10, Status::RnrRetryExceeded),
        (11, Status::RemoteInvalidRequest),
        (12, Status::BadResponse),
        (13, Status::ResponseTimeout),
        (14, Status::RemoteOperation),
        (15, Status::ResponseTimeout),
        (16, Status::General),
        (18, Status::RemoteInvalidRequest),
        (255, Status::General),
    ];
    let mut bench = Bench::ready();
    for (number, status) in cases {
        let sent = bench.send(number.into()).unwrap();
        bench.complete(0, sent, number);
        let found = bench.poll()[0];
        assert_eq!((found.status, found.vendor_error), (status, number.into()));
    }
}

#[test]
fn two_queue_pairs_in_one_queue_are_told_apart() {
    let mut bench = Bench::ready();
    let (other, _receives, ..) =
        Bench::pair(&bench.state, &bench.memory, &bench.queue, qp_type::DRIVER, cap(4, 4, 2, 0));
    // It has the number of the first queue pair and replaces it in the completion queue, as after a destroy and a create.
    let number = bench.send(1).unwrap();
    bench.complete(0, number, 0);
    assert_eq!(bench.wr_ids(), [], "its generation is another");
    drop(other);
}
