//! Calls that wait for the peer: by a deadline, or as futures.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::beside::Beside;
use super::dispatch::{Dispatch, Kind};
use super::shared::Shared;
use super::sleeper::Sleeper;
use crate::kernel::error::{Error, Result};
use crate::kernel::event;

/// How long a reader sleeps at most while a call in the helper may report something, which the file does not announce.
const HELPED: Duration = Duration::from_millis(10);

/// A call that waits, with the result `T`: end it with [`within`](Self::within), or, with feature `tokio`, with `.await`.
///
/// Nothing happens before that, and dropping it afterwards cancels the call: no identifier is left, and what it had taken over is dropped.
#[must_use = "nothing happens before `within` or `.await`"]
pub struct Waiting<'a, T, E = Error> {
    pub(super) shared: Arc<Shared>,
    op: &'static str,
    /// Where the call puts a channel that is watched too.
    beside: Option<Arc<OnceLock<Arc<Beside>>>>,
    pub(super) work: Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>,
    /// Its ticket as a task that reads, if it is one.
    #[cfg(feature = "tokio")]
    pub(super) ticket: Option<u64>,
}

impl<T, E> std::fmt::Debug for Waiting<'_, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("op", &self.op).finish_non_exhaustive()
    }
}

/// The ticket of a thread that may read. It passes its turn on when it is dropped.
struct Reading<'s> {
    shared: &'s Shared,
    ticket: u64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.shared.stop_reading(Kind::Thread, self.ticket);
    }
}

impl<'a, T, E: From<Error>> Waiting<'a, T, E> {
    pub(super) fn new(
        shared: &Arc<Shared>,
        op: &'static str,
        work: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> Self {
        Self {
            shared: shared.clone(),
            op,
            beside: None,
            work: Box::pin(work),
            #[cfg(feature = "tokio")]
            ticket: None,
        }
    }

    /// Also watches the channel that the call puts here.
    pub(super) fn beside(mut self, beside: Arc<OnceLock<Arc<Beside>>>) -> Self {
        self.beside = Some(beside);
        self
    }

    #[cfg(feature = "tokio")]
    pub(super) fn op(&self) -> &'static str {
        self.op
    }

    /// Waits at most `timeout` for the end of the call. Meanwhile this thread may read the events of others, and hand them on.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut) after that time: the call is cancelled. Otherwise those of the call.
    pub fn within(mut self, timeout: Duration) -> Result<T, E> {
        self.shared.check_origin(self.op)?;
        let deadline = Instant::now().checked_add(timeout);
        let sleeper = Sleeper::here();
        let waker = Waker::from(sleeper.clone());
        let mut context = Context::from_waker(&waker);
        let shared = self.shared.clone();
        // From when it has nothing to do but to wait.
        let mut reading: Option<Reading<'_>> = None;
        loop {
            sleeper.begin();
            let before = reading.is_none().then(|| shared.dispatch().given());
            if let Poll::Ready(result) = self.work.as_mut().poll(&mut context) {
                return result;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(late(self.op).into());
            }
            if self.channel().is_some() && sleeper.file().is_none() {
                sleeper.make_file(self.op)?;
                continue;
            }
            let new = || Reading { shared: &shared, ticket: Dispatch::number() };
            let ticket = reading.get_or_insert_with(new).ticket;
            let mut dispatch = shared.dispatch();
            let (reads, given) = (dispatch.wants_to_read(Kind::Thread, ticket, &waker), dispatch.given());
            drop(dispatch);
            // What others have given before nobody else takes its events may be its own, and may not have woken it yet.
            if before.is_some_and(|before| before != given) {
                continue;
            }
            if !reads && self.channel().is_none() {
                sleeper.sleep(left);
                continue;
            }
            // What happened before it sleeps on files was announced to this thread, not to the files.
            if sleeper.is_woken() {
                continue;
            }
            let is_helped = reads && shared.helped.load(Ordering::Relaxed) > 0;
            let nap = match (left, is_helped) {
                (left, true) => Some(left.map_or(HELPED, |left| left.min(HELPED))),
                (left, false) => left,
            };
            self.doze(&sleeper, reads, nap)?;
        }
    }

    /// The channel that is watched too, if the call has one by now.
    pub(super) fn channel(&self) -> Option<&Beside> {
        self.beside.as_ref()?.get().map(AsRef::as_ref)
    }

    /// Sleeps until something happens to the manager's file, if this thread reads it, or to the channel. Reads one event.
    fn doze(&self, sleeper: &Sleeper, reads: bool, nap: Option<Duration>) -> Result<()> {
        let events = self.shared.events();
        let beside = self.channel().map(Beside::file).zip(sleeper.file());
        let [may_read, is_woken] = match beside {
            None => [event::wait(self.op, &events, nap)?, false],
            Some((channel, own)) if reads => {
                let [may_read, _, is_woken] = event::wait_each(self.op, [events, channel, own], nap)?;
                [may_read, is_woken]
            }
            Some((channel, own)) => {
                let [_, is_woken] = event::wait_each(self.op, [channel, own], nap)?;
                [false, is_woken]
            }
        };
        if is_woken {
            sleeper.clear();
        }
        if reads && may_read {
            self.shared.read(self.op, Kind::Thread)?;
        }
        Ok(())
    }
}

#[cold]
fn late(op: &'static str) -> Error {
    Error::refused(op, Errno::ETIMEDOUT, "the given time has elapsed; the call was cancelled")
}
