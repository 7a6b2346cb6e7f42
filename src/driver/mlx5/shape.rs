//! The rings of a queue pair in memory.
//!
//! Source: `set_rq_size`, `set_user_buf_size` and `_create_user_qp`, qp.c, Linux 6.1.

use std::sync::Arc;

use uverbs_abi::mlx5::wqe::{RCV_DBR, SEND_WQE_BB, SND_DBR};
use uverbs_abi::mlx5::{CreateQp, CreateQpResp, QP_FLAG_UAR_PAGE_INDEX};
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::completions::CompletionSide;
use super::sizes::{ReceiveRing, SendRing, Wanted, refused};
pub(super) use super::track::Source;
use super::track::Track;
use super::{Form, Limits, Places, Receives, Registers, SEND_DOORBELL, Sends};
use crate::driver::ring::units::{Units, Word};
use crate::driver::seam::{Created, Known, Payload, Plan, QpQueues};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};

/// The hint for a part of the memory that cannot be used. Sizes were checked before, so this does not occur.
const NO_PART: &str = "the queues do not fit into their memory";
/// The least memory of a ring.
const BLOCK: usize = SEND_WQE_BB;

/// A queue pair that is about to be created: the driver's request, and the memory.
#[derive(Debug)]
pub(crate) struct QpPlan {
    /// Both rings and the doorbell record. Each has at least one page, so that no two share one.
    memory: Mapping,
    sends: Units,
    receives: Units,
    counters: [Word; 2],
    /// Maximum number of blocks of a send request; zero without a send queue.
    blocks: u32,
    cap: QpCap,
    request: CreateQp,
    response: CreateQpResp,
    doorbell: Register,
    /// The offset of its page in the device file.
    #[cfg(feature = "raw")]
    page_offset: u64,
    form: Form,
    inline_header: usize,
    queues: Queues,
}

/// The queues in which sends and receives complete, and the shared queue that provides receives.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Ends<'a> {
    pub(in crate::driver) queues: [&'a Arc<CompletionSide>; 2],
    pub(in crate::driver) shared: Option<&'a Arc<Places>>,
}

/// The completion queues of a queue pair, which is in their lists as long as this exists.
#[derive(Debug)]
pub(super) struct Queues {
    track: Arc<Track>,
    queues: [Arc<CompletionSide>; 2],
    /// What a program is told with the rings.
    #[cfg(feature = "raw")]
    pub(super) told: Told,
}

/// What is needed only when rings are handed over.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// The offset of the doorbell's page in the device file.
    pub(super) page_offset: u64,
    /// The device's numbers of the queue and of its TIS, and of the queue and of its TIR.
    pub(super) sends: [u32; 2],
    pub(super) receives: [u32; 2],
}

impl Drop for Queues {
    fn drop(&mut self) {
        let [sent, received] = &self.queues;
        // Only receives may have to be given back. A position belongs to one queue.
        if self.track.is_sharing() && self.track.number() != 0 {
            received.retire(&self.track);
        } else {
            received.remove(&self.track);
        }
        if !Arc::ptr_eq(sent, received) {
            sent.remove(&self.track);
        }
    }
}

impl QpPlan {
    /// `index` returns candidates for the number by which completions name the queue pair.
    pub(super) fn new(
        op: &'static str,
        form: Form,
        wanted: &Wanted,
        limits: &Limits,
        registers: Registers,
        ends: Ends<'_>,
        index: impl FnMut() -> u32,
    ) -> Result<Self> {
        let Ends { queues, shared } = ends;
        let is_of_frames = matches!(form, Form::Frames { .. });
        let sends = SendRing::new(form, wanted, limits).map_err(|hint| refused(op, hint))?;
        let (flags, wanted) = (u32::from(wanted.flags), &wanted.cap);
        let segments = if shared.is_some() { 0 } else { wanted.max_recv_sge };
        // The kernel checks their number even if another queue provides them.
        let receives =
            ReceiveRing::new(wanted.max_recv_wr, segments, limits).map_err(|hint| refused(op, hint))?;
        let receives = if shared.is_some() { ReceiveRing::default() } else { receives };
        let source = shared.map_or(Source::Own(receives.places), |places| Source::Shared(places.clone()));
        // A part has memory even if the queue pair has no such ring. It is then never used.
        let page = |bytes: usize| bytes.max(1).next_multiple_of(4096);
        let part = |memory, at, bytes: usize| part(op, memory, at, bytes.max(BLOCK));
        // For frames, the two rings are announced to the kernel separately. For messages, one ring follows the other.
        let sends_at = match form {
            Form::Frames { .. } => page(receives.bytes()),
            Form::Messages | Form::Extended | Form::Datagrams => receives.bytes(),
        };
        let record = page(sends_at + page(sends.bytes()));
        let memory = limits.memory.block(record + 4096).map_err(|errno| Error::kernel(op, errno))?;
        let counters = [word(op, &memory, record + 4 * SND_DBR)?, word(op, &memory, record + 4 * RCV_DBR)?];
        let (send_units, receive_units) =
            (part(&memory, sends_at, sends.bytes())?, part(&memory, 0, receives.bytes())?);
        let queues = Queues::join(op, queues, form, sends.blocks, source, index)?;
        let address = memory.address();
        let request = CreateQp {
            buf_addr: address,
            sq_buf_addr: if is_of_frames { address + sends_at as u64 } else { 0 },
            db_addr: address + record as u64,
            sq_wqe_count: sends.blocks,
            rq_wqe_count: receives.places,
            rq_wqe_shift: receives.stride.checked_ilog2().unwrap_or(0),
            flags: flags | registers.id.map_or(0, |_| QP_FLAG_UAR_PAGE_INDEX),
            uidx: queues.track.index(),
            bfreg_index: registers.id.unwrap_or(0),
            ..CreateQp::new_zeroed()
        };
        let cap = QpCap {
            max_send_wr: sends.requests(),
            max_recv_wr: receives.places,
            max_send_sge: wanted.max_send_sge,
            max_recv_sge: receives.segments(),
            max_inline_data: sends.inline,
        };
        let inline_header = if is_of_frames { limits.inline_header } else { 0 };
        let response = CreateQpResp::new_zeroed();
        let blocks = sends.unit;
        Ok(Self {
            memory,
            sends: send_units,
            receives: receive_units,
            counters,
            blocks,
            cap,
            request,
            response,
            doorbell: registers.doorbell(op, SEND_DOORBELL)?,
            #[cfg(feature = "raw")]
            page_offset: registers.offset,
            form,
            inline_header,
            queues,
        })
    }

