//! Flow counters with consecutive numbers, and the commands that read them.

use uverbs_abi::mlx5::prm::{
    CMD_OP_QUERY_FLOW_COUNTER, MAX_FLOW_COUNTERS, QueryFlowCounterIn, TrafficCounter,
};
use zerocopy::{FromBytes, FromZeros};

use super::devx::command::{self as devx, HEAD};
use super::reader::Totals;
use crate::device::object::Object;
use crate::kernel::error::{Error, Result};

/// Maximum number of counters that one command reads.
pub(super) const MAX: usize = MAX_FLOW_COUNTERS;

/// Flow counters with consecutive numbers.
#[derive(Debug)]
pub(super) struct Row {
    /// The counters, as an object of the kernel.
    pub(super) object: Object,
    /// The firmware's number of the first.
    pub(super) first: u32,
    pub(super) capacity: usize,
}

/// The size of the shortest row of at least `capacity` counters, in units of 128. The capability has a bit for each size.
pub(super) fn unit(sizes: u8, capacity: usize) -> Option<u8> {
    let sizes = (0..8).map(|bit| 1_u8 << bit).filter(|size| sizes & size != 0);
    sizes.into_iter().find(|size| usize::from(*size) * 128 >= capacity)
}

/// The capacity of the longest row.
pub(super) fn longest(sizes: u8) -> usize {
    usize::from(sizes.checked_ilog2().map_or(0, |bit| 1_u8 << bit)) * 128
}

/// Number of counters to read with one command: the firmware requires a multiple of 4.
pub(super) fn asked(capacity: usize) -> usize {
    capacity.next_multiple_of(4)
}

impl Row {
    /// The command that reads all counters.
    pub(super) fn request(&self) -> QueryFlowCounterIn {
        QueryFlowCounterIn {
            opcode: CMD_OP_QUERY_FLOW_COUNTER.into(),
            num_of_counters: (asked(self.capacity) as u16).into(),
            flow_counter_id: self.first.into(),
            ..QueryFlowCounterIn::new_zeroed()
        }
    }

    /// Size of the answer to it in bytes.
    pub(super) fn answer_size(&self) -> usize {
        HEAD + asked(self.capacity) * size_of::<TrafficCounter>()
    }

    /// The counters in such an answer.
    #[inline]
    pub(super) fn counters<'a>(&self, op: &'static str, answer: &'a [u8]) -> Result<&'a [TrafficCounter]> {
        let counters = answer.get(HEAD..).and_then(|bytes| <[TrafficCounter]>::ref_from_bytes(bytes).ok());
        let counters = counters.and_then(|counters| counters.get(..self.capacity));
        counters.ok_or_else(|| Error::malformed(op, "an answer of another length"))
    }

    /// The values of one counter of the device.
    pub(super) fn read_one(&self, op: &'static str, index: u32) -> Result<Totals> {
        let request = QueryFlowCounterIn {
            num_of_counters: 0.into(),
            flow_counter_id: self.first.wrapping_add(index).into(),
            ..self.request()
        };
        let mut answer = [0; HEAD + size_of::<TrafficCounter>()];
        devx::query(&self.object, op, &request, &mut answer)?;
        let counter = TrafficCounter::read_from_bytes(&answer[HEAD..]);
        counter.map(Totals::from).map_err(|_| Error::malformed(op, "an answer of another length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_row_that_the_device_has_is_taken() {
        assert_eq!(unit(0xff, 1), Some(1));
        assert_eq!(unit(0xff, 128), Some(1));
        assert_eq!(unit(0xff, 129), Some(2));
        assert_eq!(unit(0xff, MAX), Some(32));
        assert_eq!(unit(0b100, 1), Some(4));
        assert_eq!(unit(0b111, 513), None);
        assert_eq!(unit(0, 1), None);
        assert_eq!([0xff, 0b111, 0].map(longest), [16384, 512, 0]);
    }

    #[test]
    fn the_longest_answer_has_a_length_of_16_bits() {
        assert_eq!(asked(MAX), MAX);
        assert!(HEAD + asked(MAX) * size_of::<TrafficCounter>() <= usize::from(u16::MAX));
        assert_eq!([1, 4, 5, 4090].map(asked), [4, 4, 8, 4092]);
    }
}
