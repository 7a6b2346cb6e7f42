//! The contents of an entry of a completion queue.
//!
//! Source: `struct mlx5_cqe64` and `struct mlx5_err_cqe`, device.h; Linux 6.1.

use std::mem::offset_of;

#[cfg(feature = "raw")]
use uverbs_abi::mlx5::wqe::CQE_RESP_SEND_IMM;
use uverbs_abi::mlx5::wqe::{
    CQE_L3_OK, CQE_L4_OK, CQE_REQ, CQE_REQ_ERR, CQE_RESP_ERR, CQE_RESP_SEND, CQE_RESP_SEND_INV,
    CQE_RESP_WR_IMM, Cqe64, ErrCqe, OPCODE_ATOMIC_CS, OPCODE_ATOMIC_FA, OPCODE_RDMA_READ, OPCODE_RDMA_WRITE,
    OPCODE_RDMA_WRITE_IMM, OPCODE_SEND_IMM, OPCODE_TSO, OPCODE_UMR,
};
use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
#[cfg(feature = "raw")]
use zerocopy::FromZeros;
use zerocopy::big_endian::{U16, U32};

use super::track::Track;
use crate::driver::completion::Extended;
#[cfg(feature = "raw")]
use crate::driver::completion::Fields;
use crate::driver::ring::units::Item;

/// Bit of [`Cqe64::l4_hdr_type_etc`]: a VLAN tag was removed (`cqe_has_vlan`, device.h).
const STRIPPED: u8 = 1;
/// Bits of the same field: the type of the header after Ethernet's, and the value for IPv4.
const KIND: u8 = 3 << 2;
const IPV4: u8 = 2 << 2;

/// Bits of [`Cqe64::op_own`]: the entry contains data. The crate does not request this, so there is no place to which the data could be
/// copied.
const HAS_DATA: u8 = 3 << 2;

/// A value that replaces the opcode of a change of a key in a copy of an entry, to say which change it was. The device has no such
/// opcodes.
const BOUND: u8 = 0xfe;
const INVALIDATED: u8 = 0xfd;

/// The kinds of completions of successful requests: something was sent; a message or a frame was received; a message was received into an
/// entry of a shared queue; such messages without immediate data or a key, as most are.
pub(super) const SENT: u8 = 0;
pub(super) const MESSAGES: u8 = 1;
pub(super) const FRAMES: u8 = 2;
pub(super) const SHARED: u8 = 3;
pub(super) const PLAIN: u8 = 4;
pub(super) const PLAIN_SHARED: u8 = 5;

/// Whether an entry is of this kind, by its opcode, and contains no data: one comparison.
#[inline(always)]
pub(super) fn is_of<const KIND: u8>(cqe: &Item<'_, Cqe64>) -> bool {
    const DATA: u8 = HAS_DATA >> 2;
    let kind = cqe.field::<{ offset_of!(Cqe64, op_own) }, u8>() >> 2;
    match KIND {
        SENT => kind == CQE_REQ << 2,
        FRAMES | PLAIN => kind == CQE_RESP_SEND << 2,
        _ => {
            let most = (CQE_RESP_SEND_INV - CQE_RESP_WR_IMM) << 2;
            kind & DATA == 0 && kind.wrapping_sub(CQE_RESP_WR_IMM << 2) <= most
        }
    }
}

/// The number of the queue pair in an entry that has one.
#[inline(always)]
pub(super) fn number_of(cqe: &Item<'_, Cqe64>) -> u32 {
    cqe.field::<{ offset_of!(Cqe64, sop_drop_qpn) }, U32>().get() & 0xff_ffff
}

/// An entry, and the queue pair to which it belongs.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) cqe: Item<'a, Cqe64>,
    pub(super) kind: u8,
    pub(super) wr_id: u64,
    pub(super) qp_num: u32,
    pub(super) track: &'a Track,
}

