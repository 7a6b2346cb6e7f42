//! A device that says what cannot be: nothing completes wrongly, and nothing panics.

use proptest::prelude::*;
use uverbs_abi::types::wc_status;

use super::*;

#[test]
fn entries_that_fit_no_request_are_skipped() {
    let mut bench = Bench::new();
    bench.receive(&[10]).unwrap();
    bench.send(1).unwrap();
    // Packets that were not sent, long ago and in the future.
    for psn in [FIRST.wrapping_sub(1), FIRST + 1, FIRST ^ 0x80_0000] {
        bench.acknowledge(psn);
        assert_eq!(bench.done(), [], "{psn:#x}");
    }
    // No acknowledgement; queues of nobody, of another kind, and the wrong direction.
    bench.complete(&[kind::ARMED.into(), 0x6000_0000, FIRST & 0xff_ffff], ANSWERS, false);
    bench.complete(&[kind::ARMED.into(), 0, FIRST & 0xff_ffff], 0x999, false);
    bench.complete(&[kind::ARMED.into(), 0, FIRST & 0xff_ffff], NUMBER, false);
    bench.complete(&[kind::ARMED.into(), 0, FIRST & 0xff_ffff], SENDS, true);
    bench.complete(&[kind::SEND.into(), 5, 0, 0, 0], ANSWERS, false);
    bench.complete(&[0xff, 5, 0, 0, 0], NUMBER, false);
    // A receive at another place.
    bench.arrive(kind::SEND, 5, 1);
    bench.arrive(kind::SEND, 5, u32::MAX / 32);
    assert_eq!(bench.done(), []);
    bench.acknowledge(FIRST);
    bench.arrive(kind::SEND, 5, 0);
    assert_eq!(bench.done(), [(1, wc_status::SUCCESS), (10, wc_status::SUCCESS)]);
    // Twice.
    bench.acknowledge(FIRST);
    bench.arrive(kind::SEND, 5, 0);
    assert_eq!(bench.done(), []);
}

#[test]
fn entries_of_an_earlier_queue_pair_with_the_same_numbers_are_skipped() {
    let mut entry = [0; 16];
    (entry[0], entry[2], entry[15]) = (kind::ARMED.into(), FIRST & 0xff_ffff, ANSWERS | 1 << 29);
    let mut bench = Bench::beside(&[entry]);
    bench.connect(FIRST);
    bench.send(1).unwrap();
    assert_eq!(bench.done(), []);
    bench.acknowledge(FIRST);
    assert_eq!(bench.done(), [(1, wc_status::SUCCESS)]);
}

#[test]
fn more_bytes_than_a_receive_has_are_an_error() {
    let mut bench = Bench::new();
    bench.receive(&[10]).unwrap();
    bench.arrive(kind::SEND, PIECE.length + 1, 0);
    let found = bench.poll();
    assert_eq!((found[0].wr_id, found[0].status, found[0].byte_len), (10, wc_status::GENERAL_ERR, 0));
}

#[test]
fn an_entry_of_another_round_is_none() {
    let mut bench = Bench::new();
    bench.send(1).unwrap();
    for owner in [0, 2, 3, 7] {
        bench.complete_as(&[kind::ARMED.into(), 0, FIRST], ANSWERS | owner << 29);
        assert_eq!(bench.done(), [], "{owner}");
    }
}

#[test]
fn an_error_without_a_request_flushes_nothing() {
    let mut bench = Bench::new();
    bench.complete(&[u32::from(kind::ERROR) | 0x102 << 8], NUMBER, false);
    bench.complete(&[u32::from(kind::ERROR) | 0x102 << 8, 0, 7], SENDS, true);
    assert_eq!(bench.done(), []);
}

proptest! {
    #[test]
    fn any_entries_are_survived(entries in proptest::collection::vec((any::<[u32; 5]>(), any::<u32>(), 0_u8..40), 1..200)) {
        let mut bench = Bench::new();
        let (mut posted, mut ended) = (0_usize, 0_usize);
        for (i, (mut words, last, kind)) in entries.into_iter().enumerate() {
            let wr_id = i as u64;
            posted += usize::from(bench.send(wr_id).is_ok()) + usize::from(bench.receive(&[wr_id]).is_ok());
            words[0] = words[0] & !0xff | u32::from(kind);
            // Any packet, and often one that was sent.
            words[2] = if words[3] & 1 == 0 { words[2] & 7 | FIRST } else { words[2] };
            words[4] &= 0xff;
            let queue = [SENDS, ANSWERS, NUMBER, last][last as usize % 4];
            bench.complete(&words, queue, last >> 31 == 1);
            let found = bench.poll();
            ended += found.len();
            prop_assert!(found.iter().all(|wc| wc.qp_num == NUMBER && wc.wr_id <= wr_id));
            prop_assert!(ended <= posted);
        }
    }
}
