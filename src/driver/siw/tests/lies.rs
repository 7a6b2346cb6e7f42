//! A faulty kernel: the result is an error or a failed completion, and nothing hangs.

use crate::kernel::error::ErrorKind;

use super::*;
use crate::driver::seam::ReceiveRing;

/// The key that means that there is no ring.
const NO_RING: u64 = uverbs_abi::siw::INVAL_UOBJ_KEY as u64;

#[test]
fn a_queue_of_no_possible_size_is_an_error() {
    let memory = Memory::default();
    memory.put(CQ, PAGE);
    let open = |count: u32, key: u64| {
        let mut plan = Box::new(CqPlan(CreateCqResp::new_zeroed()));
        let response = CreateCqResp { num_cqe: count, cq_key: key, ..CreateCqResp::new_zeroed() };
        plan.payload().1.copy_from_slice(response.as_bytes());
        plan.open(made(&memory)).map(|queue| queue.capacity()).map_err(|error| error.kind())
    };
    assert_eq!((open(1, CQ), open(64, CQ)), (Ok(1), Ok(64)));
    for count in [0, 3, 5, 100, 1 << 25, 1 << 31, u32::MAX] {
        assert_eq!(open(count, CQ), Err(ErrorKind::Malformed), "{count}");
    }
    // Not the size of the kernel's memory.
    assert_eq!(open(128, CQ), Err(ErrorKind::InvalidInput));
    assert_eq!(open(4, 0x5000), Err(ErrorKind::InvalidInput));
    assert_eq!(open(4, NO_RING), Err(ErrorKind::InvalidInput));
    // The 145th page of a context's rings has this key too.
    memory.put(NO_RING, PAGE);
    assert_eq!(open(4, NO_RING), Ok(4));
}

#[test]
fn queues_of_a_queue_pair_of_no_possible_size_are_an_error() {
    let memory = Memory::default();
    for key in [SQ, RQ] {
        memory.put(key, PAGE);
    }
    let open = |sends: u32, receives: u32, keys: [u64; 2]| {
        let mut plan = Box::new(QpPlan { answer: CreateQpResp::new_zeroed(), has_receives: true });
        let [sq_key, rq_key] = keys;
        let response =
            CreateQpResp { num_sqe: sends, num_rqe: receives, sq_key, rq_key, ..CreateQpResp::new_zeroed() };
        plan.payload().1.copy_from_slice(response.as_bytes());
        let opened = plan.open(made(&memory)).map_err(|error| error.kind());
        opened.map(|made| (made.sends.slots(), made.receives.map(|receives| receives.capacity())))
    };
    assert_eq!(open(8, 16, [SQ, RQ]), Ok((16, Some(16))));
    assert_eq!(open(8, 0, [SQ, 0]), Ok((16, Some(0))), "it receives nothing");
    for (sends, receives) in [(0, 4), (3, 4), (4, 3), (1 << 31, 4), (4, u32::MAX)] {
        assert_eq!(open(sends, receives, [SQ, RQ]), Err(ErrorKind::Malformed), "{sends} {receives}");
    }
    assert_eq!(open(4, 4, [SQ, NO_RING]), Err(ErrorKind::InvalidInput));
    assert_eq!(open(4, 4, [NO_RING, RQ]), Err(ErrorKind::InvalidInput));
    assert_eq!(open(64, 4, [SQ, RQ]), Err(ErrorKind::InvalidInput));
}

#[test]
fn a_queue_pair_that_receives_nothing_has_no_room() {
    let mut receives = Receives::without_slots("test").unwrap();
    assert_eq!((receives.capacity(), receives.slots(), receives.next_slot()), (0, 0, 0));
    assert_eq!(receives.writing::<false>().put(1, [PIECE].iter()), Err(Refused::Full));
    receives.publish();
    receives.rewind();
    receives.take_late(|late| panic!("{late:?}"));
    assert!(receives.is_idle() == Some(true));
}

#[test]
fn a_shared_queue_of_no_possible_size_is_an_error() {
    let memory = Memory::default();
    memory.put(SRQ, 2 * PAGE);
    let open = |count: u32| {
        let mut plan = Box::new(SrqPlan(CreateSrqResp::new_zeroed()));
        assert_eq!(plan.asked([5, 2]), [5, 2]);
        let response = CreateSrqResp { num_rqe: count, srq_key: SRQ, ..CreateSrqResp::new_zeroed() };
        plan.payload().1.copy_from_slice(response.as_bytes());
        plan.open(made(&memory)).map(|queue| queue.capacity()).map_err(|error| error.kind())
    };
    assert_eq!(open(64), Ok(64));
    for (count, kind) in
        [(0, ErrorKind::Malformed), (7, ErrorKind::Malformed), (1024, ErrorKind::InvalidInput)]
    {
        assert_eq!(open(count), Err(kind), "{count}");
    }
}

