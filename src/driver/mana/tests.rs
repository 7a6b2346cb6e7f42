//! Tests of the queues with a device that the tests simulate.

mod ends;
mod lies;
mod plans;
mod queues;

use nix::errno::Errno;
use uverbs_abi::mana::{CreateCqResp, CreateRcQpResp};
use uverbs_abi::types::{QpAttrMask, QpCreateFlags, SendFlags, qp_state, qp_type};
use uverbs_abi::write::{ModifyQp, QpCap, Wc};
use zerocopy::{FromZeros, IntoBytes};

use super::gdma::{UNIT, kind};
use super::plans::{CqPlan, QpPlan};
use super::side::{CompletionSide, ENTRY};
use super::*;
use crate::driver::completion::Extended;
use crate::driver::request::{Data, MESSAGES, NoBytes, Opcode, Refused, Remote, Sge};
use crate::driver::ring::RingDevice;
use crate::driver::seam::{
    CompletionRing, Created, DriverQp, FillReceives, Known, Lower, LowerReceive, Plan, Published, QpQueues,
    QpShape, ReceiveBatch, ReceiveRing, SendRing, own,
};
use crate::kernel::error::Error;

/// The kernel is not needed after a plan was made.
struct Nobody;

impl Kernel for Nobody {
    fn take(&self, _: &'static str) -> Result<()> {
        Ok(())
    }

    fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        panic!("{command:?}")
    }

    fn map(&self, op: &'static str, _: u64, _: usize) -> Result<Mapping> {
        Err(Error::kernel(op, Errno::EINVAL))
    }

    fn ring_device(&self, _: Option<u32>) -> Option<Box<dyn RingDevice>> {
        None
    }
}

/// The device's numbers.
const CQ: u32 = 5;
const NUMBER: u32 = 0x40;
const SENDS: u32 = 0x40;
const ANSWERS: u32 = 0x41;

const MTU: u32 = 1024;
/// The first packet of the first life.
const FIRST: u32 = 0xff_fffe;
/// Bytes of the ring of sends, without what is behind it.
const RING: usize = 4096;

pub(super) const PIECE: Sge = Sge { addr: 0x1122_3344_5566_7788, length: 100, lkey: 0x2a01 };
pub(super) const REMOTE: Remote = Remote { address: 0x0102_0304_0506_0708, rkey: 0x99 };

/// A queue pair with a completion queue, and the device's side of their memory.
pub(super) struct Bench {
    pub(super) queue: Completions,
    pub(super) sends: Sends,
    pub(super) receives: Receives,
    /// What the owner of the queue pair keeps.
    pub(super) known: Option<Known>,
    pub(super) page: Mapping,
    memory: Mapping,
    /// Where the rings are in the memory.
    places: [usize; 4],
    cq: Mapping,
    /// Number of entries, and the index of the next one.
    pub(super) entries: u32,
    pub(super) written: u32,
}

fn made<S: FromZeros>(kernel: &Nobody) -> Created<'_, S> {
    Created { op: "test", number: NUMBER, size: S::new_zeroed(), kernel }
}

/// Fills receives with these numbers and one piece each, and posts them.
struct Filled<'a>(&'a [u64], &'a [Sge]);

impl FillReceives for Filled<'_> {
    type Answer = std::result::Result<(), Refused>;

    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        self.0.iter().try_for_each(|wr_id| batch.put(*wr_id, self.1.iter()))
    }

    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

/// A completion queue, its memory, and the number of its entries.
pub(super) fn completions(page: &Mapping) -> (Completions, Mapping, u32) {
    let mut plan = Box::new(CqPlan::new("test", 4, page.clone()).unwrap());
    let entries = plan.asked(4);
    plan.payload().1.copy_from_slice(CreateCqResp { cqid: CQ, reserved: 0 }.as_bytes());
    let cq = plan.memory().unwrap().clone();
    (plan.open(made(&Nobody)).unwrap(), cq, entries)
}

