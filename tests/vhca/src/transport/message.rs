//! The packets of a message.

use super::wqe::Operation;
use uverbs::raw::roce::psn;
use uverbs::raw::roce::{Operation as Kind, Packet, Remote};

/// The packets of a message that is sent or written.
pub(super) fn message(
    template: &Packet,
    operation: &Operation,
    first: u32,
    bytes: &[u8],
    mtu: usize,
) -> Vec<Packet> {
    // First, middle, last, only.
    let (kinds, immediate, remote) = match *operation {
        Operation::SendImmediate(immediate) => (
            [Kind::SendFirst, Kind::SendMiddle, Kind::SendLastImmediate, Kind::SendOnlyImmediate],
            immediate,
            None,
        ),
        Operation::SendInvalidate(key) => (
            [Kind::SendFirst, Kind::SendMiddle, Kind::SendLastInvalidate, Kind::SendOnlyInvalidate],
            key,
            None,
        ),
        Operation::Write(remote) => {
            ([Kind::WriteFirst, Kind::WriteMiddle, Kind::WriteLast, Kind::WriteOnly], 0, Some(remote))
        }
        Operation::WriteImmediate(remote, immediate) => (
            [Kind::WriteFirst, Kind::WriteMiddle, Kind::WriteLastImmediate, Kind::WriteOnlyImmediate],
            immediate,
            Some(remote),
        ),
        _ => ([Kind::SendFirst, Kind::SendMiddle, Kind::SendLast, Kind::SendOnly], 0, None),
    };
    let count = bytes.len().div_ceil(mtu).max(1);
    let remote = remote.map(|remote| Remote { len: bytes.len() as u32, ..remote }).unwrap_or_default();
    (0..count)
        .map(|index| {
            let is_last = index + 1 == count;
            let kind = match (index, is_last) {
                (0, true) => kinds[3],
                (0, false) => kinds[0],
                (_, true) => kinds[2],
                (_, false) => kinds[1],
            };
            Packet {
                operation: kind,
                psn: psn::add(first, index as u32),
                asks: is_last,
                solicited: template.solicited && is_last,
                remote: if index == 0 { remote } else { Remote::default() },
                immediate: if is_last { immediate } else { 0 },
                payload: bytes[index * mtu..bytes.len().min((index + 1) * mtu)].to_vec(),
                ..template.clone()
            }
        })
        .collect()
}
