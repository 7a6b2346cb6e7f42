//! Sizes of rings: what a queue needs for a request, and what it then has.
//!
//! What libmlx5 accepts is accepted here: a ring has room for whole blocks, and the largest request is as large as libmlx5's. What a
//! queue has is accepted again, because the size of a request is computed in the same way from what is asked for and for what is
//! granted: `room` rounds up to whole segments and whole blocks, and what is granted ends where these end.
//!
//! Source: `_sq_overhead`, `mlx5_calc_send_wqe`, `mlx5_calc_sq_size` and `mlx5_calc_rq_size` of libmlx5, providers/mlx5/verbs.c, rdma-core
//! 44 and 65; `set_rq_size` and `set_user_buf_size`, qp.c, Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::{
    SEND_WQE_BB, WqeAtomicSeg, WqeAv, WqeCtrlSeg, WqeDataSeg, WqeEthSeg, WqeMkeyContextSeg, WqeRaddrSeg,
    WqeUmrCtrlSeg, WqeXrcSeg,
};
use uverbs_abi::write::QpCap;

use super::sends::MOST_UNITS;
use super::{Form, Limits};
use crate::kernel::error::{Error, limit};

pub(super) const SEGMENT: u32 = size_of::<WqeDataSeg>() as u32;
const BLOCK: u32 = SEND_WQE_BB as u32;
/// The head of inline data.
pub(super) const INLINE_HEAD: usize = 4;

const CONTROL: u32 = size_of::<WqeCtrlSeg>() as u32;
/// What an operation on the peer's memory adds to a request, and what an atomic one does.
const REMOTE: u32 = size_of::<WqeRaddrSeg>() as u32;
const ATOMIC: u32 = REMOTE + size_of::<WqeAtomicSeg>() as u32;
/// What a change of a key adds to a request: a description of the change, the key's context, and room for a list.
const KEY: u32 = (size_of::<WqeUmrCtrlSeg>() + size_of::<WqeMkeyContextSeg>() + 64) as u32;

/// Bits of `enum ibv_qp_create_send_ops_flags` (verbs.h), by what the operations add to a request.
const REMOTE_OPS: u64 = 1 << 0 | 1 << 1 | 1 << 4;
const ATOMIC_OPS: u64 = 1 << 5 | 1 << 6;
const KEY_OPS: u64 = 1 << 7 | 1 << 8;

/// The sizes and options that are requested for a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) cap: QpCap,
    /// The operations for which requests need room, if not all; the bits of `enum ibv_qp_create_send_ops_flags`.
    pub(super) operations: Option<u64>,
    /// Flags for the kernel's driver.
    pub(super) flags: u16,
}

/// The error for a size that is not possible.
pub(super) fn refused(op: &'static str, hint: String) -> Error {
    Error::refused(op, Errno::EINVAL, hint)
}

/// Sizes in bytes of the beginning of a request.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// What is reserved for it: as much as the largest operation needs.
    reserved: u32,
    /// What a request with data has.
    used: u32,
}

impl Beginning {
    fn new(form: Form, operations: Option<u64>) -> Self {
        let (transport, may_have) = match form {
            // The Ethernet segment has room for the headers that some devices want in the request.
            Form::Frames { .. } => (size_of::<WqeEthSeg>() as u32, 0),
            Form::Datagrams => (size_of::<WqeAv>() as u32, 0),
            Form::Messages => (0, operations.unwrap_or(u64::MAX)),
            Form::Extended => (size_of::<WqeXrcSeg>() as u32, operations.unwrap_or(u64::MAX)),
        };
        let of = |operations: u64, bytes: u32| if may_have & operations != 0 { bytes } else { 0 };
        let reserved = of(REMOTE_OPS, REMOTE).max(of(ATOMIC_OPS, ATOMIC)).max(of(KEY_OPS, KEY));
        // A frame without its headers in the request has a shorter Ethernet segment, and one with them has as many bytes less of data.
        let used = if let Form::Frames { .. } = form { SEGMENT } else { transport + of(REMOTE_OPS, REMOTE) };
        Self { reserved: CONTROL + transport + reserved, used: CONTROL + used }
    }
}