pub(super) fn shape(flags: QpCreateFlags) -> QpShape {
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 0 };
    let (type_, driver) = (qp_type::RC, DriverQp::default());
    QpShape { type_, cap, operations: None, large_header: 0, is_shared: false, flags, driver }
}

/// A queue pair, its memory, and where the rings are in it.
fn pair(
    page: &Mapping,
    sides: [Arc<CompletionSide>; 2],
    shape: &QpShape,
    queue_id: [u32; 4],
) -> (QpQueues<Sends, Receives>, Mapping, [usize; 4]) {
    let limits = Limits { requests: 8, pieces: 4, entries: 64 };
    let mut plan = Box::new(QpPlan::new("test", shape, limits, sides, page.clone()).unwrap());
    let (memory, places) = (plan.memory().unwrap().clone(), plan.places());
    plan.payload().1.copy_from_slice(CreateRcQpResp { queue_id }.as_bytes());
    (plan.open(made(&Nobody)).unwrap(), memory, places)
}

impl Bench {
    /// In the reset state.
    pub(super) fn fresh() -> Self {
        Self::beside(&[])
    }

    /// Likewise, with a completion queue that has entries with these words of earlier queue pairs.
    pub(super) fn beside(earlier: &[[u32; 16]]) -> Self {
        let page = Mapping::block(PAGE).unwrap();
        let (queue, cq, entries) = completions(&page);
        for (i, entry) in earlier.iter().enumerate() {
            assert!(cq.write(i * ENTRY, entry.map(u32::to_le).as_bytes()));
        }
        let side: Arc<CompletionSide> = own("test", queue.side()).unwrap();
        let (pair, memory, places) =
            pair(&page, [side.clone(), side], &shape(QpCreateFlags::empty()), [SENDS, 0x41, ANSWERS, NUMBER]);
        let QpQueues { sends, receives, known, .. } = pair;
        let written = entries + earlier.len() as u32;
        let receives = receives.unwrap();
        Self { queue, sends, receives, known, page, memory, places, cq, entries, written }
    }

    /// The queue pair is destroyed, and another one takes its place, with these options. Its queue of receives may be another one.
    pub(super) fn pair_again(&mut self, flags: QpCreateFlags, receives: Option<&Completions>) {
        self.pair_of(&shape(flags), receives);
    }

    pub(super) fn pair_of(&mut self, shape: &QpShape, receives: Option<&Completions>) {
        let side: Arc<CompletionSide> = own("test", self.queue.side()).unwrap();
        let other = receives.map_or(side.clone(), |queue| own("test", queue.side()).unwrap());
        let (pair, memory, places) = pair(&self.page, [side, other], shape, [SENDS, 0x41, ANSWERS, NUMBER]);
        (self.sends, self.known) = (pair.sends, pair.known);
        (self.receives, self.memory, self.places) = (pair.receives.unwrap(), memory, places);
    }

    /// Ready to send.
    pub(super) fn new() -> Self {
        let mut bench = Self::fresh();
        bench.connect(FIRST);
        bench
    }

    /// From the reset state to the one that can send.
    pub(super) fn connect(&mut self, psn: u32) {
        self.enter(qp_state::INIT, QpAttrMask::empty(), 0);
        self.enter(qp_state::RTR, QpAttrMask::PATH_MTU, 0);
        self.enter(qp_state::RTS, QpAttrMask::SQ_PSN, psn);
    }

    pub(super) fn enter(&mut self, state: u8, mask: QpAttrMask, sq_psn: u32) {
        let attr_mask = (mask | QpAttrMask::STATE).bits();
        let request = ModifyQp { attr_mask, qp_state: state, path_mtu: 3, sq_psn, ..ModifyQp::new_zeroed() };
        self.sends.changed(&request);
        self.sends.enter(state);
        self.receives.enter(state);
    }

