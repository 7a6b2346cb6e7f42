//! Tests of the queues with a device that the tests simulate.

mod lies;

use std::cell::RefCell;

use nix::errno::Errno;
use uverbs_abi::erdma::{
    CQDB_CMDSN, CQE_OWNER, Cqe, CreateCqResp, CreateQpResp, OP_RECEIVE, OP_RECV_IMM, OP_RECV_INV,
    OP_RSP_SEND_IMM, OP_SEND, Rqe, SLOT, WC_FLUSH_ERR,
};
use uverbs_abi::types::{QpCreateFlags, SendFlags, WcFlags, qp_state, wc_opcode};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::driver::completion::Extended;
use crate::driver::request::{Data, MESSAGES, NoBytes, NoPieces, Opcode, Refused, Remote, Sge};
use crate::driver::ring::RingDevice;
use crate::driver::seam::{
    CompletionRing, Created, DriverCq, DriverQp, FillReceives, Lower, LowerReceive, Published, ReceiveBatch,
    ReceiveRing, SendRing,
};
use crate::kernel::command::Command;
use crate::kernel::error::ErrorKind;

const NUMBER: u32 = 0x2_3121;
const CQ: u32 = 0x305;
const PIECE: Sge = Sge { addr: 0x1122_3344_5566_7788, length: 100, lkey: 0x2a01 };
const REMOTE: Remote = Remote { address: 0x0102_0304_0506_0708, rkey: 0x1234 };

/// The pages of doorbells, by their keys.
struct Doorbells(RefCell<Vec<(u64, Mapping)>>);

impl Kernel for Doorbells {
    fn take(&self, _: &'static str) -> Result<()> {
        Ok(())
    }

    fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        panic!("{command:?}")
    }

    fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        let known = [0x1000, 0x2000, 0x3000].contains(&offset) && len == PAGE;
        let page =
            Mapping::block(len).ok().filter(|_| known).ok_or_else(|| Error::kernel(op, Errno::EINVAL))?;
        self.0.borrow_mut().push((offset, page.clone()));
        Ok(page)
    }

    fn ring_device(&self, _: Option<u32>) -> Option<Box<dyn RingDevice>> {
        None
    }
}

impl Doorbells {
    fn new() -> Self {
        Self(RefCell::default())
    }

    fn word(&self, key: u64, at: usize) -> u64 {
        let pages = self.0.borrow();
        let (_, page) = pages.iter().find(|(known, _)| *known == key).unwrap();
        word(page, at)
    }
}

fn word(memory: &Mapping, at: usize) -> u64 {
    let mut bytes = [0; 8];
    assert!(memory.read(at, &mut bytes));
    u64::from_le_bytes(bytes)
}

fn state() -> State {
    let context = AllocCtxResp { sdb: 0x1000, rdb: 0x2000, cdb: 0x3000, ..AllocCtxResp::new_zeroed() };
    State { context, ..State::default() }
}

fn made<S>(kernel: &Doorbells, size: S) -> Created<'_, S> {
    Created { op: "test", number: NUMBER, size, kernel }
}

fn open_cq(state: &State, kernel: &Doorbells, answer: CreateCqResp) -> Result<(Completions, Mapping)> {
    let shape = CqShape { entries: 5, has_channel: false, memory: None, driver: DriverCq::default() };
    let mut plan = state.plan_cq("test", &shape, kernel).unwrap();
    plan.payload().1.copy_from_slice(answer.as_bytes());
    let memory = plan.memory().unwrap().clone();
    assert_eq!(plan.asked(5), 64);
    plan.open(made(kernel, 64)).map(|queue| (queue, memory))
}

fn shape(type_: u8) -> QpShape {
    QpShape {
        type_,
        cap: QpCap { max_send_wr: 2, max_recv_wr: 3, max_send_sge: 6, max_recv_sge: 1, max_inline_data: 96 },
        operations: None,
        large_header: 0,
        is_shared: false,
        flags: QpCreateFlags::empty(),
        driver: DriverQp::default(),
    }
}

