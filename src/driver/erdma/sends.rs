//! The send queue of eRDMA.
//!
//! A request takes one to four slots of 32 bytes, and goes on at the beginning after the last slot. The kernel gives the queue four slots
//! for each request that was asked for, so that many always fit. The number of the slot behind the last request is in the doorbell, and
//! before it in a record in memory.
//!
//! Source: `erdma_push_one_sqe` and `__kick_sq_db`, providers/erdma/erdma_verbs.c, rdma-core 65.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::erdma::{
    MAX_INLINE, MAX_SEND_SGE, MAX_SLOTS, OP_ATOMIC_CAS, OP_ATOMIC_FAA, OP_READ, OP_SEND, OP_SEND_WITH_IMM,
    OP_SEND_WITH_INV, OP_WRITE, OP_WRITE_WITH_IMM, SLOT, SQE_HDR_CE, SQE_HDR_FENCE, SQE_HDR_INLINE,
    SQE_HDR_OPCODE, SQE_HDR_QPN, SQE_HDR_SE, SQE_HDR_SGL_LEN, SQE_HDR_WQEBB_CNT,
};
use uverbs_abi::types::{SendFlags, qp_state, wc_opcode};

use super::track::{Lane, Note, Queues};
use crate::driver::request::{
    Data, FrameHead, InlineParts, NoBytes, NoPieces, Opcode, Refused, Remote, Sge, Terms,
};
use crate::driver::ring::units::Units;
use crate::driver::seam::{Lower, Published, SendRing};
use crate::kernel::mapping::Register;

/// The supported flags of requests.
const KNOWN: SendFlags =
    SendFlags::SIGNALED.union(SendFlags::SOLICITED).union(SendFlags::FENCE).union(SendFlags::INLINE);

/// Half a slot: size of a piece of memory, and of the beginning of a message.
const ITEM: usize = 16;

/// The send queue.
#[derive(Debug)]
pub(crate) struct Sends {
    units: Units,
    queues: Arc<Queues>,
    record: Register,
    doorbell: Register,
    /// The number of the queue pair, in the bits of a request.
    number: u64,
    /// Whether every request has a completion.
    signals_all: bool,
    is_ready: bool,
    /// Not if no sends were asked for.
    has_room: bool,
    /// Numbers of the next slot, of the first one that was not announced, and of the first one of the last request.
    head: u32,
    published: u32,
    last: Last,
    /// The number behind the last request with a completion, and behind the last of those that was announced.
    signaled: u32,
    awaited: u32,
}

/// The last request: its first slot, and what is set again when its data is set.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    begin: u32,
    wr_id: u64,
    operation: Operation,
    /// [`Sends::signaled`] before it.
    signaled: u32,
}

/// An operation, as it is in a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Operation {
    code: u8,
    /// The number of a completion's operation.
    done: u32,
    /// Immediate data or a key, as it is in memory.
    word: u32,
    remote: Option<Remote>,
    /// The numbers of an atomic operation.
    values: [u64; 2],
}

impl Sends {
    pub(super) fn new(
        units: Units,
        queues: Arc<Queues>,
        [record, doorbell]: [Register; 2],
        [signals_all, has_room]: [bool; 2],
    ) -> Self {
        let number = u64::from(queues.track.number) << SQE_HDR_QPN.trailing_zeros() & SQE_HDR_QPN;
        let (is_ready, head, published, last) = (false, 0, 0, Last::default());
        let (signaled, awaited) = (0, 0);
        Self {
            units,
            queues,
            record,
            doorbell,
            number,
            signals_all,
            is_ready,
            has_room,
            head,
            published,
            last,
            signaled,
            awaited,
        }
    }

    fn lane(&self) -> &Lane {
        &self.queues.track.sends
    }

