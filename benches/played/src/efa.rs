//! An EFA: what libefa and this workspace's driver ask of it, and its queues.
//!
//! The layouts are those of `uverbs_abi::efa`, and the limits those of the virtual EFA of `tests/vefa`. The kernel allocates all memory, and
//! the program maps it. Doorbells are plain memory: nobody looks at one before the program waits, and then it must be as far as the requests.

use std::collections::BTreeMap;

use nix::errno::Errno;
use uverbs_abi::efa::io::{
    CDESC_OP_TYPE, CDESC_PHASE, CDESC_Q_TYPE, CdescCommon, RDMA_READ, RDMA_WRITE, RECV_QUEUE, RX_FIRST,
    RX_LAST, RemoteMemAddr, RxCdesc, RxCdescEx, RxDesc, SEND, SEND_QUEUE, TX_COMP_REQ, TX_FIRST,
    TX_INLINE_MSG, TX_LAST, TX_META_DESC, TX_OP_TYPE, TX_PHASE, TxBufDesc, TxMetaDesc,
};
use uverbs_abi::efa::{
    AllocPdResp, AllocUcontextResp, CREATE_CQ_RESP_DB_OFF, CreateAhResp, CreateCq, CreateCqResp, CreateQp,
    CreateQpResp, ExQueryDeviceResp, QUERY_DEVICE_CAPS_RDMA_READ, QUERY_DEVICE_CAPS_RDMA_WRITE,
    USER_CMDS_SUPP_UDATA_CREATE_AH, USER_CMDS_SUPP_UDATA_QUERY_DEVICE,
};
use uverbs_abi::ids::{cq, qp};
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QpCap;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::command::Call;
use crate::fail;
use crate::memory::{load_u32, read, store_u32, write};
use crate::objects::{Card, refuse};

/// Rings of a completion queue. The sends of a queue pair complete in one of them, its receives in the other, in turn.
const RINGS: u16 = 2;
/// Bytes that a doorbell of sends may announce at once, in units of 64.
const BATCH: u16 = 16;
/// The least depth of a send queue.
const LEAST: u16 = 16;
const LARGEST_RING: u32 = 128 << 10;
const PAGE: u64 = 4096;
/// Bytes of a slot, narrow or wide, and of inline data in it.
const NARROW: u32 = 64;
const WIDE: u32 = 128;
const INLINE: u16 = 32;
const WIDE_INLINE: u16 = 80;
/// Where data begins in a slot, and where the piece of a read or write does.
const DATA: u64 = size_of::<TxMetaDesc>() as u64;
const REMOTE_DATA: u64 = DATA + size_of::<RemoteMemAddr>() as u64;
const PIECE: u64 = size_of::<RxDesc>() as u64;
/// The header before a received datagram.
const GLOBAL_HEADER: u32 = 40;

/// The memory that the program has mapped, by its offset in the device file; and queues by their handles.
#[derive(Debug, Default)]
pub(crate) struct Adapter {
    mapped: BTreeMap<u64, u64>,
    offsets: u64,
    queues: BTreeMap<u32, Completions>,
    pairs: BTreeMap<u32, Pair>,
    /// Queue pairs that were ever created.
    created: u16,
}

#[derive(Debug)]
struct Completions {
    ring: u64,
    entries: u32,
    size: u32,
    /// Entries that were written, of each ring.
    written: [u32; RINGS as usize],
}

#[derive(Clone, Debug)]
struct Pair {
    number: u32,
    is_datagrams: bool,
    /// Where rings and doorbells are mapped.
    sends: u64,
    send_doorbell: u64,
    receives: u64,
    receive_doorbell: u64,
    slot: u32,
    depth: u32,
    places: u32,
    sent: u16,
    received: u16,
    /// The completion queues, and which of their rings.
    send_queue: (u32, u16),
    receive_queue: (u32, u16),
}

