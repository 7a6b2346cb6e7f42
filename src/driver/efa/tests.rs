//! The queues of efa. The tests act as the device.

#[cfg(feature = "raw")]
mod bound;
mod lies;
mod queues;
mod shapes;
mod straight;

use std::cell::RefCell;
use std::collections::HashMap;

use uverbs_abi::efa::io::{
    CDESC_HAS_IMM, RDMA_READ, RDMA_WRITE, RECV_QUEUE, RxCdescEx, SEND, SEND_QUEUE, TX_OP_TYPE, TX_PHASE,
    TxMetaDesc,
};
use uverbs_abi::efa::{
    AllocUcontextResp, CREATE_CQ_RESP_DB_OFF, CreateCq, CreateCqResp, CreateQp, CreateQpResp,
    ExQueryDeviceResp,
};
use uverbs_abi::types::{QpCreateFlags, SendFlags, qp_state, qp_type};
use uverbs_abi::write::QpCap;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;
use crate::driver::completion::{Completion, Status};
#[cfg(feature = "raw")]
use crate::driver::completion::{Fields, Missed};
#[cfg(feature = "raw")]
use crate::driver::cursor::Told;
use crate::driver::request::{
    ADDRESSED, Data, Destination, NoBytes, NoPieces, Opcode, Refused, Remote, Sge, ToDestination,
};
use crate::driver::ring::RingDevice;
use crate::driver::seam::{CompletionRing, Created, Lower, LowerReceive, ReceiveRing, SendRing};
use crate::driver::{DriverQp, QpShape};
use crate::kernel::mapping::Mapping;
use crate::kernel::mapping::page::page_size;

/// The memory of the kernel and of the device, by the keys with which it is mapped.
#[derive(Default)]
pub(super) struct Memory(RefCell<HashMap<u64, Mapping>>);

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
            Some(memory) if memory.len() >= len => Ok(memory.clone()),
            _ => Err(Error::kernel(op, Errno::EINVAL)),
        }
    }

    fn ring_device(&self, _: Option<u32>) -> Option<Box<dyn RingDevice>> {
        None
    }
}

/// Keys, and the positions of the doorbells in their page.
const CQ: u64 = 0x1000;
const LLQ: u64 = 0x2000;
const RQ: u64 = 0x3000;
const PAGE: u64 = 0x4000;
const CQ_DOORBELL: usize = 0x100;
const SQ_DOORBELL: usize = 0x200;
const RQ_DOORBELL: usize = 0x300;
/// Position of the send ring in its page.
const BEGIN: usize = 0x400;

/// A context of a device whose completion queues have two rings.
pub(super) fn state(change: impl FnOnce(&mut AllocUcontextResp, &mut ExQueryDeviceResp)) -> State {
    let mut answer = AllocUcontextResp {
        sub_cqs_per_cq: 2,
        inline_buf_size: 32,
        inline_buf_size_ex: 80,
        max_llq_size: 1 << 16,
        ..AllocUcontextResp::new_zeroed()
    };
    let mut caps = ExQueryDeviceResp {
        max_sq_sge: 2,
        max_rq_sge: 2,
        max_rdma_size: 1 << 20,
        device_caps: 0x7f,
        ..ExQueryDeviceResp::new_zeroed()
    };
    change(&mut answer, &mut caps);
    let mut state = State::default();
    state.read_limits(answer.as_bytes());
    state.caps.set(Caps(caps)).unwrap();
    state
}

pub(super) fn cap(sends: u32, receives: u32, segments: u32, inline: u32) -> QpCap {
    QpCap {
        max_send_wr: sends,
        max_recv_wr: receives,
        max_send_sge: segments,
        max_recv_sge: segments,
        max_inline_data: inline,
    }
}

pub(super) fn shape(type_: u8, cap: QpCap) -> QpShape {
    let (flags, driver) = (QpCreateFlags::empty(), DriverQp::default());
    QpShape { type_, cap, operations: None, large_header: 0, is_shared: false, flags, driver }
}

fn cq_shape(entries: u32, has_channel: bool) -> CqShape<'static> {
    CqShape { entries, has_channel, memory: None, driver: DriverCq::default() }
}

