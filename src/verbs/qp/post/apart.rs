//! Requests for queues that are neither rings of slots nor blocks.

use super::*;
use crate::driver::queues::{AtOnce, Looking};

type Send<'a, 'o, T> = SendRequest<'a, <T as QpType>::Operation<'o>>;

impl<T: QpType> QueuePair<T> {
    #[cold]
    #[inline(never)]
    pub(super) fn one_apart(&mut self, request: &SendRequest<'_, T::Operation<'_>>) -> Result<(), Stopped> {
        self.post_by(false, |sends, posting| {
            sends.apart_at_once(One { request, data: &request.data, posting })
        })
    }

    /// The same by the shortest path: the request is written directly to the device's ring.
    #[inline(never)]
    pub(super) fn one_numbered(
        &mut self,
        request: &SendRequest<'_, T::Operation<'_>>,
    ) -> Result<(), Stopped> {
        match request.data {
            Local::Segments([segment]) => self.one_straight(request, segment),
            Local::Segments(segments) => self.one_straight(request, segments),
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

    /// The same for several requests that all have one piece, or all have inline bytes: they are checked before the first one is written.
    /// Other batches are written to a copy first, so that they can be discarded.
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
    fn all_of_a_piece(&mut self, requests: &[Send<'_, '_, T>], are_noted: bool) -> Result<(), Stopped> {
        let look = |looking: Looking, request: &Send<'_, '_, T>| {
            let Local::Segments([segment]) = request.data else { return false };
            looking.takes_piece(request.flags, &request.operation, segment.sge())
        };
        let put = |batch: &mut AtOnce<'_>, held: &mut Slots<'_>, request: &Send<'_, '_, T>| {
            let Local::Segments([segment]) = request.data else { return false };
            let is_put = batch.put_piece(request.wr_id, &request.operation, segment.sge());
            if is_put {
                let segments = std::slice::from_ref(segment);
                held.hold(batch.last_slot(), segments, request.operation.address());
            }
            is_put
        };
        self.all_straight(requests, are_noted, look, put)
    }

    #[inline(never)]
    fn all_of_bytes(&mut self, requests: &[Send<'_, '_, T>], are_noted: bool) -> Result<(), Stopped> {
        let look = |looking: Looking, request: &Send<'_, '_, T>| {
            let Local::Inline(bytes) = request.data else { return false };
            looking.takes_bytes(request.flags, &request.operation, bytes)
        };
        let put = |batch: &mut AtOnce<'_>, held: &mut Slots<'_>, request: &Send<'_, '_, T>| {
            let Local::Inline(bytes) = request.data else { return false };
            let is_put = batch.put_bytes(request.wr_id, &request.operation, bytes);
            if is_put {
                held.hold(batch.last_slot(), &[], request.operation.address());
            }
            is_put
        };
        self.all_straight(requests, are_noted, look, put)
    }

    #[inline(always)]
    fn all_straight(
        &mut self,
        requests: &[Send<'_, '_, T>],
        are_noted: bool,
        look: impl Fn(Looking, &Send<'_, '_, T>) -> bool,
        put: impl Fn(&mut AtOnce<'_>, &mut Slots<'_>, &Send<'_, '_, T>) -> bool,
    ) -> Result<(), Stopped> {
        let Self { sends, held, .. } = self;
        let mut held = held.slots_that_stay();
        let posted = sends.post_at_once(
            requests.len(),
            |looking| requests.iter().all(|request| look(looking, request)),
            |batch, range| requests[range].iter().all(|request| put(batch, &mut held, request)),
        );
        // Usually all are posted, or none.
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
            Local::Segments(segments) => self.one_with_flag(request, segments),
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

    /// Posts by the shortest path for slots with a flag each. Returns `None`, with nothing done, if that path cannot post all of
    /// the requests.
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
