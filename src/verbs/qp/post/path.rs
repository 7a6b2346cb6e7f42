//! The paths of a batch: one for each driver, for one request or for several, and a shorter one where the driver has it.

use super::*;
use crate::driver::seam::{Simple, SimpleData};
use crate::driver::sq::{Stored, with_sends};

// A function for each driver and form: together they would keep more in memory. Each ends with a call of the next longer one with the
// arguments that it has got.

impl<T: QpType> QueuePair<T> {
    /// Posts all requests or none. Requests that invalidate keys of the peer are posted only if these keys are already recorded
    /// (`are_noted`).
    #[inline(never)]
    pub(super) fn put(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        with_sends!(self.sends.rings(), type R => match requests {
            [request] if !are_noted => self.put_one::<R>(request),
            _ => self.put_list::<R>(requests, are_noted),
        })
    }

    #[inline(never)]
    fn put_one<R: Stored>(&mut self, request: &SendRequest<'_, T::Operation<'_>>) -> Result<(), Stopped> {
        match request.data {
            Local::Segments([_]) => self.put_one_of::<R, OneSegment>(request),
            Local::Segments(_) => self.put_one_of::<R, Segments>(request),
            Local::Inline(_) => self.put_one_of::<R, Bytes>(request),
        }
    }

    #[inline(never)]
    fn put_one_of<R: Stored, D: Form>(
        &mut self,
        request: &SendRequest<'_, T::Operation<'_>>,
    ) -> Result<(), Stopped> {
        let (sends, posting) = self.posting(false);
        match sends.post_short::<R, _>(None, One::<_, D> { request, posting, form: PhantomData }) {
            Some(shown) => shown.map_err(|why| Stopped::unseen(sends.unseen(why))),
            None => self.put_one_any::<R>(request),
        }
    }

    #[inline(never)]
    fn put_one_any<R: Stored>(&mut self, request: &SendRequest<'_, T::Operation<'_>>) -> Result<(), Stopped> {
        let (sends, posting) = self.posting(false);
        let shown = sends.post::<R, _>(true, One::<_, Any> { request, posting, form: PhantomData })?;
        shown.map_err(|why| Stopped::unseen(sends.unseen(why)))
    }

    #[inline(never)]
    fn put_list<R: Stored>(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        match requests.first().map(|request| request.data) {
            Some(Local::Segments([_])) if R::HAS_LISTS => self.put_simple::<R, false>(requests, are_noted),
            Some(Local::Inline(_)) if R::HAS_LISTS => self.put_simple::<R, true>(requests, are_noted),
            Some(Local::Segments([_])) => self.put_list_of::<R, OneSegment>(requests, are_noted),
            Some(Local::Segments(_)) => self.put_list_of::<R, Segments>(requests, are_noted),
            Some(Local::Inline(_)) => self.put_list_of::<R, Bytes>(requests, are_noted),
            None => self.put_list_any::<R>(requests, are_noted),
        }
    }

    /// Posts requests that all have one piece, or all have inline bytes, in a queue that checks them before the first one is written. Other
    /// batches are written to a copy first, so that they can be discarded.
    #[inline(never)]
    fn put_simple<R: Stored, const IS_INLINE: bool>(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let Self { sends, held, .. } = self;
        let mut held = held.slots_that_stay();
        let posted = sends.post_list::<R, _, _>(
            requests,
            |SendRequest { wr_id, operation, data, flags }| {
                let data = if IS_INLINE {
                    let Local::Inline(bytes) = data else { return None };
                    SimpleData::Bytes(bytes)
                } else {
                    let Local::Segments([segment]) = data else { return None };
                    SimpleData::Piece(segment.sge())
                };
                Some(Simple { wr_id: *wr_id, flags: *flags, operation, data })
            },
            |slot, request| match request.data {
                Local::Segments([segment]) => {
                    held.hold(slot, std::slice::from_ref(segment), request.operation.address());
                }
                Local::Segments(_) | Local::Inline(_) => held.hold(slot, &[], request.operation.address()),
            },
        );
        // Usually all are posted, or none.
        match requests.get(posted..) {
            Some(rest @ [_, ..]) => self.put_list_any::<R>(rest, are_noted),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn put_list_of<R: Stored, D: Form>(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let (sends, posting) = self.posting(are_noted);
        let all = All::<_, D> { requests, posting, form: PhantomData };
        match sends.post_short::<R, _>(Some(requests.len()), all) {
            Some(shown) => shown.map_err(|why| Stopped::unseen(sends.unseen(why))),
            None => self.put_list_any::<R>(requests, are_noted),
        }
    }

    /// Posts requests of any form, and reports why one cannot be posted.
    #[inline(never)]
    fn put_list_any<R: Stored>(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let (sends, posting) = self.posting(are_noted);
        let shown = sends.post::<R, _>(false, All::<_, Any> { requests, posting, form: PhantomData })?;
        shown.map_err(|why| Stopped::unseen(sends.unseen(why)))
    }

    /// The queue, and what is needed to put requests into it, which can be taken back: the kernel may refuse to read them.
    #[inline(always)]
    fn posting(&mut self, are_noted: bool) -> (&mut SendQueue, Posting<'_>) {
        let Self { sends, held, shared, capacity, .. } = self;
        let (held, object, wants_head) = (held.slots(), shared.object(), sends.wants_head());
        (sends, Posting { held, object, capacity, wants_head, are_noted })
    }
}
