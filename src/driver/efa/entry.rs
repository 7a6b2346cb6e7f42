//! Entries of completion queues.
//!
//! Source: `efa_process_cqe` and `to_ibv_status`, providers/efa/verbs.c, rdma-core 65. A read completes as a read here; libefa reports
//! it as a send.

use uverbs_abi::efa::io::{
    CDESC_HAS_IMM, CDESC_OP_TYPE, CDESC_PHASE, CDESC_Q_TYPE, CDESC_UNSOLICITED, COMP_STATUS_FLUSHED,
    COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, COMP_STATUS_LOCAL_ERROR_INVALID_AH,
    COMP_STATUS_LOCAL_ERROR_INVALID_LKEY, COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR,
    COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE, COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE,
    COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP, COMP_STATUS_OK, COMP_STATUS_REMOTE_ERROR_ABORT,
    COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS, COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN,
    COMP_STATUS_REMOTE_ERROR_BAD_LENGTH, COMP_STATUS_REMOTE_ERROR_BAD_STATUS,
    COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH, COMP_STATUS_REMOTE_ERROR_RNR,
    COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER, RDMA_WRITE, RECV_QUEUE, RxCdescEx, SEND_QUEUE,
};
use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;

use super::track::{Done, Track};
use crate::driver::completion::{Extended, Fields, Place, Raised};
use crate::driver::ring::units::Item;

/// An entry: the words of an [`RxCdescEx`]. The device also has shorter entries, which do not contain the length of long writes.
pub(super) type Entry = [u64; 4];

/// Bytes of an entry.
pub(super) const ENTRY: usize = size_of::<RxCdescEx>();

/// The first word of an entry, with the request, the status and the flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct First(pub(super) u32);

impl First {
    #[inline(always)]
    fn byte(self, at: usize) -> u8 {
        self.0.to_ne_bytes()[at]
    }

    /// The number of the request.
    #[inline(always)]
    fn number(self) -> u16 {
        u32::from_le(self.0) as u16
    }

    #[inline(always)]
    fn status(self) -> u32 {
        if self.byte(2) == COMP_STATUS_OK { wc_status::SUCCESS } else { status(self.byte(2)) }
    }

    #[inline(always)]
    pub(super) fn flags(self) -> u8 {
        self.byte(3)
    }

    /// The word with this status and these flags, and zeros in the rest.
    pub(super) const fn word(status: u8, flags: u8) -> u32 {
        u32::from_ne_bytes([0, 0, status, flags])
    }

    /// The kind of the entry, if it is one of the usual ones, which report a success.
    // The differences from one of them show both, which takes fewer instructions than a test for each.
    #[inline(always)]
    pub(super) fn plain(self) -> Plain {
        const RECEIVE: u32 = First::word(COMP_STATUS_OK, RECV_QUEUE << 1);
        const SEND: u32 = RECEIVE ^ First::word(COMP_STATUS_OK, SEND_QUEUE << 1);
        let differs = self.0 ^ RECEIVE;
        if differs & Self::word(0xff, !CDESC_PHASE) == 0 {
            Plain::Receive
        } else if differs & Self::word(0xff, CDESC_Q_TYPE) == SEND {
            Plain::Send
        } else {
            Plain::No
        }
    }
}

/// Whether an entry belongs to a request of the send queue, or to a received message without immediate data.
pub(super) enum Plain {
    Send,
    Receive,
    No,
}

/// A received message without immediate data, as most are.
#[derive(Clone, Copy)]
struct Received<'a> {
    wr_id: u64,
    qp_num: u32,
    entry: Item<'a, Entry>,
}

impl Raised for Received<'_> {
    #[inline(always)]
    fn wc(&self) -> Wc {
        let Self { wr_id, qp_num, ref entry } = *self;
        let number = |field: u16| u16::from_le(field);
        Wc {
            wr_id,
            status: wc_status::SUCCESS,
            opcode: wc_opcode::RECV,
            byte_len: length(entry),
            qp_num,
            src_qp: number(entry.field::<10, u16>()).into(),
            slid: number(entry.field::<8, u16>()),
            ..Wc::default()
        }
    }

    #[inline(always)]
    fn flags(&self) -> u32 {
        0
    }
}

/// A completed request of the send queue.
#[derive(Clone, Copy)]
struct Sent {
    done: Done,
    qp_num: u32,
}

impl Raised for Sent {
    #[inline(always)]
    fn wc(&self) -> Wc {
        let Self { done: Done { wr_id, opcode, bytes }, qp_num } = *self;
        Wc { wr_id, status: wc_status::SUCCESS, opcode, byte_len: bytes, qp_num, ..Wc::default() }
    }

