//! A completion channel that a call watches beside the manager's file, and who is woken by it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::verbs::cq::CompletionChannel;

/// Everyone who waits for the same queues: few, since a connection has two directions.
#[derive(Debug, Default)]
pub(super) struct Wakers(Mutex<Vec<Waker>>);

impl Wakers {
    fn list(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, waker: &Waker) {
        let mut list = self.list();
        if !list.iter().any(|known| known.will_wake(waker)) {
            list.push(waker.clone());
        }
    }

    /// Wakes all others, outside of the lock: a waker runs other code.
    pub(super) fn wake_others(&self, own: &Waker) {
        let others: Vec<_> = self.list().extract_if(.., |waker| !waker.will_wake(own)).collect();
        others.into_iter().for_each(Waker::wake);
    }

    /// Wakes all, outside of the lock: a waker runs other code.
    pub(super) fn wake_all(&self) {
        let list = std::mem::take(&mut *self.list());
        list.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// The channel. Its events are read by the call itself, which then asks for the next one.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) channel: CompletionChannel,
    pub(super) wakers: Arc<Wakers>,
    #[cfg(feature = "tokio")]
    pub(super) watch: super::task::ChannelWatch,
}

impl Beside {
    pub(super) fn new(channel: CompletionChannel) -> Self {
        Self {
            channel,
            wakers: Arc::default(),
            #[cfg(feature = "tokio")]
            watch: super::task::ChannelWatch::default(),
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
