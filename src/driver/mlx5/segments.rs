//! The segments of a send request before its data.

use std::mem::offset_of;

use uverbs_abi::mlx5::wqe::{
    ETH_L2_INLINE_HEADER_SIZE, ETH_WQE_L3_CSUM, ETH_WQE_L4_CSUM, WQE_CTRL_CQ_UPDATE, WQE_CTRL_FENCE,
    WQE_CTRL_SOLICITED, WqeEthSeg,
};
use uverbs_abi::types::SendFlags;
use zerocopy::FromZeros;

/// The size of a unit: each segment takes one or more.
pub(super) const UNIT: usize = 16;
/// Size in bytes of the Ethernet segment before the headers, and how many of the headers' bytes are in its first unit.
pub(super) const ETH_HEAD: usize = size_of::<WqeEthSeg>() - ETH_L2_INLINE_HEADER_SIZE;
pub(super) const ETH_START: usize = UNIT - ETH_HEAD;

/// The mode bits of a request: what it waits for, and whether it has a completion.
#[inline(always)]
pub(super) fn mode(flags: SendFlags) -> u8 {
    const FENCE: u8 = WQE_CTRL_FENCE;
    const CQ_UPDATE: u8 = WQE_CTRL_CQ_UPDATE;
    const SOLICITED: u8 = WQE_CTRL_SOLICITED;
    /// Indexed by the three lowest flags, which takes fewer instructions than a check of each flag.
    const MODES: [u8; 8] = [
        0,
        FENCE,
        CQ_UPDATE,
        CQ_UPDATE | FENCE,
        SOLICITED,
        SOLICITED | FENCE,
        SOLICITED | CQ_UPDATE,
        SOLICITED | CQ_UPDATE | FENCE,
    ];
    const { assert!(SendFlags::FENCE.bits() == 1 && SendFlags::SIGNALED.bits() == 2) }
    const { assert!(SendFlags::SOLICITED.bits() == 4) }
    MODES[(flags.bits() & 7) as usize]
}

/// The first unit of an Ethernet segment without headers.
#[inline(always)]
pub(super) fn bare_eth_segment(flags: SendFlags) -> [u64; 2] {
    const { assert!(offset_of!(WqeEthSeg, cs_flags) == 4) }
    [u64::from_ne_bytes([0, 0, 0, 0, checksums(flags), 0, 0, 0]), 0]
}

/// The checksums that the device fills in.
#[inline(always)]
fn checksums(flags: SendFlags) -> u8 {
    const { assert!(SendFlags::IP_CSUM.bits() == 16) }
    // The bit times its position in the flags of the segment, without a branch.
    ((flags & SendFlags::IP_CSUM).bits() * u32::from(ETH_WQE_L3_CSUM | ETH_WQE_L4_CSUM) / 16) as u8
}

/// The first unit of an Ethernet segment with as much of the headers as fits.
#[inline(always)]
pub(super) fn eth_segment(flags: SendFlags, mss: u16, headers: &[u8]) -> [u64; 2] {
    let mut eth = WqeEthSeg {
        cs_flags: checksums(flags),
        mss: mss.into(),
        inline_hdr_sz: (headers.len() as u16).into(),
        ..WqeEthSeg::new_zeroed()
    };
    let start = &headers[..headers.len().min(ETH_START)];
    eth.inline_hdr_start[..start.len()].copy_from_slice(start);
    let [first, _]: [[u64; 2]; 2] = zerocopy::transmute!(eth);
    first
}
