//! Counters of queues, in sets: what has come to the queues of a set, and what went wrong in them.
//!
//! What each stands for is said by NVIDIA's "Understanding mlx5 Linux Counters and Status Parameters"; where that leaves a choice, the
//! README says what this device does.

use std::collections::BTreeMap;

use crate::bits::{BitsMut, Field};
use crate::ifc::counter::query_q_counter_out as out;
use crate::queue::Syndrome;

/// `req_rnr_retries_exceeded`, of which the header of 6.1 has only the place; that of 7.3 names it.
const RNR_RETRIES_EXCEEDED: Field = Field::new(0x380, 32);

/// Names everything that is counted, with the field it is shown in.
macro_rules! events {
    ($($(#[$what:meta])* $name:ident: $field:expr,)*) => {
        /// Something that a queue counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum QueueEvent {
            $($(#[$what])* $name,)*
        }

        const FIELDS: &[Field] = &[$($field),*];
    };
}

events! {
    // What comes to a responder.
    Write: out::rx_write_requests,
    Read: out::rx_read_requests,
    Atomic: out::rx_atomic_requests,
    /// There was no receive request.
    OutOfBuffer: out::out_of_buffer,
    /// A packet that others should have come before.
    OutOfSequence: out::out_of_sequence,
    /// A packet that has come before.
    Duplicate: out::duplicate_request,
    // What comes back to a requester, or does not.
    NotReady: out::rnr_nak_retry_err,
    SequenceNak: out::packet_seq_err,
    /// An answer shows that one before it is lost.
    ImpliedNak: out::implied_nak_seq_err,
    AckTimeout: out::local_ack_timeout_err,
    // How requests and receives end.
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
    // What a responder refuses.
    ResponderInvalidRequest: out::resp_remote_invalid_request,
    ResponderAccess: out::resp_remote_access_errors,
}

/// How often each has happened: 32 bits wide, as in the device, and wrapping as there.
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

    /// A request to send ends like this.
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

    /// A receive request ends like this.
    pub(crate) fn count_responder(&mut self, syndrome: Syndrome) {
        self.count(QueueEvent::ResponderError);
        match syndrome {
            Syndrome::Flushed => self.count(QueueEvent::ResponderFlushed),
            Syndrome::Length => self.count(QueueEvent::ResponderLength),
            Syndrome::Operation => self.count(QueueEvent::ResponderOperation),
            Syndrome::Protection => self.count(QueueEvent::ResponderProtection),
            // None of those of requests.
            _ => {}
        }
    }

    /// Writes them where an answer has them.
    pub(crate) fn show(&self, output: &mut [u8]) {
        FIELDS.iter().zip(self.0).for_each(|(field, count)| output.set(*field, count));
    }
}

/// All sets, by their numbers. There is no set 0: a queue that names it is in none.
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

    /// Adds what has happened in a queue of a set.
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

    /// What a set has, and zero from now on if it is to be cleared. None when there is no such set.
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
