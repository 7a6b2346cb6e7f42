//! The send ring of an mlx5 queue pair.
//!
//! A request consists of a control segment, the segments that its form and its operation need, and the data: segments that describe
//! memory, or the bytes themselves. It takes whole blocks of 64 bytes, and may wrap around the end of the ring between two segments.
//! The device begins when the send counter in the doorbell record has advanced and the first eight bytes of the last request are
//! written to the registers.
//!
//! Source: `struct mlx5_wqe_ctrl_seg` and others, qp.h; `mlx5_write64`, doorbell.h; Linux 6.1.

use std::sync::Arc;

use uverbs_abi::mlx5::wqe::{ETH_L2_INLINE_HEADER_SIZE, OPCODE_SEND, SEND_WQE_BB, WqeCtrlSeg};
use uverbs_abi::types::{SendFlags, qp_state};
use zerocopy::big_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use super::Form;
use super::lead::{Alone, Lead};
use super::messages::start_to;
use super::segments::{ETH_HEAD, UNIT, mode};
use super::shape::Queues;
use super::track::Track;
use super::writing::Writing;
use crate::driver::request::{
    ADDRESSED, Data, FRAMES, FrameHead, InlineParts, MESSAGES, Opcode, Refused, RequestKind, Sge, Terms,
    ToAddress, Told,
};
use crate::driver::ring::units::{Units, Word};
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{Lower, Published, SendRing, Short};
use crate::kernel::mapping::Register;

/// Maximum number of units of a request: the field for it has six bits.
pub(super) const MOST_UNITS: u32 = 0x3f;

/// Units of a block.
const UNITS: u32 = (SEND_WQE_BB / UNIT) as u32;

/// The send ring; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    pub(super) units: Units,
    counter: Word,
    /// Maximum number of blocks of a request, at least one, and of units.
    pub(super) most_blocks: u32,
    pub(super) most_units: u32,
    pub(super) form: Form,
    kind: RequestKind,
    /// The queue pair's number, at its position in a control segment.
    pub(super) number: u32,
    /// Whether the request that is being written changes a key, and whether the one before it did, so that the next one has to wait. If
    /// this is not zero, no place is known to be free.
    pub(super) change: u8,
    /// The value of `change` at the last publication.
    published_change: u8,
    /// Counters of the next block, of the first block after it that is not known to be free, and of the first block that is not
    /// published.
    pub(super) head: u32,
    pub(super) limit: u32,
    published: u32,
    /// The first bytes of the last request, which are written to the doorbell.
    pub(super) told: [u8; 8],
    /// The last request, if it is not published: the part before its data, and the counter of its first block.
    pub(super) begun: Option<Start>,
    pub(super) begun_at: u32,
    /// Whether the device requires the head of a frame in the request.
    pub(super) wants_head: bool,
    /// Whether the queue pair is in a state in which the device executes requests. In an earlier state, it would keep announced
    /// requests and execute them later. If false, no place is known to be free.
    pub(super) is_ready: bool,
    doorbell: Register,
    pub(super) track: Arc<Track>,
    queues: Arc<Queues>,
}

/// The part of a request before its data, which is written already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) opcode: u8,
    pub(super) units: u8,
    /// Number of bytes at the beginning of the data that this part contains.
    pub(super) left_out: u8,
}

impl Sends {
    /// With requests of up to this many blocks in `units`.
    pub(super) fn new(
        units: Units,
        counter: Word,
        most_blocks: u32,
        form: Form,
        wants_head: bool,
        doorbell: Register,
        queues: Arc<Queues>,
    ) -> Self {
        let most_blocks = most_blocks.max(1);
        Self {
            units,
            counter,
            most_blocks,
            most_units: (most_blocks * UNITS).min(MOST_UNITS),
            form,
            kind: form.kind(),
            number: queues.track().number() << 8,
            change: 0,
            published_change: 0,
            head: 0,
            limit: 0,
            published: 0,
            told: [0; 8],
            begun: None,
            begun_at: 0,
            wants_head,
            is_ready: false,
            doorbell,
            track: queues.track().clone(),
            queues,
        }
    }