const ANSWER: CreateQpResp = CreateQpResp { qp_id: NUMBER, num_sqe: 8, num_rqe: 4, rq_offset: 4096 };

fn open_qp(
    state: &State,
    kernel: &Doorbells,
    queue: &Completions,
    shape: &QpShape,
    answer: CreateQpResp,
) -> Result<(Sends, Receives, Mapping)> {
    let side = queue.side();
    let mut plan = state.plan_qp("test", shape, Sides { queues: [&side; 2], shared: None }, kernel)?;
    plan.payload().1.copy_from_slice(answer.as_bytes());
    let memory = plan.memory().unwrap().clone();
    let QpQueues { sends, receives, .. } = plan.open(made(kernel, shape.cap))?;
    Ok((sends, receives.unwrap(), memory))
}

struct Bench {
    queue: Completions,
    sends: Sends,
    receives: Receives,
    cq: Mapping,
    qp: Mapping,
    doorbells: Doorbells,
    written: u32,
}

impl Bench {
    fn new() -> Self {
        let (state, doorbells) = (state(), Doorbells::new());
        let answer = CreateCqResp { cq_id: CQ, num_cqe: 64 };
        let (queue, cq) = open_cq(&state, &doorbells, answer).unwrap();
        let opened = open_qp(&state, &doorbells, &queue, &shape(qp_type::RC), ANSWER);
        let (sends, receives, qp) = opened.unwrap();
        let mut bench = Self { queue, sends, receives, cq, qp, doorbells, written: 0 };
        bench.enter(qp_state::RTS);
        bench
    }

    fn enter(&mut self, state: u8) {
        self.sends.enter(state);
        self.receives.enter(state);
    }

    fn put(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: Opcode<'_>,
        pieces: &[Sge],
    ) -> std::result::Result<(), Refused> {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        self.sends.one::<true, MESSAGES>().put(wr_id, flags, &opcode, None, &data)
    }

    fn put_inline(&mut self, opcode: Opcode<'_>, bytes: &[&[u8]]) -> std::result::Result<(), Refused> {
        let data = Data::<NoPieces, _>::Inline(bytes.iter().copied());
        self.sends.one::<true, MESSAGES>().put(7, SendFlags::SIGNALED, &opcode, None, &data)
    }

    fn send(&mut self, wr_id: u64) -> std::result::Result<Published, Refused> {
        self.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE])?;
        Ok(self.sends.publish())
    }

    fn receive(&mut self, wr_id: u64, pieces: &[Sge]) -> std::result::Result<(), Refused> {
        post_receive(&mut self.receives, wr_id, pieces)
    }

    /// The device writes an entry.
    fn write(&mut self, mut entry: Cqe) {
        let owner = if self.written & 64 == 0 { CQE_OWNER } else { 0 };
        entry.hdr = (entry.hdr.get() & !CQE_OWNER | owner).into();
        assert!(self.cq.write((self.written % 64) as usize * SLOT, entry.as_bytes()));
        self.written += 1;
    }

    fn complete(&mut self, queue: u32, opcode: u8, slot: u32, syndrome: u8) {
        self.write(entry(queue, opcode, slot, syndrome));
    }

    fn poll(&mut self) -> Vec<Wc> {
        let mut places = [Extended::default(); 8];
        let found = self.queue.poll(&mut places, || true);
        places[..found].iter().map(|place| place.wc).collect()
    }

    fn ids(&mut self) -> Vec<u64> {
        self.poll().iter().map(|wc| wc.wr_id).collect()
    }

    /// The words of the send queue from a slot on.
    fn words(&self, slot: usize) -> [u64; 8] {
        std::array::from_fn(|at| word(&self.qp, (slot * SLOT + at * 8) % 256))
    }
}

