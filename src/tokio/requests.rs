//! Requests of a queue pair as futures.

mod core;

use std::fmt;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::sync::Semaphore;
use nix::errno::Errno;

use self::core::{After, Core};
use super::of_io;
use crate::driver::completion::{Completion, Status};
use crate::driver::request::Remote;
use crate::kernel::error::{Error, Result};
use crate::kernel::process::Origin;
use crate::verbs::cq::{CompletionChannel, CompletionQueue};
use crate::verbs::mr::Segment;
use crate::verbs::qp::{Operation, QpType, QueuePair, Rc, SendRequest};
use crate::verbs::work::ReceiveRequest;

const POST: &str = "requests.post";
const RECEIVE: &str = "requests.receive";
const DRAIN: &str = "requests.drain";

/// A queue pair whose requests are futures, for tasks of tokio. It may be of any type, and connected by any means.
///
/// Each call posts one request when it is first polled, and returns its completion. Any number of them may be in flight: where the queue has
/// no room for another one, the call waits until it has. Clones are the same queue pair. A task that the runtime runs waits for completions.
///
/// Dropping a call before it has posted posts nothing. Dropping it afterwards cancels nothing: the device carries the request out, the
/// memory region stays registered until then, and the place in the queue is free after that. Do not use the memory for something else before
/// [`drain`](Self::drain), or before a later request of the same queue has completed.
///
/// The first request that fails ends the queue pair: it goes to the error state, all other requests end with
/// [`Flushed`](crate::Status::Flushed), and further ones are refused.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use uverbs::{AccessFlags, ConnectionOptions, Requests, SoftDevice};
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
/// runtime.block_on(async {
///     let context = SoftDevice::default().open()?;
///     let (channel, pd) = (context.create_comp_channel()?, context.alloc_pd()?);
///     let cq = context.cq(64).channel(&channel).create()?;
///     let mut qp = pd.rc(&cq).create()?;
///     let options = ConnectionOptions::new(1, 0).access(AccessFlags::REMOTE_READ);
///     let itself = qp.endpoint(&options, 0)?;
///     qp.connect(&options, &itself, &itself)?;
///     let memory = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
///     memory.write(1024, b"hello")?;
///
///     let requests = Requests::new(qp, [cq])?;
///     requests.read(memory.segment(..5)?, memory.remote()).await?;
///     requests.drain().await?;
///     let (_qp, _queues) = requests.into_parts()?;
///     Ok(())
/// })
/// # }
/// ```
pub struct Requests<T: QpType>(Arc<Inner<T>>);

struct Inner<T: QpType> {
    core: Mutex<Core<T>>,
    /// The room of both queues.
    sends: Semaphore,
    receives: Semaphore,
    /// Whether there is any room for receives at all.
    has_receives: bool,
    /// Checked before the lock, for which a child of `fork` must not wait.
    origin: Origin,
}

impl<T: QpType> Inner<T> {
    /// Does something under the lock, and afterwards what it has made due: others are woken, and there is more room.
    fn with<R>(&self, what: impl FnOnce(&mut Core<T>, &mut After) -> R) -> R {
        let mut after = After::default();
        // Nothing panics under the lock.
        let result = what(&mut self.core.lock().unwrap_or_else(PoisonError::into_inner), &mut after);
        self.sends.add_permits(after.sends);
        self.receives.add_permits(after.receives);
        if after.is_over {
            self.sends.close();
            self.receives.close();
        }
        after.wakers.into_iter().for_each(std::task::Waker::wake);
        result
    }
}

impl<T: QpType> Drop for Inner<T> {
    fn drop(&mut self) {
        // In a child of `fork` there is no task, and the runtime's locks may be held for ever.
        if !self.origin.is_here() {
            return;
        }
        // Its task finds that nobody is left.
        let core = self.core.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = core.driver.take() {
            driver.wake();
        }
    }
}

impl<T: QpType> Clone for Requests<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: QpType> fmt::Debug for Requests<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// A request that has failed, or that was not posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    error: Error,
    completion: Option<Completion>,
}

impl RequestError {
    /// The error; [`OperationFailed`](crate::ErrorKind::OperationFailed) if the request was posted and has failed.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The completion, if the request was posted and has one.
    pub fn completion(&self) -> Option<&Completion> {
        self.completion.as_ref()
    }

    /// The status of the completion, if there is one.
    pub fn status(&self) -> Option<Status> {
        self.completion.map(|completion| completion.status)
    }

    fn of(op: &'static str, completion: Completion) -> Self {
        let error = Error::operation_failed(op, completion.status.to_string());
        Self { error, completion: Some(completion) }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for RequestError {}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self { error, completion: None }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        error.error
    }
}

impl From<RequestError> for std::io::Error {
    fn from(error: RequestError) -> Self {
        error.error.into()
    }
}