    /// Number of requests that can be posted now.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.track.sends.free(self.head) / self.most_blocks
    }

    /// Sets the counters as if this many blocks had been posted and were done. For tests.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, counter: u32) {
        (self.head, self.limit, self.published) = (counter, counter, counter);
        self.track.sends.start_at(counter);
    }

    /// Fills the next place with a request. If the head of a frame is separate, the data contains it too, and it is left out there.
    #[cfg(test)]
    pub(crate) fn put<'b, P, B>(
        &mut self,
        request: &crate::driver::request::Request<'_, P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item = Sge> + Clone,
        B: InlineParts<'b>,
    {
        let crate::driver::request::Request { wr_id, flags, opcode, data, head } = request;
        let (wr_id, flags) = (*wr_id, *flags);
        let head = head.as_ref();
        match self.kind {
            RequestKind::Frames => self.put_as::<true, FRAMES, P, B>(wr_id, flags, opcode, head, data),
            RequestKind::Messages => self.put_as::<true, MESSAGES, P, B>(wr_id, flags, opcode, head, data),
            RequestKind::Addressed => self.put_as::<true, ADDRESSED, P, B>(wr_id, flags, opcode, head, data),
        }
    }

    /// Writes a request of this kind.
    #[inline(always)]
    pub(super) fn put_as<'b, const LOOKS: bool, const KIND: u8, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        head: Option<&FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item = Sge> + Clone,
        B: InlineParts<'b>,
    {
        self.want_room::<LOOKS>()?;
        let srq = opcode.srq();
        let (start, with) = opcode.tell(Starting::<KIND> { sends: self, flags, head, srq })?;
        self.put_rest::<LOOKS, KIND, P, B>(wr_id, flags, start, with, data, Alone)
    }

    /// Writes a datagram.
    #[inline(always)]
    pub(super) fn put_datagram<'b, const LOOKS: bool, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        to: &ToAddress<'_>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item = Sge> + Clone,
        B: InlineParts<'b>,
    {
        self.want_room::<LOOKS>()?;
        let (start, with) = start_to(to);
        self.put_rest::<LOOKS, ADDRESSED, P, B>(wr_id, flags, start, with, data, to)
    }

    /// Whether this many blocks are free.
    #[inline(always)]
    pub(super) fn is_free(&mut self, blocks: usize) -> bool {
        let known = self.limit.wrapping_sub(self.head) as usize;
        known >= blocks
            || self.look_for_room().is_ok() && self.limit.wrapping_sub(self.head) as usize >= blocks
    }

    /// Writes the rest of a request: its data, and the control segment with `lead`.
    #[inline(always)]
    fn put_rest<'b, const LOOKS: bool, const KIND: u8, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        start: Start,
        with: u32,
        data: &Data<P, B>,
        lead: impl Lead,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item = Sge> + Clone,
        B: InlineParts<'b>,
    {
        let begin = self.head;
        if let (Some(bytes @ [_, ..]), 0) = (data.only_bytes(), start.left_out) {
            // The bytes are copied last, so that nothing has to be kept during the call that copies them.
            let units = self.inline_units(start.units.into(), bytes.len() as u64)?;
            let at = self.put_inline_head(begin, start.units.into(), bytes.len() as u32);
            self.end::<LOOKS, KIND>(wr_id, flags, start, with, units, lead);
            self.units.put_bytes(at, bytes);
            return Ok(());
        }
        let units = self.put_data::<KIND, _, _>(begin, start, data)?;
        self.end::<LOOKS, KIND>(wr_id, flags, start, with, units, lead);
        Ok(())
    }

    /// Fills the next place with a request without data. [`Sends::set_data`] may set the data.
    #[inline]
    pub(crate) fn begin<const KIND: u8>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &Opcode<'_>,
    ) -> Result<(), Refused> {
        let head = (KIND != MESSAGES && self.wants_head).then_some(&[0; ETH_L2_INLINE_HEADER_SIZE]);
        self.want_room::<true>()?;
        let (start, with) = self.start::<KIND>(flags, opcode, head, 0)?;
        self.end::<true, KIND>(wr_id, flags, start, with, start.units.into(), Alone);
        Ok(())
    }

    /// Sets the data of the last request, replacing what was set before. Returns [`Refused::NotBegun`] if there is no such request, or
    /// if it is published. After any other error, its data is not valid: [`Sends::rewind`] must follow.
    #[inline(always)]
    pub(crate) fn set_data<'b, const KIND: u8, P, B>(
        &mut self,
        head: Option<&FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item = Sge> + Clone,
        B: InlineParts<'b>,
    {
        let (begin, Some(start)) = (self.begun_at, self.begun) else { return Err(Refused::NotBegun) };
        if self.has_frames::<KIND>() && start.opcode == OPCODE_SEND {
            match head {
                None if !self.wants_head => {}
                Some(head) if self.wants_head => {
                    let at = (unit(begin) + 1).wrapping_mul(UNIT) + ETH_HEAD;
                    self.units.put_bytes(at, head);
                }
                _ => return Err(Refused::TooLarge),
            }
        }
        let units = self.put_data::<KIND, _, _>(begin, start, data)?;
        self.set_units(begin, units);
        Ok(())
    }

    /// Sets the number of units of the last request, which is at `begin`.
    #[inline(always)]
    fn set_units(&mut self, begin: u32, units: u32) {
        let second = U32::from(self.number | units);
        self.told[size_of::<U32>()..].copy_from_slice(second.as_bytes());
        let word = unit(begin).wrapping_mul(UNIT / size_of::<U32>()) + 1;
        self.units.put(word, second);
        self.head = begin.wrapping_add(units.div_ceil(UNITS));
        self.track.sends.move_end(begin, self.head);
    }

    /// Writes the segments before the data. The second value is the immediate data or key that goes with a message, in network byte order.
    #[inline(always)]
    fn start<const KIND: u8>(
        &mut self,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        head: Option<&FrameHead>,
        srq: u32,
    ) -> Result<(Start, u32), Refused> {
        match KIND {
            FRAMES => Ok((self.start_frame(flags, opcode, head)?, 0)),
            MESSAGES => self.start_message(opcode, 1),
            _ => match self.form {
                Form::Messages => self.start_message(opcode, 1),
                Form::Datagrams => self.start_datagram(opcode),
                Form::Extended => self.start_extended(opcode, srq),
                Form::Frames { .. } => Ok((self.start_frame(flags, opcode, head)?, 0)),
            },
        }
    }

    /// Whether requests are frames, in code for requests of this kind.
    #[inline]
    pub(super) fn has_frames<const KIND: u8>(&self) -> bool {
        KIND == FRAMES || KIND == ADDRESSED && matches!(self.form, Form::Frames { .. })
    }

    /// Checks that there is room for the largest request.
    #[inline(always)]
    fn want_room<const LOOKS: bool>(&mut self) -> Result<(), Refused> {
        if self.limit.wrapping_sub(self.head) < self.most_blocks {
            if !LOOKS {
                return Err(Refused::Full);
            }
            self.look_for_room()?;
        }
        Ok(())
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<(), Refused> {
        let free = self.track.sends.free(self.head);
        // After a change of a key, no place is known to be free.
        self.limit = if self.change == 0 { self.head.wrapping_add(free) } else { self.head };
        if free < self.most_blocks { Err(Refused::Full) } else { Ok(()) }
    }

    /// Writes the control segment of the next request, which has `units` units, with `lead`. Continues after the request.
    #[inline(always)]
    fn end<const LOOKS: bool, const KIND: u8>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        start: Start,
        with: u32,
        units: u32,
        lead: impl Lead,
    ) {
        let (begin, change) = (self.head, self.change);
        let first = (begin & 0xffff) << 8 | u32::from(start.opcode);
        let second = self.number | units;
        let control = WqeCtrlSeg {
            // Frames do not wait for earlier requests.
            fm_ce_se: if KIND == FRAMES {
                mode(flags - SendFlags::FENCE)
            } else {
                self.fenced::<LOOKS>(mode(flags))
            },
            imm: if KIND != FRAMES { U32::from_bytes(with.to_ne_bytes()) } else { U32::ZERO },
            ..WqeCtrlSeg::new_zeroed()
        };
        let [_, rest]: [u64; 2] = zerocopy::transmute!(control);
        // `opmod_idx_opcode` and `qpn_ds`, which are also written to the doorbell.
        self.told = (u64::from(first) << 32 | u64::from(second)).to_be_bytes();
        lead.put(&mut self.units, begin, [u64::from_ne_bytes(self.told), rest]);
        (self.begun, self.begun_at) = (Some(start), begin);
        // A request has at least two units.
        let head = begin.wrapping_add((units - 1) / UNITS + 1);
        self.head = head;
        // No place is known to be free before or after the request that waits for a change.
        if LOOKS && KIND != FRAMES && change | self.change != 0 {
            self.limit = head;
        }
        self.track.sends.post(begin, head, wr_id);
    }

    /// Notes the operation of the next request, if the device has one opcode for several operations.
    pub(super) fn note(&self, opcode: u32) {
        self.track.sends.note(self.head, opcode);
    }

    /// Sets whether the device executes requests now.
    pub(super) fn set_ready(&mut self, is_ready: bool) {
        self.is_ready = is_ready;
        // Callers that do not look then find no room, and the others check whether the queue pair is ready.
        self.limit = self.head;
    }

    /// The queue pair was reset: everything posted is discarded, and so are its completions.
    pub(super) fn reset(&mut self) {
        let begin = self.queues.reset_sends();
        (self.head, self.limit, self.published, self.begun) = (begin, begin, begin, None);
        (self.change, self.published_change) = (0, 0);
        self.counter.tell(begin & 0xffff);
    }
}