    /// Writes a request at the head. Nothing is used if it is refused.
    #[inline(always)]
    fn write<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        operation: &Operation,
        data: &Data<P, B>,
        least_free: u32,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if !KNOWN.contains(flags) {
            return Err(Refused::Lacks);
        }
        if !self.is_ready {
            return Err(Refused::NotReady);
        }
        if !self.has_room {
            return Err(Refused::Full);
        }
        let begin = self.head;
        let (slots, word) = self.put(begin, operation, data, least_free)?;
        let is_signaled = self.signals_all || flags.contains(SendFlags::SIGNALED);
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let head = begin.wrapping_add(slots);
        let word = word
            | self.number
            | u64::from(operation.code) << SQE_HDR_OPCODE.trailing_zeros()
            | u64::from(slots - 1) << SQE_HDR_WQEBB_CNT.trailing_zeros()
            | flag(is_signaled, SQE_HDR_CE)
            | flag(flags.contains(SendFlags::SOLICITED), SQE_HDR_SE)
            | flag(flags.contains(SendFlags::FENCE), SQE_HDR_FENCE)
            | u64::from(head as u16);
        self.units.put(begin as usize * (SLOT / 8), word.to_le());
        self.lane().post(begin, Note { wr_id, opcode: operation.done, slots, is_signaled });
        let signaled = self.signaled;
        (self.head, self.last) = (head, Last { begin, wr_id, operation: *operation, signaled });
        if is_signaled {
            self.signaled = head;
        }
        Ok(())
    }

    /// Writes everything but the first word of a request. Returns its number of slots, and bits of that word.
    #[inline(always)]
    fn put<'b, P, B>(
        &mut self,
        begin: u32,
        operation: &Operation,
        data: &Data<P, B>,
        least_free: u32,
    ) -> Result<(u32, u64), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        let len = u32::try_from(data.len()).map_err(|_| Refused::TooLarge)?;
        let fetches = matches!(operation.code, OP_READ | OP_ATOMIC_CAS | OP_ATOMIC_FAA);
        match data {
            Data::Inline(_) if fetches => Err(Refused::Lacks),
            Data::Pieces(pieces) if fetches => {
                if pieces.len() > 1 {
                    return Err(Refused::TooLarge);
                }
                let local = pieces.clone().next().map_or(Sge::default(), |piece| *piece.borrow());
                self.put_fetch(begin, operation, local, least_free)
            }
            Data::Inline(parts) => {
                if len as usize > MAX_INLINE {
                    return Err(Refused::TooLarge);
                }
                let (slots, first) = self.put_head(begin, operation, (len, len as usize), least_free)?;
                let (mut at, end) =
                    (begin as usize * SLOT + first, begin as usize * SLOT + first + len as usize);
                for part in parts.clone() {
                    if part.len() > end - at {
                        return Err(Refused::TooLarge);
                    }
                    self.units.put_bytes(at, part);
                    at += part.len();
                }
                // Others than those that were counted would be read from what was in the slot before.
                let bits = SQE_HDR_INLINE | u64::from(len) << SQE_HDR_SGL_LEN.trailing_zeros();
                if at == end { Ok((slots, bits)) } else { Err(Refused::TooLarge) }
            }
            Data::Pieces(pieces) => {
                let count = pieces.len();
                if count > MAX_SEND_SGE {
                    return Err(Refused::TooLarge);
                }
                let (slots, first) = self.put_head(begin, operation, (len, count * ITEM), least_free)?;
                let mut written = 0;
                for piece in pieces.clone().take(count) {
                    self.put_piece(begin, first / ITEM + written, *piece.borrow());
                    written += 1;
                }
                let bits = (count as u64) << SQE_HDR_SGL_LEN.trailing_zeros();
                if written == count { Ok((slots, bits)) } else { Err(Refused::TooLarge) }
            }
        }
    }

    /// Writes sixteen bytes of the request that begins at this slot.
    #[inline(always)]
    fn put_item(&mut self, begin: u32, item: usize, value: [u64; 2]) {
        self.units.put(begin as usize * (SLOT / ITEM) + item, value.map(u64::to_le));
    }

    #[inline(always)]
    fn put_piece(&mut self, begin: u32, item: usize, Sge { addr, length, lkey }: Sge) {
        self.put_item(begin, item, [addr, u64::from(length) | u64::from(lkey) << 32]);
    }

    /// Writes the beginning of a message or a write, whose data takes this many bytes in the queue. Returns the number of slots, and where the
    /// data begins: in the first slot of a message, and in the second of a write.
    #[inline(always)]
    fn put_head(
        &mut self,
        begin: u32,
        operation: &Operation,
        (len, bytes): (u32, usize),
        least_free: u32,
    ) -> Result<(u32, usize), Refused> {
        let first = if operation.remote.is_some() { SLOT } else { ITEM };
        let slots = (first + bytes).div_ceil(SLOT) as u32;
        if self.lane().free(begin) < slots.max(least_free) {
            return Err(Refused::Full);
        }
        self.put_item(begin, 0, [0, u64::from(operation.word) | u64::from(len) << 32]);
        if let Some(Remote { address, rkey }) = operation.remote {
            self.put_item(begin, 1, [u64::from(rkey) | address << 32, address >> 32]);
        }
        Ok((slots, first))
    }

    /// Writes a read or an atomic operation, which take two slots.
    #[inline(always)]
    fn put_fetch(
        &mut self,
        begin: u32,
        operation: &Operation,
        local: Sge,
        least_free: u32,
    ) -> Result<(u32, u64), Refused> {
        const SLOTS: u32 = 2;
        let Remote { address, rkey } = operation.remote.unwrap_or(Remote { address: 0, rkey: 0 });
        if self.lane().free(begin) < SLOTS.max(least_free) {
            return Err(Refused::Full);
        }
        if operation.code == OP_READ {
            let (len, lkey) = (local.length, u64::from(local.lkey));
            self.put_item(begin, 0, [0, u64::from(len) << 32]);
            self.put_item(begin, 1, [lkey | local.addr << 32, local.addr >> 32]);
            self.put_piece(begin, 2, Sge { addr: address, length: len, lkey: rkey });
        } else {
            // The data of one that was begun is set later.
            if local.length != 8 && least_free == 0 {
                return Err(Refused::TooLarge);
            }
            self.put_item(begin, 0, [0, 0]);
            self.put_item(begin, 1, operation.values);
            self.put_piece(begin, 2, Sge { addr: address, length: 0, lkey: rkey });
            self.put_piece(begin, 3, local);
        }
        Ok((SLOTS, 0))
    }

    fn reset(&mut self) {
        let lane = &self.queues.track.sends;
        let begin = self.queues.reset(lane, 0);
        (self.head, self.published) = (begin, begin);
        (self.signaled, self.awaited) = (begin, begin);
    }
}

