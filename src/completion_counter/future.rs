//! Waiting for a counter as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::state::{OP_WAIT, State, told};
use super::waiter::Waiter;
use crate::kernel::error::Result;

/// A wait for a threshold; see [`CompletionCounter::wait_async`](super::CompletionCounter::wait_async).
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Wait<'a> {
    state: &'a State,
    threshold: u64,
    /// How often the error value had changed at the time of the call.
    failures: u64,
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(state: &'a State, threshold: u64) -> Self {
        let failures = state.failures(None).unwrap_or_default();
        Self { state, threshold, failures, waiter: None }
    }
}

impl Future for Wait<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.state.allow_waiting()?;
        self.state.allow_sleeping()?;
        loop {
            let outcome = match &self.waiter {
                Some(waiter) => {
                    waiter.watch(context.waker());
                    waiter.outcome()
                }
                None => {
                    let waiter = Waiter::task(self.threshold);
                    waiter.watch(context.waker());
                    let outcome = self.state.register(&waiter, self.failures);
                    self.waiter = Some(waiter);
                    outcome
                }
            };
            match outcome {
                None => return Poll::Pending,
                Some(outcome) if self.state.stands(outcome, self.threshold) => {
                    return Poll::Ready(told(OP_WAIT, Some(outcome)));
                }
                Some(_) => self.waiter = None,
            }
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