impl SendRing for Sends {
    const SHORT: Short = Short::OnePiece;

    fn slots(&self) -> usize {
        self.track.sends.places() as usize
    }

    #[inline(always)]
    fn next_slot(&self) -> u32 {
        self.head & self.track.sends.places().wrapping_sub(1)
    }

    fn wants_head(&self) -> bool {
        self.wants_head
    }

    #[cfg(feature = "raw")]
    #[inline]
    fn is_of(&self, kind: u8) -> bool {
        self.kind as u8 == kind
    }

    #[inline]
    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower {
        Writing::<LOOKS, KIND>(self)
    }

    #[inline]
    fn short<const KIND: u8>(&mut self, room: usize) -> Option<impl Lower> {
        self.one_piece::<KIND>(room)
    }

    /// One doorbell announces all.
    #[inline(always)]
    fn publish(&mut self) -> Published {
        if self.head != self.published {
            (self.published, self.published_change, self.begun) = (self.head, self.change, None);
            self.counter.tell(self.head & 0xffff);
            self.doorbell.ring(self.told);
        }
        Published::Told
    }

    fn rewind(&mut self) {
        (self.begun, self.change) = (None, self.published_change);
        if self.head != self.published {
            // The number of free places is determined again.
            (self.head, self.limit) = (self.published, self.published);
        }
    }

    fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            self.reset();
        }
        self.set_ready(state >= qp_state::RTS);
    }

    /// A reset sets the counter to zero, with which the device begins, also after this.
    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        let (entries, told) = (self.track.sends.places(), self.queues.told);
        Some(OwnRing {
            address: if entries == 0 { 0 } else { self.units.address() },
            entry_size: SEND_WQE_BB as u32,
            entries,
            doorbell: self.doorbell.address(),
            page_offset: told.page_offset,
            record: self.counter.address(),
            numbers: told.sends,
            ..OwnRing::default()
        })
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        self.queues.fall_silent();
    }
}

/// Writes what is before the data of a request, and gets the opcode through [`Told`].
struct Starting<'a, const KIND: u8> {
    sends: &'a mut Sends,
    flags: SendFlags,
    head: Option<&'a FrameHead>,
    srq: u32,
}

impl<const KIND: u8> Told for Starting<'_, KIND> {
    type Answer = Result<(Start, u32), Refused>;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> Self::Answer {
        self.sends.start::<KIND>(self.flags, opcode, self.head, self.srq)
    }
}

/// The first unit of the block with this counter.
#[inline]
pub(super) const fn unit(counter: u32) -> usize {
    counter.wrapping_mul(UNITS) as usize
}