impl<T: QpType> Requests<T> {
    /// Takes over a queue pair and its completion queues, which must be used by nothing else and send their events to one
    /// [`CompletionChannel`] of their own. What was posted before is not reported.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a completion queue is missing, or has no channel or another one; those of
    /// `dup(2)` and `epoll_ctl(2)`.
    ///
    /// # Panics
    /// If called outside a runtime of tokio with its I/O driver enabled.
    pub fn new(qp: QueuePair<T>, queues: impl Into<Vec<CompletionQueue>>) -> Result<Self>
    where
        T: Send + 'static,
    {
        let queues = queues.into();
        let refused = |hint| Error::refused("requests.new", Errno::EINVAL, hint);
        if !qp.are_all(&queues) {
            return Err(refused("every completion queue of the queue pair must be given"));
        }
        let mut channels = queues.iter().map(CompletionQueue::channel);
        let first = channels.next().flatten().cloned();
        let channel = first.ok_or_else(|| refused("the completion queue was made without a channel"))?;
        if !channels.all(|other| other.is_some_and(|other| other.is_same(&channel))) {
            return Err(refused("the completion queues must have the same channel"));
        }
        let file =
            std::os::fd::AsFd::as_fd(&channel).try_clone_to_owned().map_err(of_io::<CompletionChannel>)?;
        #[allow(deprecated, reason = "sound for what owns its descriptor, and older versions have it alone")]
        let file = AsyncFd::with_interest(file, Interest::READABLE).map_err(of_io::<CompletionChannel>)?;
        let room = |queue: u32| (queue as usize).min(Semaphore::MAX_PERMITS);
        let capacity = qp.capacity();
        // No more than the completion queues have places for, if they are smaller.
        let places: u32 = queues.iter().map(CompletionQueue::capacity).min().unwrap_or(0);
        let receives = capacity.receives.min(if queues.len() > 1 { places } else { places / 2 });
        let sends = capacity.sends.min(if queues.len() > 1 { places } else { places - receives });
        let inner = Arc::new(Inner {
            core: Mutex::new(Core::new(qp, queues, channel)),
            sends: Semaphore::new(room(sends)),
            receives: Semaphore::new(room(receives)),
            has_receives: receives > 0,
            origin: Origin::here(),
        });
        ::tokio::spawn(drive(Driver(Arc::downgrade(&inner)), file));
        Ok(Self(inner))
    }

    /// Posts a request to the send queue, and waits for its completion.
    ///
    /// # Errors
    /// A [`RequestError`]: with the completion if the request has failed, and otherwise that of [`QueuePair::post_send`].
    pub async fn post(
        &self,
        operation: T::Operation<'_>,
        segments: &[Segment<'_>],
    ) -> Result<Completion, RequestError> {
        self.send_request(|wr_id, qp| {
            qp.post_send(&[SendRequest::new(wr_id, operation, segments).signaled()])
        })
        .await
    }

    /// Posts a request with bytes that are copied into the queue, and waits for its completion; see [`SendRequest::inline`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn post_inline(
        &self,
        operation: T::Operation<'_>,
        bytes: &[u8],
    ) -> Result<Completion, RequestError> {
        self.send_request(|wr_id, qp| {
            qp.post_send(&[SendRequest::inline(wr_id, operation, bytes).signaled()])
        })
        .await
    }

    async fn send_request(
        &self,
        post: impl FnOnce(u64, &mut QueuePair<T>) -> Result<()>,
    ) -> Result<Completion, RequestError> {
        self.request(POST, &self.0.sends, false, post).await
    }