impl Card for Adapter {
    fn open(&mut self, call: &Call) -> Result<(), Errno> {
        call.driver_output(&AllocUcontextResp {
            cmds_supp_udata_mask: USER_CMDS_SUPP_UDATA_QUERY_DEVICE | USER_CMDS_SUPP_UDATA_CREATE_AH,
            sub_cqs_per_cq: RINGS,
            inline_buf_size: INLINE,
            max_llq_size: LARGEST_RING,
            max_tx_batch: BATCH,
            min_sq_wr: LEAST,
            inline_buf_size_ex: WIDE_INLINE,
            ..AllocUcontextResp::new_zeroed()
        });
        Ok(())
    }

    fn query(&mut self, call: &Call) {
        call.driver_output(&ExQueryDeviceResp {
            max_sq_wr: 2048,
            max_rq_wr: 8192,
            max_sq_sge: 2,
            max_rq_sge: 3,
            max_rdma_size: 1 << 20,
            device_caps: QUERY_DEVICE_CAPS_RDMA_READ | QUERY_DEVICE_CAPS_RDMA_WRITE,
            ..ExQueryDeviceResp::new_zeroed()
        });
    }

    fn create_queue(&mut self, call: &Call, handle: u32) -> Result<u32, Errno> {
        let request: CreateCq = call.driver_input()?;
        let entries = call.value(cq::create::CQE).ok_or(Errno::EINVAL)? as u32;
        if !entries.is_power_of_two()
            || request.num_sub_cqs != RINGS
            || ![size_of::<RxCdesc>(), size_of::<RxCdescEx>()].contains(&(request.cq_entry_size as usize))
        {
            return refuse(&format!("a completion queue of {entries}: {request:?}"), Errno::EINVAL);
        }
        let size = request.cq_entry_size;
        let [ring, doorbell] = [self.offset(), self.offset()];
        self.queues.insert(handle, Completions { ring, entries, size, written: [0; RINGS as usize] });
        call.driver_output(&CreateCqResp {
            comp_mask: CREATE_CQ_RESP_DB_OFF,
            q_mmap_key: ring,
            q_mmap_size: u64::from(u32::from(RINGS) * entries * size).next_multiple_of(PAGE),
            cq_idx: handle as u16,
            db_mmap_key: doorbell,
            ..CreateCqResp::new_zeroed()
        });
        Ok(entries)
    }

    fn create_pair(&mut self, call: &Call, handle: u32, cap: &mut QpCap) -> Result<(), Errno> {
        let request: CreateQp = call.driver_input()?;
        let [kind, send_queue, receive_queue] =
            [qp::create::TYPE, qp::create::SEND_CQ_HANDLE, qp::create::RECV_CQ_HANDLE]
                .map(|id| call.value(id).unwrap_or_default() as u32);
        let kind = kind as u8;
        if kind != qp_type::DRIVER && kind != qp_type::UD {
            return refuse("a queue pair of this type", Errno::EOPNOTSUPP);
        }
        let depth = cap.max_send_wr.next_power_of_two();
        let slot = request.sq_ring_size / depth;
        let inline = match slot {
            NARROW => INLINE,
            WIDE => WIDE_INLINE,
            _ => 0,
        };
        if inline == 0 || cap.max_inline_data > inline.into() || request.sq_ring_size > LARGEST_RING {
            return refuse(&format!("a queue pair with {cap:?}: {request:?}"), Errno::EINVAL);
        }
        let [sends, send_doorbell, receives, receive_doorbell] = [(); 4].map(|()| self.offset());
        let pair = Pair {
            number: handle,
            is_datagrams: kind == qp_type::UD,
            sends,
            send_doorbell,
            receives,
            receive_doorbell,
            slot,
            depth,
            places: request.rq_ring_size / PIECE as u32,
            sent: 0,
            received: 0,
            send_queue: (send_queue, self.created % RINGS),
            receive_queue: (receive_queue, (self.created + 1) % RINGS),
        };
        self.created += 1;
        call.driver_output(&CreateQpResp {
            rq_mmap_key: receives,
            rq_mmap_size: u64::from(request.rq_ring_size).next_multiple_of(PAGE),
            rq_db_mmap_key: receive_doorbell,
            sq_db_mmap_key: send_doorbell,
            llq_desc_mmap_key: sends,
            send_sub_cq_idx: pair.send_queue.1,
            recv_sub_cq_idx: pair.receive_queue.1,
            ..CreateQpResp::new_zeroed()
        });
        self.pairs.insert(handle, pair);
        Ok(())
    }