/// A completion queue with four entries in each ring, and its doorbell.
fn queue(state: &State, memory: &Memory) -> Completions {
    let mut plan = state.plan_cq("test", &cq_shape(3, true), memory).unwrap();
    let (request, answer) = plan.payload();
    let request = CreateCq::read_from_bytes(request).unwrap();
    assert_eq!((request.cq_entry_size, request.num_sub_cqs, request.flags), (32, 2, 1));
    let response = CreateCqResp {
        comp_mask: CREATE_CQ_RESP_DB_OFF,
        q_mmap_key: CQ,
        q_mmap_size: 4096,
        db_off: CQ_DOORBELL as u32,
        db_mmap_key: PAGE,
        ..CreateCqResp::new_zeroed()
    };
    answer.copy_from_slice(response.as_bytes());
    let size = plan.asked(0);
    plan.open(Created { op: "test", number: 0, size, kernel: memory }).unwrap()
}

/// A queue pair with one completion queue, and the memory that the device sees.
pub(super) struct Bench {
    pub(super) state: State,
    pub(super) memory: Memory,
    pub(super) queue: Completions,
    pub(super) sends: Sends,
    pub(super) receives: Receives,
    pub(super) cap: QpCap,
    pub(super) slot: usize,
    /// Number of completions that the device has written to each ring.
    written: [u32; 2],
}

const NUMBER: u32 = 0xb08;

impl Bench {
    pub(super) fn of(state: State, type_: u8, wanted: QpCap) -> Self {
        let memory = Memory::default();
        for (key, len) in [(CQ, 4096), (LLQ, 1 << 17), (RQ, 1 << 16), (PAGE, page_size())] {
            memory.put(key, len);
        }
        let queue = queue(&state, &memory);
        let (sends, receives, cap, slot) = Self::pair(&state, &memory, &queue, type_, wanted);
        Self { state, memory, queue, sends, receives, cap, slot, written: [0; 2] }
    }

    fn pair(
        state: &State,
        memory: &Memory,
        queue: &Completions,
        type_: u8,
        wanted: QpCap,
    ) -> (Sends, Receives, QpCap, usize) {
        let sides = Sides { queues: [&queue.side(), &queue.side()], shared: None };
        let mut plan = state.plan_qp("test", &shape(type_, wanted), sides, memory).unwrap();
        let (request, answer) = plan.payload();
        let request = CreateQp::read_from_bytes(request).unwrap();
        let response = CreateQpResp {
            rq_db_offset: RQ_DOORBELL as u32,
            sq_db_offset: SQ_DOORBELL as u32,
            llq_desc_offset: BEGIN as u32,
            rq_mmap_key: RQ,
            rq_mmap_size: 1 << 16,
            rq_db_mmap_key: PAGE,
            sq_db_mmap_key: PAGE,
            llq_desc_mmap_key: LLQ,
            ..CreateQpResp::new_zeroed()
        };
        answer.copy_from_slice(response.as_bytes());
        assert_eq!(request.rq_ring_size % 16, 0);
        let made = Created { op: "test", number: NUMBER, size: wanted, kernel: memory };
        let QpQueues { sends, receives, cap, .. } = plan.open(made).unwrap();
        let slot = request.sq_ring_size as usize / cap.max_send_wr as usize;
        (sends, receives.unwrap(), cap, slot)
    }

    /// A queue pair for reliable datagrams that can send and receive, with four sends and four receives.
    pub(super) fn ready() -> Self {
        let mut bench = Self::of(state(|_, _| {}), qp_type::DRIVER, cap(4, 4, 2, 0));
        bench.bring_up();
        bench
    }

    pub(super) fn bring_up(&mut self) {
        for state in [qp_state::INIT, qp_state::RTR, qp_state::RTS] {
            self.sends.enter(state);
            self.receives.enter(state);
        }
    }

    fn map(&self, key: u64) -> Mapping {
        self.memory.0.borrow()[&key].clone()
    }

    fn doorbell(&self, at: usize) -> u32 {
        u32::from_le(self.map(PAGE).load(at, std::sync::atomic::Ordering::Relaxed))
    }

