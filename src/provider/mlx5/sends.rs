//! The send ring of an mlx5 raw packet queue pair.
//!
//! A request is a control segment, an Ethernet segment, and data: pieces of memory, or the bytes themselves. It
//! takes whole blocks of 64 bytes, and may go round the end of the ring between two segments. The device begins when
//! the send counter in the doorbell record has grown and the first eight bytes of the last request were
//! written to the registers.
//!
//! Source: `struct mlx5_wqe_ctrl_seg` and others, qp.h; `mlx5_write64`, doorbell.h; Linux 6.1.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::mlx5::wqe::{
    ETH_L2_INLINE_HEADER_SIZE, ETH_WQE_L3_CSUM, ETH_WQE_L4_CSUM, INLINE_SEG, OPCODE_SEND, SEND_WQE_BB,
    SND_DBR, WQE_CTRL_CQ_UPDATE, WQE_CTRL_SOLICITED, WqeCtrlSeg, WqeEthSeg,
};
use uverbs_abi::rxe::{SendWr, Sge};
use uverbs_abi::types::SendFlags;
use zerocopy::{FromZeros, IntoBytes};

use super::receives::data_segment;
use super::shape::{INLINE_HEAD, Queues};
use super::track::Track;
use super::{Registers, SEND_DOORBELL};
use crate::mapping::Mapping;
use crate::provider::queues::Data;

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

    /// Fills the next place with a frame, whose first bytes are `header`: [`Sends::inline_header`] of them, which stand
    /// in the request itself, and are left out of the pieces. False when it does not fit.
    #[must_use]
    pub(crate) fn put(
        &mut self,
        wr: &SendWr,
        header: &[u8],
        data: Data<'_, impl Iterator<Item = Sge>>,
    ) -> bool {
        match data {
            Data::Pieces(mut pieces) => {
                let mut left_out = header.len() as u32;
                self.fill(wr, header, |writer| {
                    pieces.all(|piece| {
                        let cut = left_out.min(piece.length);
                        left_out -= cut;
                        let rest =
                            Sge { addr: piece.addr + u64::from(cut), length: piece.length - cut, ..piece };
                        rest.length == 0 || writer.put(data_segment(&rest).as_bytes())
                    })
                })
            }
            Data::Inline(frame) => self.fill(wr, header, |writer| {
                let rest = frame.get(header.len()..).unwrap_or_default();
                let head = (rest.len() as u32 | INLINE_SEG).to_be_bytes();
                const { assert!(size_of::<u32>() == INLINE_HEAD) }
                rest.is_empty() || (writer.put(&head) && writer.put(rest))
            }),
        }
    }

    fn fill(&mut self, wr: &SendWr, header: &[u8], data: impl FnOnce(&mut Writer<'_>) -> bool) -> bool {
        if self.places == 0 || header.len() != self.inline_header {
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
            inline_hdr_sz: (header.len() as u16).into(),
            ..WqeEthSeg::new_zeroed()
        };
        let eth_len = if header.len() == ETH_L2_INLINE_HEADER_SIZE {
            eth.inline_hdr_start.copy_from_slice(&header[..2]);
            eth.inline_hdr.copy_from_slice(&header[2..]);
            size_of::<WqeEthSeg>()
        } else {
            UNIT
        };
        if !writer.put(&eth.as_bytes()[..eth_len]) || !data(&mut writer) {
            return false;
        }
        writer.align();
        let units = writer.len / UNIT;
        let blocks = writer.len.div_ceil(block) as u32;
        if blocks > self.most_blocks {
            return false;
        }
        let control = WqeCtrlSeg {
            opmod_idx_opcode: ((self.head & 0xffff) << 8 | u32::from(OPCODE_SEND)).into(),
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
        self.track.sends.reset(self.queues.ends()[0]);
        self.memory.store(self.record + 4 * SND_DBR, 0, Ordering::Release);
    }
}