    fn destroy_pair(&mut self, handle: u32) {
        self.pairs.remove(&handle);
    }

    fn address(&mut self, call: &Call, handle: u32) {
        call.driver_output(&CreateAhResp { efa_address_handle: handle as u16, ..CreateAhResp::new_zeroed() });
    }

    fn domain(&mut self, call: &Call, handle: u32) {
        call.driver_output(&AllocPdResp { pdn: handle as u16, ..AllocPdResp::new_zeroed() });
    }

    fn mapped(&mut self, offset: u64, address: u64) {
        self.mapped.insert(offset, address);
    }

    fn play(&mut self) {
        let handles: Vec<_> = self.pairs.keys().copied().collect();
        for handle in handles {
            while let Some(pair) = self.pairs.get(&handle).cloned() {
                if load_u32(self.at(pair.send_doorbell)) as u16 == pair.sent {
                    break;
                }
                self.execute(&pair);
            }
        }
    }
}

impl Adapter {
    /// The offset of new memory.
    fn offset(&mut self) -> u64 {
        self.offsets += 1 << 20;
        self.offsets
    }

    fn at(&self, offset: u64) -> u64 {
        *self.mapped.get(&offset).unwrap_or_else(|| fail("memory that was not mapped"))
    }

    fn pair(&mut self, number: u32) -> &mut Pair {
        self.pairs.get_mut(&number).unwrap_or_else(|| fail("a queue pair that does not exist"))
    }

    /// Executes the next request.
    fn execute(&mut self, pair: &Pair) {
        let (round, place) = (u32::from(pair.sent) / pair.depth, u32::from(pair.sent) % pair.depth);
        let at = self.at(pair.sends) + u64::from(place * pair.slot);
        let head: TxMetaDesc = read(at);
        let (phase, whole) = (round as u8 & TX_PHASE, TX_FIRST | TX_LAST);
        if head.ctrl1 & TX_META_DESC == 0 || head.ctrl2 & (TX_PHASE | whole) != phase | whole {
            fail(&format!("request {} of queue pair {}: {head:?}", pair.sent, pair.number));
        }
        self.pair(pair.number).sent = pair.sent.wrapping_add(1);
        let operation = head.ctrl1 & TX_OP_TYPE;
        let length = check(&head, at, pair);
        if head.ctrl2 & TX_COMP_REQ != 0 {
            let (common, base) = (common(&head.req_id, SEND_QUEUE, operation, pair), RxCdesc::new_zeroed());
            self.push(pair.send_queue, RxCdesc { common, ..base });
        }
        if operation != SEND {
            return;
        }
        let length = length + if pair.is_datagrams { GLOBAL_HEADER } else { 0 };
        let to = self.pair(head.dest_qp_num.get().into()).clone();
        let number = self.receive(&to, length);
        let base = RxCdesc {
            common: common(&number, RECV_QUEUE, SEND, &to),
            length: (length as u16).into(),
            ah: head.ah,
            src_qp_num: (pair.number as u16).into(),
            imm: 0.into(),
        };
        self.push(to.receive_queue, base);
    }

