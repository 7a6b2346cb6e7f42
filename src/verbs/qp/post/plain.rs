//! Batches of requests of one piece each, in blocks.

use super::*;
use crate::driver::queues::{ADDRESSED, MESSAGES};

impl<T: QpType> QueuePair<T> {
    /// Posts requests by a path of their own if each has exactly one piece, and by the path for all requests otherwise.
    #[inline(never)]
    pub(super) fn all_in_blocks(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let is_first_plain = matches!(requests, [SendRequest { data: Local::Segments([_]), .. }, ..]);
        let is_posted = is_first_plain
            && match T::Operation::KIND {
                RequestKind::Messages => self.all_plain::<MESSAGES>(requests),
                RequestKind::Addressed if T::Operation::IS_DATAGRAM => self.all_plain::<ADDRESSED>(requests),
                RequestKind::Addressed | RequestKind::Frames => false,
            };
        if is_posted { Ok(()) } else { self.all_in_blocks_at_length(requests, are_noted) }
    }

    // A separate function, so that the check of the first request leaves its loop alone.
    #[inline(never)]
    fn all_plain<const KIND: u8>(&mut self, requests: &[SendRequest<'_, T::Operation<'_>>]) -> bool {
        let Self { sends, held, .. } = self;
        let mut held = held.slots();
        sends.post_plain::<KIND>(requests.len(), |batch| {
            let first = batch.next_slot();
            for request in requests {
                let SendRequest { wr_id, operation, data, flags } = request;
                let slot = batch.next_slot();
                let piece = if let Local::Segments([piece]) = data { Some(piece) } else { None };
                let Some(piece) = piece.filter(|piece| batch.put(*wr_id, *flags, operation, piece.sge()))
                else {
                    let is_first = std::ptr::eq(request, requests.as_ptr());
                    held.into_held().let_go_until(first, slot, is_first);
                    return false;
                };
                match operation.address() {
                    None => held.hold_in_order(slot, piece.region()),
                    address => held.hold(slot, std::slice::from_ref(piece), address),
                }
            }
            true
        })
    }
}
