//! What only bindings use: the sender of a message, hints, and the places of the rings.

use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};

use super::*;
use crate::driver::cq::{Completions as Queue, Rings};
use crate::driver::cursor::{Cursor, Unread};
use crate::driver::seam::{OwnRing, ReceiveRing};

#[test]
fn a_completion_tells_who_has_sent_and_of_a_send_what_it_was() {
    let mut bench = Bench::ready();
    let (sent, received) = (bench.send(5).unwrap(), bench.receive(6, &[PIECE]).unwrap());
    bench.deliver(0, received, |entry| {
        (entry.base.ah, entry.src_addr) = (0xffff.into(), [7; 16]);
    });
    bench.write(1, entry(SEND_QUEUE, RDMA_READ, sent, 7));
    let mut told = Told::default();
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    assert_eq!((told.wc().wr_id, told.wc().slid, told.sender()), (6, 0xffff, [7; 16]));
    assert_eq!(bench.doorbell(CQ_DOORBELL), 0, "it is given back at the end of the poll");
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    assert_eq!((told.wc().wr_id, told.wc().vendor_err), (5, 7));
    assert_eq!(bench.queue.next_told(|| true, &mut told), Err(true));
    assert_eq!(bench.doorbell(CQ_DOORBELL) & 0xffff, 2);
}

#[test]
fn what_may_not_be_taken_is_left_with_the_doorbell() {
    let mut bench = Bench::ready();
    let numbers = [bench.send(1).unwrap(), bench.send(2).unwrap()];
    numbers.iter().for_each(|number| bench.complete(0, *number, 0));
    let mut told = Told::default();
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    // In a child of `fork`, between two calls of a poll.
    assert_eq!(bench.queue.next_told(|| false, &mut told), Err(false));
    let mut batch = Completion::batch::<1>();
    assert_eq!(bench.queue.poll(&mut batch, || false), 0);
    assert_eq!((told.wc().wr_id, bench.doorbell(CQ_DOORBELL)), (1, 0));
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    assert_eq!(bench.queue.next_told(|| true, &mut told), Err(true));
    assert_eq!((told.wc().wr_id, bench.doorbell(CQ_DOORBELL) & 0xffff), (2, 2));
}

#[test]
fn a_request_is_written_part_for_part() {
    let mut bench = Bench::ready();
    assert_eq!(bench.sends.set_hints(1), Err(Refused::NotBegun));
    bench.sends.one::<true, ADDRESSED>().begin(8, SendFlags::SIGNALED, &Opcode::Send).unwrap();
    bench.sends.set_hints(1).unwrap();
    let pieces = [PIECE];
    let data = Data::<_, NoBytes>::Pieces(pieces.iter());
    bench.sends.one::<true, ADDRESSED>().set_data(SendFlags::empty(), None, &data).unwrap();
    bench.sends.one::<true, ADDRESSED>().set_address(TO.ah, TO.qp_num, TO.qkey).unwrap();
    bench.sends.publish();
    let parts = bench.sent(0);
    let mut whole = Bench::ready();
    whole.send(8).unwrap();
    let mut wanted = whole.sent(0);
    wanted[14] = 1;
    assert_eq!(parts, wanted);
}

#[test]
fn the_rings_are_where_they_were_mapped() {
    let mut bench = Bench::of(state(|_, _| {}), qp_type::DRIVER, cap(4, 3, 2, 0));
    let handed = [
        bench.sends.hand_over().unwrap(),
        bench.receives.hand_over().unwrap(),
        bench.queue.hand_over().unwrap(),
    ];
    let at = |key| bench.map(key).address();
    let OwnRing { address, entry_size, entries, doorbell, most_at_once, .. } = handed[0];
    assert_eq!((address, doorbell), (at(LLQ) + BEGIN as u64, at(PAGE) + SQ_DOORBELL as u64));
    assert_eq!([entry_size, entries, most_at_once], [64, 4, 4]);
    let OwnRing { address, entry_size, entries, doorbell, .. } = handed[1];
    assert_eq!((address, doorbell), (at(RQ), at(PAGE) + RQ_DOORBELL as u64));
    assert_eq!([entry_size, entries], [16, 8]);
    let OwnRing { address, entry_size, entries, doorbell, .. } = handed[2];
    assert_eq!((address, doorbell), (at(CQ), at(PAGE) + CQ_DOORBELL as u64));
    assert_eq!([entry_size, entries], [32, 4]);
}