    pub(super) fn put(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: Opcode<'_>,
        pieces: &[Sge],
    ) -> std::result::Result<(), Refused> {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        self.sends.one::<true, MESSAGES>().put(wr_id, flags, &opcode, None, &data)
    }

    /// Posts a signaled send of one piece.
    pub(super) fn send(&mut self, wr_id: u64) -> std::result::Result<(), Refused> {
        self.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE])?;
        assert_eq!(self.sends.publish(), Published::Told);
        Ok(())
    }

    pub(super) fn receive(&mut self, wr_ids: &[u64]) -> std::result::Result<(), Refused> {
        self.receives.post(4, Filled(wr_ids, &[PIECE]))
    }

    /// The last value of a doorbell: the queue, the byte above it, and the upper half.
    pub(super) fn bell(&self, offset: usize) -> (u32, u8, u32) {
        let mut bytes = [0; 8];
        assert!(self.page.read(offset, &mut bytes));
        let value = u64::from_le_bytes(bytes);
        (value as u32 & 0xff_ffff, (value >> 24) as u8, (value >> 32) as u32)
    }

    /// Words of a ring, from a byte on.
    pub(super) fn words<const N: usize>(&self, ring: usize, at: usize) -> [u32; N] {
        let mut words = [0_u32; N];
        assert!(self.memory.read(self.places[ring] + at, words.as_mut_bytes()));
        words.map(u32::from_le)
    }

    /// The device writes an entry: these words of data, and the queue.
    pub(super) fn complete(&mut self, words: &[u32], queue: u32, is_send: bool) {
        let owner = (self.written / self.entries) & 7;
        self.complete_as(words, queue & 0xff_ffff | u32::from(is_send) << 24 | owner << 29);
        self.written = self.written.wrapping_add(1);
    }

    pub(super) fn complete_as(&mut self, words: &[u32], last: u32) {
        let at = (self.written % self.entries) as usize * ENTRY;
        put(&self.cq, at, words, last);
    }

    /// Packets up to this one are acknowledged.
    pub(super) fn acknowledge(&mut self, psn: u32) {
        self.complete(&[kind::ARMED.into(), 0, psn & 0xff_ffff], ANSWERS, false);
    }

    /// A message of this many bytes has arrived for the receive at this unit.
    pub(super) fn arrive(&mut self, kind: u8, len: u32, at: u32) {
        self.complete(&[kind.into(), len, 0, 0x0a0b_0c0d, at * UNIT as u32], NUMBER, false);
    }

    /// A send with this packet has failed, or the oldest receive.
    pub(super) fn fail_send(&mut self, code: u32, psn: u32) {
        self.complete(&[u32::from(kind::ERROR) | code << 8, 0, psn & 0xff_ffff], SENDS, true);
    }

    pub(super) fn fail_receive(&mut self, code: u32) {
        self.complete(&[u32::from(kind::ERROR) | code << 8], NUMBER, false);
    }

    pub(super) fn poll(&mut self) -> Vec<Wc> {
        poll(&mut self.queue)
    }

    /// Numbers and statuses of what completes.
    pub(super) fn done(&mut self) -> Vec<(u64, u32)> {
        done(&mut self.queue)
    }
}

/// The device writes an entry.
pub(super) fn put(cq: &Mapping, at: usize, words: &[u32], last: u32) {
    let mut entry = [0_u32; 16];
    entry[..words.len()].copy_from_slice(words);
    entry[15] = last;
    assert!(cq.write(at, entry.map(u32::to_le).as_bytes()));
}

fn poll(queue: &mut Completions) -> Vec<Wc> {
    let mut places = [Extended::default(); 16];
    let found = queue.poll(&mut places, || true);
    places[..found].iter().map(|place| place.wc).collect()
}

/// Numbers and statuses of what completes in a queue.
pub(super) fn done(queue: &mut Completions) -> Vec<(u64, u32)> {
    poll(queue).iter().map(|wc| (wc.wr_id, wc.status)).collect()
}
