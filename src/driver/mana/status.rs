//! The status of a request by the device's code of its error.

use uverbs_abi::types::wc_status;

/// The code of what was flushed here.
pub(super) const FLUSHED: u32 = 0xfff;

/// The status of a code (`vendor_error_to_wc_error`, providers/mana/cq.c, rdma-core 65).
pub(super) fn status_of(code: u32) -> u32 {
    match code {
        0x05 | 0x102 | 0x10f => wc_status::LOC_LEN_ERR,
        0x109 | 0x201 | 0x205 | 0x209..=0x20b | 0x210 | 0x211 | 0x215..=0x217 => wc_status::LOC_QP_OP_ERR,
        0x143 | 0x1c3 | 0x202..=0x204 | 0x206..=0x208 | 0x220..=0x227 => wc_status::LOC_PROT_ERR,
        0x10b | 0x183 => wc_status::LOC_ACCESS_ERR,
        0x03 => wc_status::REM_INV_REQ_ERR,
        0x43 | 0x83 | 0xc3 | 0x162 => wc_status::REM_ACCESS_ERR,
        0x161 | 0x163 => wc_status::REM_OP_ERR,
        0x108 | 0x10a | 0x10c | 0x111 | 0x145 | 0x185 | 0x1c5 | 0x212..=0x214 | 0x218 => wc_status::FATAL_ERR,
        0x1c7 | FLUSHED => wc_status::WR_FLUSH_ERR,
        0x1c6 => wc_status::RETRY_EXC_ERR,
        0x164 => wc_status::RNR_RETRY_EXC_ERR,
        // A code of zero in the report of an error too: the request has failed.
        _ => wc_status::GENERAL_ERR,
    }
}
