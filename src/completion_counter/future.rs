//! Waiting for a counter as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::lobby::Presence;
use super::state::{OP_WAIT, State, told};
use super::waiter::{Outcome, Waiter};
use crate::kernel::error::Result;

/// A wait for a threshold; see [`CompletionCounter::wait_async`](super::CompletionCounter::wait_async).
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Wait<'a> {
    state: &'a State,
    threshold: u64,
    /// How often the error value had changed at the time of the call.
    failures: u64,
    /// From the first poll.
    presence: Option<Presence<'a>>,
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(state: &'a State, threshold: u64) -> Self {
        Self { state, threshold, failures: state.failures(), presence: None, waiter: None }
    }
}

impl Future for Wait<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.state.allow_waiting()?;
        self.state.allow_sleeping()?;
        let ended = self.outcome(context);
        if ended.is_some() {
            // A future that is ready is no wait in progress, however long it is kept.
            self.presence = None;
        }
        ended.map_or(Poll::Pending, |outcome| Poll::Ready(told(OP_WAIT, Some(outcome))))
    }
}

impl Wait<'_> {
    fn outcome(&mut self, context: &Context<'_>) -> Option<Outcome> {
        let presence = match &mut self.presence {
            Some(presence) => presence,
            None => match self.state.begin(self.threshold, None) {
                Ok(presence) => self.presence.insert(Presence::since(presence, self.failures)),
                Err(outcome) => return Some(outcome),
            },
        };
        loop {
            let outcome = match &self.waiter {
                Some(waiter) => {
                    waiter.watch(context.waker());
                    waiter.outcome()
                }
                None => {
                    let waiter = Waiter::task(self.threshold);
                    waiter.watch(context.waker());
                    let outcome = self.state.register(&waiter, presence);
                    self.waiter = Some(waiter);
                    outcome
                }
            }?;
            if self.state.stands(outcome, self.threshold) {
                return Some(outcome);
            }
            self.waiter = None;
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            self.state.withdraw(waiter);
        }
    }
}
