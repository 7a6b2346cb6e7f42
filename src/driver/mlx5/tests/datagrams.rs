//! Batches of datagrams of one piece each, which have a separate path.

use super::*;
use crate::driver::request::{Address, ToAddress};

const TO: Address = Address { number: 0, vector: [1, 2, 3, 4, 5, 6, 7, 8, 9] };
const PLAIN: ToAddress<'static> = ToAddress { ah: &TO, qp_num: 0x55, qkey: 0x1122_3344, immediate: None };
const BOTH: SendFlags = SendFlags::SIGNALED.union(SendFlags::SOLICITED);

/// A queue pair with room for this many datagrams, which can send.
fn bench(sends: u32) -> Bench {
    let mut bench = Bench::of(Form::Datagrams, 0, &cap(sends, 1, 1, 0));
    bench.sends.set_ready(true);
    bench
}

/// Posts all of these requests at once. Returns false, with nothing posted, if one of them cannot be posted.
fn at_once(bench: &mut Bench, requests: &[(u64, ToAddress<'_>, Sge)]) -> bool {
    bench.sends.post_datagrams(requests.len(), |batch| {
        requests.iter().all(|(wr_id, to, piece)| batch.put(*wr_id, BOTH, to, piece))
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
fn it_is_not_asked_where_others_wait_or_nothing_is_sent_or_no_datagram_is() {
    let mut bench = bench(4);
    let list = [PIECE];
    let request = Request { opcode: Opcode::from(PLAIN), ..frame(1, None, pieces(&list)) };
    bench.sends.put(&request).unwrap();
    let is_asked = |bench: &mut Bench| bench.sends.post_datagrams(1, |_| panic!("it is asked"));
    assert!(!is_asked(&mut bench), "one waits");
    bench.sends.rewind();
    assert!(at_once(&mut bench, &[(1, PLAIN, PIECE)]));
    bench.sends.set_ready(false);
    assert!(!is_asked(&mut bench));
    for form in [Form::Messages, Form::Extended, Form::Frames { header: 0 }] {
        let mut bench = Bench::of(form, 0, &cap(4, 1, 1, 0));
        bench.sends.set_ready(true);
        assert!(!is_asked(&mut bench), "{form:?}");
    }
}
