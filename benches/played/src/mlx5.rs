//! A ConnectX: what libmlx5 and this workspace's driver ask of it, and its queues.
//!
//! The layouts are those of `uverbs_abi::mlx5`; the sides that wrote them (libmlx5, and the crate) are measured, so that a wrong one shows.
//! The pages of registers are plain memory: nobody looks at a doorbell before the program waits, and the doorbell record and the register
//! must then agree.

use std::collections::BTreeMap;

use nix::errno::Errno;
use uverbs_abi::ids::{cq, qp, srq};
use uverbs_abi::mlx5::ids::{uar, uar_alloc_type};
use uverbs_abi::mlx5::wqe::{
    CQE_REQ, CQE_RESP_SEND, Cqe64, INLINE_SEG, OPCODE_RDMA_READ, OPCODE_RDMA_WRITE, OPCODE_SEND, SEND_WQE_BB,
    WQE_CTRL_CQ_UPDATE, WqeAv, WqeCtrlSeg, WqeDataSeg, WqeSrqNextSeg,
};
use uverbs_abi::mlx5::{
    ALLOC_UCTX_DEVX, AllocUcontextReqV2, AllocUcontextResp, CreateAhResp, CreateCq, CreateCqResp, CreateQp,
    CreateQpResp, CreateSrq, CreateSrqResp, INVALID_BFREG,
};
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QpCap;
use zerocopy::FromZeros;

use crate::command::Call;
use crate::fail;
use crate::memory::{load_u32, read, store_u8, write};
use crate::objects::{Card, refuse};

const UNIT: u64 = 16;
const BLOCK: u64 = SEND_WQE_BB as u64;
/// The header before a received datagram.
const GLOBAL_HEADER: u32 = 40;

/// The queues of a device, by their handles.
#[derive(Debug, Default)]
pub(crate) struct ConnectX {
    queues: BTreeMap<u32, Completions>,
    shared: BTreeMap<u32, Shared>,
    pairs: BTreeMap<u32, Pair>,
}

#[derive(Debug)]
struct Completions {
    ring: u64,
    entries: u32,
    size: u64,
    record: u64,
    /// Entries that were written.
    written: u32,
}

#[derive(Debug)]
struct Shared {
    ring: u64,
    stride: u64,
    record: u64,
    taken: u16,
    next: u16,
}

#[derive(Debug)]
struct Pair {
    number: u32,
    index: u32,
    is_datagrams: bool,
    sends: u64,
    blocks: u32,
    receives: u64,
    places: u32,
    shift: u32,
    record: u64,
    sent: u16,
    received: u16,
    send_queue: u32,
    receive_queue: u32,
    shared: Option<u32>,
}

impl Card for ConnectX {
    /// Answers the driver's part of GET_CONTEXT, as the virtual ConnectX of `tests/vhca` does: without DEVX and write-combining.
    fn open(&mut self, call: &Call) -> Result<(), Errno> {
        let request: AllocUcontextReqV2 = call.driver_input()?;
        if request.flags & ALLOC_UCTX_DEVX != 0 {
            return refuse("a context with DEVX", Errno::EINVAL);
        }
        call.driver_output(&AllocUcontextResp {
            qp_tab_size: 1 << 17,
            cache_line_size: 64,
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: 1 << 15,
            max_recv_wr: 1 << 15,
            max_srq_recv_wr: 1 << 14,
            num_ports: 1,
            response_length: size_of::<AllocUcontextResp>() as u32,
            cqe_version: 1,
            cmds_supp_uhw: 1,
            eth_min_inline: 1,
            log_uar_size: 12,
            num_uars_per_page: 1,
            num_dyn_bfregs: 1024,
            ..AllocUcontextResp::new_zeroed()
        });
        Ok(())
    }

    fn page(&mut self, call: &Call, handle: u32) -> Result<(), Errno> {
        if call.value(uar::alloc::TYPE) == Some(uar_alloc_type::BF) {
            return refuse("a page with write-combining", Errno::EOPNOTSUPP);
        }
        call.handle(uar::alloc::HANDLE, handle.into());
        call.output(uar::alloc::MMAP_OFFSET, &(u64::from(handle) << 12));
        call.output(uar::alloc::MMAP_LENGTH, &4096_u32);
        call.output(uar::alloc::PAGE_ID, &handle);
        Ok(())
    }

    /// The answer to a new address handle: there is no address of Ethernet to find out.
    fn address(&mut self, call: &Call, _: u32) {
        let response_length = size_of::<CreateAhResp>() as u32;
        call.driver_output(&CreateAhResp { response_length, ..CreateAhResp::new_zeroed() });
    }