    /// The slot with this index in the device's ring.
    fn sent(&self, index: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.slot];
        assert!(self.map(LLQ).read(BEGIN + index * self.slot, &mut bytes));
        bytes
    }

    fn head(&self, index: usize) -> TxMetaDesc {
        TxMetaDesc::read_from_prefix(&self.sent(index)).unwrap().0
    }

    /// The piece with this index of the receive ring.
    fn received(&self, index: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        assert!(self.map(RQ).read(index * 16, &mut bytes));
        bytes
    }

    /// Writes an entry to a ring, as the device does.
    pub(super) fn write(&mut self, ring: usize, mut entry: RxCdescEx) {
        let written = &mut self.written[ring];
        let phase = u8::from(*written & 4 == 0);
        entry.base.common.flags = entry.base.common.flags & !1 | phase;
        let at = ring * 4 * 32 + (*written & 3) as usize * 32;
        *written += 1;
        let map = self.map(CQ);
        assert!(map.write(at, entry.as_bytes()));
    }

    /// Completes the send with this number.
    pub(super) fn complete(&mut self, ring: usize, number: u16, status: u8) {
        self.write(ring, entry(SEND_QUEUE, SEND, number, status));
    }

    /// Completes the receive with this number.
    pub(super) fn deliver(&mut self, ring: usize, number: u16, change: impl FnOnce(&mut RxCdescEx)) {
        let mut entry = entry(RECV_QUEUE, SEND, number, 0);
        change(&mut entry);
        self.write(ring, entry);
    }

    pub(super) fn poll(&mut self) -> Vec<Completion> {
        let mut batch = Completion::batch::<16>();
        let count = self.queue.poll(&mut batch, || true);
        batch[..count].to_vec()
    }

    pub(super) fn wr_ids(&mut self) -> Vec<u64> {
        self.poll().iter().map(|completion| completion.wr_id).collect()
    }

    /// Posts a message of one piece. Returns its number.
    pub(super) fn send(&mut self, wr_id: u64) -> std::result::Result<u16, Refused> {
        self.put(wr_id, Opcode::Send, &[PIECE])?;
        let at = self.sends_so_far() as usize & (self.cap.max_send_wr as usize - 1);
        self.sends.publish();
        Ok(self.head(at).req_id.get())
    }

    /// Number of sends that were announced.
    fn sends_so_far(&self) -> u32 {
        self.doorbell(SQ_DOORBELL)
    }

    fn put(&mut self, wr_id: u64, opcode: Opcode<'_>, pieces: &[Sge]) -> std::result::Result<(), Refused> {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        self.sends.one::<true, ADDRESSED>().put(
            wr_id,
            SendFlags::SIGNALED,
            &ToDestination(opcode, TO),
            None,
            &data,
        )
    }

    fn put_inline(
        &mut self,
        wr_id: u64,
        opcode: Opcode<'_>,
        bytes: &[u8],
    ) -> std::result::Result<(), Refused> {
        let data = Data::<NoPieces, _>::Inline(std::iter::once(bytes));
        self.sends.one::<true, ADDRESSED>().put(
            wr_id,
            SendFlags::SIGNALED,
            &ToDestination(opcode, TO),
            None,
            &data,
        )
    }

    /// Posts a receive of these pieces. Returns its number.
    pub(super) fn receive(&mut self, wr_id: u64, pieces: &[Sge]) -> std::result::Result<u16, Refused> {
        let at = self.doorbell(RQ_DOORBELL) as usize;
        self.receives.staging().put(wr_id, pieces.iter())?;
        self.receives.publish();
        let piece = self.received(at & (self.cap.max_recv_wr as usize * 2 - 1));
        Ok(u16::from_le_bytes([piece[8], piece[9]]))
    }
}

pub(super) fn entry(queue: u8, operation: u8, number: u16, status: u8) -> RxCdescEx {
    let mut entry = RxCdescEx::new_zeroed();
    let common = &mut entry.base.common;
    (common.req_id, common.status, common.qp_num) = (number.into(), status, (NUMBER as u16).into());
    common.flags = queue << 1 | operation << 4;
    entry
}

pub(super) const PIECE: Sge = Sge { addr: 0x0c0b_0a09_0807_0605, length: 0x400, lkey: 0xff00_0137 };
const REMOTE: Remote = Remote { address: 0x1122_3344_5566_7788, rkey: 0x4000_0240 };
const TO: Destination =
    Destination { ah: Address { number: 1, vector: [0; 9] }, qp_num: 0xb08, qkey: 0x1111_1111 };
