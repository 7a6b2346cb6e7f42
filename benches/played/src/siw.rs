//! Software iWARP: what libsiw and this workspace's driver ask of it, and its rings.
//!
//! The kernel allocates the rings. A flag of each entry says who has it, and neither side has an index. The doorbell of sends is a command:
//! requests that were posted without one end the program. The layouts are those of `uverbs_abi::siw`.

use std::collections::BTreeMap;

use nix::errno::Errno;
use uverbs_abi::ids::{cq, qp, srq};
use uverbs_abi::siw::{
    AllocCtxResp, Cqe, CreateCqResp, CreateQpResp, CreateSrqResp, MAX_INLINE, MAX_SGE, OP_READ, OP_RECEIVE,
    OP_SEND, OP_WRITE, RegMrReq, RegMrResp, Rqe, Sqe, WQE_INLINE, WQE_SIGNALLED, WQE_VALID,
};
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QpCap;
use zerocopy::{FromBytes, FromZeros};

use crate::command::Call;
use crate::fail;
use crate::memory::{load_u16, read, store_u8, store_u16, write};
use crate::objects::{Card, refuse};

/// Where the flags are in every entry.
const FLAGS: u64 = 8;

/// The rings of a device by their offsets in its file, and its objects by their handles.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    rings: BTreeMap<u64, Ring>,
    /// The rings of completion queues and of shared queues.
    queues: BTreeMap<u32, u64>,
    pairs: BTreeMap<u32, Pair>,
}

#[derive(Debug)]
struct Ring {
    /// Where the program has mapped it.
    at: u64,
    size: u64,
    entries: u32,
    next: u32,
}

#[derive(Clone, Debug)]
struct Pair {
    number: u32,
    sends: u64,
    receives: u64,
    /// The program has announced what it has posted.
    is_announced: bool,
    send_queue: u32,
    receive_queue: u32,
}

impl Card for Warp {
    fn open(&mut self, call: &Call) -> Result<(), Errno> {
        call.driver_output(&AllocCtxResp::new_zeroed());
        Ok(())
    }

    fn create_queue(&mut self, call: &Call, handle: u32) -> Result<u32, Errno> {
        let wanted = call.value(cq::create::CQE).ok_or(Errno::EINVAL)? as u32;
        let (key, entries) = self.ring::<Cqe>(wanted);
        self.queues.insert(handle, key);
        call.driver_output(&CreateCqResp { cq_id: handle, num_cqe: entries, cq_key: key });
        Ok(entries)
    }

    fn create_shared(&mut self, call: &Call, handle: u32) -> Result<(), Errno> {
        let wanted = call.value(srq::create::MAX_WR).ok_or(Errno::EINVAL)? as u32;
        let (key, entries) = self.ring::<Rqe>(wanted);
        self.queues.insert(handle, key);
        call.driver_output(&CreateSrqResp { num_rqe: entries, pad: 0, srq_key: key });
        Ok(())
    }

    fn create_pair(&mut self, call: &Call, handle: u32, cap: &mut QpCap) -> Result<(), Errno> {
        let [kind, send_queue, receive_queue] =
            [qp::create::TYPE, qp::create::SEND_CQ_HANDLE, qp::create::RECV_CQ_HANDLE]
                .map(|id| call.value(id).unwrap_or_default() as u32);
        if kind as u8 != qp_type::RC {
            return refuse("a queue pair of this type", Errno::EOPNOTSUPP);
        }
        let most = MAX_SGE as u32;
        if cap.max_send_sge.max(cap.max_recv_sge) > most || cap.max_inline_data > MAX_INLINE as u32 {
            return refuse(&format!("a queue pair with {cap:?}"), Errno::EINVAL);
        }
        cap.max_inline_data = MAX_INLINE as u32;
        let (sq_key, num_sqe) = self.ring::<Sqe>(cap.max_send_wr);
        let shared = call.value(qp::create::SRQ_HANDLE).map(|handle| self.queue(handle as u32));
        let (rq_key, num_rqe) = match shared {
            // siw_create_qp, siw_verbs.c, Linux 6.1. libsiw refuses the key that means that there is no ring.
            Some(_) => (0, 0),
            None => self.ring::<Rqe>(cap.max_recv_wr),
        };
        let pair = Pair {
            number: handle,
            sends: sq_key,
            receives: shared.unwrap_or(rq_key),
            is_announced: false,
            send_queue,
            receive_queue,
        };
        self.pairs.insert(handle, pair);
        call.driver_output(&CreateQpResp { qp_id: handle, num_sqe, num_rqe, pad: 0, sq_key, rq_key });
        Ok(())
    }

    fn destroy_pair(&mut self, handle: u32) {
        self.pairs.remove(&handle);
    }

    fn domain(&mut self, _: &Call, _: u32) {}