/// The size of a send ring, and what it has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendRing {
    pub(super) blocks: u32,
    /// Maximum number of blocks of a request; zero without a ring.
    pub(super) unit: u32,
    /// Maximum number of inline bytes of a request.
    pub(super) inline: u32,
}

impl SendRing {
    /// A send takes as many blocks as its segments need. The error is a hint.
    pub(super) fn new(form: Form, wanted: &Wanted, limits: &Limits) -> Result<Self, String> {
        let QpCap { max_send_wr: sends, max_send_sge: segments, max_inline_data: inline, .. } = wanted.cap;
        if sends == 0 {
            return Ok(Self { inline, ..Self::default() });
        }
        let beginning = Beginning::new(form, wanted.operations);
        let header = if let Form::Frames { header } = form { header } else { 0 };
        let up = |bytes: u64| bytes.next_multiple_of(SEGMENT.into());
        let reserved = u64::from(beginning.reserved);
        let pieces = reserved + up(header.into()) + u64::from(segments) * u64::from(SEGMENT);
        let bytes = if inline == 0 { 0 } else { reserved + up(u64::from(inline) + INLINE_HEAD as u64) };
        // The first comparison keeps the number within its type.
        let most = limits.max_send / BLOCK * BLOCK;
        let large = pieces.max(bytes);
        if large > most.into() {
            let with = if header == 0 { String::new() } else { format!(" after {header} bytes of headers") };
            let what =
                format!("bytes of a send of {segments} segments{with}, or of {inline} bytes of inline data");
            return Err(limit(&what, large, at_most(most)));
        }
        let unit = (large as u32).div_ceil(BLOCK);
        let blocks = sends.checked_mul(unit).and_then(u32::checked_next_power_of_two);
        let Some(blocks) = blocks.filter(|blocks| *blocks <= limits.max_send_blocks) else {
            let most = floor(limits.max_send_blocks) / unit;
            return Err(limit("sends of this size", sends, at_most(most)));
        };
        // A block is complete, so this may be more than was asked for; as far as a request can have so much.
        let usable = (MOST_UNITS * SEGMENT).saturating_sub(beginning.used);
        let room = (unit * BLOCK).saturating_sub(beginning.reserved).min(usable);
        let inline = room.saturating_sub(INLINE_HEAD as u32).max(inline);
        Ok(Self { blocks, unit, inline })
    }

    /// Maximum number of requests.
    pub(super) fn requests(self) -> u32 {
        self.blocks.checked_div(self.unit).unwrap_or(0)
    }

    pub(super) fn bytes(self) -> usize {
        self.blocks as usize * BLOCK as usize
    }
}

/// The size of a receive ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiveRing {
    pub(super) places: u32,
    /// Size of a place in bytes.
    pub(super) stride: u32,
}

impl ReceiveRing {
    /// For this many receives of so many segments. The error is a hint.
    pub(super) fn new(receives: u32, segments: u32, limits: &Limits) -> Result<Self, String> {
        if receives == 0 {
            return Ok(Self::default());
        }
        let most = floor(limits.max_receive);
        if segments.max(1) > most / SEGMENT {
            return Err(limit("segments of a receive", segments, at_most(most / SEGMENT)));
        }
        let stride = (segments.max(1) * SEGMENT).next_power_of_two();
        let most = floor(limits.max_receives);
        if receives > most {
            return Err(limit("receives", receives, at_most(most)));
        }
        // The ring has at least 64 bytes.
        let places = receives.next_power_of_two().max(BLOCK / stride.min(BLOCK));
        Ok(Self { places, stride })
    }

    /// Maximum number of segments of a receive.
    pub(super) fn segments(self) -> u32 {
        self.stride / SEGMENT
    }

    pub(super) fn bytes(self) -> usize {
        self.places as usize * self.stride as usize
    }
}

/// The words of a limit.
fn at_most(most: u32) -> String {
    format!("at most {most}")
}

/// The largest power of two that is not larger; zero for zero.
pub(super) fn floor(number: u32) -> u32 {
    number.checked_ilog2().map_or(0, |bits| 1 << bits)
}
