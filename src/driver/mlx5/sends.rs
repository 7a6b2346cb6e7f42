//! The send ring of an mlx5 raw packet queue pair.
//!
//! A request is a control segment, an Ethernet segment with as much of the headers as the device wants there, and data:
//! pieces of memory, or the bytes themselves. It
//! takes whole blocks of 64 bytes, and may go round the end of the ring between two segments. The device begins when
//! the send counter in the doorbell record has grown and the first eight bytes of the last request were
//! written to the registers.
//!
//! Source: `struct mlx5_wqe_ctrl_seg` and others, qp.h; `mlx5_write64`, doorbell.h; Linux 6.1.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::mlx5::wqe::{
    ETH_L2_INLINE_HEADER_SIZE, ETH_WQE_L3_CSUM, ETH_WQE_L4_CSUM, INLINE_SEG, OPCODE_SEND, OPCODE_TSO,
    SEND_WQE_BB, WQE_CTRL_CQ_UPDATE, WQE_CTRL_SOLICITED, WqeCtrlSeg, WqeEthSeg,
};
use uverbs_abi::types::SendFlags;
use zerocopy::FromZeros;
use zerocopy::big_endian::U32;

use super::receives::data_segment;
use super::shape::{INLINE_HEAD, Queues};
use super::track::Track;
use super::{Registers, SEND_DOORBELL};
use crate::driver::queues::Lower;
use crate::driver::request::{Data, FrameHead, Opcode, Refused, Request, Sge};
use crate::driver::ring::units::{Units, Word};

/// All segments have this size, or a multiple of it.
const UNIT: usize = 16;
/// Units of a block.
const UNITS: u32 = (SEND_WQE_BB / UNIT) as u32;
/// Bytes of the Ethernet segment before the headers, and of those how many are in its first unit.
const ETH_HEAD: usize = size_of::<WqeEthSeg>() - ETH_L2_INLINE_HEADER_SIZE;
const ETH_START: usize = UNIT - ETH_HEAD;

/// The send ring; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    units: Units,
    counter: Word,
    /// Most blocks of a request, one at least, and most units.
    most_blocks: u32,
    most_units: u32,
    /// The queue pair's number, where a control segment has it.
    number: u32,
    /// Counters of the next block, of the first one behind it that is not known to be free, and of the next that the device was not
    /// told of.
    head: u32,
    limit: u32,
    published: u32,
    /// The first bytes of the last request.
    doorbell: [U32; 2],
    /// The last request, if it was begun by [`Sends::begin`]: where, and what is before its data.
    begun: Option<(u32, Start)>,
    /// Whether the device must find the head of a frame in the request.
    wants_head: bool,
    /// Whether the queue pair is in a state in which the device takes requests: it keeps what it is told of before, and
    /// carries it out later.
    pub(crate) is_ready: bool,
    registers: Registers,
    track: Arc<Track>,
    queues: Arc<Queues>,
}

/// What is written of a request before its data.
#[derive(Clone, Copy, Debug)]
struct Start {
    opcode: u8,
    units: u8,
    /// Bytes of the data that stand there.
    left_out: u8,
}

/// The pieces by themselves.
#[inline(always)]
fn by_value<P, B>(data: &Data<P, B>) -> Data<impl Iterator<Item = Sge> + Clone, B>
where
    P: Iterator<Item: Borrow<Sge>> + Clone,
    B: Clone,
{
    match data {
        Data::Pieces(pieces) => Data::Pieces(pieces.clone().map(|piece| *piece.borrow())),
        Data::Inline(bytes) => Data::Inline(bytes.clone()),
    }
}