fn post_receive(receives: &mut Receives, wr_id: u64, pieces: &[Sge]) -> std::result::Result<(), Refused> {
    struct One<'a>(u64, &'a [Sge]);
    impl FillReceives for One<'_> {
        type Answer = std::result::Result<(), Refused>;
        fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
            batch.put(self.0, self.1.iter())
        }
        fn is_kept(answer: &Self::Answer) -> bool {
            answer.is_ok()
        }
    }
    receives.post(4, One(wr_id, pieces))
}

fn entry(queue: u32, opcode: u8, slot: u32, syndrome: u8) -> Cqe {
    Cqe {
        hdr: (u32::from(opcode) << 16 | queue << 8 | u32::from(syndrome)).into(),
        qe_idx: slot.into(),
        qpn: NUMBER.into(),
        size: 100.into(),
        ..Cqe::new_zeroed()
    }
}

/// The first word of a request of `slots` slots, behind which is slot `end`.
fn head(len: u64, slots: u64, opcode: u64, flags: u64, end: u64) -> u64 {
    len << 56 | (slots - 1) << 52 | u64::from(NUMBER) << 32 | opcode << 27 | flags << 22 | end
}

#[test]
fn requests_are_written_as_the_device_reads_them() {
    let mut bench = Bench::new();
    let sge = |piece: Sge| [piece.addr, u64::from(piece.length) | u64::from(piece.lkey) << 32];
    let [piece, size] = sge(PIECE);
    let all = SendFlags::SIGNALED | SendFlags::SOLICITED | SendFlags::FENCE;
    bench.put(1, all, Opcode::SendImmediate(0x0102_0304_u32.to_be()), &[PIECE]).unwrap();
    assert_eq!(bench.words(0)[..4], [head(1, 1, 3, 7, 1), 0x0403_0201 | 100 << 32, piece, size]);
    bench.put(2, SendFlags::empty(), Opcode::Write(REMOTE), &[PIECE, PIECE, PIECE]).unwrap();
    let remote = [0x1234 | 0x0506_0708 << 32, 0x0102_0304];
    assert_eq!(bench.words(1)[..2], [head(3, 3, 0, 0, 4), 300 << 32]);
    assert_eq!(bench.words(1)[2..], [remote[0], remote[1], piece, size, piece, size]);
    assert_eq!(bench.words(3)[..2], [piece, size]);
    assert_eq!((bench.sends.publish(), bench.sends.publish()), (Published::Told, Published::Nothing));
    let doorbell = u64::from(NUMBER) << 32 | 4;
    assert_eq!([bench.doorbells.word(0x1000, 128), word(&bench.qp, 8192)], [doorbell; 2]);
    bench.complete(0, 3, 0, 0);
    bench.complete(0, 0, 1, WC_FLUSH_ERR);
    assert_eq!(bench.ids(), [1, 2]);

    bench.put(3, SendFlags::empty(), Opcode::Read(REMOTE), &[PIECE]).unwrap();
    let local = [0x2a01 | 0x5566_7788 << 32, 0x1122_3344];
    let read = [head(0, 2, 1, 0, 6), 100 << 32, local[0], local[1], REMOTE.address, 100 | 0x1234 << 32];
    assert_eq!(bench.words(4)[..6], read);
    let eight = Sge { length: 8, ..PIECE };
    let swap = Opcode::CompareSwap { remote: REMOTE, compare: 5, swap: 6 };
    bench.put(4, SendFlags::empty(), swap, &[eight]).unwrap();
    let place = sge(eight);
    let words = [head(0, 2, 17, 0, 8), 0, 6, 5, REMOTE.address, 0x1234 << 32, place[0], place[1]];
    assert_eq!(bench.words(6), words);
    let add = Opcode::FetchAdd { remote: REMOTE, add: 9 };
    bench.put(5, SendFlags::empty(), add, &[eight]).unwrap();
    assert_eq!(bench.words(0)[..4], [head(0, 2, 18, 0, 10), 0, 9, 0]);
    bench.put(6, SendFlags::empty(), Opcode::SendInvalidate(0x77), &[]).unwrap();
    assert_eq!(bench.words(2)[..2], [head(0, 1, 13, 0, 11), 0x77]);
    assert_eq!(bench.put(7, SendFlags::empty(), add, &[eight]), Err(Refused::Full));
    for length in [0, 7, 9] {
        bench.sends.rewind();
        assert_eq!(bench.put(7, SendFlags::empty(), add, &[Sge { length, ..PIECE }]), Err(Refused::TooLarge));
    }
}

