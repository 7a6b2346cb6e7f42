//! Requests for queues that are neither rings of slots nor blocks.

use super::*;

impl<T: QpType> QueuePair<T> {
    #[cold]
    #[inline(never)]
    pub(super) fn one_apart(&mut self, request: &SendRequest<'_, T::Operation<'_>>) -> Result<(), Stopped> {
        self.post_by(false, |sends, posting| sends.apart_at_once(One { request, posting }))
    }

    /// The same by the shortest way, straight to the device.
    #[inline(never)]
    pub(super) fn one_numbered(
        &mut self,
        request: &SendRequest<'_, T::Operation<'_>>,
    ) -> Result<(), Stopped> {
        let Self { sends, held, shared, capacity, .. } = self;
        let (held, object) = (held.slots(), shared.object());
        let posting = Posting { held, object, capacity, wants_head: false, are_noted: false };
        match sends.post_numbered(One { request, posting }) {
            Some(posted) => posted,
            None => self.one_apart(request),
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
        match self.post_flagged(false, |posting| One { request, posting }) {
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
