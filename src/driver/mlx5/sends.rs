//! The send ring of an mlx5 raw packet queue pair.
//!
//! A request is a control segment, an Ethernet segment with as much of the headers as the device wants there, and data:
//! pieces of memory, or the bytes themselves. It
//! takes whole blocks of 64 bytes, and may go round the end of the ring between two segments. The device begins when
//! the send counter in the doorbell record has grown and the first eight bytes of the last request were
//! written to the registers.
//!
//! Source: `struct mlx5_wqe_ctrl_seg` and others, qp.h; `mlx5_write64`, doorbell.h; Linux 6.1.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::mlx5::wqe::{
    ETH_WQE_L3_CSUM, ETH_WQE_L4_CSUM, INLINE_SEG, OPCODE_SEND, OPCODE_TSO, SEND_WQE_BB, SND_DBR,
    WQE_CTRL_CQ_UPDATE, WQE_CTRL_SOLICITED, WqeCtrlSeg, WqeEthSeg,
};
use uverbs_abi::rxe::{SendWr, Sge};
use uverbs_abi::types::SendFlags;
use zerocopy::{FromZeros, IntoBytes};

use super::receives::data_segment;
use super::shape::{INLINE_HEAD, Queues};
use super::track::Track;
use super::{Registers, SEND_DOORBELL};
use crate::driver::queues::{Data, Head};
use crate::mapping::Mapping;

/// All segments have this size, or a multiple of it.
const UNIT: usize = 16;

/// The send ring; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    pub(super) memory: Mapping,
    /// Where the ring and the doorbell record are.
    pub(super) start: usize,
    pub(super) record: usize,
    /// Number of blocks, a power of two, and how many a request has at most.
    pub(super) places: u32,
    pub(super) most_blocks: u32,
    pub(super) number: u32,
    /// Counters of the next block, and of the next that the device was not told of.
    pub(super) head: u32,
    pub(super) published: u32,
    /// The first bytes of the last request.
    pub(super) doorbell: [u8; 8],
    pub(super) inline_header: usize,
    /// Whether the queue pair is in a state in which the device takes requests: it keeps what it is told of before, and
    /// carries it out later.
    pub(crate) is_ready: bool,
    pub(super) registers: Registers,
    pub(super) track: Arc<Track>,
    pub(super) queues: Arc<Queues>,
}

/// A request while it is written: how many bytes of it there are.
struct Writer<'a> {
    memory: &'a Mapping,
    start: usize,
    ring: usize,
    first: usize,
    len: usize,
}

impl Writer<'_> {
    /// Adds bytes, and goes on at the begin of the ring at its end.
    fn put(&mut self, bytes: &[u8]) -> bool {
        let at = (self.first + self.len) % self.ring;
        let (now, rest) = bytes.split_at(bytes.len().min(self.ring - at));
        self.len += bytes.len();
        self.memory.write(self.start + at, now) && self.memory.write(self.start, rest)
    }

    /// Goes on behind the current unit.
    fn align(&mut self) {
        self.len = self.len.next_multiple_of(UNIT);
    }
}

impl Sends {
    /// Number of places for requests.
    pub(crate) fn slots(&self) -> usize {
        self.places as usize
    }

    /// Requests that can be posted now.
    pub(crate) fn free(&self) -> u32 {
        let used = self.head.wrapping_sub(self.track.sends.done());
        (self.places - used).checked_div(self.most_blocks).unwrap_or(0)
    }

