//! A faulty device or kernel: the result is an error, or no completion.

use proptest::prelude::*;
use uverbs_abi::types::wc_status;
use zerocopy::FromBytes;

use super::*;

#[test]
fn a_queue_pair_of_another_size_or_number_is_an_error() {
    let (state, kernel) = (state(), Doorbells::new());
    let kind = |error: Error| error.kind();
    for num_cqe in [0, 32, 63, 65, 128, u32::MAX] {
        let opened = open_cq(&state, &kernel, CreateCqResp { cq_id: 1, num_cqe });
        assert_eq!(opened.map(drop).map_err(kind), Err(ErrorKind::Malformed), "{num_cqe}");
    }
    let (queue, _) = open_cq(&state, &kernel, CreateCqResp { cq_id: u32::MAX, num_cqe: 64 }).unwrap();
    let answers = [
        CreateQpResp { qp_id: 1, ..ANSWER },
        CreateQpResp { num_sqe: 16, ..ANSWER },
        CreateQpResp { num_rqe: 3, ..ANSWER },
        CreateQpResp { rq_offset: 0, ..ANSWER },
    ];
    for answer in answers {
        let opened = open_qp(&state, &kernel, &queue, &shape(qp_type::RC), answer);
        assert_eq!(opened.map(drop).map_err(kind), Err(ErrorKind::Malformed), "{answer:?}");
    }
    let far = AllocCtxResp { sdb_type: 1, sdb_offset: u32::MAX, ..state.context };
    let far = State { context: far, ..State::default() };
    let opened = open_qp(&far, &kernel, &queue, &shape(qp_type::RC), ANSWER);
    assert_eq!(opened.map(drop).map_err(kind), Err(ErrorKind::Malformed), "a doorbell outside of its page");
}

#[test]
fn entries_of_a_queue_pair_that_is_gone_are_skipped() {
    let mut bench = Bench::new();
    bench.send(1).unwrap();
    bench.complete(0, OP_SEND, 0, 0);
    let Bench { mut queue, sends, receives, .. } = bench;
    drop((sends, receives));
    assert_eq!(queue.poll(&mut [Extended::default(); 4], || true), 0);
    assert_eq!(queue.known(), 0);
}

#[test]
fn a_queue_pair_with_the_number_of_an_earlier_one_has_none_of_its_entries() {
    let (state, doorbells) = (state(), Doorbells::new());
    let mut bench = Bench::new();
    bench.send(1).unwrap();
    bench.complete(0, OP_SEND, 0, WC_FLUSH_ERR);
    let opened = open_qp(&state, &doorbells, &bench.queue, &shape(qp_type::RC), ANSWER);
    let (sends, receives, _) = opened.unwrap();
    (bench.sends, bench.receives) = (sends, receives);
    bench.enter(qp_state::RTS);
    bench.send(2).unwrap();
    assert_eq!(bench.ids(), [0; 0], "the entry is the other's");
    bench.complete(0, OP_SEND, 0, 0);
    assert_eq!(bench.ids(), [2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Whatever a device writes, each completion is of a request that was posted and has not ended, once.
    #[test]
    fn a_faulty_device_ends_no_request_twice(
        entries in prop::collection::vec((any::<[u32; 8]>(), 0_u32..40, 0_u32..3, any::<bool>()), 0..60),
    ) {
        let mut bench = Bench::new();
        let (mut next, mut outstanding) = (0, std::collections::BTreeSet::new());
        for (words, slot, queue, is_near) in entries {
            while bench.send(next).is_ok() {
                outstanding.insert(next);
                next += 1;
            }
            while bench.receive(next, &[PIECE]).is_ok() {
                outstanding.insert(next);
                next += 1;
            }
            let mut cqe = Cqe::read_from_bytes(words.as_bytes()).unwrap();
            if is_near {
                (cqe.qpn, cqe.qe_idx) = (NUMBER.into(), slot.into());
                cqe.hdr = (cqe.hdr.get() & !0xff00 | queue << 8).into();
            }
            bench.write(cqe);
            for wc in bench.poll() {
                prop_assert!(outstanding.remove(&wc.wr_id), "{wc:?}");
                prop_assert!(wc.qp_num == NUMBER && wc.status <= wc_status::GENERAL_ERR);
            }
        }
    }
}
