//! A call that waits for the events of an identifier.

use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

use uverbs_abi::cm::EventResp;

use super::dispatch::Dispatch;
use super::shared::Shared;
use super::steps::Behind;
use crate::kernel::error::Result;

/// A call that waits for the events of one identifier, perhaps among others that do. It is known by a ticket, so that it has one waker,
/// whichever it is polled with, and none when it has ended.
#[derive(Debug)]
pub(super) struct Call<'s> {
    shared: &'s Shared,
    uid: u64,
    ticket: u64,
    /// Whether its waker is kept: until an event is given to it.
    is_kept: bool,
}

impl<'s> Call<'s> {
    pub(super) fn new(shared: &'s Shared, uid: u64) -> Self {
        Self { shared, uid, ticket: Dispatch::number(), is_kept: false }
    }

    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The next event. If there is none, the waker is called when there is one.
    pub(super) fn poll(&mut self, op: &'static str, waker: &Waker) -> Poll<Result<Box<EventResp>>> {
        self.poll_before(op, None, waker)
    }

    /// The next event. If there is none, whoever reads it makes this step too.
    fn poll_before(
        &mut self,
        op: &'static str,
        behind: Option<Behind>,
        waker: &Waker,
    ) -> Poll<Result<Box<EventResp>>> {
        self.shared.check_origin(op)?;
        let mut dispatch = self.shared.dispatch();
        match dispatch.take(self.uid, self.ticket, waker) {
            Ok(event) => {
                // Whoever has put it there took all wakers.
                self.is_kept = false;
                Poll::Ready(Ok(event))
            }
            Err(old) => {
                self.is_kept = true;
                if let Some(behind) = behind {
                    dispatch.put_behind(behind);
                }
                drop(dispatch);
                drop(old);
                Poll::Pending
            }
        }
    }

    /// Waits for the next event.
    pub(super) fn event(
        mut self,
        op: &'static str,
        behind: Option<Behind>,
    ) -> impl Future<Output = Result<Box<EventResp>>> {
        poll_fn(move |context| self.poll_before(op, behind, context.waker()))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.is_kept && self.shared.is_here() {
            let old = self.shared.dispatch().waits_no_more(self.uid, self.ticket);
            drop(old);
        }
    }
}