    /// The place that is filled next.
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & self.places.wrapping_sub(1)
    }

    /// How many bytes at the head of a frame must be given to [`Sends::put`] apart from its pieces.
    pub(crate) fn inline_header(&self) -> usize {
        self.inline_header
    }

    /// Fills the next place with a frame, or with a large send. A frame's head is left out of its data, where it stands
    /// too. False when it does not fit.
    #[inline(never)]
    #[must_use]
    pub(crate) fn put(
        &mut self,
        wr: &SendWr,
        head: Head<'_>,
        data: Data<'_, impl Iterator<Item = Sge>>,
    ) -> bool {
        let mut left_out = if head.mss == 0 { head.bytes.len() as u32 } else { 0 };
        match data {
            Data::Pieces(mut pieces) => self.fill(wr, head, |writer| {
                pieces.all(|piece| {
                    let cut = left_out.min(piece.length);
                    left_out -= cut;
                    let rest = Sge { addr: piece.addr + u64::from(cut), length: piece.length - cut, ..piece };
                    rest.length == 0 || writer.put(data_segment(&rest).as_bytes())
                })
            }),
            Data::Inline(bytes) => self.fill(wr, head, |writer| {
                let rest = bytes.get(left_out as usize..).unwrap_or_default();
                let head = (rest.len() as u32 | INLINE_SEG).to_be_bytes();
                const { assert!(size_of::<u32>() == INLINE_HEAD) }
                rest.is_empty() || (writer.put(&head) && writer.put(rest))
            }),
        }
    }

    fn fill(&mut self, wr: &SendWr, head: Head<'_>, data: impl FnOnce(&mut Writer<'_>) -> bool) -> bool {
        if self.places == 0 || head.mss == 0 && head.bytes.len() != self.inline_header {
            return false;
        }
        let block = SEND_WQE_BB;
        let mut writer = Writer {
            memory: &self.memory,
            start: self.start,
            ring: self.places as usize * block,
            first: self.next_slot() as usize * block,
            // The control segment is written last, when the length is known.
            len: size_of::<WqeCtrlSeg>(),
        };
        let flags = SendFlags::from_bits_retain(wr.send_flags);
        let bit = |flag: SendFlags, bit: u8| if flags.contains(flag) { bit } else { 0 };
        let mut eth = WqeEthSeg {
            cs_flags: bit(SendFlags::IP_CSUM, ETH_WQE_L3_CSUM | ETH_WQE_L4_CSUM),
            mss: head.mss.into(),
            inline_hdr_sz: (head.bytes.len() as u16).into(),
            ..WqeEthSeg::new_zeroed()
        };
        // Two bytes of the head are in the first unit of the segment, the others in as many more as they need.
        let (start, rest) = head.bytes.split_at(head.bytes.len().min(eth.inline_hdr_start.len()));
        eth.inline_hdr_start[..start.len()].copy_from_slice(start);
        if !writer.put(&eth.as_bytes()[..UNIT]) || !(rest.is_empty() || writer.put(rest)) {
            return false;
        }
        writer.align();
        if !data(&mut writer) {
            return false;
        }
        writer.align();
        let units = writer.len / UNIT;
        let blocks = writer.len.div_ceil(block) as u32;
        if blocks > self.most_blocks {
            return false;
        }
        let opcode = if head.mss == 0 { OPCODE_SEND } else { OPCODE_TSO };
        let control = WqeCtrlSeg {
            opmod_idx_opcode: ((self.head & 0xffff) << 8 | u32::from(opcode)).into(),
            qpn_ds: (self.number << 8 | units as u32).into(),
            fm_ce_se: bit(SendFlags::SIGNALED, WQE_CTRL_CQ_UPDATE)
                | bit(SendFlags::SOLICITED, WQE_CTRL_SOLICITED),
            ..WqeCtrlSeg::new_zeroed()
        };
        writer.len = 0;
        if !writer.put(control.as_bytes()) {
            return false;
        }
        self.doorbell.copy_from_slice(&control.as_bytes()[..8]);
        let end = self.head.wrapping_add(blocks);
        self.track.sends.post(self.head, end, wr.wr_id);
        self.head = end;
        true
    }

    /// Goes back to what the device was told: requests filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        self.head = self.published;
    }

    /// Tells the device of every request filled so far, with one doorbell.
    pub(crate) fn publish(&mut self) {
        if self.head != self.published {
            self.published = self.head;
            let counter = (self.head & 0xffff).to_be();
            self.memory.store(self.record + 4 * SND_DBR, counter, Ordering::Release);
            self.registers.ring(SEND_DOORBELL, self.doorbell);
        }
    }

    /// The queue pair was reset: everything posted is forgotten, and so are its completions.
    pub(crate) fn reset(&mut self) {
        (self.head, self.published) = (0, 0);
        self.queues.reset_sends();
        self.memory.store(self.record + 4 * SND_DBR, 0, Ordering::Release);
    }
}
