//! How requests end when their queue pair fails, is reset or is destroyed.

use uverbs_abi::types::wc_status;

use super::*;

const OK: u32 = wc_status::SUCCESS;
const FLUSHED: u32 = wc_status::WR_FLUSH_ERR;
const LENGTH: u32 = wc_status::LOC_LEN_ERR;

#[test]
fn the_requests_after_a_failed_one_are_flushed() {
    let mut bench = Bench::new();
    bench.receive(&[10, 11]).unwrap();
    (1..4).for_each(|wr_id| bench.send(wr_id).unwrap());
    // The second one is refused by the peer.
    bench.fail_send(0x162, FIRST + 1);
    bench.arrive(kind::SEND, 5, 0);
    let found = bench.done();
    let access = wc_status::REM_ACCESS_ERR;
    assert_eq!(found[..3], [(1, OK), (2, access), (10, OK)], "{found:?}");
    assert_eq!(found[3..], [(3, FLUSHED)], "the device may still write to the other receive");
    assert_eq!(bench.send(5), Err(Refused::NotReady));
    assert_eq!(bench.receive(&[5]), Err(Refused::NotReady));
    assert_eq!(
        (bench.done(), bench.sends.is_idle(), bench.receives.is_idle()),
        (vec![], Some(true), Some(false))
    );
    bench.fail_receive(0x1c7);
    assert_eq!((bench.done(), bench.receives.is_idle()), (vec![(11, FLUSHED)], Some(true)));
}

#[test]
fn everything_is_flushed_in_the_error_state() {
    let mut bench = Bench::new();
    bench.receive(&[10]).unwrap();
    bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE]).unwrap();
    bench.sends.publish();
    bench.send(2).unwrap();
    bench.enter(qp_state::ERR, QpAttrMask::empty(), 0);
    assert_eq!(bench.done(), [(1, FLUSHED), (2, FLUSHED), (10, FLUSHED)]);
    // The device reports that its queues were not empty.
    bench.fail_send(0x1c7, FIRST);
    bench.fail_receive(0x1c7);
    assert_eq!(bench.done(), []);
}

#[test]
fn a_half_that_has_not_failed_is_flushed_when_the_program_says_so() {
    let mut bench = Bench::new();
    bench.receive(&[10, 11]).unwrap();
    (1..3).for_each(|wr_id| bench.send(wr_id).unwrap());
    bench.fail_receive(0x102);
    assert_eq!(bench.done(), [(10, LENGTH), (11, FLUSHED)]);
    assert_eq!((bench.send(3), bench.sends.is_idle()), (Err(Refused::NotReady), Some(false)));
    // The device was still sending.
    bench.acknowledge(FIRST);
    assert_eq!(bench.done(), [(1, OK)]);
    bench.enter(qp_state::ERR, QpAttrMask::empty(), 0);
    assert_eq!((bench.done(), bench.sends.is_idle()), (vec![(2, FLUSHED)], Some(true)));
}

