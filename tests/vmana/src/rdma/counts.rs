//! The counters of the port.

use uverbs::raw::roce::{Operation, Packet};
use vpci::bytes::BytesMut as _;

use super::error::code;

/// What is counted; the rest of what the driver can ask for never happens here.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    timeouts: u64,
    sequence_naks: u64,
    not_ready_naks: [u64; 2],
    invalid_naks: u64,
    access_naks: u64,
    operation_naks: u64,
    not_ready_ends: u64,
    retry_ends: u64,
    fatal: u64,
    bytes: [u64; 2],
    packets: [u64; 2],
    sends: u64,
    writes: u64,
    reads: u64,
}

impl Counts {
    pub(super) fn sent(&mut self, packet: &Packet) {
        self.bytes[0] += packet.payload.len() as u64;
        self.packets[0] += 1;
        if packet.operation == Operation::Acknowledge && packet.syndrome >> 5 == 1 {
            self.not_ready_naks[1] += 1;
        }
    }

    pub(super) fn received(&mut self, packet: &Packet) {
        use Operation::*;
        self.bytes[1] += packet.payload.len() as u64;
        self.packets[1] += 1;
        match packet.operation {
            SendLast | SendLastImmediate | SendOnly | SendOnlyImmediate => self.sends += 1,
            WriteLast | WriteLastImmediate | WriteOnly | WriteOnlyImmediate => self.writes += 1,
            ReadRequest => self.reads += 1,
            Acknowledge => match (packet.syndrome >> 5, packet.syndrome & 0x1f) {
                (1, _) => self.not_ready_naks[0] += 1,
                (3, 0) => self.sequence_naks += 1,
                (3, 1) => self.invalid_naks += 1,
                (3, 2) => self.access_naks += 1,
                (3, _) => self.operation_naks += 1,
                _ => {}
            },
            _ => {}
        }
    }

    /// A queue pair has failed, with this code of a request of its own.
    pub(super) fn failed(&mut self, code: Option<u32>) {
        self.fatal += 1;
        match code {
            Some(code::NAK_NOT_READY) => self.not_ready_ends += 1,
            Some(code::RETRIES) => {
                self.retry_ends += 1;
                self.timeouts += 1;
            }
            _ => {}
        }
    }
}

/// Puts the counters into an answer (`struct mana_rnic_query_vf_cntrs_resp`).
pub(crate) fn fill(counts: &Counts, out: &mut [u8]) {
    let values = [
        (0, counts.timeouts),
        (1, counts.sequence_naks),
        (2, counts.not_ready_naks[0]),
        (3, counts.not_ready_naks[1]),
        (8, counts.invalid_naks),
        (9, counts.access_naks),
        (10, counts.operation_naks),
        (18, counts.not_ready_ends),
        (19, counts.retry_ends),
        (20, counts.fatal),
        (27, counts.bytes[0]),
        (28, counts.bytes[1]),
        (29, counts.sends),
        (30, counts.writes),
        (31, counts.reads),
        (32, counts.packets[0]),
        (33, counts.packets[1]),
    ];
    values.into_iter().for_each(|(at, value)| out.put_u64(at * 8, value));
}