    #[inline(always)]
    fn flags(&self) -> u32 {
        0
    }
}

/// Stores the completion of an entry of this queue pair in `place`, and ends its request. Returns false if there is no such request.
#[inline(always)]
pub(super) fn put<T: Place>(first: First, entry: Item<'_, Entry>, track: &Track, place: &mut T) -> bool {
    let qp_num = track.number;
    match first.plain() {
        Plain::Receive => {
            let Some(wr_id) = track.receives.complete_one(first.number()) else { return false };
            place.put(&Received { wr_id, qp_num, entry });
        }
        Plain::Send => {
            let Some(done) = track.sends.complete(first.number()) else { return false };
            place.put(&Sent { done, qp_num });
        }
        Plain::No => return put_rare(first, entry, track, place),
    }
    true
}

#[cold]
#[inline(never)]
fn put_rare<T: Place>(first: First, entry: Item<'_, Entry>, track: &Track, place: &mut T) -> bool {
    let mut told = Told::default();
    let is_there = told.fill(first, entry, track);
    if is_there {
        place.put(&Extended { wc: told.wc(), ..Extended::default() });
    }
    is_there
}

/// The length of a message that is not a write.
#[inline(always)]
fn length(entry: &Item<'_, Entry>) -> u32 {
    u16::from_le(entry.field::<6, u16>()).into()
}

/// The [`wc_opcode`] of a received message, and its length.
fn message(entry: RxCdescEx) -> (u32, u32) {
    let low = u32::from(entry.base.length.get());
    if (entry.base.common.flags & CDESC_OP_TYPE) >> 4 == RDMA_WRITE {
        let high = u16::from_le_bytes([entry.src_addr[0], entry.src_addr[1]]);
        (wc_opcode::RECV_RDMA_WITH_IMM, low | u32::from(high) << 16)
    } else {
        (wc_opcode::RECV, low)
    }
}

/// A bit of [`Wc::wc_flags`] that only this crate uses: the message consumed no receive, so there is no request.
pub(crate) const UNSOLICITED: u32 = 1 << 31;

/// A completion in the format of a device whose entries name the sender of a message, and what was stored about the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    entry: Entry,
    wr_id: u64,
    /// One of [`wc_status`].
    status: u32,
    qp_num: u32,
    /// One of [`wc_opcode`].
    opcode: u32,
    bytes: u32,
    is_send: bool,
}

impl Told {
    /// Stores the completion of an entry of this queue pair, and ends its request. Returns false if there is no such request.
    // The entry is copied last, after everything that is computed from it and from the request was stored.
    #[inline(always)]
    pub(super) fn fill(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> bool {
        let is_send = (first.flags() & CDESC_Q_TYPE) >> 1 == SEND_QUEUE;
        if is_send {
            let Some(Done { wr_id, opcode, bytes }) = track.sends.complete(first.number()) else {
                return false;
            };
            (self.wr_id, self.opcode, self.bytes) = (wr_id, opcode, bytes);
        } else {
            self.wr_id = if first.flags() & CDESC_UNSOLICITED == 0 {
                let Some(wr_id) = track.receives.complete_one(first.number()) else { return false };
                wr_id
            } else {
                0
            };
            (self.opcode, self.bytes) = message(zerocopy::transmute!(entry.read()));
        }
        (self.is_send, self.qp_num, self.status) = (is_send, track.number, first.status());
        self.entry = entry.read();
        true
    }

    /// Stores the completion of a plain entry of a received message, and ends its request. Returns the `wr_id` of the request, or `None` if
    /// there is no such request. The `wr_id` and the status, which is success, are not stored.
    // Everything that does not depend on the request comes first, so that none of it has to be kept while the request is completed.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn fill_received(
        &mut self,
        first: First,
        entry: Item<'_, Entry>,
        track: &Track,
    ) -> Option<u64> {
        (self.entry, self.qp_num, self.is_send) = (entry.read(), track.number, false);
        (self.opcode, self.bytes) = (wc_opcode::RECV, length(&entry));
        track.receives.complete_one(first.number())
    }