#[test]
fn bindings_read_what_a_poll_tells() {
    let mut bench = Bench::ready();
    let number = bench.send(1).unwrap();
    let received = bench.receive(2, &[PIECE]).unwrap();
    let failed = bench.receive(3, &[PIECE]).unwrap();
    bench.complete(0, number, 0);
    bench.deliver(0, received, |entry| {
        entry.base.common.flags |= CDESC_HAS_IMM;
        (entry.base.length, entry.base.imm, entry.base.src_qp_num) = (9.into(), 5.into(), 0x12.into());
        entry.base.ah = 3.into();
    });
    bench.deliver(0, failed, |entry| entry.base.common.status = 5);
    let mut queue = Queue(Rings::Efa(Box::new(bench.queue)));
    let mut unread = Unread::default();
    assert_eq!(unread.next_fast(&mut queue, || true), Err(Missed::Other), "the cursor of another driver");
    assert_eq!((unread.next(&mut queue, || true), unread.end(&mut queue, || true)), (None, false));
    let mut read = || {
        let mut told = Told::default();
        told.next(&mut queue, || true).map(|_| told.wc())
    };
    let sent = read().unwrap();
    assert_eq!((sent.wr_id, sent.status, sent.opcode, sent.qp_num), (1, 0, wc_opcode::SEND, NUMBER));
    let came = read().unwrap();
    assert_eq!((came.wr_id, came.opcode, came.byte_len), (2, wc_opcode::RECV, 9));
    assert_eq!((u32::from_be(came.ex), came.src_qp, came.slid), (5, 0x12, 3));
    assert_eq!(came.wc_flags, WcFlags::WITH_IMM.bits());
    let failed = read().unwrap();
    assert_eq!((failed.wr_id, failed.vendor_err, failed.opcode), (3, 5, wc_opcode::RECV));
    assert_eq!(failed.status, wc_status::LOC_PROT_ERR);
    assert!(read().is_none());
}

/// The shortest path takes a plain completion of the same queue pair as the previous one. All others are left for the longer path.
#[test]
fn the_shortest_way_takes_what_is_plain() {
    let mut bench = Bench::ready();
    let mut told = Told::default();
    let numbers = [1, 2, 3].map(|wr_id| bench.receive(wr_id, &[PIECE]).unwrap());
    let sent = bench.send(9).unwrap();
    assert_eq!(bench.queue.short_told(|| true, &mut told), Err(Missed::Elsewhere));
    assert_eq!(bench.queue.look_elsewhere(), Err(Missed::Nothing));
    bench.deliver(0, numbers[0], |entry| entry.base.length = 11.into());
    bench.deliver(0, numbers[1], |entry| entry.base.length = 12.into());
    // A second completion of the same request, and one with immediate data.
    bench.deliver(0, numbers[1], |_| {});
    bench.deliver(0, numbers[2], |entry| entry.base.common.flags |= CDESC_HAS_IMM);
    let short = |queue: &mut Completions, told: &mut Told| loop {
        match queue.short_told(|| true, told) {
            Err(Missed::Elsewhere) => queue.look_elsewhere()?,
            answer => return answer,
        }
    };
    assert_eq!(short(&mut bench.queue, &mut told), Err(Missed::Other), "none is known to be the same");
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    assert_eq!((told.wr_id(), told.byte_len()), (1, 11));
    assert_eq!(bench.queue.short_told(|| false, &mut told), Err(Missed::Other), "in a child of fork");
    assert_eq!(short(&mut bench.queue, &mut told), Ok(2));
    assert_eq!((told.byte_len(), told.opcode(), told.qp_num()), (12, wc_opcode::RECV, NUMBER));
    assert_eq!(short(&mut bench.queue, &mut told), Err(Missed::Other), "it is nobody's");
    assert_eq!(short(&mut bench.queue, &mut told), Err(Missed::Other), "immediate data");
    bench.complete(1, sent, 0);
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    assert_eq!((told.wr_id(), told.flags()), (3, WcFlags::WITH_IMM.bits()));
    assert_eq!(short(&mut bench.queue, &mut told), Ok(9), "in the other ring");
    assert_eq!((told.opcode(), told.byte_len(), told.flags()), (wc_opcode::SEND, 0, 0));
    assert_eq!(short(&mut bench.queue, &mut told), Err(Missed::Other), "the device is to be told");
    bench.queue.end_batch();
    assert_eq!(bench.doorbell(CQ_DOORBELL) & 0xffff, 5);
    assert_eq!(short(&mut bench.queue, &mut told), Err(Missed::Nothing));
}

#[test]
fn a_ring_that_is_never_empty_holds_back_no_other() {
    let mut bench = Bench::ready();
    let mut told = Told::default();
    let sent = bench.send(7).unwrap();
    let deliver = |bench: &mut Bench| {
        let number = bench.receive(1, &[PIECE]).unwrap();
        bench.deliver(0, number, |_| {});
    };
    deliver(&mut bench);
    assert_eq!(bench.queue.next_told(|| true, &mut told), Ok(()));
    deliver(&mut bench);
    bench.complete(1, sent, 0);
    let looked = (0..200).position(|_| {
        deliver(&mut bench);
        let taken = bench.queue.short_told(|| true, &mut told);
        bench.queue.end_batch();
        assert!(matches!(taken, Ok(1 | 7)));
        taken == Ok(7)
    });
    assert!(looked.is_some_and(|count| count <= 128), "{looked:?}");
}