impl Lower for &mut Sends {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        Sends::next_slot(self)
    }

    #[inline(always)]
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        if !self.is_ready {
            return Err(Refused::NotReady);
        }
        let head = if self.wants_head { head } else { None };
        Sends::put(self, &Request { wr_id, flags, opcode: *opcode, data: by_value(data), head })
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        if self.is_ready { Sends::begin(self, wr_id, flags, opcode) } else { Err(Refused::NotReady) }
    }

    #[inline(always)]
    fn set_data<'b, P, B>(
        &mut self,
        _: SendFlags,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        // Whether the bytes stand in the request is seen by them.
        Sends::set_data(self, head.as_ref(), &by_value(data))
    }

    fn set_address(&mut self, _: u32, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}

impl Sends {
    /// With requests of up to so many blocks in `units`.
    pub(super) fn new(
        units: Units,
        counter: Word,
        most_blocks: u32,
        number: u32,
        wants_head: bool,
        registers: Registers,
        queues: Arc<Queues>,
    ) -> Self {
        let most_blocks = most_blocks.max(1);
        Self {
            units,
            counter,
            most_blocks,
            // A request says in eight bits how many it has.
            most_units: (most_blocks * UNITS).min(u8::MAX.into()),
            number: number << 8,
            head: 0,
            limit: 0,
            published: 0,
            doorbell: [0.into(); 2],
            begun: None,
            wants_head,
            is_ready: false,
            registers,
            track: queues.track().clone(),
            queues,
        }
    }

    /// Number of places for requests.
    pub(crate) fn slots(&self) -> usize {
        self.track.sends.places() as usize
    }

