//! Requests for queues that are neither rings of slots nor blocks.

use super::*;

impl<T: QpType> QueuePair<T> {
    #[cold]
    #[inline(never)]
    pub(super) fn one_apart(&mut self, request: &SendRequest<'_, T::Operation<'_>>) -> Result<(), Stopped> {
        self.post_by(false, |sends, posting| {
            sends.apart_at_once(One { request, data: &request.data, posting })
        })
    }

    /// The same by the shortest way, straight to the device.
    #[inline(never)]
    pub(super) fn one_numbered(
        &mut self,
        request: &SendRequest<'_, T::Operation<'_>>,
    ) -> Result<(), Stopped> {
        match request.data {
            Local::Segments([segment]) => self.one_straight(request, segment),
            Local::Segments(_) => self.one_straight(request, &request.data),
            Local::Inline(_) => self.one_straight(request, OfBytes),
        }
    }

    #[inline(never)]
    fn one_straight(
        &mut self,
        request: &SendRequest<'_, T::Operation<'_>>,
        data: impl PutData,
    ) -> Result<(), Stopped> {
        let Self { sends, held, shared, capacity, .. } = self;
        let (held, object) = (held.slots_that_stay(), shared.object());
        let posting = Posting { held, object, capacity, wants_head: false, are_noted: false };
        match sends.post_numbered(One { request, data, posting }) {
            Some(posted) => posted,
            None => self.one_apart(request),
        }
    }

    /// The same of several that are all of one piece, or all of bytes: they are looked at before the first is written. Of others there is a copy first,
    /// so that they can be forgotten.
    #[inline(never)]
    pub(super) fn all_numbered(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        match requests.first().map(|request| request.data) {
            Some(Local::Inline(_)) => self.all_of_bytes(requests, are_noted),
            Some(Local::Segments(_)) | None => self.all_of_a_piece(requests, are_noted),
        }
    }

    #[inline(never)]
    fn all_of_a_piece(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let Self { sends, held, .. } = self;
        let mut held = held.slots_that_stay();
        let posted = sends.post_at_once(
            requests.len(),
            |looking| {
                requests.iter().all(|SendRequest { operation, data, flags, .. }| {
                    let Local::Segments([segment]) = data else { return false };
                    looking.takes_piece(*flags, operation, segment.sge())
                })
            },
            |batch, range| {
                requests[range].iter().all(|SendRequest { wr_id, operation, data, .. }| {
                    let Local::Segments([segment]) = data else { return false };
                    let is_put = batch.put_piece(*wr_id, operation, segment.sge());
                    if is_put {
                        held.hold(batch.last_slot(), std::slice::from_ref(segment), operation.address());
                    }
                    is_put
                })
            },
        );
        self.post_rest(requests, posted, are_noted)
    }

    #[inline(never)]
    fn all_of_bytes(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        let Self { sends, held, .. } = self;
        let mut held = held.slots_that_stay();
        let posted = sends.post_at_once(
            requests.len(),
            |looking| {
                requests.iter().all(|SendRequest { operation, data, flags, .. }| {
                    let Local::Inline(bytes) = data else { return false };
                    looking.takes_bytes(*flags, operation, bytes)
                })
            },
            |batch, range| {
                requests[range].iter().all(|SendRequest { wr_id, operation, data, .. }| {
                    let Local::Inline(bytes) = data else { return false };
                    let is_put = batch.put_bytes(*wr_id, operation, bytes);
                    if is_put {
                        held.hold(batch.last_slot(), &[], operation.address());
                    }
                    is_put
                })
            },
        );
        self.post_rest(requests, posted, are_noted)
    }

    /// Posts what was not: most often all of it, or nothing.
    #[inline(always)]
    fn post_rest(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        posted: usize,
        are_noted: bool,
    ) -> Result<(), Stopped> {
        match requests.get(posted..) {
            Some(rest @ [_, ..]) => self.all_apart(rest, are_noted),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn all_flagged(
        &mut self,
        requests: &[SendRequest<'_, T::Operation<'_>>],
        are_noted: bool,
    ) -> Result<(), Stopped> {
        match self.post_flagged(are_noted, |posting| All { requests, posting }) {
            Some(posted) => posted,
            None => self.all_apart(requests, are_noted),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn one_flagged(&mut self, request: &SendRequest<'_, T::Operation<'_>>) -> Result<(), Stopped> {
        match request.data {
            Local::Segments([segment]) => self.one_with_flag(request, segment),
            Local::Segments(_) => self.one_with_flag(request, &request.data),
            Local::Inline(_) => self.one_with_flag(request, OfBytes),
        }
    }

    #[inline(never)]
    fn one_with_flag(
        &mut self,
        request: &SendRequest<'_, T::Operation<'_>>,
        data: impl PutData,
    ) -> Result<(), Stopped> {
        match self.post_flagged(false, |posting| One { request, data, posting }) {
            Some(posted) => posted,
            None => self.one_apart(request),
        }
    }

    /// Posts by the shortest way of slots with a flag each. None, and nothing is done, where that does not go to its end.
    #[inline(always)]
    fn post_flagged<'a, F: FillSends>(
        &'a mut self,
        are_noted: bool,
        how: impl FnOnce(Posting<'a>) -> F,
    ) -> Option<Result<(), Stopped>> {
        let Self { sends, held, shared, capacity, .. } = self;
        let posting =
            Posting { held: held.slots(), object: shared.object(), capacity, wants_head: false, are_noted };
        let posted = sends.post_flagged(how(posting))?;
        Some(posted.map_err(|why| Stopped::unseen(sends.unseen(why))))
    }
}
