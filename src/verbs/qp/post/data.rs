//! Puts the data of one request into a queue.

use super::*;

/// Where a request is put: into this slot, or into the slot that the queue returns.
pub(super) struct Into<'a, 'p, 'b, L> {
    pub(super) posting: &'a mut Posting<'p>,
    pub(super) batch: &'a mut Batch<'b, L>,
    pub(super) slot: u32,
    /// The first bytes of a frame, if the device needs them separately.
    pub(super) head: Option<FrameHead>,
}

/// The data of a request, of any form or of a form that the caller has checked. Code for a single form keeps less in memory.
pub(super) trait PutData: Copy {
    /// The segments; `None` if the data is inline.
    fn segments(&self) -> Option<&[Segment<'_>]>;
}

impl PutData for &Local<'_> {
    #[inline(always)]
    fn segments(&self) -> Option<&[Segment<'_>]> {
        if let Local::Segments(segments) = **self { Some(segments) } else { None }
    }
}

impl PutData for &[Segment<'_>] {
    #[inline(always)]
    fn segments(&self) -> Option<&[Segment<'_>]> {
        Some(self)
    }
}

impl PutData for &Segment<'_> {
    #[inline(always)]
    fn segments(&self) -> Option<&[Segment<'_>]> {
        Some(std::slice::from_ref(*self))
    }
}

/// Inline bytes. They are read from the request, because a copy of their address and length would cost more.
#[derive(Clone, Copy)]
pub(super) struct OfBytes;

impl PutData for OfBytes {
    #[inline(always)]
    fn segments(&self) -> Option<&[Segment<'_>]> {
        None
    }
}

impl<L: Lower> Into<'_, '_, '_, L> {
    /// Puts a request with this data, and holds what the data needs.
    #[inline(always)]
    pub(super) fn put<O: Encode>(
        self,
        request: &SendRequest<'_, O>,
        data: impl PutData,
    ) -> Result<(), Stopped> {
        match (data.segments(), request.data) {
            // Usually there is one segment. Then the number is known here, and not checked anywhere else.
            (Some([segment]), _) => self.put_segments(request, std::slice::from_ref(segment)),
            (Some(segments), _) => self.put_segments(request, segments),
            (None, Local::Inline(bytes)) => self.put_bytes(request, bytes),
            // The caller has checked that the data is inline.
            (None, Local::Segments(_)) => Err(Stopped::Refused(Refused::Lacks)),
        }
    }

    #[inline(always)]
    fn put_bytes<O: Encode>(self, request: &SendRequest<'_, O>, bytes: &[u8]) -> Result<(), Stopped> {
        let Self { posting, batch, slot, head } = self;
        let SendRequest { wr_id, operation, flags, .. } = request;
        // The kernel would read the address for the response from these bytes (`copy_data`, rxe_mr.c, Linux 6.1).
        if operation.is_answered() {
            return Err(Stopped::without_place());
        }
        let data = Data::<NoPieces, _>::Inline(std::iter::once(bytes));
        batch.put(*wr_id, *flags, operation, head, &data).map_err(Stopped::Refused)?;
        let slot = batch.slot_behind(slot);
        match operation.address() {
            None if L::IS_IN_ORDER => posting.held.pass_in_order(slot),
            address => posting.held.hold(slot, &[], address),
        }
        Ok(())
    }

    #[inline(always)]
    fn put_segments<O: Encode>(
        self,
        request: &SendRequest<'_, O>,
        segments: &[Segment<'_>],
    ) -> Result<(), Stopped> {
        let Self { posting, batch, slot, head } = self;
        let SendRequest { wr_id, operation, flags, .. } = request;
        let data = Data::<_, NoBytes>::Pieces(segments.iter().map(Segment::sge));
        batch.put(*wr_id, *flags, operation, head, &data).map_err(Stopped::Refused)?;
        let slot = batch.slot_behind(slot);
        // Not before `put`: if the ring is full, the next slot is that of a request that has not completed.
        match (segments, operation.address()) {
            ([segment], None) if L::IS_IN_ORDER => posting.held.hold_in_order(slot, segment.region()),
            (segments, address) => posting.held.hold(slot, segments, address),
        }
        Ok(())
    }
}