    fn create_queue(&mut self, call: &Call, handle: u32) -> Result<u32, Errno> {
        let request: CreateCq = call.driver_input()?;
        let wanted = call.value(cq::create::CQE).ok_or(Errno::EINVAL)? as u32;
        // create_cq_user, cq.c, Linux 6.1.
        let entries = (wanted + 1).next_power_of_two();
        let (ring, record, size) = (request.buf_addr, request.db_addr, request.cqe_size.into());
        self.queues.insert(handle, Completions { ring, entries, size, record, written: 0 });
        call.driver_output(&CreateCqResp { cqn: handle, reserved: 0 });
        Ok(entries - 1)
    }

    fn create_shared(&mut self, call: &Call, handle: u32) -> Result<(), Errno> {
        let request: CreateSrq = call.driver_input()?;
        let segments = call.value(srq::create::MAX_SGE).ok_or(Errno::EINVAL)? as u32;
        // mlx5_ib_create_srq, srq.c, Linux 6.1.
        let stride = ((1 + segments) * UNIT as u32).next_power_of_two().max(32).into();
        let (ring, record) = (request.buf_addr, request.db_addr);
        self.shared.insert(handle, Shared { ring, stride, record, taken: 0, next: 0 });
        call.driver_output(&CreateSrqResp { srqn: handle, reserved: 0 });
        Ok(())
    }

    fn create_pair(&mut self, call: &Call, handle: u32, _: &mut QpCap) -> Result<(), Errno> {
        let request: CreateQp = call.driver_input()?;
        let [kind, send_queue, receive_queue] =
            [qp::create::TYPE, qp::create::SEND_CQ_HANDLE, qp::create::RECV_CQ_HANDLE]
                .map(|id| call.value(id).unwrap_or_default() as u32);
        let kind = kind as u8;
        if kind != qp_type::RC && kind != qp_type::UD {
            return refuse("a queue pair of this type", Errno::EOPNOTSUPP);
        }
        let receives = request.buf_addr;
        self.pairs.insert(
            handle,
            Pair {
                number: handle,
                index: request.uidx,
                is_datagrams: kind == qp_type::UD,
                // The send ring follows the receive ring (prepare_user_qp, qp.c, Linux 6.1).
                sends: receives + (u64::from(request.rq_wqe_count) << request.rq_wqe_shift),
                blocks: request.sq_wqe_count,
                receives,
                places: request.rq_wqe_count,
                shift: request.rq_wqe_shift,
                record: request.db_addr,
                sent: 0,
                received: 0,
                send_queue,
                receive_queue,
                shared: call.value(qp::create::SRQ_HANDLE).map(|handle| handle as u32),
            },
        );
        call.driver_output(&CreateQpResp { bfreg_index: INVALID_BFREG, ..CreateQpResp::new_zeroed() });
        Ok(())
    }

    fn destroy_pair(&mut self, handle: u32) {
        self.pairs.remove(&handle);
    }

    fn play(&mut self) {
        let Self { queues, shared, pairs } = self;
        let handles: Vec<_> = pairs.keys().copied().collect();
        for handle in handles {
            while let Some(message) = pairs.get_mut(&handle).and_then(|pair| pair.execute(queues)) {
                let to =
                    pairs.get_mut(&message.to).unwrap_or_else(|| fail("a queue pair that does not exist"));
                to.receive(message.len, queues, shared);
            }
        }
    }
}

/// A message on its way.
struct Message {
    to: u32,
    len: u32,
}

