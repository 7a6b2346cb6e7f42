//! Events, and sampling, as futures of tokio.

mod requests;

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use self::requests::{RequestError, Requests};
use self::sealed::Source;
use crate::counters::Sampler;
use crate::device::context::{AsyncEvent, Context};
use crate::device::statistics::{Statistic, Statistics};
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::CompletionChannel;

mod sealed {
    /// A source of events: a file, and a non-blocking read of the next event.
    pub trait Source: std::os::fd::AsFd {
        /// The contents of an event.
        type Event;

        /// The name of the operation in errors.
        const OP: &'static str;

        /// The next event, if there is one.
        fn next(&self) -> super::Result<Option<Self::Event>>;
    }
}

impl Source for CompletionChannel {
    type Event = u64;
    const OP: &'static str = "comp_channel.events";

    fn next(&self) -> Result<Option<u64>> {
        self.next_event()
    }
}

impl Source for Context {
    type Event = AsyncEvent;
    const OP: &'static str = "async_event.events";

    fn next(&self) -> Result<Option<AsyncEvent>> {
        self.next_event()
    }
}

/// The events of a [`CompletionChannel`], or the asynchronous events of a [`Context`], for tasks of tokio.
///
/// Each event is delivered once: another reader of the same channel or context may take it first.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use uverbs::{Completion, Events, ReceiveRequest, SoftDevice, Status};
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
/// runtime.block_on(async {
///     let context = SoftDevice::default().open()?;
///     let channel = context.create_comp_channel()?;
///     let mut cq = context.cq(16).channel(&channel).cookie(7).create()?;
///     let mut qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
///     let events = Events::new(channel.clone())?;
///
///     cq.notify(false)?;
///     qp.post_receive(&[ReceiveRequest::new(1, &[])])?;
///     qp.to_error()?;
///     assert_eq!(events.next().await?, 7);
///     let mut batch = Completion::batch::<4>();
///     assert_eq!(cq.poll(&mut batch), 1);
///     assert_eq!(batch[0].status, Status::Flushed);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Events<S> {
    source: S,
    /// A separate descriptor, so that several can watch the same file.
    file: AsyncFd<OwnedFd>,
}

impl<S: Source> Events<S> {
    /// Watches a [`CompletionChannel`] or a [`Context`].
    ///
    /// # Errors
    /// Those of `dup(2)` and `epoll_ctl(2)`.
    ///
    /// # Panics
    /// If called outside a runtime of tokio with its I/O driver enabled.
    pub fn new(source: S) -> Result<Self> {
        let file = source.as_fd().try_clone_to_owned().map_err(of_io::<S>)?;
        // Its successor requires a promise that the file stays open; an OwnedFd ensures it.
        #[allow(deprecated, reason = "sound for what owns its descriptor, and older versions have it alone")]
        let file = AsyncFd::with_interest(file, Interest::READABLE).map_err(of_io::<S>)?;
        Ok(Self { source, file })
    }

    /// Waits for the next event: the cookie of the completion queue, or an [`AsyncEvent`].
    ///
    /// Dropping the future loses nothing: an event is taken in the same poll that returns it.
    ///
    /// # Errors
    /// Those of [`CompletionChannel::next_event`] and [`Context::next_event`].
    pub async fn next(&self) -> Result<S::Event> {
        loop {
            let mut ready = self.file.readable().await.map_err(of_io::<S>)?;
            match self.source.next()? {
                Some(event) => return Ok(event),
                None => ready.clear_ready(),
            }
        }
    }
}

impl Sampler {
    /// Ticks forever, as a task of a tokio runtime; it ends when the future is dropped.
    ///
    /// Reads of the device block the runtime's thread, at most [`Sampler::at_most`] at a time, and tokio's timer has a resolution
    /// of one millisecond. If either is a problem, start a thread with [`Sampler::spawn`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use uverbs::{FlowRule, Point, Sampler, SoftDevice};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = SoftDevice::default();
    /// # let context = device.open()?;
    /// # let cq = context.create_cq(16)?;
    /// # let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
    /// # let counters = context.create_counters()?;
    /// # counters.attach(Point::Packets, 0)?;
    /// let flow = qp.create_flow(&FlowRule::normal(1).count(&counters))?;
    /// let snapshot = counters.snapshot()?;
    /// let mut sampler = Sampler::new(Duration::from_millis(10));
    /// sampler.add(&snapshot);
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// runtime.block_on(async {
    ///     tokio::select! {
    ///         never = sampler.run() => match never {},
    ///         () = tokio::time::sleep(Duration::from_millis(50)) => {}
    ///     }
    /// });
    /// assert!(snapshot.latest::<1>()?.1.epoch() >= 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If called outside a runtime of tokio with its time driver enabled.
    pub async fn run(&mut self) -> Infallible {
        loop {
            let wait = self.tick().wait;
            if wait.is_zero() {
                let_others_run().await;
            } else {
                tokio::time::sleep(wait).await;
            }
        }
    }
}

impl Statistics {
    /// Reads all counters when the next reading is due: immediately the first time, then one interval after the last was due.
    /// Missed readings are not repeated. The read itself blocks the runtime's thread, for some microseconds, and on hardware for
    /// a few firmware commands. Dropping the future before loses nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut statistics = uverbs::SoftDevice::default().device().statistics()?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// runtime.block_on(async {
    ///     for _ in 0..3 {
    ///         let counters = statistics.read_every(Duration::from_millis(5)).await?;
    ///         assert!(!counters.is_empty());
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Statistics::read`].
    ///
    /// # Panics
    /// If called outside a runtime of tokio with its time driver enabled.
    pub async fn read_every(&mut self, interval: Duration) -> Result<&[Statistic]> {
        let due = self.due(interval);
        tokio::time::sleep_until(due.into()).await;
        self.read_due(due)
    }
}

/// A future that is ready when it is polled a second time, for which it asks immediately.
fn let_others_run() -> impl Future<Output = ()> {
    let mut asked = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

fn of_io<S: Source>(error: io::Error) -> Error {
    Error::io(S::OP, &error)
}
