//! Batches of datagrams of one piece each, in blocks.

use super::*;

impl<T: QpType> QueuePair<T> {
    /// Posts them by a path of their own if each has exactly one piece, and by the path for all requests otherwise.
    #[inline(never)]
    pub(super) fn all_datagrams(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let Self { sends, held, .. } = self;
        let mut held = held.slots();
        let is_posted = sends.post_datagrams(requests.len(), |batch| {
            let first = batch.next_slot();
            for request in requests {
                let SendRequest { wr_id, operation, data, flags } = request;
                let slot = batch.next_slot();
                let piece = if let Local::Segments([piece]) = data { Some(piece) } else { None };
                let put = operation
                    .datagram()
                    .zip(piece)
                    .filter(|(to, piece)| batch.put(*wr_id, *flags, to, piece.sge()));
                let Some((_, piece)) = put else {
                    let is_first = std::ptr::eq(request, requests.as_ptr());
                    held.into_held().let_go_until(first, slot, is_first);
                    return false;
                };
                held.hold(slot, std::slice::from_ref(piece), operation.address());
            }
            true
        });
        if is_posted { Ok(()) } else { self.all_in_blocks(requests, are_noted) }
    }
}