    /// Requests that can be posted now.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.track.sends.free(self.head) / self.most_blocks
    }

    /// The place that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & self.track.sends.places().wrapping_sub(1)
    }

    /// Whether a frame's head must be given to [`Sends::put`] apart from its data.
    pub(crate) fn wants_head(&self) -> bool {
        self.wants_head
    }

    /// Fills the next place with a frame, or with a large send. A frame's head is left out of its data, where it stands
    /// too.
    #[inline(always)]
    pub(crate) fn put<'b, P, B>(&mut self, request: &Request<'_, P, B>) -> Result<(), Refused>
    where
        P: Iterator<Item = Sge> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let start = self.start(request.flags, &request.opcode, request.head.as_ref())?;
        let units = self.put_data(self.head, start, &request.data)?;
        self.begun = None;
        self.end(request.wr_id, request.flags, start.opcode, units);
        Ok(())
    }

    /// Fills the next place with a request without data, which [`Sends::set_data`] may give it.
    #[inline(always)]
    pub(crate) fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let head = self.wants_head.then_some(&[0; ETH_L2_INLINE_HEADER_SIZE]);
        let start = self.start(flags, opcode, head)?;
        self.begun = Some((self.head, start));
        self.end(wr_id, flags, start.opcode, start.units.into());
        Ok(())
    }

    /// Gives the request begun last its data, in the place of what it had; [`Refused::NotBegun`] when the last request was not begun, or
    /// the device was told of it. Refused for another reason, it has no data that makes sense: [`Sends::rewind`] must follow.
    #[inline(always)]
    pub(crate) fn set_data<'b, P, B>(
        &mut self,
        head: Option<&FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: Iterator<Item = Sge> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let Some((begin, start)) = self.begun else { return Err(Refused::NotBegun) };
        if start.opcode == OPCODE_SEND {
            match head {
                None if !self.wants_head => {}
                Some(head) if self.wants_head => {
                    let at = (unit(begin) + 1).wrapping_mul(UNIT) + ETH_HEAD;
                    self.units.put_bytes(at, head);
                }
                _ => return Err(Refused::TooLarge),
            }
        }
        let units = self.put_data(begin, start, data)?;
        self.doorbell[1] = U32::from(self.number | units);
        let word = unit(begin).wrapping_mul(UNIT / size_of::<U32>()) + 1;
        self.units.put(word, self.doorbell[1]);
        self.head = begin.wrapping_add(units.div_ceil(UNITS));
        self.track.sends.move_end(begin, self.head);
        Ok(())
    }

    /// Writes what is before the data, if there is room for the largest request.
    #[inline(always)]
    fn start(
        &mut self,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        head: Option<&FrameHead>,
    ) -> Result<Start, Refused> {
        if self.limit.wrapping_sub(self.head) < self.most_blocks {
            self.look_for_room()?;
        }
        match *opcode {
            Opcode::Send => match head {
                None if !self.wants_head => {
                    let eth = eth_segment(flags, 0, &[]);
                    self.units.put(unit(self.head) + 1, eth);
                    Ok(Start { opcode: OPCODE_SEND, units: 2, left_out: 0 })
                }
                Some(head) if self.wants_head => {
                    let units = self.put_headers(flags, 0, head)?;
                    Ok(Start { opcode: OPCODE_SEND, units, left_out: head.len() as u8 })
                }
                _ => Err(Refused::TooLarge),
            },
            Opcode::Large { header, mss } if mss > 0 => {
                let units = self.put_headers(flags, mss, header)?;
                Ok(Start { opcode: OPCODE_TSO, units, left_out: 0 })
            }
            Opcode::Large { .. } => Err(Refused::TooLarge),
            _ => Err(Refused::Lacks),
        }
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<(), Refused> {
        let free = self.track.sends.free(self.head);
        self.limit = self.head.wrapping_add(free);
        if free < self.most_blocks { Err(Refused::Full) } else { Ok(()) }
    }

    /// Writes the Ethernet segment with headers in it, and says how many units of the request there are then.
    #[inline(never)]
    fn put_headers(&mut self, flags: SendFlags, mss: u16, headers: &[u8]) -> Result<u8, Refused> {
        let rest = headers.get(ETH_START..).unwrap_or_default();
        let units = 2 + rest.len().div_ceil(UNIT);
        if units > self.most_units as usize {
            return Err(Refused::TooLarge);
        }
        let at = unit(self.head) + 1;
        self.units.put(at, eth_segment(flags, mss, headers));
        self.units.put_bytes((at + 1).wrapping_mul(UNIT), rest);
        Ok(units as u8)
    }

    /// Writes the data of the request at `begin`, and says how many units of it there are then.
    #[inline(always)]
    fn put_data<'b, P, B>(&mut self, begin: u32, start: Start, data: &Data<P, B>) -> Result<u32, Refused>
    where
        P: Iterator<Item = Sge> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let (units, mut left_out) = (u32::from(start.units), u32::from(start.left_out));
        match data {
            Data::Pieces(pieces) if left_out == 0 => self.put_pieces(begin, units, pieces.clone()),
            Data::Pieces(pieces) => {
                let pieces = pieces.clone().map(|piece| {
                    let cut = left_out.min(piece.length);
                    left_out -= cut;
                    let (addr, length) = (piece.addr.wrapping_add(cut.into()), piece.length - cut);
                    Sge { addr, length, ..piece }
                });
                self.put_pieces(begin, units, pieces)
            }
            Data::Inline(bytes) => {
                let len = data.len().saturating_sub(left_out.into());
                self.put_inline(begin, units, len, left_out as usize, bytes.clone())
            }
        }
    }

    #[inline(always)]
    fn put_pieces(
        &mut self,
        begin: u32,
        mut units: u32,
        pieces: impl Iterator<Item = Sge>,
    ) -> Result<u32, Refused> {
        for Sge { addr, length, lkey } in pieces {
            // Of no bytes there is no segment, and the bit of the largest lengths means something else.
            if length.wrapping_sub(1) >= INLINE_SEG - 1 {
                if length == 0 {
                    continue;
                }
                return Err(Refused::TooLarge);
            }
            if units == self.most_units {
                return Err(Refused::TooLarge);
            }
            self.units.put(unit(begin).wrapping_add(units as usize), data_segment(addr, length, lkey));
            units += 1;
        }
        Ok(units)
    }

    /// Writes `len` bytes, those behind the first `left_out`.
    #[inline(always)]
    fn put_inline<'b>(
        &mut self,
        begin: u32,
        units: u32,
        len: u64,
        mut left_out: usize,
        bytes: impl Iterator<Item = &'b [u8]>,
    ) -> Result<u32, Refused> {
        if len == 0 {
            return Ok(units);
        }
        let room = u64::from(self.most_units - units) * UNIT as u64;
        if len > room.saturating_sub(INLINE_HEAD as u64) {
            return Err(Refused::TooLarge);
        }
        let mut at = unit(begin).wrapping_add(units as usize).wrapping_mul(UNIT);
        self.units.put(at / INLINE_HEAD, U32::from(len as u32 | INLINE_SEG));
        at = at.wrapping_add(INLINE_HEAD);
        let mut left = len as usize;
        for mut bytes in bytes {
            if left_out > 0 {
                let cut = left_out.min(bytes.len());
                left_out -= cut;
                bytes = &bytes[cut..];
            }
            // All of it, unless `bytes` are not those whose length was asked for.
            bytes = &bytes[..bytes.len().min(left)];
            self.units.put_bytes(at, bytes);
            (at, left) = (at.wrapping_add(bytes.len()), left - bytes.len());
        }
        Ok(units + (INLINE_HEAD + len as usize).div_ceil(UNIT) as u32)
    }

    /// Writes the control segment of the next request, which has so many units, and goes on behind it.
    #[inline(always)]
    fn end(&mut self, wr_id: u64, flags: SendFlags, opcode: u8, units: u32) {
        let begin = self.head;
        let control = WqeCtrlSeg {
            opmod_idx_opcode: ((begin & 0xffff) << 8 | u32::from(opcode)).into(),
            qpn_ds: (self.number | units).into(),
            fm_ce_se: bit(flags, SendFlags::SIGNALED, WQE_CTRL_CQ_UPDATE)
                | bit(flags, SendFlags::SOLICITED, WQE_CTRL_SOLICITED),
            ..WqeCtrlSeg::new_zeroed()
        };
        self.doorbell = [control.opmod_idx_opcode, control.qpn_ds];
        self.units.put(unit(begin), control);
        self.head = begin.wrapping_add(units.div_ceil(UNITS));
        self.track.sends.post(begin, self.head, wr_id);
    }

    /// Goes back to what the device was told: requests filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        // Whether places are free is looked at again.
        (self.head, self.limit, self.begun) = (self.published, self.published, None);
    }

    /// Tells the device of every request filled so far, with one doorbell.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.head != self.published {
            (self.published, self.begun) = (self.head, None);
            self.counter.tell(self.head & 0xffff);
            self.registers.ring(SEND_DOORBELL, zerocopy::transmute!(self.doorbell));
        }
    }

    /// The queue pair was reset: everything posted is forgotten, and so are its completions.
    pub(crate) fn reset(&mut self) {
        (self.head, self.limit, self.published, self.begun) = (0, 0, 0, None);
        self.queues.reset_sends();
        self.counter.tell(0);
    }
}

/// The first unit of the block with this counter.
#[inline(always)]
fn unit(counter: u32) -> usize {
    counter.wrapping_mul(UNITS) as usize
}

#[inline(always)]
fn bit(flags: SendFlags, flag: SendFlags, bit: u8) -> u8 {
    if flags.contains(flag) { bit } else { 0 }
}

/// The first unit of an Ethernet segment, with what there is room for of the headers.
#[inline(always)]
fn eth_segment(flags: SendFlags, mss: u16, headers: &[u8]) -> [u8; UNIT] {
    let mut eth = WqeEthSeg {
        cs_flags: bit(flags, SendFlags::IP_CSUM, ETH_WQE_L3_CSUM | ETH_WQE_L4_CSUM),
        mss: mss.into(),
        inline_hdr_sz: (headers.len() as u16).into(),
        ..WqeEthSeg::new_zeroed()
    };
    let start = &headers[..headers.len().min(ETH_START)];
    eth.inline_hdr_start[..start.len()].copy_from_slice(start);
    let [first, _]: [[u8; UNIT]; 2] = zerocopy::transmute!(eth);
    first
}
