//! Puts the data of one request into a queue.

use super::*;

/// Where a request is put: into this slot, or into the slot that the queue returns.
pub(super) struct Putting<'a, 'p, 'b, L> {
    pub(super) posting: &'a mut Posting<'p>,
    pub(super) batch: &'a mut Batch<'b, L>,
    pub(super) slot: u32,
    /// The first bytes of a frame, if the device needs them separately.
    pub(super) head: Option<FrameHead>,
}

/// A form of data. Code for a single form keeps less in memory.
pub(super) trait Form {
    /// Whether it is one segment.
    const IS_ONE: bool = false;

    /// The segments of data of this form, or its bytes. `None` for data of another form.
    fn of<'r>(data: &Local<'r>) -> Option<Local<'r>>;
}

/// One segment.
pub(super) struct OneSegment;

impl Form for OneSegment {
    const IS_ONE: bool = true;

    #[inline(always)]
    fn of<'r>(data: &Local<'r>) -> Option<Local<'r>> {
        match data {
            // The number is known from here on, and not checked anywhere else.
            Local::Segments([segment]) => Some(Local::Segments(std::slice::from_ref(segment))),
            Local::Segments(_) | Local::Inline(_) => None,
        }
    }
}

/// Any number of segments.
pub(super) struct Segments;

impl Form for Segments {
    #[inline(always)]
    fn of<'r>(data: &Local<'r>) -> Option<Local<'r>> {
        if let Local::Segments(segments) = data { Some(Local::Segments(segments)) } else { None }
    }
}

/// Inline bytes.
pub(super) struct Bytes;

impl Form for Bytes {
    #[inline(always)]
    fn of<'r>(data: &Local<'r>) -> Option<Local<'r>> {
        if let Local::Inline(bytes) = data { Some(Local::Inline(bytes)) } else { None }
    }
}

/// Data of any form.
pub(super) struct Any;

impl Form for Any {
    #[inline]
    fn of<'r>(data: &Local<'r>) -> Option<Local<'r>> {
        Some(*data)
    }
}

impl<L: Lower> Putting<'_, '_, '_, L> {
    /// Puts a request with data of this form, and holds what the data needs.
    #[inline(always)]
    pub(super) fn put<O: Encode, D: Form>(self, request: &SendRequest<'_, O>) -> Result<(), Stopped> {
        match D::of(&request.data) {
            // Usually there is one segment.
            Some(Local::Segments([segment])) => self.put_segments(request, std::slice::from_ref(segment)),
            Some(Local::Segments(segments)) => self.put_segments(request, segments),
            Some(Local::Inline(bytes)) => self.put_bytes(request, bytes),
            None => Err(Refused::Lacks.into()),
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
        batch.put(*wr_id, *flags, operation, head, &data)?;
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
        batch.put(*wr_id, *flags, operation, head, &data)?;
        let slot = batch.slot_behind(slot);
        // Not before `put`: if the ring is full, the next slot is that of a request that has not completed.
        match (segments, operation.address()) {
            ([segment], None) if L::IS_IN_ORDER => posting.held.hold_in_order(slot, segment.region()),
            (segments, address) => posting.held.hold(slot, segments, address),
        }
        Ok(())
    }
}