impl Pair {
    /// Executes requests up to the next message.
    fn execute(&mut self, queues: &mut BTreeMap<u32, Completions>) -> Option<Message> {
        let posted = u32::from_be(load_u32(self.record + 4)) as u16;
        while self.sent != posted {
            let begin = self.sent;
            let at = |unit: u64| {
                self.sends + (u64::from(begin) * BLOCK + unit * UNIT) % (u64::from(self.blocks) * BLOCK)
            };
            let control: WqeCtrlSeg = read(at(0));
            let (first, second) = (control.opmod_idx_opcode.get(), control.qpn_ds.get());
            let (opcode, units) = (first as u8, u64::from(second & 0x3f));
            if (first >> 8) as u16 != begin || second >> 8 != self.number || units == 0 {
                fail(&format!("request {begin} of queue pair {}: {control:?}", self.number));
            }
            self.sent = begin.wrapping_add(units.div_ceil(BLOCK / UNIT) as u16);
            let mut unit = 1;
            let mut to = self.number;
            if self.is_datagrams {
                to = read::<WqeAv>(at(1)).dqp_dct.get() & 0xff_ffff;
                unit += 3;
            } else if opcode != OPCODE_SEND {
                unit += 1;
            }
            let mut len = 0;
            while unit < units {
                let segment: WqeDataSeg = read(at(unit));
                let bytes = segment.byte_count.get();
                len += bytes & !INLINE_SEG;
                unit += if bytes & INLINE_SEG == 0 {
                    1
                } else {
                    (u64::from(bytes & !INLINE_SEG) + 4).div_ceil(UNIT)
                };
            }
            if control.fm_ce_se & WQE_CTRL_CQ_UPDATE != 0 {
                let entry = Cqe64 {
                    srqn_uidx: self.index.into(),
                    byte_cnt: len.into(),
                    sop_drop_qpn: (u32::from(opcode) << 24 | self.number).into(),
                    wqe_counter: begin.into(),
                    ..Cqe64::new_zeroed()
                };
                queue(queues, self.send_queue).push(entry, CQE_REQ);
            }
            match opcode {
                OPCODE_SEND => {
                    return Some(Message {
                        to,
                        len: len + if self.is_datagrams { GLOBAL_HEADER } else { 0 },
                    });
                }
                OPCODE_RDMA_READ | OPCODE_RDMA_WRITE => {}
                _ => fail(&format!("a request with opcode {opcode:#x}")),
            }
        }
        None
    }

    /// Takes a receive for a message.
    fn receive(
        &mut self,
        len: u32,
        queues: &mut BTreeMap<u32, Completions>,
        shared: &mut BTreeMap<u32, Shared>,
    ) {
        let (request, room) = match self.shared {
            Some(handle) => shared.get_mut(&handle).unwrap_or_else(|| fail("no such shared queue")).take(),
            None => {
                if u32::from_be(load_u32(self.record)) as u16 == self.received {
                    fail("a message without a receive");
                }
                let request = self.received;
                self.received = request.wrapping_add(1);
                let place = u64::from(u32::from(request) & (self.places - 1)) << self.shift;
                (request, room(self.receives + place, 1 << self.shift))
            }
        };
        if room < len {
            fail(&format!("a message of {len} bytes for a receive of {room}"));
        }
        let entry = Cqe64 {
            flags_rqpn: self.number.into(),
            srqn_uidx: self.index.into(),
            byte_cnt: len.into(),
            wqe_counter: request.into(),
            ..Cqe64::new_zeroed()
        };
        queue(queues, self.receive_queue).push(entry, CQE_RESP_SEND);
    }
}

/// The bytes that a receive takes, whose pieces begin at `at`.
fn room(at: u64, size: u64) -> u32 {
    (0..size / UNIT)
        .map(|number| read::<WqeDataSeg>(at + number * UNIT))
        .take_while(|segment| segment.lkey.get() != uverbs_abi::mlx5::wqe::INVALID_LKEY)
        .map(|segment| segment.byte_count.get())
        .sum()
}

impl Shared {
    /// The next request, and how many bytes it takes.
    fn take(&mut self) -> (u16, u32) {
        if u32::from_be(load_u32(self.record)) as u16 == self.taken {
            fail("a message without a receive in the shared queue");
        }
        let (request, at) = (self.next, self.ring + u64::from(self.next) * self.stride);
        self.taken = self.taken.wrapping_add(1);
        self.next = read::<WqeSrqNextSeg>(at).next_wqe_index.get();
        (request, room(at + UNIT, self.stride - UNIT))
    }
}

fn queue(queues: &mut BTreeMap<u32, Completions>, handle: u32) -> &mut Completions {
    queues.get_mut(&handle).unwrap_or_else(|| fail("a completion queue that does not exist"))
}

impl Completions {
    fn push(&mut self, entry: Cqe64, opcode: u8) {
        let taken = u32::from_be(load_u32(self.record)) & 0xff_ffff;
        if (self.written & 0xff_ffff).wrapping_sub(taken) & 0xff_ffff >= self.entries {
            fail("a full completion queue");
        }
        let owner = ((self.written / self.entries) & 1) as u8;
        // Of an entry of 128 bytes the second half counts.
        let at = self.ring + u64::from(self.written % self.entries) * self.size + self.size
            - size_of::<Cqe64>() as u64;
        // The byte that gives the entry to the program is the last one.
        write(at, Cqe64 { op_own: read(at + 63), ..entry });
        store_u8(at + 63, opcode << 4 | owner);
        self.written = self.written.wrapping_add(1);
    }
}