    /// Posts a receive, and waits for a message in it.
    ///
    /// # Errors
    /// As [`post`](Self::post), with the errors of [`QueuePair::post_receive`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) if the queue
    /// pair receives from a shared queue, or its completion queue has no place for receives.
    pub async fn receive(&self, segments: &[Segment<'_>]) -> Result<Completion, RequestError> {
        if !self.0.has_receives {
            let hint =
                "the queue pair has no receives of its own, or its completion queue has no place for them";
            return Err(Error::refused(RECEIVE, Errno::EINVAL, hint).into());
        }
        let post = |wr_id, qp: &mut QueuePair<T>| qp.post_receive(&[ReceiveRequest::new(wr_id, segments)]);
        self.request(RECEIVE, &self.0.receives, true, post).await
    }

    async fn request(
        &self,
        op: &'static str,
        room: &Semaphore,
        is_receive: bool,
        post: impl FnOnce(u64, &mut QueuePair<T>) -> Result<()>,
    ) -> Result<Completion, RequestError> {
        self.0.origin.check(op)?;
        let permit = match room.acquire().await {
            Ok(permit) => permit,
            // It is closed: the queue pair has ended.
            Err(_) => return Err(self.0.with(|core, _| core.refusal(op)).into()),
        };
        // From here on nothing waits before the request is posted and has its place.
        let slot = self.0.with(|core, _| core.post(op, is_receive, post))?;
        permit.forget();
        Flight { inner: &self.0, op, slot: Some(slot) }.await
    }

    /// Uses the queue pair, to connect it or to change its state. Post nothing: the completion would be lost.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) after [`into_parts`](Self::into_parts) of a clone.
    pub fn queue_pair<R>(&self, what: impl FnOnce(&mut QueuePair<T>) -> R) -> Result<R> {
        self.0.origin.check("requests.queue_pair")?;
        self.0.with(|core, _| core.queue_pair().map(what).ok_or_else(|| core::gone("requests.queue_pair")))
    }

    /// Number of requests that were posted and have not completed; zero in a child of `fork`.
    pub fn in_flight(&self) -> usize {
        if self.0.origin.is_here() { self.0.with(|core, _| core.in_flight()) } else { 0 }
    }

    /// Moves the queue pair to the error state, and waits until everything that was posted has completed: what the device has not carried out
    /// ends with [`Flushed`](crate::Status::Flushed). Further requests are refused. Afterwards no memory of a request is in use.
    ///
    /// # Errors
    /// Those of [`QueuePair::drain`].
    pub async fn drain(&self) -> Result<()> {
        self.0.origin.check(DRAIN)?;
        self.0.with(|core, after| core.begin_drain(after));
        poll_fn(|context| self.0.with(|core, _| core.poll_drained(context.waker()))).await
    }

    /// Returns the queue pair and its completion queues, after [`drain`](Self::drain).
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) if it is not drained, and for a clone if another one has returned them.
    #[allow(clippy::type_complexity, reason = "the two parts")]
    pub fn into_parts(self) -> Result<(QueuePair<T>, Vec<CompletionQueue>)> {
        self.0.origin.check("requests.into_parts")?;
        let hint = "drain the queue pair first";
        let parts = self.0.with(|core, _| core.take_parts());
        parts.ok_or_else(|| Error::refused("requests.into_parts", Errno::EBUSY, hint))
    }
}

impl Requests<Rc> {
    /// Sends a message into the other side's next receive.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn send(&self, data: Segment<'_>) -> Result<Completion, RequestError> {
        self.post(Operation::Send, &[data]).await
    }

    /// Writes into the other side's memory.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn write(&self, data: Segment<'_>, remote: Remote) -> Result<Completion, RequestError> {
        self.post(Operation::Write(remote), &[data]).await
    }

    /// Reads from the other side's memory into this place.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn read(&self, place: Segment<'_>, remote: Remote) -> Result<Completion, RequestError> {
        self.post(Operation::Read(remote), &[place]).await
    }

    /// Adds to eight bytes of the other side; the old value is written to this place of eight bytes.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn fetch_add(
        &self,
        place: Segment<'_>,
        remote: Remote,
        add: u64,
    ) -> Result<Completion, RequestError> {
        self.post(Operation::FetchAdd { remote, add }, &[place]).await
    }

    /// Replaces eight bytes of the other side if they are equal to `compare`; the old value is written to this place of eight bytes.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn compare_swap(
        &self,
        place: Segment<'_>,
        remote: Remote,
        compare: u64,
        swap: u64,
    ) -> Result<Completion, RequestError> {
        self.post(Operation::CompareSwap { remote, compare, swap }, &[place]).await
    }
}

/// A request that was posted.
struct Flight<'a, T: QpType> {
    inner: &'a Inner<T>,
    op: &'static str,
    /// `None` after the end.
    slot: Option<u32>,
}

impl<T: QpType> Future for Flight<'_, T> {
    type Output = Result<Completion, RequestError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else { return Poll::Pending };
        self.inner.origin.check(self.op)?;
        let ended = self.inner.with(|core, after| core.poll(self.op, slot, context.waker(), after));
        ended.map(|ended| {
            self.slot = None;
            match ended? {
                completion if completion.status == Status::Success => Ok(completion),
                completion => Err(RequestError::of(self.op, completion)),
            }
        })
    }
}

impl<T: QpType> Drop for Flight<'_, T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.filter(|_| self.inner.origin.is_here()) {
            self.inner.with(|core, _| core.abandon(slot));
        }
    }
}

/// The part of the task that waits for completions. If the runtime ends, so do the requests.
struct Driver<T: QpType>(Weak<Inner<T>>);

impl<T: QpType> Drop for Driver<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade().filter(|inner| inner.origin.is_here()) {
            let hint = "the runtime that waits for completions has ended";
            inner.with(|core, after| core.fail(Error::refused(DRAIN, Errno::ESRCH, hint), after));
        }
    }
}

async fn drive<T: QpType>(driver: Driver<T>, file: AsyncFd<OwnedFd>) {
    poll_fn(|context| {
        loop {
            let Some(inner) = driver.0.upgrade().filter(|inner| inner.origin.is_here()) else {
                return Poll::Ready(());
            };
            if inner.with(|core, after| core.step(context.waker(), after)) {
                return Poll::Ready(());
            }
            match std::task::ready!(file.poll_read_ready(context)) {
                // Before the event is read: one that comes later makes the file readable anew.
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return Poll::Ready(()),
            }
        }
    })
    .await;
}