    /// Stores the completion of a plain entry of a request to the send queue, and ends the request. Returns its `wr_id`, which is not
    /// stored, like [`Told::fill_received`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn fill_sent(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> Option<u64> {
        (self.entry, self.qp_num, self.is_send) = (entry.read(), track.number, true);
        let Done { wr_id, opcode, bytes } = track.sends.complete(first.number())?;
        (self.opcode, self.bytes) = (opcode, bytes);
        Some(wr_id)
    }

    /// A completion of a device whose completions contain no more than those of efa's sends.
    pub(crate) fn plain(wc: &Wc) -> Self {
        let Wc { wr_id, status, qp_num, opcode, byte_len: bytes, .. } = *wc;
        Self { wr_id, status, qp_num, opcode, bytes, is_send: true, ..Self::default() }
    }

    #[inline(always)]
    fn entry(&self) -> RxCdescEx {
        zerocopy::transmute!(self.entry)
    }

    #[inline(always)]
    fn has_immediate(&self) -> bool {
        !self.is_send && self.entry().base.common.flags & CDESC_HAS_IMM != 0
    }
}

impl Told {
    /// The sender's GID, if the queue was created with `CREATE_CQ_WITH_SGID` and there is no address handle of the sender.
    #[inline(always)]
    pub fn sender(&self) -> [u8; 16] {
        self.entry().src_addr
    }

    /// The completion in the kernel's layout.
    #[inline(always)]
    pub fn wc(&self) -> Wc {
        let said = Wc {
            wr_id: self.wr_id,
            status: self.status,
            vendor_err: self.vendor_error(),
            qp_num: self.qp_num,
            opcode: self.opcode(),
            byte_len: self.byte_len(),
            ..Wc::default()
        };
        if self.is_send {
            return said;
        }
        let (src_qp, slid, wc_flags) = (self.source_qp(), self.source_lid(), self.flags());
        Wc { ex: self.immediate(), src_qp, slid, wc_flags, ..said }
    }
}

impl Fields for Told {
    #[inline(always)]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline(always)]
    fn status(&self) -> u32 {
        self.status
    }

    #[inline(always)]
    fn opcode(&self) -> u32 {
        self.opcode
    }

    #[inline(always)]
    fn vendor_error(&self) -> u32 {
        self.entry().base.common.status.into()
    }

    #[inline(always)]
    fn byte_len(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    fn immediate(&self) -> u32 {
        if self.has_immediate() { self.entry().base.imm.get().to_be() } else { 0 }
    }

    #[inline(always)]
    fn qp_num(&self) -> u32 {
        self.qp_num
    }

    #[inline(always)]
    fn source_qp(&self) -> u32 {
        if self.is_send { 0 } else { self.entry().base.src_qp_num.get().into() }
    }

    /// Also a bit of this crate, which `uverbs::efa::is_unsolicited_wc` reads.
    #[inline(always)]
    fn flags(&self) -> u32 {
        let is_unsolicited = !self.is_send && self.entry().base.common.flags & CDESC_UNSOLICITED != 0;
        let immediate = if self.has_immediate() { WcFlags::WITH_IMM.bits() } else { 0 };
        immediate | if is_unsolicited { UNSOLICITED } else { 0 }
    }

    #[inline(always)]
    fn source_lid(&self) -> u16 {
        if self.is_send { 0 } else { self.entry().base.ah.get() }
    }
}

#[cold]
#[inline(never)]
fn status(status: u8) -> u32 {
    match status {
        COMP_STATUS_OK => wc_status::SUCCESS,
        COMP_STATUS_FLUSHED => wc_status::WR_FLUSH_ERR,
        COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR
        | COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP
        | COMP_STATUS_LOCAL_ERROR_INVALID_AH => wc_status::LOC_QP_OP_ERR,
        COMP_STATUS_LOCAL_ERROR_INVALID_LKEY => wc_status::LOC_PROT_ERR,
        COMP_STATUS_LOCAL_ERROR_BAD_LENGTH => wc_status::LOC_LEN_ERR,
        COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS => wc_status::REM_ACCESS_ERR,
        COMP_STATUS_REMOTE_ERROR_ABORT => wc_status::REM_ABORT_ERR,
        COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN => wc_status::REM_INV_RD_REQ_ERR,
        COMP_STATUS_REMOTE_ERROR_RNR => wc_status::RNR_RETRY_EXC_ERR,
        COMP_STATUS_REMOTE_ERROR_BAD_LENGTH | COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH => {
            wc_status::REM_INV_REQ_ERR
        }
        COMP_STATUS_REMOTE_ERROR_BAD_STATUS => wc_status::BAD_RESP_ERR,
        COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE | COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE => {
            wc_status::RESP_TIMEOUT_ERR
        }
        COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER => wc_status::REM_OP_ERR,
        _ => wc_status::GENERAL_ERR,
    }
}
