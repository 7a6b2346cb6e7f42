//! A completion channel that a call watches beside the manager's file, and who is woken by it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use super::wakers::Wakers;
use crate::verbs::cq::CompletionChannel;

/// Everyone who waits for the same queues: few, since a connection has two directions.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Wakers>);

impl Waiters {
    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, ticket: u64, waker: &Waker) {
        let old = self.wakers().keep(ticket, waker);
        drop(old);
    }

    pub(super) fn remove(&self, ticket: u64) {
        let old = self.wakers().remove(ticket);
        drop(old);
    }

    pub(super) fn wake_others(&self, ticket: u64) {
        let others = self.wakers().take_others(ticket);
        others.wake();
    }

    pub(super) fn wake_all(&self) {
        let all = std::mem::take(&mut *self.wakers());
        all.wake();
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// The channel. Its events are read by the call itself, which then asks for the next one.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) channel: CompletionChannel,
    pub(super) waiters: Arc<Waiters>,
    #[cfg(feature = "tokio")]
    pub(super) watch: super::task::ChannelWatch,
}

impl Beside {
    pub(super) fn new(channel: CompletionChannel) -> Self {
        Self {
            channel,
            waiters: Arc::default(),
            #[cfg(feature = "tokio")]
            watch: super::task::ChannelWatch::default(),
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