    /// Takes a receive for a message. Returns its number.
    fn receive(&mut self, to: &Pair, length: u32) -> U16 {
        let (posted, ring) = (load_u32(self.at(to.receive_doorbell)) as u16, self.at(to.receives));
        let (mut taken, mut room, mut number) = (to.received, 0, None::<U16>);
        let number = loop {
            if taken == posted {
                fail("a message without a receive");
            }
            let piece: RxDesc = read(ring + u64::from(u32::from(taken) % to.places) * PIECE);
            let marks = piece.lkey_ctrl.get();
            if (marks & RX_FIRST == 0) != number.is_some() {
                fail(&format!("piece {taken} of the receives of queue pair {}: {piece:?}", to.number));
            }
            taken = taken.wrapping_add(1);
            room += u32::from(piece.length.get());
            let first = *number.get_or_insert(piece.req_id);
            if marks & RX_LAST != 0 {
                break first;
            }
        };
        if room < length {
            fail(&format!("a message of {length} bytes for a receive of {room}"));
        }
        self.pair(to.number).received = taken;
        number
    }

    /// Writes a completion into a ring of a queue.
    fn push(&mut self, (queue, ring): (u32, u16), mut entry: RxCdesc) {
        let ring = usize::from(ring);
        let queue = self.queues.get_mut(&queue).unwrap_or_else(|| fail("no such completion queue"));
        let (round, place) = (queue.written[ring] / queue.entries, queue.written[ring] % queue.entries);
        queue.written[ring] = queue.written[ring].wrapping_add(1);
        entry.common.flags |= (round + 1) as u8 & CDESC_PHASE;
        let (begin, place) = (queue.ring, (ring as u32 * queue.entries + place) * queue.size);
        let at = self.at(begin) + u64::from(place);
        // The word with the phase gives the entry to the program.
        let (word, rest) = u32::read_from_prefix(entry.as_bytes()).unwrap_or_else(|_| fail("a short entry"));
        let rest = <[u8; 12]>::read_from_bytes(rest).unwrap_or_else(|_| fail("a short entry"));
        write(at + 4, rest);
        store_u32(at, word);
    }
}

/// Ends the program if a request does not agree with itself. Returns how many bytes it has.
fn check(head: &TxMetaDesc, at: u64, pair: &Pair) -> u32 {
    let (operation, count) = (head.ctrl1 & TX_OP_TYPE, u32::from(head.length.get()));
    let (is_send, is_inline) = (operation == SEND, head.ctrl1 & TX_INLINE_MSG != 0);
    let data = at + if is_send { DATA } else { REMOTE_DATA };
    let length = if is_inline {
        count
    } else {
        (0..u64::from(count))
            .map(|number| read::<TxBufDesc>(data + number * size_of::<TxBufDesc>() as u64).length.get())
            .sum()
    };
    let most = match (is_inline, is_send) {
        (true, true) if pair.slot == NARROW => INLINE.into(),
        (true, _) => WIDE_INLINE.into(),
        (false, true) => 2,
        (false, false) => 1,
    };
    let is_right = match operation {
        SEND => true,
        RDMA_READ => !pair.is_datagrams && !is_inline,
        RDMA_WRITE => !pair.is_datagrams && (!is_inline || pair.slot == WIDE),
        _ => false,
    };
    if !is_right || count > most || head.ah.get() == 0 {
        fail(&format!("a request: {head:?}"));
    }
    if !is_send && read::<RemoteMemAddr>(at + DATA).length.get() != length {
        fail(&format!("a request of {length} bytes for other remote memory: {head:?}"));
    }
    length
}

/// The begin of a completion, whose phase is not known yet.
fn common(number: &U16, queue: u8, operation: u8, pair: &Pair) -> CdescCommon {
    let shift = |value: u8, part: u8| value << part.trailing_zeros() & part;
    CdescCommon {
        req_id: *number,
        status: 0,
        flags: shift(queue, CDESC_Q_TYPE) | shift(operation, CDESC_OP_TYPE),
        qp_num: (pair.number as u16).into(),
    }
}
