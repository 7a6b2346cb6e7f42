//! The data of one request on its way into a queue.

use super::*;

/// The data of a request: any, or what it is known to be. A way for that alone keeps less in memory.
pub(super) trait PutData: Copy {
    /// Puts a request with this data, and holds what that needs.
    fn put<L: Lower, O: Encode>(
        self,
        posting: &mut Posting<'_>,
        batch: &mut Batch<'_, L>,
        slot: u32,
        request: &SendRequest<'_, O>,
        head: Option<FrameHead>,
    ) -> Result<(), Stopped>;
}

impl PutData for &Local<'_> {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        posting: &mut Posting<'_>,
        batch: &mut Batch<'_, L>,
        slot: u32,
        request: &SendRequest<'_, O>,
        head: Option<FrameHead>,
    ) -> Result<(), Stopped> {
        match *self {
            // Most often there is one: then it is known here, and asked nowhere else.
            Local::Segments([segment]) => segment.put(posting, batch, slot, request, head),
            Local::Segments(segments) => posting.put_segments(batch, slot, request, head, segments),
            Local::Inline(bytes) => posting.put_bytes(batch, slot, request, head, bytes),
        }
    }
}

impl PutData for &Segment<'_> {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        posting: &mut Posting<'_>,
        batch: &mut Batch<'_, L>,
        slot: u32,
        request: &SendRequest<'_, O>,
        head: Option<FrameHead>,
    ) -> Result<(), Stopped> {
        posting.put_segments(batch, slot, request, head, std::slice::from_ref(self))
    }
}

/// Bytes, which are looked for in the request: to have them at hand before costs more.
#[derive(Clone, Copy)]
pub(super) struct OfBytes;

impl PutData for OfBytes {
    #[inline(always)]
    fn put<L: Lower, O: Encode>(
        self,
        posting: &mut Posting<'_>,
        batch: &mut Batch<'_, L>,
        slot: u32,
        request: &SendRequest<'_, O>,
        head: Option<FrameHead>,
    ) -> Result<(), Stopped> {
        match request.data {
            Local::Inline(bytes) => posting.put_bytes(batch, slot, request, head, bytes),
            // Whoever goes this way has looked.
            Local::Segments(_) => Err(Stopped::Refused(Refused::Lacks)),
        }
    }
}