impl<'a> Found<'a> {
    /// The entry at `position` of this queue pair, if its request was posted since the last reset. The request is then done.
    #[inline(always)]
    pub(super) fn new(cqe: Item<'a, Cqe64>, track: &'a Track, position: u64) -> Option<Self> {
        let kind = cqe.field::<{ offset_of!(Cqe64, op_own) }, u8>() >> 4;
        let counter = cqe.field::<{ offset_of!(Cqe64, wqe_counter) }, U16>().get();
        let (wr_id, qp_num) = match kind {
            CQE_REQ => (track.sends.complete(counter, position)?, track.number()),
            CQE_RESP_WR_IMM..=CQE_RESP_SEND_INV => match track.receives.complete(counter, position) {
                Some(wr_id) => (wr_id, track.number()),
                None => track.complete_rare_shared(counter, position, number_of(&cqe))?,
            },
            _ => track.failed(kind, counter, position, number_of(&cqe))?,
        };
        Some(Self { cqe, kind, wr_id, qp_num, track })
    }

    /// The entry at `position` of this queue pair, if its request succeeded and was posted since the last reset. The request is then done.
    /// `None`, with nothing done, for all other entries, including those that need further work: changes of keys, receives of a shared
    /// queue, and data in the entry.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn succeeded(cqe: Item<'a, Cqe64>, track: &'a Track, position: u64) -> Option<Self> {
        const REQ: u8 = CQE_REQ << 2;
        const RESP_WR_IMM: u8 = CQE_RESP_WR_IMM << 2;
        const RESP_SEND: u8 = CQE_RESP_SEND << 2;
        const RESP_SEND_IMM: u8 = CQE_RESP_SEND_IMM << 2;
        const RESP_SEND_INV: u8 = CQE_RESP_SEND_INV << 2;
        let op_own = cqe.field::<{ offset_of!(Cqe64, op_own) }, u8>();
        let kind = op_own >> 4;
        let counter = cqe.field::<{ offset_of!(Cqe64, wqe_counter) }, U16>().get();
        let number = || cqe.field::<{ offset_of!(Cqe64, sop_drop_qpn) }, U32>().get();
        // The same check as in `is_of`, for all kinds at the same time: a separate comparison for each kind costs a poll of 16 a hundred
        // instructions more.
        let wr_id = match op_own >> 2 {
            REQ if !track.has_frames && number() >> 24 == OPCODE_UMR.into() => return None,
            REQ => track.sends.complete(counter, position)?,
            RESP_WR_IMM | RESP_SEND | RESP_SEND_IMM | RESP_SEND_INV => {
                track.receives.complete(counter, position)?
            }
            _ => return None,
        };
        Some(Found { cqe, kind, wr_id, qp_num: track.number(), track })
    }
}

impl Found<'_> {
    /// All fields of the completion.
    #[inline(never)]
    pub(super) fn said(&self) -> Extended {
        let Self { kind, wr_id, qp_num, track, .. } = *self;
        let (cqe, known) = (self.cqe.read(), Wc { wr_id, qp_num, ..Wc::default() });
        let timestamp = cqe.timestamp.get();
        let said = match kind {
            CQE_RESP_SEND if track.has_frames => return frame(&cqe, known),
            CQE_REQ => Sent::of(self.number()).said(&cqe, known),
            CQE_RESP_WR_IMM..=CQE_RESP_SEND_INV => message(&cqe, known),
            kind => {
                let opcode = if kind == CQE_REQ_ERR { wc_opcode::SEND } else { wc_opcode::RECV };
                let (status, vendor_err) = reason(&self.cqe);
                return Extended { wc: Wc { status, opcode, vendor_err, ..known }, ..Extended::default() };
            }
        };
        let status = if track.has_frames { said.status } else { without_data(cqe.op_own, said.status) };
        Extended { wc: Wc { status, ..said }, timestamp, vlan: 0 }
    }

    /// The number of the queue pair, and the opcode of its request in the upper byte. If one opcode is used for several operations, the
    /// byte names the operation.
    fn number(&self) -> u32 {
        let number = self.cqe.field::<{ offset_of!(Cqe64, sop_drop_qpn) }, U32>().get();
        if number >> 24 != OPCODE_UMR.into() {
            return number;
        }
        let counter = self.cqe.field::<{ offset_of!(Cqe64, wqe_counter) }, U16>().get();
        let opcode = if self.track.sends.noted(counter) == wc_opcode::BIND_MW { BOUND } else { INVALIDATED };
        u32::from(opcode) << 24 | number & 0xff_ffff
    }

    /// Stores the completion in the device's format. Only the fields that every caller uses are read.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn keep(&self, place: &mut Unread) {
        self.keep_good(place);
        if !matches!(self.kind, CQE_REQ..=CQE_RESP_SEND_INV) {
            place.status = reason(&self.cqe).0;
        } else if self.kind == CQE_REQ || !self.track.has_frames {
            place.status = without_data(place.cqe.op_own, wc_status::SUCCESS);
        }
        if self.kind == CQE_REQ {
            place.cqe.sop_drop_qpn = self.number().into();
        }
    }

    /// Stores the completion of a request that succeeded, in the device's format.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn keep_good(&self, place: &mut Unread) {
        let Self { cqe, wr_id, qp_num, track, .. } = *self;
        (place.cqe, place.wr_id, place.qp_num, place.is_frame) =
            (cqe.read(), wr_id, qp_num, track.has_frames);
        place.status = wc_status::SUCCESS;
    }
}