    fn region(&mut self, call: &Call, key: u32) -> u32 {
        // siw_reg_user_mr, siw_verbs.c, Linux 6.1: the low byte is the program's.
        let stag = key | call.driver_input::<RegMrReq>().map_or(0, |request| request.stag_key.into());
        call.driver_output(&RegMrResp { stag, pad: 0 });
        stag
    }

    fn mapped(&mut self, offset: u64, address: u64) {
        let ring = self.rings.get_mut(&offset);
        ring.unwrap_or_else(|| fail("memory that does not exist is mapped")).at = address;
    }

    fn ring(&mut self, handle: u32) {
        let pair = self.pairs.get_mut(&handle);
        pair.unwrap_or_else(|| fail("a doorbell of no queue pair")).is_announced = true;
    }

    fn play(&mut self) {
        let pairs: Vec<_> = self.pairs.values().cloned().collect();
        for pair in pairs {
            while let Some((at, request)) = self.take::<Sqe>(pair.sends) {
                if !pair.is_announced {
                    fail("requests without a doorbell");
                }
                self.execute(&pair, at, &request);
            }
            if let Some(pair) = self.pairs.get_mut(&pair.number) {
                pair.is_announced = false;
            }
        }
    }
}

impl Warp {
    /// Creates a ring for so many entries. Returns its offset, and how many it has.
    fn ring<T>(&mut self, wanted: u32) -> (u64, u32) {
        let entries = wanted.next_power_of_two();
        let offset = (self.rings.len() as u64 + 1) << 20;
        self.rings.insert(offset, Ring { at: 0, size: size_of::<T>() as u64, entries, next: 0 });
        (offset, entries)
    }

    fn queue(&self, handle: u32) -> u64 {
        *self.queues.get(&handle).unwrap_or_else(|| fail("a queue that does not exist"))
    }

    fn next(&mut self, key: u64) -> (&mut Ring, u64) {
        let ring = self.rings.get_mut(&key).unwrap_or_else(|| fail("a ring that does not exist"));
        let at = ring.at + u64::from(ring.next) * ring.size;
        (ring, at)
    }

    /// The next request of a ring, and where it was. Its place can be used again.
    fn take<T: FromBytes>(&mut self, key: u64) -> Option<(u64, T)> {
        let (ring, at) = self.next(key);
        if load_u16(at + FLAGS) & WQE_VALID == 0 {
            return None;
        }
        ring.next = (ring.next + 1) % ring.entries;
        let request = read(at);
        store_u16(at + FLAGS, 0);
        Some((at, request))
    }

    fn execute(&mut self, pair: &Pair, at: u64, request: &Sqe) {
        // The length of inline data is that of the first piece, and the number of pieces means nothing (siw_activate_tx, siw_qp.c,
        // Linux 6.1): libsiw leaves there how many pieces the program gave.
        let is_inline = request.flags & WQE_INLINE != 0;
        let count = if is_inline { 1 } else { usize::from(request.num_sge) };
        if count > MAX_SGE || is_inline && request.sge[0].length > MAX_INLINE as u32 {
            fail(&format!("a request at {at:#x}: {request:?}"));
        }
        let bytes: u32 = request.sge[..count].iter().map(|piece| piece.length).sum();
        if ![OP_SEND, OP_WRITE, OP_READ].contains(&request.opcode) {
            fail(&format!("a request with opcode {}", request.opcode));
        }
        if request.flags & WQE_SIGNALLED != 0 {
            let (id, opcode, qp_id) = (request.id, request.opcode, pair.number.into());
            self.push(pair.send_queue, Cqe { id, opcode, bytes, qp_id, ..Cqe::new_zeroed() });
        }
        if request.opcode != OP_SEND {
            return;
        }
        // Every queue pair is connected to itself.
        let receive = self.take::<Rqe>(pair.receives);
        let (_, receive) = receive.unwrap_or_else(|| fail("a message without a receive"));
        let pieces = receive.sge.get(..receive.num_sge.into()).unwrap_or_default();
        let room: u32 = pieces.iter().map(|piece| piece.length).sum();
        if room < bytes {
            fail(&format!("a message of {bytes} bytes for a receive of {room}"));
        }
        let (id, opcode, qp_id) = (receive.id, OP_RECEIVE, pair.number.into());
        self.push(pair.receive_queue, Cqe { id, opcode, bytes, qp_id, ..Cqe::new_zeroed() });
    }

    fn push(&mut self, queue: u32, entry: Cqe) {
        let (ring, at) = self.next(self.queue(queue));
        ring.next = (ring.next + 1) % ring.entries;
        if read::<u8>(at + FLAGS) & WQE_VALID as u8 != 0 {
            fail("a full completion queue");
        }
        write(at, entry);
        store_u8(at + FLAGS, WQE_VALID as u8);
    }
}
