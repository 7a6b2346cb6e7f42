//! Soft-RoCE: what librxe and this workspace's driver ask of it, and its rings.
//!
//! The kernel allocates the rings, and both sides have their indices in them. The doorbell of sends is a command: what was posted without
//! one stays where it is, so that a measurement without doorbells shows. The layouts are those of `uverbs_abi::rxe`.

use std::collections::BTreeMap;

use nix::errno::Errno;
use uverbs_abi::ids::{cq, qp, srq};
use uverbs_abi::rxe::{
    CreateAhResp, CreateCqResp, CreateQpResp, CreateSrqResp, DmaInfo, Mminfo, QueueBuf, RecvWqe, SendWqe,
    Sge, UdWr,
};
use uverbs_abi::types::{SendFlags, qp_type, wc_opcode, wr_opcode};
use uverbs_abi::write::{QpCap, Wc};
use zerocopy::{FromBytes, FromZeros};

use crate::command::Call;
use crate::fail;
use crate::memory::{load_u32, read, store_u32, write};
use crate::objects::{Card, refuse};

/// Places of the indices in a ring's head.
const PRODUCER: u64 = 128;
const CONSUMER: u64 = 256;
/// The least size of a slot (`rxe_queue_init`, rxe_queue.c, Linux 6.1).
const LEAST: usize = 64;
/// The header before a received datagram.
const GLOBAL_HEADER: u32 = 40;

/// The rings of a device by their offsets in its file, and its objects by their handles.
#[derive(Debug, Default)]
pub(crate) struct Soft {
    rings: BTreeMap<u64, Ring>,
    /// The rings of completion queues and of shared queues.
    queues: BTreeMap<u32, u64>,
    pairs: BTreeMap<u32, Pair>,
}

#[derive(Debug)]
struct Ring {
    /// Where the program has mapped it.
    at: u64,
    shift: u32,
    mask: u32,
}

#[derive(Clone, Debug)]
struct Pair {
    number: u32,
    is_datagrams: bool,
    sends: u64,
    receives: u64,
    /// The index up to which the program has announced requests.
    announced: u32,
    send_queue: u32,
    receive_queue: u32,
}

impl Card for Soft {
    fn open(&mut self, _: &Call) -> Result<(), Errno> {
        Ok(())
    }

    fn create_queue(&mut self, call: &Call, handle: u32) -> Result<u32, Errno> {
        let entries = call.value(cq::create::CQE).ok_or(Errno::EINVAL)? as u32;
        let mi = self.ring(entries, size_of::<Wc>());
        self.queues.insert(handle, mi.offset);
        call.driver_output(&CreateCqResp { mi });
        Ok(self.rings[&mi.offset].mask)
    }

    fn create_shared(&mut self, call: &Call, handle: u32) -> Result<(), Errno> {
        let [requests, pieces] =
            [srq::create::MAX_WR, srq::create::MAX_SGE].map(|id| call.value(id).unwrap_or_default() as u32);
        let mi = self.ring(requests, size_of::<RecvWqe>() + pieces as usize * size_of::<Sge>());
        self.queues.insert(handle, mi.offset);
        call.driver_output(&CreateSrqResp { mi, srq_num: handle, reserved: 0 });
        Ok(())
    }

    fn create_pair(&mut self, call: &Call, handle: u32, cap: &mut QpCap) -> Result<(), Errno> {
        let [kind, send_queue, receive_queue] =
            [qp::create::TYPE, qp::create::SEND_CQ_HANDLE, qp::create::RECV_CQ_HANDLE]
                .map(|id| call.value(id).unwrap_or_default() as u32);
        let kind = kind as u8;
        if kind != qp_type::RC && kind != qp_type::UD {
            return refuse("a queue pair of this type", Errno::EOPNOTSUPP);
        }
        // rxe_qp_init_req, rxe_qp.c, Linux 6.1.
        let data = (cap.max_send_sge * size_of::<Sge>() as u32).max(cap.max_inline_data);
        (cap.max_send_sge, cap.max_inline_data) = (data / size_of::<Sge>() as u32, data);
        let sq_mi = self.ring(cap.max_send_wr, size_of::<SendWqe>() + data as usize);
        let shared = call.value(qp::create::SRQ_HANDLE).map(|handle| self.queue(handle as u32));
        let size = size_of::<RecvWqe>() + cap.max_recv_sge as usize * size_of::<Sge>();
        let rq_mi = match shared {
            Some(_) => Mminfo::new_zeroed(),
            None => self.ring(cap.max_recv_wr, size),
        };
        let pair = Pair {
            number: handle,
            is_datagrams: kind == qp_type::UD,
            sends: sq_mi.offset,
            receives: shared.unwrap_or(rq_mi.offset),
            announced: 0,
            send_queue,
            receive_queue,
        };
        self.pairs.insert(handle, pair);
        call.driver_output(&CreateQpResp { rq_mi, sq_mi });
        Ok(())
    }

    fn destroy_pair(&mut self, handle: u32) {
        self.pairs.remove(&handle);
    }

    fn address(&mut self, call: &Call, handle: u32) {
        call.driver_output(&CreateAhResp { ah_num: handle, reserved: 0 });
    }

    fn domain(&mut self, _: &Call, _: u32) {}

    fn mapped(&mut self, offset: u64, address: u64) {
        let ring =
            self.rings.get_mut(&offset).unwrap_or_else(|| fail("memory that does not exist is mapped"));
        ring.at = address;
        let head = QueueBuf { log2_elem_size: ring.shift, index_mask: ring.mask, ..QueueBuf::new_zeroed() };
        write(address, head);
    }

