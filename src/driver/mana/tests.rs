//! Tests of the queues with a device that the tests simulate.

mod lies;
mod queues;

use nix::errno::Errno;
use uverbs_abi::mana::{CreateCqResp, CreateRcQpResp};
use uverbs_abi::types::{QpAttrMask, SendFlags, qp_state};
use uverbs_abi::write::{ModifyQp, QpCap, Wc};
use zerocopy::{FromZeros, IntoBytes};

use super::gdma::{UNIT, kind};
use super::plans::{CqPlan, QpPlan};
use super::side::ENTRY;
use super::*;
use crate::driver::completion::Extended;
use crate::driver::request::{Data, MESSAGES, NoBytes, Opcode, Refused, Remote, Sge};
use crate::driver::ring::RingDevice;
use crate::driver::seam::{
    CompletionRing, Created, FillReceives, Lower, LowerReceive, Plan, Published, QpQueues, ReceiveBatch,
    ReceiveRing, SendRing, own,
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
    page: Mapping,
    pub(super) rings: [Mapping; 4],
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

impl Bench {
    /// In the reset state.
    pub(super) fn fresh() -> Self {
        Self::beside(&[])
    }

    /// Likewise, with a completion queue that has entries with these words of earlier queue pairs.
    pub(super) fn beside(earlier: &[[u32; 16]]) -> Self {
        let page = Mapping::block(PAGE).unwrap();
        let mut plan = Box::new(CqPlan::new("test", 4, page.clone()).unwrap());
        let entries = plan.asked(4);
        plan.payload().1.copy_from_slice(CreateCqResp { cqid: CQ, reserved: 0 }.as_bytes());
        let cq = plan.memory().unwrap().clone();
        let queue = plan.open(made(&Nobody)).unwrap();
        let side = own("test", queue.side()).unwrap();
        for (i, entry) in earlier.iter().enumerate() {
            assert!(cq.write(i * ENTRY, entry.map(u32::to_le).as_bytes()));
        }
        let cap =
            QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 0 };
        let limits = Limits { requests: 8, pieces: 4, entries: 64 };
        let mut plan =
            Box::new(QpPlan::new("test", cap, limits, [Arc::clone(&side), side], page.clone()).unwrap());
        let rings = plan.rings();
        let response = CreateRcQpResp { queue_id: [SENDS, 0x41, ANSWERS, NUMBER] };
        plan.payload().1.copy_from_slice(response.as_bytes());
        let QpQueues { sends, receives, .. } = plan.open(made(&Nobody)).unwrap();
        Self {
            queue,
            sends,
            receives: receives.unwrap(),
            page,
            rings,
            cq,
            entries,
            written: entries + earlier.len() as u32,
        }
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
        assert!(self.rings[ring].read(at, words.as_mut_bytes()));
        words.map(u32::from_le)
    }

    /// The device writes an entry: these words of data, and the queue.
    pub(super) fn complete(&mut self, words: &[u32], queue: u32, is_send: bool) {
        let owner = (self.written / self.entries) & 7;
        self.complete_as(words, queue & 0xff_ffff | u32::from(is_send) << 24 | owner << 29);
        self.written = self.written.wrapping_add(1);
    }

    pub(super) fn complete_as(&mut self, words: &[u32], last: u32) {
        let mut entry = [0_u32; 16];
        entry[..words.len()].copy_from_slice(words);
        entry[15] = last;
        let at = (self.written % self.entries) as usize * ENTRY;
        assert!(self.cq.write(at, entry.map(u32::to_le).as_bytes()));
    }

    /// Packets up to this one are acknowledged.
    pub(super) fn acknowledge(&mut self, psn: u32) {
        self.complete(&[kind::ARMED.into(), 0, psn & 0xff_ffff], ANSWERS, false);
    }

    /// A message of this many bytes has arrived for the receive at this unit.
    pub(super) fn arrive(&mut self, kind: u8, len: u32, at: u32) {
        self.complete(&[kind.into(), len, 0, 0x0a0b_0c0d, at * UNIT as u32], NUMBER, false);
    }

    pub(super) fn poll(&mut self) -> Vec<Wc> {
        let mut places = [Extended::default(); 16];
        let found = self.queue.poll(&mut places, || true);
        places[..found].iter().map(|place| place.wc).collect()
    }

    /// Numbers and statuses of what completes.
    pub(super) fn done(&mut self) -> Vec<(u64, u32)> {
        self.poll().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}