#[test]
fn a_request_that_is_posted_while_the_queue_pair_fails_is_flushed() {
    let mut bench = Bench::new();
    bench.send(1).unwrap();
    bench.put(2, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.fail_send(0x162, FIRST);
    assert_eq!(bench.done(), [(1, wc_status::REM_ACCESS_ERR)]);
    assert_eq!(bench.done(), []);
    assert_eq!(bench.sends.publish(), Published::Told);
    assert_eq!(bench.done(), [(2, FLUSHED)]);
    assert_eq!(bench.done(), []);
    // And so in the error state, in both halves.
    let mut bench = Bench::new();
    bench.put(2, SendFlags::SIGNALED, Opcode::Send, &[PIECE]).unwrap();
    bench.fail_send(0x1c7, FIRST);
    bench.fail_receive(0x1c7);
    assert_eq!(bench.done(), []);
    assert_eq!((bench.sends.publish(), bench.done()), (Published::Told, vec![(2, FLUSHED)]));
    // Another life does not know of it.
    bench.enter(qp_state::RESET, QpAttrMask::empty(), 0);
    bench.connect(FIRST);
    bench.send(3).unwrap();
    assert_eq!(bench.done(), []);
    bench.acknowledge(FIRST);
    assert_eq!(bench.done(), [(3, OK)]);
    bench.send(4).unwrap();
    bench.fail_send(0x162, FIRST + 1);
    assert_eq!(bench.done(), [(4, wc_status::REM_ACCESS_ERR)]);
}

#[test]
fn sends_and_receives_complete_in_their_own_queues() {
    let mut bench = Bench::fresh();
    let (mut other, memory, entries) = completions(&bench.page);
    bench.pair_again(QpCreateFlags::empty(), Some(&other));
    bench.connect(FIRST);
    bench.receive(&[10, 11, 12]).unwrap();
    (1..4).for_each(|wr_id| bench.send(wr_id).unwrap());
    bench.acknowledge(FIRST);
    // What belongs to the other queue is skipped.
    bench.arrive(kind::SEND, 5, 0);
    bench.fail_receive(0x102);
    put(&memory, 0, &[kind::ARMED.into(), 0, FIRST & 0xff_ffff], ANSWERS | 1 << 29);
    put(&memory, ENTRY, &[u32::from(kind::ERROR) | 0x162 << 8, 0, FIRST], SENDS | 9 << 24 | 1 << 29);
    put(&memory, 2 * ENTRY, &[kind::SEND.into(), 5, 0, 0, 0], NUMBER | 1 << 29);
    assert_eq!((bench.done(), done(&mut other)), (vec![(1, OK)], vec![(10, OK)]));
    put(&memory, 3 * ENTRY, &[u32::from(kind::ERROR) | 0x102 << 8], NUMBER | 1 << 29);
    assert_eq!((bench.done(), done(&mut other)), (vec![], vec![(11, LENGTH), (12, FLUSHED)]));
    bench.fail_send(0x1c7, FIRST + 1);
    assert_eq!((bench.done(), done(&mut other)), (vec![(2, FLUSHED), (3, FLUSHED)], vec![]));

    // Both queues are told of the error state, and of the end of the queue pair.
    bench.enter(qp_state::RESET, QpAttrMask::empty(), 0);
    bench.connect(FIRST);
    bench.receive(&[20]).unwrap();
    bench.send(21).unwrap();
    bench.enter(qp_state::ERR, QpAttrMask::empty(), 0);
    assert_eq!((bench.done(), done(&mut other)), (vec![(21, FLUSHED)], vec![(20, FLUSHED)]));
    bench.pair_again(QpCreateFlags::empty(), None);
    put(&memory, 4 * ENTRY, &[kind::SEND.into(), 5, 0, 0, 0], NUMBER | 1 << 29);
    assert_eq!((done(&mut other), entries), (vec![], bench.entries));
}

#[test]
fn nothing_of_a_queue_pair_completes_after_its_end() {
    // One entry has completed several sends, of which some have not been taken.
    let mut bench = Bench::new();
    (1..4).for_each(|wr_id| bench.send(wr_id).unwrap());
    bench.acknowledge(FIRST + 2);
    let mut one = [Extended::default()];
    assert_eq!((bench.queue.poll(&mut one, || true), one[0].wc.wr_id), (1, 1));
    let bell = bench.bell(crate::driver::mana::doorbell::Doorbell::ARM);
    bench.pair_again(QpCreateFlags::empty(), None);
    assert_eq!(bench.done(), []);
    assert_eq!(bench.bell(crate::driver::mana::doorbell::Doorbell::ARM), bell);

    // It is being flushed.
    let mut bench = Bench::new();
    (1..4).for_each(|wr_id| bench.send(wr_id).unwrap());
    bench.enter(qp_state::ERR, QpAttrMask::empty(), 0);
    assert_eq!((bench.queue.poll(&mut one, || true), one[0].wc.wr_id), (1, 1));
    bench.pair_again(QpCreateFlags::empty(), None);
    assert_eq!(bench.done(), []);
    bench.connect(FIRST);
    bench.send(9).unwrap();
    bench.acknowledge(FIRST);
    assert_eq!(bench.done(), [(9, OK)]);
}

#[test]
fn an_error_of_a_packet_that_was_not_sent_completes_nothing_before_it() {
    for psn in [FIRST + 3, FIRST + 4, FIRST + 100, FIRST ^ 0x80_0000, FIRST.wrapping_sub(1)] {
        let mut bench = Bench::new();
        (1..3).for_each(|wr_id| bench.send(wr_id).unwrap());
        bench.fail_send(0x162, psn);
        let expected = vec![(1, wc_status::REM_ACCESS_ERR), (2, FLUSHED)];
        assert_eq!(bench.done(), expected, "{psn:#x}");
    }
    // All before the next one have been acknowledged.
    let mut bench = Bench::new();
    (1..3).for_each(|wr_id| bench.send(wr_id).unwrap());
    bench.fail_send(0x162, FIRST + 2);
    assert_eq!((bench.done(), bench.send(3)), (vec![(1, OK), (2, OK)], Err(Refused::NotReady)));
}

#[test]
fn all_sends_are_signaled_if_the_queue_pair_says_so() {
    let mut bench = Bench::fresh();
    bench.pair_again(QpCreateFlags::SQ_SIG_ALL, None);
    bench.connect(FIRST);
    bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE]).unwrap();
    bench.put(2, SendFlags::SOLICITED, Opcode::Read(REMOTE), &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.words(0, 8), [2 | 1 << 6 | FIRST << 8]);
    bench.acknowledge(FIRST + 1);
    assert_eq!(bench.done(), [(1, OK), (2, OK)]);
}