#[test]
fn inline_bytes_go_round_the_end() {
    let mut bench = Bench::new();
    for wr_id in 0..6 {
        bench.send(wr_id).unwrap();
        bench.complete(0, OP_SEND, wr_id as u32, 0);
    }
    assert_eq!(bench.ids().len(), 6);
    let bytes: Vec<u8> = (0..96).collect();
    bench.put_inline(Opcode::WriteImmediate(REMOTE, 0), &[&bytes[..50], &[], &bytes[50..]]).unwrap();
    assert_eq!(bench.words(6)[0], head(96, 4, 9, 0b1001, 10));
    let mut found = [0; 96];
    let (first, rest) = found.split_at_mut(32);
    assert!(bench.qp.read(7 * SLOT, first) && bench.qp.read(0, rest));
    assert_eq!(found, bytes[..]);
    bench.sends.rewind();
    assert_eq!(bench.put_inline(Opcode::Send, &[&[0; 97]]), Err(Refused::TooLarge));
    assert_eq!(bench.put_inline(Opcode::Read(REMOTE), &[&[0; 8]]), Err(Refused::Lacks));
    bench.put_inline(Opcode::Send, &[]).unwrap();
}

#[test]
fn what_the_device_lacks_is_refused_and_changes_nothing() {
    let mut bench = Bench::new();
    let bind = Opcode::LocalInvalidate(1);
    assert_eq!(bench.put(1, SendFlags::empty(), bind, &[]), Err(Refused::Lacks));
    assert_eq!(bench.put(1, SendFlags::IP_CSUM, Opcode::Send, &[]), Err(Refused::Lacks));
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE; 7]), Err(Refused::TooLarge));
    assert_eq!(bench.put(1, SendFlags::empty(), Opcode::Read(REMOTE), &[PIECE; 2]), Err(Refused::TooLarge));
    assert_eq!(bench.receive(1, &[PIECE; 2]), Err(Refused::TooLarge));
    assert_eq!((bench.sends.publish(), bench.sends.next_slot()), (Published::Nothing, 0));
    bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE; 6]).unwrap();
    bench.sends.rewind();
    for state in [qp_state::INIT, qp_state::RTR, qp_state::ERR] {
        bench.enter(state);
        assert_eq!(bench.send(1), Err(Refused::NotReady), "{state}");
    }
    assert_eq!(bench.receive(1, &[PIECE]), Err(Refused::NotReady));
    let (state, kernel) = (state(), Doorbells::new());
    let shapes = [
        shape(qp_type::UD),
        QpShape { is_shared: true, ..shape(qp_type::RC) },
        QpShape { flags: QpCreateFlags::SCATTER_FCS, ..shape(qp_type::RC) },
    ];
    for shape in shapes {
        let refused = open_qp(&state, &kernel, &bench.queue, &shape, ANSWER).map(drop).unwrap_err();
        assert!(refused.kind() == ErrorKind::Unsupported && refused.hint().is_some(), "{refused:?}");
    }
}

