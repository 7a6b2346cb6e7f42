//! Waiting calls as futures of tokio.

use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::beside::Beside;
use super::dispatch::{Dispatch, Kind};
use super::shared::{Read, Shared};
use super::waiting::Waiting;
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::CompletionChannel;

/// The descriptor of the manager's file. It is open as long as the `Shared` in which this is.
#[derive(Debug)]
struct Descriptor(RawFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// The file in the runtime's poller, from the first task that reads it.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<Option<AsyncFd<Descriptor>>>);

impl Watch {
    /// Reads events until there is none, and has the task woken when there are more.
    fn read(&self, shared: &Shared, op: &'static str, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut watch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_none() {
            let descriptor = Descriptor(shared.events().as_raw_fd());
            // Its successor requires a promise that the file stays open; it is dropped before the file.
            #[allow(
                deprecated,
                reason = "sound for what is dropped before its file, and older versions have it alone"
            )]
            let file = AsyncFd::with_interest(descriptor, Interest::READABLE);
            *watch = Some(file.map_err(|error| Error::io(op, &error))?);
        }
        let Some(file) = watch.as_ref() else { return Poll::Pending };
        loop {
            let Ok(mut ready) = ready!(file.poll_read_ready(context)) else {
                // The runtime of the task that registered the file has ended: it is registered again, with this one.
                *watch = None;
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            let mut count = 0;
            loop {
                match shared.read(op, Kind::Task)? {
                    Read::Event => count += 1,
                    Read::Nothing => break,
                    // The thread wakes this task when it leaves, and there may still be events then.
                    Read::NotOurTurn => return Poll::Pending,
                }
            }
            if count > 0 {
                // One of them may be this task's.
                return Poll::Ready(Ok(()));
            }
            ready.clear_ready();
        }
    }
}

/// The file of a channel, and a clone that keeps it open.
#[derive(Debug)]
struct ChannelFile(CompletionChannel);

impl AsRawFd for ChannelFile {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A channel in the runtime's poller, from the first task that waits for it.
#[derive(Debug, Default)]
pub(super) struct ChannelWatch(Mutex<Option<AsyncFd<ChannelFile>>>);

impl ChannelWatch {
    /// Ready if there may be an event, which the caller reads. Otherwise all wakers of the channel are called when there is one.
    fn poll(&self, beside: &Beside, op: &'static str) -> Poll<Result<()>> {
        let mut watch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = Waker::from(beside.waiters.clone());
        loop {
            if watch.is_none() {
                // As for the manager's file; it stays open as long as this has a clone of the channel.
                #[allow(
                    deprecated,
                    reason = "sound for what keeps its file open, and older versions have it alone"
                )]
                let file = AsyncFd::with_interest(ChannelFile(beside.channel.clone()), Interest::READABLE);
                *watch = Some(file.map_err(|error| Error::io(op, &error))?);
            }
            let Some(file) = watch.as_ref() else { return Poll::Pending };
            match ready!(file.poll_read_ready(&mut Context::from_waker(&waker))) {
                Ok(mut ready) => {
                    // Before the event is read: one that comes later makes the file readable anew.
                    ready.clear_ready();
                    return Poll::Ready(Ok(()));
                }
                // The runtime of the task that registered the file has ended: it is registered again, with this one.
                Err(_) => *watch = None,
            }
        }
    }
}

impl<T, E: From<Error>> Future for Waiting<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared.clone();
        shared.check_origin(self.op())?;
        loop {
            if let Poll::Ready(result) = self.work.as_mut().poll(context) {
                return Poll::Ready(result);
            }
            if let Some(beside) = self.channel()
                && beside.watch.poll(beside, self.op())?.is_ready()
            {
                continue;
            }
            let ticket = *self.ticket.get_or_insert_with(Dispatch::number);
            if !shared.dispatch().wants_to_read(Kind::Task, ticket, context.waker()) {
                return Poll::Pending;
            }
            ready!(shared.watch.read(&shared, self.op(), context))?;
        }
    }
}

impl<T, E> Drop for Waiting<'_, T, E> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.stop_reading(Kind::Task, ticket);
        }
    }
}