/// The driver's form of an operation.
#[inline(always)]
fn operation(opcode: &Opcode<'_>) -> Result<Operation, Refused> {
    let of = |code, done| Operation { code, done, ..Operation::default() };
    Ok(match *opcode {
        Opcode::Send => of(OP_SEND, wc_opcode::SEND),
        // Immediate data stays in network byte order, and a key is a little-endian number.
        Opcode::SendImmediate(immediate) => {
            Operation { word: u32::from_le(immediate), ..of(OP_SEND_WITH_IMM, wc_opcode::SEND) }
        }
        Opcode::SendInvalidate(key) => Operation { word: key, ..of(OP_SEND_WITH_INV, wc_opcode::SEND) },
        Opcode::Write(remote) => Operation { remote: Some(remote), ..of(OP_WRITE, wc_opcode::RDMA_WRITE) },
        Opcode::WriteImmediate(remote, immediate) => Operation {
            remote: Some(remote),
            word: u32::from_le(immediate),
            ..of(OP_WRITE_WITH_IMM, wc_opcode::RDMA_WRITE)
        },
        Opcode::Read(remote) => Operation { remote: Some(remote), ..of(OP_READ, wc_opcode::RDMA_READ) },
        Opcode::CompareSwap { remote, compare, swap } => Operation {
            remote: Some(remote),
            values: [swap, compare],
            ..of(OP_ATOMIC_CAS, wc_opcode::COMP_SWAP)
        },
        Opcode::FetchAdd { remote, add } => {
            Operation { remote: Some(remote), values: [add, 0], ..of(OP_ATOMIC_FAA, wc_opcode::FETCH_ADD) }
        }
        _ => return Err(Refused::Lacks),
    })
}

impl SendRing for Sends {
    fn slots(&self) -> usize {
        self.lane().slots() as usize
    }

    #[inline]
    fn next_slot(&self) -> u32 {
        self.head & (self.lane().slots() - 1)
    }

    #[inline]
    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower {
        Writing(self)
    }

    #[inline]
    fn publish(&mut self) -> Published {
        if self.head == self.published {
            return Published::Nothing;
        }
        (self.published, self.awaited) = (self.head, self.signaled);
        let value = (self.number | u64::from(self.head as u16)).to_le_bytes();
        self.record.tell(value);
        self.doorbell.ring(value);
        Published::Told
    }

    /// No request begins at the slots that are free again.
    fn rewind(&mut self) {
        while self.head != self.published {
            self.head = self.head.wrapping_sub(1);
            self.lane().forget(self.head);
        }
        self.signaled = self.awaited;
    }

    /// Requests without a completion that are behind all others have one if one before them has failed; otherwise only their own failure
    /// would show.
    fn is_idle(&self) -> Option<bool> {
        let done = self.lane().done();
        let until = if self.lane().has_failed() { self.published } else { self.awaited };
        Some(done.wrapping_sub(until) as i32 >= 0)
    }

    /// Nothing shows that the device flushes what is posted in the error state: the kernel asks it to, by a command, for queue pairs of
    /// its own (`erdma_flush_worker`, erdma_verbs.c, Linux 7.3).
    fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            self.reset();
        }
        self.is_ready = matches!(state, qp_state::RTS | qp_state::SQD);
    }
}

/// The queue, borrowed to be filled.
#[derive(Debug)]
struct Writing<'a>(&'a mut Sends);

impl Lower for Writing<'_> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        self.0.write(wr_id, flags, &operation(&opcode.opcode())?, data, 0)
    }

    /// It needs room for the largest data.
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let nothing = Data::<NoPieces, NoBytes>::Pieces(std::iter::empty());
        self.0.write(wr_id, flags, &operation(opcode)?, &nothing, MAX_SLOTS as u32)
    }

    fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if self.0.head == self.0.published {
            return Err(Refused::NotBegun);
        }
        let (head, signaled) = (self.0.head, self.0.signaled);
        let Last { begin, wr_id, operation, signaled: before } = self.0.last;
        (self.0.head, self.0.signaled) = (begin, before);
        let written = self.0.write(wr_id, flags, &operation, data, 0);
        if written.is_err() {
            (self.0.head, self.0.signaled) = (head, signaled);
        }
        written
    }
}
