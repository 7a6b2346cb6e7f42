//! The packets of a message, and the codes of times.

use std::time::Duration;

use super::packet::{Operation, Packet, Remote};
use super::requester::{Request, Work};

/// A packet of a message that is sent or written.
pub(super) fn part_of(request: &Request, base: Packet, begins: bool, ends: bool) -> Packet {
    use Operation::*;
    // First, middle, last, only.
    let (kinds, immediate, remote) = match request.work {
        Work::Send(None) => ([SendFirst, SendMiddle, SendLast, SendOnly], 0, None),
        Work::Send(Some(immediate)) => {
            ([SendFirst, SendMiddle, SendLastImmediate, SendOnlyImmediate], immediate, None)
        }
        Work::SendInvalidate(key) => {
            ([SendFirst, SendMiddle, SendLastInvalidate, SendOnlyInvalidate], key, None)
        }
        Work::Write(remote, None) => ([WriteFirst, WriteMiddle, WriteLast, WriteOnly], 0, Some(remote)),
        Work::Write(remote, Some(immediate)) => {
            ([WriteFirst, WriteMiddle, WriteLastImmediate, WriteOnlyImmediate], immediate, Some(remote))
        }
        Work::Read(_) | Work::CompareSwap(_) | Work::FetchAdd(_) => ([ReadRequest; 4], 0, None),
    };
    let operation = match (begins, ends) {
        (true, true) => kinds[3],
        (true, false) => kinds[0],
        (false, true) => kinds[2],
        (false, false) => kinds[1],
    };
    let remote = remote.filter(|_| begins).map(|remote| Remote { len: request.len, ..remote });
    Packet {
        operation,
        solicited: request.solicited && ends,
        remote: remote.unwrap_or_default(),
        immediate: if ends { immediate } else { 0 },
        ..base
    }
}

/// How long a requester waits after "receiver not ready": table 45 of the InfiniBand specification.
pub(super) fn unready_time(code: u8) -> Duration {
    const HUNDREDTHS: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(HUNDREDTHS[usize::from(code & 31)] * 10)
}