/// A completion in the device's format. Each field is extracted when it is read. Fields that the completion does not have may have any
/// value.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    cqe: Cqe64,
    is_frame: bool,
    wr_id: u64,
    status: u32,
    qp_num: u32,
}

#[cfg(feature = "raw")]
impl Default for Unread {
    fn default() -> Self {
        Self { cqe: Cqe64::new_zeroed(), is_frame: false, wr_id: 0, status: 0, qp_num: 0 }
    }
}

#[cfg(feature = "raw")]
impl Fields for Unread {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn status(&self) -> u32 {
        self.status
    }

    fn opcode(&self) -> u32 {
        match self.kind() {
            CQE_REQ => self.sent().opcode.into(),
            CQE_REQ_ERR => wc_opcode::SEND,
            CQE_RESP_WR_IMM => wc_opcode::RECV_RDMA_WITH_IMM,
            _ => wc_opcode::RECV,
        }
    }

    /// Zero for a request that succeeded.
    fn vendor_error(&self) -> u32 {
        let error: ErrCqe = zerocopy::transmute!(self.cqe);
        if matches!(self.kind(), CQE_REQ_ERR | CQE_RESP_ERR) { error.vendor_err_synd.into() } else { 0 }
    }

    #[inline]
    fn byte_len(&self) -> u32 {
        self.cqe.byte_cnt.get()
    }

    fn immediate(&self) -> u32 {
        if self.is_frame { self.cqe.sop_drop_qpn.get() & 0xff_ffff } else { self.message().ex }
    }

    #[inline]
    fn qp_num(&self) -> u32 {
        self.qp_num
    }

    fn source_qp(&self) -> u32 {
        self.message().src_qp
    }

    fn flags(&self) -> u32 {
        match self.kind() {
            CQE_RESP_SEND if self.is_frame => received(self.cqe.hds_ip_ext, self.cqe.l4_hdr_type_etc).bits(),
            _ => self.message().wc_flags,
        }
    }

    fn source_lid(&self) -> u16 {
        self.message().slid
    }

    fn service_level(&self) -> u8 {
        self.message().sl
    }

    fn path_bits(&self) -> u8 {
        self.message().dlid_path_bits
    }

    fn timestamp(&self) -> u64 {
        self.cqe.timestamp.get()
    }

    fn vlan(&self) -> u16 {
        self.cqe.vlan_info.get()
    }
}

#[cfg(feature = "raw")]
impl Unread {
    fn kind(&self) -> u8 {
        self.cqe.op_own >> 4
    }

    fn sent(&self) -> Sent {
        Sent::of(self.cqe.sop_drop_qpn.get())
    }

    /// The fields of a received message; for other completions they are zero.
    fn message(&self) -> Wc {
        match self.kind() {
            CQE_RESP_WR_IMM..=CQE_RESP_SEND_INV if !self.is_frame => message(&self.cqe, Wc::default()),
            _ => Wc::default(),
        }
    }

    /// The fields that completion counters use.
    pub(crate) fn extended(&self) -> Extended {
        let Self { wr_id, status, qp_num, .. } = *self;
        Extended {
            wc: Wc { wr_id, status, qp_num, opcode: self.opcode(), ..self.length() },
            ..Extended::default()
        }
    }

