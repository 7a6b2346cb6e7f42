//! What an entry of a completion queue says.
//!
//! Source: `efa_process_cqe` and `to_ibv_status`, providers/efa/verbs.c, rdma-core 65. A read completes as a read here; libefa says
//! that it was a send.

use uverbs_abi::efa::io::{
    CDESC_HAS_IMM, CDESC_OP_TYPE, CDESC_Q_TYPE, CDESC_UNSOLICITED, COMP_STATUS_FLUSHED,
    COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, COMP_STATUS_LOCAL_ERROR_INVALID_AH,
    COMP_STATUS_LOCAL_ERROR_INVALID_LKEY, COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR,
    COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE, COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE,
    COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP, COMP_STATUS_OK, COMP_STATUS_REMOTE_ERROR_ABORT,
    COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS, COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN,
    COMP_STATUS_REMOTE_ERROR_BAD_LENGTH, COMP_STATUS_REMOTE_ERROR_BAD_STATUS,
    COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH, COMP_STATUS_REMOTE_ERROR_RNR,
    COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER, RDMA_WRITE, RxCdescEx, SEND_QUEUE,
};
use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;

use super::track::{Done, Kind, Track};

/// Bytes of an entry. The device has shorter ones too, which do not tell the length of long writes.
pub(super) const ENTRY: usize = size_of::<RxCdescEx>();

/// Bit of [`Wc::wc_flags`] that is the crate's own: no receive was taken, and there is no request.
pub(crate) const UNSOLICITED: u32 = 1 << 31;

/// Whether it is of a send.
#[inline(always)]
pub(super) fn is_send(entry: &RxCdescEx) -> bool {
    (entry.base.common.flags & CDESC_Q_TYPE) >> 1 == SEND_QUEUE
}

/// What an entry says of this queue pair, whose request is done then; none if there is no such request.
#[inline(always)]
pub(super) fn raise(entry: &RxCdescEx, track: &Track) -> Option<Wc> {
    let common = &entry.base.common;
    let said = Wc {
        status: if common.status == COMP_STATUS_OK { wc_status::SUCCESS } else { status(common.status) },
        vendor_err: common.status.into(),
        qp_num: track.number,
        ..Wc::default()
    };
    if is_send(entry) {
        let Done { wr_id, kind, bytes } = track.sends.complete(common.req_id.get())?;
        let opcode = match kind {
            Kind::Send => wc_opcode::SEND,
            Kind::Read => wc_opcode::RDMA_READ,
            Kind::Write => wc_opcode::RDMA_WRITE,
            Kind::Receive => return None,
        };
        return Some(Wc { wr_id, opcode, byte_len: bytes, ..said });
    }
    let is_unsolicited = common.flags & CDESC_UNSOLICITED != 0;
    let wr_id = if is_unsolicited { 0 } else { track.receives.complete(common.req_id.get())?.wr_id };
    Some(Wc { wr_id, ..received(entry, said, is_unsolicited) })
}

/// What it says of something that came in.
#[inline(always)]
fn received(entry: &RxCdescEx, said: Wc, is_unsolicited: bool) -> Wc {
    let base = &entry.base;
    let is_write = (base.common.flags & CDESC_OP_TYPE) >> 4 == RDMA_WRITE;
    let mut byte_len = u32::from(base.length.get());
    if is_write {
        byte_len |= u32::from(u16::from_le_bytes([entry.src_addr[0], entry.src_addr[1]])) << 16;
    }
    let mut flags = if is_unsolicited { UNSOLICITED } else { 0 };
    let has_immediate = base.common.flags & CDESC_HAS_IMM != 0;
    if has_immediate {
        flags |= WcFlags::WITH_IMM.bits();
    }
    Wc {
        opcode: if is_write { wc_opcode::RECV_RDMA_WITH_IMM } else { wc_opcode::RECV },
        byte_len,
        ex: if has_immediate { base.imm.get().to_be() } else { 0 },
        src_qp: base.src_qp_num.get().into(),
        slid: base.ah.get(),
        wc_flags: flags,
        ..said
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
