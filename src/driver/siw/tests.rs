//! Tests of the queues with a kernel that the tests simulate.

mod batches;
mod lies;
mod queues;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use uverbs_abi::siw::{
    Cqe, CreateCqResp, CreateQpResp, CreateSrqResp, OP_READ, OP_RECEIVE, OP_SEND, OP_WRITE, Rqe, Sqe,
    WQE_VALID,
};
use uverbs_abi::types::{SendFlags, qp_state, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::plans::{CqPlan, QpPlan, SrqPlan};
use super::*;
use crate::driver::Kernel;
use crate::driver::completion::Extended;
use crate::driver::request::{Data, NoBytes, NoPieces, Opcode, Refused, Remote, Sge};
use crate::driver::ring::RingDevice;
use crate::driver::ring::flagged::FLAG;
use crate::driver::seam::{
    CompletionRing, Created, Late, Lower, LowerReceive, Plan, Published, QpQueues, SendRing,
};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The kernel's memory, by the keys that it returns. Only mappings with the right size succeed.
#[derive(Default)]
pub(super) struct Memory(RefCell<HashMap<u64, Mapping>>);

const PAGE: usize = 4096;

impl Memory {
    fn put(&self, key: u64, len: usize) -> Mapping {
        let memory = Mapping::block(len).unwrap();
        self.0.borrow_mut().insert(key, memory.clone());
        memory
    }
}

impl Kernel for Memory {
    fn take(&self, _: &'static str) -> Result<()> {
        Ok(())
    }

    fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        panic!("{command:?}")
    }

    fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        match self.0.borrow().get(&offset) {
            Some(memory) if memory.len() == len.next_multiple_of(PAGE) => Ok(memory.clone()),
            _ => Err(Error::kernel(op, Errno::EINVAL)),
        }
    }

    fn ring_device(&self, _: Option<u32>) -> Option<Box<dyn RingDevice>> {
        None
    }
}

const CQ: u64 = 0x1000;
const SQ: u64 = 0x2000;
const RQ: u64 = 0x3000;
const SRQ: u64 = 0x4000;
const NUMBER: u32 = 0xb08;

/// Takes requests out of the slots, as the kernel does, and completes them.
pub(super) struct Bench {
    pub(super) queue: Completions,
    pub(super) sends: Sends,
    pub(super) receives: Receives,
    cq: Mapping,
    sq: Mapping,
    rq: Mapping,
    /// Number of sends and receives that the kernel has taken, and of completions that it has written.
    sent: u32,
    received: u32,
    written: u32,
}

/// Number of entries and slots.
pub(super) const ENTRIES: u32 = 4;

/// An object that the kernel has created. The size that it returns does not matter.
pub(super) fn made<S: FromZeros>(memory: &Memory) -> Created<'_, S> {
    Created { op: "test", number: NUMBER, size: S::new_zeroed(), kernel: memory }
}

impl Bench {
    pub(super) fn new() -> Self {
        let memory = Memory::default();
        let [cq, sq, rq] = [CQ, SQ, RQ].map(|key| memory.put(key, PAGE));
        let mut plan = Box::new(CqPlan(CreateCqResp::new_zeroed()));
        let response = CreateCqResp { num_cqe: ENTRIES, cq_key: CQ, ..CreateCqResp::new_zeroed() };
        plan.payload().1.copy_from_slice(response.as_bytes());
        let queue = plan.open(made(&memory)).unwrap();
        let mut plan = Box::new(QpPlan { answer: CreateQpResp::new_zeroed(), has_receives: true });
        let response = CreateQpResp {
            qp_id: NUMBER,
            num_sqe: ENTRIES,
            num_rqe: ENTRIES,
            sq_key: SQ,
            rq_key: RQ,
            ..CreateQpResp::new_zeroed()
        };
        plan.payload().1.copy_from_slice(response.as_bytes());
        let QpQueues { sends, receives, .. } = plan.open(made(&memory)).unwrap();
        let (sent, received, written) = (0, 0, 0);
        Self { queue, sends, receives: receives.unwrap(), cq, sq, rq, sent, received, written }
    }

    pub(super) fn put(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: Opcode<'_>,
        pieces: &[Sge],
    ) -> Result<(), Refused> {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        self.sends.writing().put(wr_id, flags, &opcode, None, &data)
    }

    pub(super) fn put_inline(&mut self, opcode: Opcode<'_>, bytes: &[&[u8]]) -> Result<(), Refused> {
        let data = Data::<NoPieces, _>::Inline(bytes.iter().copied());
        self.sends.writing().put(7, SendFlags::SIGNALED, &opcode, None, &data)
    }

    /// Puts a signaled send and shows it.
    pub(super) fn send(&mut self, wr_id: u64) -> Result<Published, Refused> {
        self.put(wr_id, SendFlags::SIGNALED, Opcode::Send, &[PIECE])?;
        Ok(self.sends.publish())
    }

    pub(super) fn receive(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), Refused> {
        self.receives.writing::<false>().put(wr_id, pieces.iter())?;
        self.receives.publish();
        Ok(())
    }

    /// The contents of a slot of the send queue.
    pub(super) fn slot(&self, number: u32) -> Sqe {
        let mut slot = Sqe::new_zeroed();
        assert!(self.sq.read((number % ENTRIES) as usize * size_of::<Sqe>(), slot.as_mut_bytes()));
        slot
    }

    /// The kernel takes the next send, if there is one, and gives its slot back.
    pub(super) fn take_send(&mut self) -> Option<Sqe> {
        let slot = self.slot(self.sent);
        let is_there = slot.flags & WQE_VALID != 0;
        is_there.then(|| {
            self.sq.store((self.sent % ENTRIES) as usize * size_of::<Sqe>() + FLAG, 0, Ordering::Release);
            self.sent += 1;
            slot
        })
    }

    pub(super) fn take_receive(&mut self) -> Option<Rqe> {
        let at = (self.received % ENTRIES) as usize * size_of::<Rqe>();
        let mut slot = Rqe::new_zeroed();
        assert!(self.rq.read(at, slot.as_mut_bytes()));
        (slot.flags == WQE_VALID).then(|| {
            self.rq.store(at + FLAG, 0, Ordering::Release);
            self.received += 1;
            slot
        })
    }

    /// The kernel writes a completion. False if the entry does not belong to the kernel.
    pub(super) fn complete(&mut self, entry: Cqe) -> bool {
        let at = (self.written % ENTRIES) as usize * size_of::<Cqe>();
        let is_free = self.cq.load(at + FLAG, Ordering::Acquire).to_ne_bytes()[0] == 0;
        if is_free {
            assert!(self.cq.write(at, entry.as_bytes()));
            self.written += 1;
        }
        is_free
    }

    pub(super) fn poll(&mut self) -> Vec<Wc> {
        let mut places = [Extended::default(); 8];
        let found = self.queue.take(&mut places, || true);
        places[..found].iter().map(|place| place.wc).collect()
    }

    /// The word by which events are requested.
    pub(super) fn alarm(&self) -> u32 {
        self.cq.load(ENTRIES as usize * size_of::<Cqe>(), Ordering::Relaxed)
    }
}

pub(super) const PIECE: Sge = Sge { addr: 0x1122_3344_5566_7788, length: 100, lkey: 0x2a01 };

/// The entry of a completion.
pub(super) fn entry(id: u64, opcode: u8, status: u16) -> Cqe {
    Cqe { id, flags: WQE_VALID as u8, opcode, status, bytes: 9, imm_data: 0, qp_id: NUMBER.into() }
}
