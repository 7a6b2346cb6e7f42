//! Queue counters, in sets: packets that arrived at the queues of a set, and errors in them.
//!
//! NVIDIA's "Understanding mlx5 Linux Counters and Status Parameters" describes the meaning of each. Where it leaves a choice, the README
//! says what this device does.

use std::collections::BTreeMap;

use crate::bits::{BitsMut, Field};
use crate::ifc::counter::query_q_counter_out as out;
use crate::queue::Syndrome;

/// `req_rnr_retries_exceeded`, which is a reserved place in the header of 6.1; that of 7.3 names it.
const RNR_RETRIES_EXCEEDED: Field = Field::new(0x380, 32);

/// Names all counted events, with the field of each.
macro_rules! events {
    ($($(#[$what:meta])* $name:ident: $field:expr,)*) => {
        /// An event that a queue counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum QueueEvent {
            $($(#[$what])* $name,)*
        }

        const FIELDS: &[Field] = &[$($field),*];
    };
}

events! {
    // Packets that arrive at a responder.
    Write: out::rx_write_requests,
    Read: out::rx_read_requests,
    Atomic: out::rx_atomic_requests,
    /// There was no receive request.
    OutOfBuffer: out::out_of_buffer,
    /// A packet arrived before one that should have come earlier.
    OutOfSequence: out::out_of_sequence,
    /// A packet that had already arrived.
    Duplicate: out::duplicate_request,
    // Responses that arrive at a requester, or are missing.
    NotReady: out::rnr_nak_retry_err,
    SequenceNak: out::packet_seq_err,
    /// A response shows that an earlier one was lost.
    ImpliedNak: out::implied_nak_seq_err,
    AckTimeout: out::local_ack_timeout_err,
    // The results of requests and receives.
    RequesterError: out::req_cqe_error,
    RequesterFlushed: out::req_cqe_flush_error,
    RequesterLength: out::req_local_length_error,
    RequesterOperation: out::local_operation_error,
    RequesterProtection: out::req_local_protection,
    RequesterBind: out::req_mw_binding,
    RequesterBadResponse: out::req_bad_response,
    RequesterInvalidRequest: out::req_remote_invalid_request,
    RequesterAccess: out::req_remote_access_errors,
    RequesterRemoteOperation: out::req_remote_operation_errors,
    RequesterRetriesExceeded: out::req_transport_retries_exceeded,
    RequesterRnrRetriesExceeded: RNR_RETRIES_EXCEEDED,
    ResponderError: out::resp_cqe_error,
    ResponderFlushed: out::resp_cqe_flush_error,
    ResponderLength: out::resp_local_length_error,
    ResponderOperation: out::resp_local_qp_error,
    ResponderProtection: out::resp_local_protection,
    // Requests that a responder refuses.
    ResponderInvalidRequest: out::resp_remote_invalid_request,
    ResponderAccess: out::resp_remote_access_errors,
}

/// The number of each event: 32 bits, with overflow, as in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueCounts([u32; FIELDS.len()]);

impl Default for QueueCounts {
    fn default() -> Self {
        Self([0; FIELDS.len()])
    }
}

impl QueueCounts {
    pub(crate) fn count(&mut self, event: QueueEvent) {
        let count = &mut self.0[event as usize];
        *count = count.wrapping_add(1);
    }

    /// Counts a send request that ended with this syndrome.
    pub(crate) fn count_requester(&mut self, syndrome: Syndrome) {
        self.count(QueueEvent::RequesterError);
        self.count(match syndrome {
            Syndrome::Flushed => QueueEvent::RequesterFlushed,
            Syndrome::Length => QueueEvent::RequesterLength,
            Syndrome::Operation => QueueEvent::RequesterOperation,
            Syndrome::Protection => QueueEvent::RequesterProtection,
            Syndrome::Bind => QueueEvent::RequesterBind,
            Syndrome::BadResponse => QueueEvent::RequesterBadResponse,
            Syndrome::RemoteInvalidRequest => QueueEvent::RequesterInvalidRequest,
            Syndrome::RemoteAccess => QueueEvent::RequesterAccess,
            Syndrome::RemoteOperation => QueueEvent::RequesterRemoteOperation,
            Syndrome::RetryExceeded => QueueEvent::RequesterRetriesExceeded,
            Syndrome::RnrRetryExceeded => QueueEvent::RequesterRnrRetriesExceeded,
        });
    }

    /// Counts a receive request that ended with this syndrome.
    pub(crate) fn count_responder(&mut self, syndrome: Syndrome) {
        self.count(QueueEvent::ResponderError);
        match syndrome {
            Syndrome::Flushed => self.count(QueueEvent::ResponderFlushed),
            Syndrome::Length => self.count(QueueEvent::ResponderLength),
            Syndrome::Operation => self.count(QueueEvent::ResponderOperation),
            Syndrome::Protection => self.count(QueueEvent::ResponderProtection),
            // The others occur only for send requests.
            _ => {}
        }
    }

    /// Writes them to their places in an answer.
    pub(crate) fn show(&self, output: &mut [u8]) {
        FIELDS.iter().zip(self.0).for_each(|(field, count)| output.set(*field, count));
    }
}

/// All sets, by their numbers. There is no set 0: a queue with this number belongs to no set.
#[derive(Debug, Default)]
pub(crate) struct CounterSets {
    sets: BTreeMap<u32, QueueCounts>,
}

impl CounterSets {
    /// Adds a set at zero.
    pub(crate) fn insert(&mut self, number: u32) {
        self.sets.insert(number, QueueCounts::default());
    }

    pub(crate) fn remove(&mut self, number: u32) {
        self.sets.remove(&number);
    }

    /// Adds the events of a queue of a set.
    pub(crate) fn add(&mut self, number: u32, counts: &QueueCounts) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.0.iter_mut().zip(counts.0).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
        }
    }

    pub(crate) fn count(&mut self, number: u32, event: QueueEvent) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.count(event);
        }
    }

    /// The counts of a set, which is then cleared on request. `None` if the set does not exist.
    pub(crate) fn read(&mut self, number: u32, clear: bool) -> Option<QueueCounts> {
        let set = self.sets.get_mut(&number)?;
        Some(if clear { std::mem::take(set) } else { *set })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;

    #[test]
    fn every_event_has_a_place_of_its_own() {
        let mut places: Vec<_> = FIELDS.iter().map(|field| (field.offset, field.width)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), FIELDS.len());
        assert!(places.iter().all(|(offset, width)| offset % 32 == 0 && *width == 32));
    }

    #[test]
    fn counts_are_of_their_set_until_they_are_cleared() {
        let mut sets = CounterSets::default();
        sets.insert(1);
        sets.insert(2);
        let mut counts = QueueCounts::default();
        counts.count_requester(Syndrome::RnrRetryExceeded);
        counts.count_responder(Syndrome::Flushed);
        sets.add(1, &counts);
        sets.add(1, &counts);
        sets.add(0, &counts);
        sets.count(2, QueueEvent::Read);
        let mut shown = [0; 256];
        let read = sets.read(1, true).unwrap();
        read.show(&mut shown);
        for field in
            [RNR_RETRIES_EXCEEDED, out::req_cqe_error, out::resp_cqe_error, out::resp_cqe_flush_error]
        {
            assert_eq!(shown[..].num(field), 2, "{field:?}");
        }
        assert_eq!(sets.read(1, false), Some(QueueCounts::default()));
        assert_ne!(sets.read(2, false), Some(QueueCounts::default()));
        sets.remove(2);
        assert_eq!((sets.read(2, false), sets.read(0, false)), (None, None));
    }

    #[test]
    fn they_wrap() {
        let mut sets = CounterSets::default();
        sets.insert(1);
        let mut most = QueueCounts::default();
        most.0.fill(u32::MAX);
        sets.add(1, &most);
        sets.count(1, QueueEvent::Write);
        let mut shown = [0; 256];
        sets.read(1, false).unwrap().show(&mut shown);
        assert_eq!(
            (shown[..].num(out::rx_write_requests), shown[..].num(out::rx_read_requests)),
            (0, u32::MAX)
        );
    }
}