#[test]
fn receives_complete_with_what_they_brought() {
    let mut bench = Bench::new();
    for wr_id in 0..4 {
        bench.receive(wr_id, &[PIECE]).unwrap();
    }
    assert_eq!(bench.receive(9, &[PIECE]), Err(Refused::Full));
    let mut slot = Rqe::new_zeroed();
    assert!(bench.qp.read(4096 + 3 * SLOT, slot.as_mut_bytes()));
    assert_eq!((slot.qe_idx.get(), slot.qpn.get(), slot.to.get()), (4, NUMBER, PIECE.addr));
    assert_eq!((slot.length.get(), slot.stag.get()), (100, 0x2a01));
    let doorbell = u64::from(NUMBER) << 32 | 4;
    assert_eq!([bench.doorbells.word(0x2000, 0x21 * 32), word(&bench.qp, 8200)], [doorbell; 2]);
    bench.complete(1, OP_RECEIVE, 0, 0);
    for (slot, opcode) in [(1, OP_RSP_SEND_IMM), (2, OP_RECV_IMM)] {
        bench.write(Cqe { imm_data: 0x0102_0304.into(), ..entry(1, opcode, slot, 0) });
    }
    bench.write(Cqe { imm_data: 0x0102_0304_u32.swap_bytes().into(), ..entry(1, OP_RECV_INV, 3, 0) });
    let found: Vec<_> = bench.poll().iter().map(|wc| (wc.wr_id, wc.opcode, wc.ex, wc.wc_flags)).collect();
    let (imm, inv) = (WcFlags::WITH_IMM.bits(), WcFlags::WITH_INVALIDATE.bits());
    let number = 0x0102_0304_u32;
    let wanted = [
        (0, wc_opcode::RECV, 0, 0),
        (1, wc_opcode::RECV, number.to_be(), imm),
        (2, wc_opcode::RECV_RDMA_WITH_IMM, number.to_be(), imm),
        (3, wc_opcode::RECV, number, inv),
    ];
    assert_eq!(found, wanted);
    assert_eq!(bench.receives.is_idle(), Some(true));
    bench.receive(5, &[]).unwrap();
    assert_eq!(bench.receives.is_idle(), Some(false));
}

#[test]
fn an_event_is_asked_for_with_the_number_of_those_before() {
    let mut bench = Bench::new();
    let number = u64::from(CQ) << 32;
    assert_eq!(word(&bench.cq, 64 * SLOT), 0xff << 56 | number | CQDB_CMDSN, "none was asked for");
    let side = bench.queue.side();
    assert!(side.arm(false));
    let doorbell = |bench: &Bench| bench.doorbells.word(0x3000, 0x105 * 8);
    assert_eq!((doorbell(&bench), word(&bench.cq, 64 * SLOT)), (number | 1 << 31, number | 1 << 31));
    bench.send(1).unwrap();
    bench.complete(0, OP_SEND, 0, 0);
    assert_eq!(bench.ids(), [1]);
    assert!(side.arm(true));
    assert_eq!(doorbell(&bench), 1 << 56 | number | 3 << 30 | 1 << 28 | 1);
    // A send is not what was waited for.
    bench.send(2).unwrap();
    bench.complete(0, OP_SEND, 1, 0);
    assert_eq!(bench.ids(), [2]);
    assert!(side.arm(false));
    assert_eq!(doorbell(&bench), 2 << 56 | number | 1 << 31 | 1 << 28 | 2);
    // A receive may not have been solicited, so the device may not have made the event that counts: the next request has two numbers.
    bench.send(3).unwrap();
    bench.complete(0, OP_SEND, 2, 0);
    assert!(bench.ids() == [3] && side.arm(true));
    bench.receive(4, &[PIECE]).unwrap();
    bench.complete(1, OP_RECEIVE, 0, 0);
    assert!(bench.ids() == [4] && side.arm(false));
    assert_eq!(doorbell(&bench), 5 << 56 | number | 1 << 31 | 4);
    #[cfg(feature = "raw")]
    {
        assert!(side.arm_behind(3 << 30, false));
        assert_eq!(doorbell(&bench), 6 << 56 | number | 1 << 31 | 3 << 28 | 4);
    }
}

#[test]
fn a_reset_forgets_what_was_before() {
    let mut bench = Bench::new();
    bench.send(1).unwrap();
    bench.receive(2, &[PIECE]).unwrap();
    bench.complete(0, OP_SEND, 0, 0);
    bench.complete(1, OP_RECEIVE, 0, 0);
    bench.enter(qp_state::RESET);
    bench.enter(qp_state::RTS);
    bench.send(3).unwrap();
    bench.receive(4, &[PIECE]).unwrap();
    assert_eq!((bench.words(0)[0], bench.ids()), (head(1, 1, 2, 1, 1), vec![]));
    bench.complete(0, OP_SEND, 0, 0);
    bench.complete(1, OP_RECEIVE, 0, 0);
    assert_eq!(bench.ids(), [3, 4]);
}