    fn ring(&mut self, handle: u32) {
        let pair = self.pairs.get_mut(&handle).unwrap_or_else(|| fail("a doorbell of no queue pair"));
        pair.announced = load_u32(self.rings[&pair.sends].at + PRODUCER);
    }

    fn play(&mut self) {
        let pairs: Vec<_> = self.pairs.values().cloned().collect();
        for pair in pairs {
            if load_u32(self.rings[&pair.sends].at + PRODUCER) != pair.announced {
                fail("requests without a doorbell");
            }
            while let Some(request) = self.rings[&pair.sends].take::<SendWqe>() {
                self.execute(&pair, &request);
            }
        }
    }
}

impl Soft {
    /// Creates a ring for so many entries of `size` bytes.
    fn ring(&mut self, entries: u32, size: usize) -> Mminfo {
        let slots = (entries + 1).next_power_of_two();
        let shift = size.max(LEAST).next_power_of_two().ilog2();
        let offset = (self.rings.len() as u64 + 1) << 12;
        self.rings.insert(offset, Ring { at: 0, shift, mask: slots - 1 });
        Mminfo { offset, size: size_of::<QueueBuf>() as u32 + (slots << shift), pad: 0 }
    }

    fn queue(&self, handle: u32) -> u64 {
        *self.queues.get(&handle).unwrap_or_else(|| fail("a queue that does not exist"))
    }

    fn execute(&mut self, pair: &Pair, request: &(u64, SendWqe)) {
        let (at, SendWqe { wr, dma, .. }) = request;
        let flags = SendFlags::from_bits_retain(wr.send_flags);
        check(dma, at + size_of::<SendWqe>() as u64, flags.contains(SendFlags::INLINE));
        let (opcode, is_message) = match wr.opcode {
            wr_opcode::SEND => (wc_opcode::SEND, true),
            wr_opcode::RDMA_WRITE => (wc_opcode::RDMA_WRITE, false),
            wr_opcode::RDMA_READ => (wc_opcode::RDMA_READ, false),
            opcode => fail(&format!("a request with opcode {opcode}")),
        };
        if flags.contains(SendFlags::SIGNALED) {
            let (wr_id, qp_num, byte_len) = (wr.wr_id, pair.number, dma.length);
            self.push(pair.send_queue, Wc { wr_id, opcode, byte_len, qp_num, ..Wc::new_zeroed() });
        }
        if !is_message {
            return;
        }
        let (mut to, mut byte_len) = (pair.number, dma.length);
        if pair.is_datagrams {
            let part = UdWr::read_from_prefix(&wr.wr).map_or_else(|_| UdWr::new_zeroed(), |(part, _)| part);
            if part.ah_num == 0 {
                fail("a datagram without an address handle");
            }
            (to, byte_len) = (part.remote_qpn, byte_len + GLOBAL_HEADER);
        }
        let to = self.pairs.get(&to).unwrap_or_else(|| fail("a queue pair that does not exist"));
        let receive = self.rings[&to.receives].take::<RecvWqe>();
        let (at, receive) = receive.unwrap_or_else(|| fail("a message without a receive"));
        check(&receive.dma, at + size_of::<RecvWqe>() as u64, false);
        if receive.dma.length < byte_len {
            fail(&format!("a message of {byte_len} bytes for a receive of {}", receive.dma.length));
        }
        let (wr_id, opcode) = (receive.wr_id, wc_opcode::RECV);
        let (qp_num, src_qp, queue) = (to.number, pair.number, to.receive_queue);
        self.push(queue, Wc { wr_id, opcode, byte_len, qp_num, src_qp, port_num: 1, ..Wc::new_zeroed() });
    }

    fn push(&self, queue: u32, entry: Wc) {
        let ring = &self.rings[&self.queue(queue)];
        let producer = load_u32(ring.at + PRODUCER);
        let next = (producer + 1) & ring.mask;
        if next == load_u32(ring.at + CONSUMER) {
            fail("a full completion queue");
        }
        write(ring.slot(producer), entry);
        store_u32(ring.at + PRODUCER, next);
    }
}

impl Ring {
    fn slot(&self, index: u32) -> u64 {
        self.at + size_of::<QueueBuf>() as u64 + (u64::from(index) << self.shift)
    }

    /// The next request, and where it is.
    fn take<T: FromBytes>(&self) -> Option<(u64, T)> {
        let consumer = load_u32(self.at + CONSUMER);
        if consumer == load_u32(self.at + PRODUCER) {
            return None;
        }
        store_u32(self.at + CONSUMER, (consumer + 1) & self.mask);
        let at = self.slot(consumer);
        Some((at, read(at)))
    }
}

/// Ends the program if a request, whose pieces are at `at`, does not agree with itself. Its pieces may have more bytes than it: of
/// `ibv_wr_set_sge_list`, librxe 44 counts the first piece again and again, and of `ibv_wr_set_inline_data_list` it counts no bytes.
fn check(dma: &DmaInfo, at: u64, is_inline: bool) {
    let pieces =
        || (0..u64::from(dma.num_sge)).map(|number| read::<Sge>(at + number * size_of::<Sge>() as u64));
    let length: u32 = if is_inline { dma.length } else { pieces().map(|piece| piece.length).sum() };
    if length < dma.length || dma.resid != dma.length || (dma.cur_sge, dma.sge_offset) != (0, 0) {
        fail(&format!("a request whose pieces have {length} bytes: {dma:?}"));
    }
}