    fn length(&self) -> Wc {
        let byte_len = match self.kind() {
            CQE_REQ => self.sent().byte_len(self.byte_len()),
            CQE_RESP_WR_IMM..=CQE_RESP_SEND_INV => self.byte_len(),
            _ => 0,
        };
        Wc { byte_len, wc_flags: self.flags(), ..Wc::default() }
    }
}

/// The status of an entry that contains no data.
#[inline]
fn without_data(op_own: u8, status: u32) -> u32 {
    if op_own & HAS_DATA == 0 { status } else { wc_status::GENERAL_ERR }
}

/// What an entry means for a request that was sent, by its opcode: one of [`wc_opcode`], flags as in [`WcFlags`], and the number of bytes
/// that were returned: the number in the entry, or a fixed one.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    opcode: u8,
    flags: u8,
    is_counted: bool,
    bytes: u8,
}

impl Sent {
    /// By the opcode, which is in the byte above the number of the queue pair.
    #[inline(always)]
    pub(super) fn of(number: u32) -> Self {
        /// A table, so that a poll does not branch on the opcode. An opcode without a row is a send.
        const ROWS: [Sent; 1 << u8::BITS] = {
            let mut rows = [Sent::new(wc_opcode::SEND); 1 << u8::BITS];
            rows[OPCODE_TSO as usize] = Sent::new(wc_opcode::TSO);
            rows[OPCODE_SEND_IMM as usize] = Sent::new(wc_opcode::SEND).with_immediate();
            rows[OPCODE_RDMA_WRITE as usize] = Sent::new(wc_opcode::RDMA_WRITE);
            rows[OPCODE_RDMA_WRITE_IMM as usize] = Sent::new(wc_opcode::RDMA_WRITE).with_immediate();
            rows[OPCODE_RDMA_READ as usize] = Sent { is_counted: true, ..Sent::new(wc_opcode::RDMA_READ) };
            rows[OPCODE_ATOMIC_CS as usize] = Sent { bytes: 8, ..Sent::new(wc_opcode::COMP_SWAP) };
            rows[OPCODE_ATOMIC_FA as usize] = Sent { bytes: 8, ..Sent::new(wc_opcode::FETCH_ADD) };
            rows[BOUND as usize] = Sent::new(wc_opcode::BIND_MW);
            rows[INVALIDATED as usize] = Sent::new(wc_opcode::LOCAL_INV);
            rows
        };
        ROWS[(number >> 24) as usize]
    }

    const fn new(opcode: u32) -> Self {
        Self { opcode: opcode as u8, flags: 0, is_counted: false, bytes: 0 }
    }

    /// The kernel sets this flag (`handle_good_req`, cq.c).
    const fn with_immediate(self) -> Self {
        Self { flags: WcFlags::WITH_IMM.bits() as u8, ..self }
    }

    /// All fields of the completion.
    #[inline(always)]
    pub(super) fn said(self, cqe: &Cqe64, wc: Wc) -> Wc {
        let byte_len = self.byte_len(cqe.byte_cnt.get());
        Wc { opcode: self.opcode.into(), byte_len, wc_flags: self.flags.into(), ..wc }
    }

    /// Number of bytes that were returned; the entry contains `count`.
    #[inline(always)]
    fn byte_len(self, count: u32) -> u32 {
        u32::from(self.is_counted).wrapping_neg() & count | u32::from(self.bytes)
    }
}

/// The fields of a received message (`handle_responder`, cq.c of the kernel's mlx5).
#[inline(always)]
pub(super) fn message(cqe: &Cqe64, wc: Wc) -> Wc {
    /// Positions of the type of the network header and of the service level.
    const GRH: u32 = 3 << 28;
    const LEVEL: u32 = 24;
    let (kind, word) = (cqe.op_own >> 4, cqe.imm_inval_pkey);
    let opcode = if kind == CQE_RESP_WR_IMM { wc_opcode::RECV_RDMA_WITH_IMM } else { wc_opcode::RECV };
    let (flags, ex) = match kind {
        CQE_RESP_SEND => (WcFlags::empty(), 0),
        CQE_RESP_SEND_INV => (WcFlags::WITH_INVALIDATE, word.get()),
        _ => (WcFlags::WITH_IMM, u32::from_ne_bytes(word.to_bytes())),
    };
    let from = cqe.flags_rqpn.get();
    let grh = if from & GRH != 0 { WcFlags::GRH } else { WcFlags::empty() };
    Wc {
        opcode,
        byte_len: cqe.byte_cnt.get(),
        ex,
        src_qp: from & 0xff_ffff,
        wc_flags: (flags | grh).bits(),
        pkey_index: word.get() as u16,
        slid: cqe.slid.get(),
        sl: (from >> LEVEL) as u8 & 0xf,
        dlid_path_bits: cqe.ml_path & 0x7f,
        ..wc
    }
}