#[test]
fn any_entry_is_read() {
    let mut bench = Bench::new();
    let mut random = 1_u64;
    let turns: u64 = if cfg!(miri) { 100 } else { 20_000 };
    for _ in 0..turns {
        let mut bytes = [0_u8; 32];
        for byte in &mut bytes {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 40) as u8;
        }
        let mut entry = Cqe::read_from_bytes(&bytes).unwrap();
        entry.flags |= 1;
        assert!(bench.complete(entry));
        let [wc] = bench.poll()[..] else { panic!("one") };
        assert_eq!((wc.wr_id, wc.byte_len, wc.qp_num), (entry.id, entry.bytes, entry.qp_id as u32));
        let is_known = entry.status <= 9 && entry.opcode <= 8;
        assert!(is_known || wc.status == wc_status::GENERAL_ERR, "{entry:?}");
    }
}

/// A success of an operation that cannot have been posted counts as a failure.
#[test]
fn an_operation_that_there_is_not_has_failed() {
    let mut bench = Bench::new();
    for opcode in 9..=u8::MAX {
        assert!(bench.complete(entry(1, opcode, 0)));
        assert_eq!(bench.poll()[0].status, wc_status::GENERAL_ERR, "{opcode}");
    }
}

/// Without the flag there is no completion, whatever else the entry contains.
#[test]
fn an_entry_without_its_flag_is_none() {
    let mut bench = Bench::new();
    let word = bench.cq.load(FLAG, Ordering::Relaxed);
    bench.cq.store(FLAG, word | u32::from_ne_bytes([0xfe, 3, 0, 0]), Ordering::Release);
    assert!(bench.poll().is_empty());
    #[cfg(feature = "raw")]
    assert!(bench.queue.is_empty());
}

/// Slots that were given back twice, or that were never given to the kernel.
#[test]
fn flags_of_any_kind_in_a_slot_are_looked_at() {
    let mut bench = Bench::new();
    let set = |bench: &Bench, slot: usize, flags: u16| {
        let [first, second] = flags.to_ne_bytes();
        let word = u32::from_ne_bytes([first, second, 0, 0]);
        bench.sq.store(slot * size_of::<Sqe>() + FLAG, word, Ordering::Release);
        bench.rq.store(slot * size_of::<Rqe>() + FLAG, word, Ordering::Release);
    };
    (0..4).for_each(|slot| set(&bench, slot, 1));
    assert_eq!((bench.send(1), bench.receive(1, &[])), (Err(Refused::Full), Err(Refused::Full)));
    (0..4).for_each(|slot| set(&bench, slot, 0xfffe));
    assert_eq!((bench.send(1), bench.receive(1, &[])), (Ok(Published::Shown), Ok(())));
    let mut late = 0;
    bench.sends.take_late(|_| late += 1);
    bench.receives.take_late(|_| late += 1);
    assert_eq!(late, 2);
}

#[test]
fn the_release_of_a_kernel_says_whether_states_are_told() {
    for (release, is_told) in [
        ("6.1.0-56-amd64\n", false),
        ("6.7", false),
        ("6.8.0", true),
        ("6.12.38+deb13-amd64", true),
        ("7.3-rc7-amd64", true),
        ("5.19.1", false),
        ("10.0", true),
        ("", false),
        ("6", false),
        ("x.y", false),
        ("99999999999.1", true),
        (".8", false),
        ("7.", false),
    ] {
        assert_eq!(is_at_least(release, [6, 8]), is_told, "{release}");
    }
}

#[test]
fn of_a_queue_pair_only_what_the_driver_says_is_told() {
    let mut answer = QueryQpResp::read_from_bytes(&[0xa5; size_of::<QueryQpResp>()]).unwrap();
    State::default().keep_answered(&mut answer);
    let limits = [answer.max_send_wr, answer.max_recv_sge, answer.max_inline_data, answer.qp_access_flags];
    assert_eq!(limits, [0xa5a5_a5a5; 4]);
    assert_eq!([answer.path_mtu, answer.max_rd_atomic, answer.max_dest_rd_atomic], [0xa5; 3]);
    assert_eq!([answer.qkey, answer.rq_psn, answer.sq_psn, answer.dest_qp_num], [0; 4]);
    assert_eq!([answer.cur_qp_state, answer.port_num, answer.sq_sig_all, answer.timeout], [0; 4]);
    assert_eq!(answer.dest.as_bytes(), [0; 32]);
}

/// Says that there is one piece, and has none.
#[derive(Clone)]
struct Liar;

impl Iterator for Liar {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (1, Some(1))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn a_request_without_the_piece_that_was_counted_is_refused() {
    let mut bench = Bench::new();
    let data = Data::<_, NoBytes>::Pieces(Liar);
    let put = bench.sends.writing().put(1, SendFlags::SIGNALED, &Opcode::Send, None, &data);
    assert_eq!(
        (put, bench.receives.writing::<false>().put(1, Liar)),
        (Err(Refused::TooLarge), Err(Refused::TooLarge))
    );
}
