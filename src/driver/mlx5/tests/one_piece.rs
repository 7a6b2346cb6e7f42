//! Requests of one piece each, which have a shorter path.

use super::*;
use crate::driver::mlx5::one_piece::OnePiece;
use crate::driver::mlx5::sends::Sends;
use crate::driver::request::{ADDRESSED, Address, MESSAGES, NoBytes, Remote, Terms, ToAddress};
use crate::driver::seam::Lower;

const TO: Address = Address { number: 0, vector: [1, 2, 3, 4, 5, 6, 7, 8, 9] };
const PLAIN: ToAddress<'static> = ToAddress { ah: &TO, qp_num: 0x55, qkey: 0x1122_3344, immediate: None };
const BOTH: SendFlags = SendFlags::SIGNALED.union(SendFlags::SOLICITED);

/// A queue pair with room for this many datagrams, which can send.
fn bench(sends: u32) -> Bench {
    let mut bench = Bench::of(Form::Datagrams, 0, &cap(sends, 1, 1, 0));
    bench.sends.set_ready(true);
    bench
}

/// Posts `count` requests by the shorter path. Returns false, with none posted, if `fill` does, or if this path cannot be taken.
fn short<const KIND: u8>(
    sends: &mut Sends,
    count: usize,
    fill: impl FnOnce(&mut OnePiece<'_, KIND>) -> bool,
) -> bool {
    let is_filled = sends.one_piece(count).is_some_and(|mut batch| fill(&mut batch));
    if is_filled {
        sends.publish();
    } else {
        sends.rewind();
    }
    is_filled
}

fn put(batch: &mut impl Lower, wr_id: u64, flags: SendFlags, opcode: &impl Terms, piece: &Sge) -> bool {
    let data = Data::<_, NoBytes>::Pieces(std::slice::from_ref(piece).iter());
    batch.put(wr_id, flags, opcode, None, &data).is_ok()
}

/// Posts all of these requests at once. Returns false, with nothing posted, if one of them cannot be posted.
fn at_once(bench: &mut Bench, requests: &[(u64, ToAddress<'_>, Sge)]) -> bool {
    short::<ADDRESSED>(&mut bench.sends, requests.len(), |batch| {
        requests.iter().all(|(wr_id, to, piece)| put(batch, *wr_id, BOTH, to, piece))
    })
}

/// Posts the same requests one by one, by the path of all requests.
fn one_by_one(bench: &mut Bench, requests: &[(u64, ToAddress<'_>, Sge)]) {
    for (wr_id, to, piece) in requests {
        let (list, opcode) = ([*piece], Opcode::from(*to));
        let request = Request { wr_id: *wr_id, flags: BOTH, opcode, data: pieces(&list), head: None };
        bench.sends.put(&request).unwrap();
    }
    bench.sends.publish();
}

#[test]
fn each_is_as_it_is_by_the_way_of_all_requests_round_the_end_of_the_ring() {
    let (mut one, mut other) = (bench(4), bench(4));
    let blocks = one.sends.slots();
    let with_number = ToAddress { immediate: Some(u32::from_ne_bytes([1, 2, 3, 4])), ..PLAIN };
    for round in 0..40_u64 {
        let piece = |length| Sge { length, addr: round, lkey: 7 };
        let requests = [(round, PLAIN, piece(1)), (round + 100, with_number, piece((1 << 31) - 1))];
        assert!(at_once(&mut one, &requests));
        one_by_one(&mut other, &requests);
        assert_eq!(one.ring(0, 64 * blocks), other.ring(0, 64 * blocks), "{round}");
        assert_eq!((one.counter(1), one.doorbell(0x800)), (other.counter(1), other.doorbell(0x800)));
        assert_eq!(one.sends.next_slot(), other.sends.next_slot());
        for bench in [&mut one, &mut other] {
            let first = bench.counter(1) as u16;
            bench.complete(CQE_REQ, first.wrapping_sub(4), |_| {});
            bench.complete(CQE_REQ, first.wrapping_sub(2), |_| {});
            assert_eq!(bench.poll(), [(round, Status::Success), (round + 100, Status::Success)]);
        }
    }
}

#[test]
fn of_a_batch_of_which_one_cannot_be_posted_none_is() {
    let mut bench = bench(4);
    let all = bench.sends.free();
    let (plain, bad) = ((1, PLAIN, PIECE), (2, PLAIN, Sge { length: 0, ..PIECE }));
    let long = (3, PLAIN, Sge { length: 1 << 31, ..PIECE });
    for bad in [bad, long] {
        for requests in [[bad, plain], [plain, bad]] {
            assert!(!at_once(&mut bench, &requests));
            assert_eq!((bench.counter(1), bench.doorbell(0x800), bench.sends.free()), (0, [0; 8], all));
        }
    }
    assert!(at_once(&mut bench, &[]));
    assert_eq!(bench.counter(1), 0);
    let most = vec![plain; bench.sends.slots() / 2];
    assert!(!at_once(&mut bench, &[&most[..], &[plain]].concat()), "there is no such room");
    assert!(at_once(&mut bench, &most));
    assert!(!at_once(&mut bench, &[plain]), "it is full");
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!(bench.poll(), [(1, Status::Success)]);
    assert!(!at_once(&mut bench, &[plain; 2]) && at_once(&mut bench, &[plain]));
}

#[test]
fn it_is_not_taken_where_nothing_is_sent_or_no_datagram_is() {
    let mut bench = bench(4);
    let list = [PIECE];
    let request = Request { opcode: Opcode::from(PLAIN), ..frame(1, None, pieces(&list)) };
    bench.sends.put(&request).unwrap();
    let is_asked = |bench: &mut Bench| short::<ADDRESSED>(&mut bench.sends, 1, |_| panic!("it is asked"));
    assert!(at_once(&mut bench, &[(1, PLAIN, PIECE)]));
    assert_eq!(bench.counter(1), 4, "those that waited are published with it");
    bench.sends.set_ready(false);
    assert!(!is_asked(&mut bench));
    for form in [Form::Messages, Form::Extended, Form::Frames { header: 0 }] {
        let mut bench = Bench::of(form, 0, &cap(4, 1, 1, 0));
        bench.sends.set_ready(true);
        assert!(!is_asked(&mut bench), "{form:?}");
    }
}

/// A queue pair with a connection, with room for this many requests of one piece.
fn connected(sends: u32) -> Bench {
    let mut bench = Bench::of(Form::Messages, 0, &cap(sends, 1, 1, 0));
    bench.sends.set_ready(true);
    bench
}

const REMOTE: Remote = Remote { address: 0x0102_0304_0506_0708, rkey: 0x1122_3344 };

/// The operations of the path, with the units of their requests; and others.
const OPERATIONS: [(Opcode<'static>, usize); 5] = [
    (Opcode::Send, 2),
    (Opcode::SendImmediate(7), 2),
    (Opcode::Write(REMOTE), 3),
    (Opcode::WriteImmediate(REMOTE, 9), 3),
    (Opcode::Read(REMOTE), 3),
];
const OTHERS: [Opcode<'static>; 3] =
    [Opcode::SendInvalidate(3), Opcode::LocalInvalidate(3), Opcode::FetchAdd { remote: REMOTE, add: 1 }];

#[test]
fn messages_are_as_they_are_by_the_path_for_all_requests_round_the_end_of_the_ring() {
    let (mut one, mut other) = (connected(8), connected(8));
    let blocks = one.sends.slots();
    for round in 0..40_usize {
        let first = one.sends.next_slot() as usize;
        let flags = [BOTH, SendFlags::FENCE | SendFlags::SIGNALED][round % 2];
        let list: Vec<_> = (0..3).map(|at| OPERATIONS[(round + at) % OPERATIONS.len()]).collect();
        let piece = Sge { addr: round as u64, ..PIECE };
        assert!(short::<MESSAGES>(&mut one.sends, list.len(), |batch| {
            list.iter().zip(0..).all(|((opcode, _), wr_id)| put(batch, wr_id, flags, opcode, &piece))
        }));
        for ((opcode, _), wr_id) in list.iter().zip(0..) {
            let list = [piece];
            let request = Request { wr_id, flags, opcode: *opcode, data: pieces(&list), head: None };
            other.sends.put(&request).unwrap();
        }
        other.sends.publish();
        for (at, (opcode, units)) in list.iter().enumerate() {
            let block = (first + at) % blocks;
            assert_eq!(one.ring(block, units * 16), other.ring(block, units * 16), "{round}: {opcode:?}");
        }
        assert_eq!((one.counter(1), one.doorbell(0x800)), (other.counter(1), other.doorbell(0x800)));
        for bench in [&mut one, &mut other] {
            let last = bench.counter(1) as u16;
            (1..=3).rev().for_each(|back| bench.complete(CQE_REQ, last.wrapping_sub(back), |_| {}));
            assert_eq!(bench.poll(), [0, 1, 2].map(|wr_id| (wr_id, Status::Success)));
        }
    }
}

#[test]
fn other_operations_and_more_than_there_is_room_for_are_left_to_the_path_for_all_requests() {
    let mut bench = connected(4);
    let all = bench.sends.free();
    for opcode in OTHERS {
        let is_posted = short::<MESSAGES>(&mut bench.sends, 2, |batch| {
            put(batch, 1, BOTH, &Opcode::Send, &PIECE) && put(batch, 2, BOTH, &opcode, &PIECE)
        });
        assert!(!is_posted, "{opcode:?}");
        assert_eq!((bench.counter(1), bench.doorbell(0x800), bench.sends.free()), (0, [0; 8], all));
    }
    let most = |bench: &mut Bench| {
        let mut count = 0;
        while bench.sends.put(&frame(1, None, pieces(&[PIECE]))).is_ok() {
            count += 1;
        }
        bench.sends.rewind();
        count
    };
    let room = most(&mut bench);
    let send = |bench: &mut Bench, count| {
        short::<MESSAGES>(&mut bench.sends, count, |batch| {
            (0..count).all(|_| put(batch, 1, BOTH, &Opcode::Send, &PIECE))
        })
    };
    assert!(!send(&mut bench, room + 1) && send(&mut bench, room) && !send(&mut bench, 1));
    assert_eq!(most(&mut bench), 0, "neither path has room");
}

/// Requests that are put one by one are published with others, and stop where the places that are known to be free do.
#[test]
fn requests_of_a_list_are_put_as_long_as_there_are_free_places() {
    let mut bench = connected(4);
    let fill = |bench: &mut Bench| {
        let mut count = 0;
        if let Some(mut batch) = bench.sends.one_piece::<MESSAGES>(0) {
            while put(&mut batch, count, BOTH, &Opcode::Send, &PIECE) {
                count += 1;
            }
        }
        count
    };
    assert_eq!(fill(&mut bench), 0, "nothing is known to be free yet");
    assert!(bench.send(9, &[PIECE]));
    let count = fill(&mut bench);
    assert!(count > 0 && !bench.send(9, &[PIECE]), "{count}");
    assert_eq!(bench.counter(1), 0, "not published");
    bench.sends.publish();
    assert_eq!(u64::from(bench.counter(1)), 1 + count);
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_REQ, 1, |_| {});
    assert_eq!(bench.poll(), [(9, Status::Success), (0, Status::Success)]);
    // What is put and not published is taken back.
    assert!(bench.send(9, &[PIECE]));
    bench.sends.rewind();
    bench.sends.set_ready(false);
    assert_eq!(fill(&mut bench), 0, "it cannot send");
    assert!(!short::<MESSAGES>(&mut bench.sends, 1, |_| panic!("it is asked")));
}