    /// Notes what a program is told with the rings.
    fn note(&mut self) {
        #[cfg(feature = "raw")]
        {
            let CreateQpResp { tirn, tisn, rqn, sqn, .. } = self.response;
            self.queues.told =
                Told { page_offset: self.page_offset, sends: [sqn, tisn], receives: [rqn, tirn] };
        }
    }
}

impl Plan<QpCap, QpQueues<Sends, Receives>> for QpPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    /// A queue pair that receives from a shared queue is in the lists of its completion queues as long as the kernel's object exists,
    /// because its completions give entries back to the shared queue.
    fn open(mut self: Box<Self>, made: Created<'_, QpCap>) -> Result<QpQueues<Sends, Receives>> {
        self.queues.track.set_number(made.number);
        self.note();
        let (queues, [sent, received], cap) = (Arc::new(self.queues), self.counters, self.cap);
        let ring = self.receives;
        let known = queues.track.is_sharing().then(|| -> Known { queues.clone() });
        let sends = Sends::new(
            self.sends,
            sent,
            self.blocks,
            self.form,
            self.inline_header > 0,
            self.doorbell,
            queues.clone(),
        );
        let has_receives = !queues.track.is_sharing() && self.form != Form::Extended;
        let receives =
            has_receives.then(|| Receives::new(ring, received, cap.max_recv_wr, cap.max_recv_sge, queues));
        Ok(QpQueues { sends, receives, cap, known })
    }
}

/// A part of the memory of a queue pair.
pub(super) fn part(op: &'static str, memory: &Mapping, at: usize, bytes: usize) -> Result<Units> {
    Units::new(memory, at, bytes).ok_or_else(|| Error::malformed(op, NO_PART))
}

/// A word of the doorbell record.
pub(super) fn word(op: &'static str, memory: &Mapping, at: usize) -> Result<Word> {
    Word::new(memory, at).ok_or_else(|| Error::malformed(op, NO_PART))
}

impl Queues {
    /// Registers a new queue pair or work queue with the queues in which its sends and its receives complete.
    pub(super) fn join(
        op: &'static str,
        queues: [&Arc<CompletionSide>; 2],
        form: Form,
        sends: u32,
        source: Source,
        mut index: impl FnMut() -> u32,
    ) -> Result<Self> {
        let [send_queue, receive_queue] = queues.map(Arc::clone);
        // Numbers are used again after 2^24 queue pairs. A number that is still in use is skipped.
        loop {
            let track =
                Arc::new(Track::new(op, index(), matches!(form, Form::Frames { .. }), sends, &source)?);
            if send_queue.add(&track) && receive_queue.add(&track) {
                let queues = [send_queue, receive_queue];
                return Ok(Self {
                    track,
                    queues,
                    #[cfg(feature = "raw")]
                    told: Told::default(),
                });
            }
            send_queue.remove(&track);
        }
    }

    pub(super) fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// Discards all completions of sends that exist now. Returns the counter of the next send.
    pub(super) fn reset_sends(&self) -> u32 {
        if self.track.is_sharing() {
            self.reset_receives();
        }
        self.queues[0].at_end(|position| self.track.sends.reset(position))
    }

    /// Completions are no longer needed.
    pub(super) fn fall_silent(&self) {
        if self.track.is_sharing() {
            self.track.fall_silent();
        }
    }

    /// Discards all completions of receives that exist now. Returns the counter of the next receive.
    pub(super) fn reset_receives(&self) -> u32 {
        self.queues[1].at_end(|position| self.track.receives.reset(position))
    }
}