#[test]
fn a_request_is_begun_and_gets_its_data_later() {
    let mut bench = Bench::new();
    let data = Data::<_, NoBytes>::Pieces([PIECE; 6].iter());
    let mut one = bench.sends.one::<true, MESSAGES>();
    assert_eq!(one.set_data(SendFlags::empty(), None, &data), Err(Refused::NotBegun));
    one.begin(5, SendFlags::empty(), &Opcode::Write(REMOTE)).unwrap();
    one.set_data(SendFlags::SIGNALED, None, &data).unwrap();
    one.begin(6, SendFlags::empty(), &Opcode::Send).unwrap();
    assert_eq!(one.begin(7, SendFlags::empty(), &Opcode::Send), Err(Refused::Full), "all data must fit");
    drop(one);
    assert_eq!((bench.words(0)[0], bench.words(4)[0]), (head(6, 4, 0, 1, 4), head(0, 1, 2, 0, 5)));
}

#[test]
fn what_has_no_completion_is_not_waited_for() {
    let mut bench = Bench::new();
    bench.put(1, SendFlags::empty(), Opcode::Send, &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.sends.is_idle(), Some(true));
    bench.send(2).unwrap();
    bench.put(3, SendFlags::empty(), Opcode::Send, &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.sends.is_idle(), Some(false));
    bench.complete(0, OP_SEND, 1, 0);
    assert_eq!((bench.ids(), bench.sends.is_idle()), (vec![2], Some(true)));
    // After a failure each one behind it has a completion.
    bench.send(5).unwrap();
    bench.put(6, SendFlags::empty(), Opcode::Send, &[PIECE]).unwrap();
    bench.sends.publish();
    bench.complete(0, OP_SEND, 3, WC_FLUSH_ERR);
    assert_eq!((bench.ids(), bench.sends.is_idle()), (vec![5], Some(false)));
    bench.complete(0, OP_SEND, 4, WC_FLUSH_ERR);
    assert_eq!((bench.ids(), bench.sends.is_idle()), (vec![6], Some(true)));
    bench.enter(qp_state::RESET);
    bench.enter(qp_state::RTS);
    // One that is begun with a completion, and gets its data without.
    let data = Data::<_, NoBytes>::Pieces([PIECE].iter());
    let mut one = bench.sends.one::<true, MESSAGES>();
    one.begin(4, SendFlags::SIGNALED, &Opcode::Send).unwrap();
    one.set_data(SendFlags::empty(), None, &data).unwrap();
    drop(one);
    bench.sends.publish();
    assert_eq!(bench.sends.is_idle(), Some(true));
}

#[test]
fn a_queue_pair_without_room_takes_nothing() {
    let (state, doorbells) = (state(), Doorbells::new());
    let (queue, _) = open_cq(&state, &doorbells, CreateCqResp { cq_id: CQ, num_cqe: 64 }).unwrap();
    let cap = QpCap { max_send_wr: 0, max_recv_wr: 0, ..shape(qp_type::RC).cap };
    let shape = QpShape { cap, ..shape(qp_type::RC) };
    let answer = CreateQpResp { num_sqe: 4, num_rqe: 1, ..ANSWER };
    let (mut sends, mut receives, _) = open_qp(&state, &doorbells, &queue, &shape, answer).unwrap();
    sends.enter(qp_state::RTS);
    let data = Data::<_, NoBytes>::Pieces([PIECE].iter());
    let put = sends.one::<true, MESSAGES>().put(1, SendFlags::empty(), &Opcode::Send, None, &data);
    assert_eq!((put, post_receive(&mut receives, 1, &[PIECE])), (Err(Refused::Full), Err(Refused::Full)));
}
