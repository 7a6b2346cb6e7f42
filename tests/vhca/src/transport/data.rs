//! The data of requests: from memory to packets, and from packets to memory.

use super::Around;
use super::wqe::{Piece, pieces};
use crate::mkey::{Access, Reach};
use crate::queue::{Segment, Syndrome};

/// The bytes that a request sends, at most `limit` of them.
pub(super) fn gather(
    around: &Around<'_>,
    reach: Reach,
    data: &[u8],
    limit: u64,
) -> Result<Vec<u8>, Syndrome> {
    let mut bytes = Vec::new();
    for piece in pieces(data) {
        match piece? {
            Piece::Bytes(inline) => bytes.extend(inline),
            Piece::Segment(segment) => {
                let from = bytes.len();
                if from as u64 + u64::from(segment.len) > limit {
                    return Err(Syndrome::Length);
                }
                // Checked before memory is allocated for it.
                around
                    .mkeys
                    .check(reach, segment, segment.len.into(), Access::LocalRead)
                    .map_err(|_| Syndrome::Protection)?;
                bytes.resize(from + segment.len as usize, 0);
                around
                    .mkeys
                    .read(around.memory, reach, segment, &mut bytes[from..], Access::LocalRead)
                    .map_err(|_| Syndrome::Protection)?;
            }
        }
    }
    if bytes.len() as u64 > limit { Err(Syndrome::Length) } else { Ok(bytes) }
}

/// The memory for the data of a response.
pub(super) fn segments(data: &[u8]) -> Result<Vec<Segment>, Syndrome> {
    let segment = |piece| match piece {
        Ok(Piece::Segment(segment)) => Ok(segment),
        Ok(Piece::Bytes(_)) => Err(Syndrome::Operation),
        Err(syndrome) => Err(syndrome),
    };
    pieces(data).map(segment).collect()
}

/// Writes bytes to their place in a message with this memory: `at` bytes of it come before.
pub(super) fn scatter(
    around: &Around<'_>,
    reach: Reach,
    segments: &[Segment],
    mut at: usize,
    mut bytes: &[u8],
) -> Result<(), Syndrome> {
    for segment in segments {
        let len = segment.len as usize;
        if at >= len {
            at -= len;
            continue;
        }
        let (part, rest) = bytes.split_at(bytes.len().min(len - at));
        let address = segment.address.wrapping_add(at as u64);
        let place = Segment { address, len: part.len() as u32, key: segment.key };
        around
            .mkeys
            .write(around.memory, reach, place, part, Access::LocalWrite)
            .map_err(|_| Syndrome::Protection)?;
        (bytes, at) = (rest, 0);
        if bytes.is_empty() {
            return Ok(());
        }
    }
    if bytes.is_empty() { Ok(()) } else { Err(Syndrome::Length) }
}