/// The fields of a received frame.
#[inline(always)]
pub(super) fn frame(cqe: &Cqe64, wc: Wc) -> Extended {
    let wc = Wc {
        opcode: wc_opcode::RECV,
        byte_len: cqe.byte_cnt.get(),
        ex: cqe.sop_drop_qpn.get() & 0xff_ffff,
        wc_flags: received(cqe.hds_ip_ext, cqe.l4_hdr_type_etc).bits(),
        ..wc
    };
    Extended { wc, vlan: cqe.vlan_info.get(), timestamp: cqe.timestamp.get() }
}

/// The flags of a received frame.
#[inline(always)]
fn received(checks: u8, headers: u8) -> WcFlags {
    let mut flags = WcFlags::empty();
    flags.set(WcFlags::IP_CSUM_OK, are_good(checks, headers));
    flags.set(WcFlags::WITH_VLAN, headers & STRIPPED != 0);
    flags
}

/// Why a request failed, and the device's own number for the reason.
#[cold]
fn reason(cqe: &Item<'_, Cqe64>) -> (u32, u32) {
    let error: ErrCqe = zerocopy::transmute!(cqe.read());
    match error.op_own >> 4 {
        CQE_REQ_ERR | CQE_RESP_ERR => (status(error.syndrome), error.vendor_err_synd.into()),
        // An opcode that raw packet queue pairs do not have.
        _ => (wc_status::GENERAL_ERR, 0),
    }
}

/// Whether the received frame was IPv4 and its checksums are correct.
#[inline(always)]
fn are_good(checks: u8, headers: u8) -> bool {
    const GOOD: u8 = CQE_L3_OK | CQE_L4_OK;
    u16::from_le_bytes([checks & GOOD, headers & KIND]) == u16::from_le_bytes([GOOD, IPV4])
}

/// `mlx5_handle_error_cqe`, cq.c, Linux 6.1.
fn status(syndrome: u8) -> u32 {
    use uverbs_abi::mlx5::wqe as abi;
    match syndrome {
        abi::SYNDROME_LOCAL_LENGTH_ERR => wc_status::LOC_LEN_ERR,
        abi::SYNDROME_LOCAL_QP_OP_ERR => wc_status::LOC_QP_OP_ERR,
        abi::SYNDROME_LOCAL_PROT_ERR => wc_status::LOC_PROT_ERR,
        abi::SYNDROME_WR_FLUSH_ERR => wc_status::WR_FLUSH_ERR,
        abi::SYNDROME_MW_BIND_ERR => wc_status::MW_BIND_ERR,
        abi::SYNDROME_BAD_RESP_ERR => wc_status::BAD_RESP_ERR,
        abi::SYNDROME_LOCAL_ACCESS_ERR => wc_status::LOC_ACCESS_ERR,
        abi::SYNDROME_REMOTE_INVAL_REQ_ERR => wc_status::REM_INV_REQ_ERR,
        abi::SYNDROME_REMOTE_ACCESS_ERR => wc_status::REM_ACCESS_ERR,
        abi::SYNDROME_REMOTE_OP_ERR => wc_status::REM_OP_ERR,
        abi::SYNDROME_TRANSPORT_RETRY_EXC_ERR => wc_status::RETRY_EXC_ERR,
        abi::SYNDROME_RNR_RETRY_EXC_ERR => wc_status::RNR_RETRY_EXC_ERR,
        abi::SYNDROME_REMOTE_ABORTED_ERR => wc_status::REM_ABORT_ERR,
        _ => wc_status::GENERAL_ERR,
    }
}
