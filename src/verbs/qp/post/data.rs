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
    /// Puts a request with this data, and holds what the data needs.
    fn put<L: Lower, O: Encode>(
        self,
        to: Into<'_, '_, '_, L>,
        request: &SendRequest<'_, O>,
    ) -> Result<(), Stopped>;
}

impl PutData for &Local<'_> {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        to: Into<'_, '_, '_, L>,
        request: &SendRequest<'_, O>,
    ) -> Result<(), Stopped> {
        match *self {
            // Usually there is one segment. Then the number is known here, and not checked anywhere else.
            Local::Segments([segment]) => segment.put(to, request),
            Local::Segments(segments) => segments.put(to, request),
            Local::Inline(bytes) => to.put_bytes(request, bytes),
        }
    }
}

impl PutData for &[Segment<'_>] {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        to: Into<'_, '_, '_, L>,
        request: &SendRequest<'_, O>,
    ) -> Result<(), Stopped> {
        to.put_segments(request, self)
    }
}

impl PutData for &Segment<'_> {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        to: Into<'_, '_, '_, L>,
        request: &SendRequest<'_, O>,
    ) -> Result<(), Stopped> {
        std::slice::from_ref(self).put(to, request)
    }
}

/// Inline bytes, which are read from the request: passing them as an argument costs more.
#[derive(Clone, Copy)]
pub(super) struct OfBytes;

impl PutData for OfBytes {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        to: Into<'_, '_, '_, L>,
        request: &SendRequest<'_, O>,
    ) -> Result<(), Stopped> {
        match request.data {
            Local::Inline(bytes) => to.put_bytes(request, bytes),
            // The caller has checked the form of the data.
            Local::Segments(_) => Err(Stopped::Refused(Refused::Lacks)),
        }
    }
}

impl<L: Lower> Into<'_, '_, '_, L> {
    #[inline(always)]
    fn put_bytes<O: Encode>(self, request: &SendRequest<'_, O>, bytes: &[u8]) -> Result<(), Stopped> {
        let Self { posting, batch, slot, head } = self;
        let SendRequest { wr_id, operation, flags, .. } = request;
        // The address for the answer would be read from these bytes (`copy_data`, rxe_mr.c, Linux 6.1).
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
        // Not earlier: if the ring is full, the next slot is that of a request that has not completed.
        match (segments, operation.address()) {
            ([segment], None) if L::IS_IN_ORDER => posting.held.hold_in_order(slot, segment.region()),
            (segments, address) => posting.held.hold(slot, segments, address),
        }
        Ok(())
    }
}
