//! Taking completions from a queue, to update completion counters.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;

use crate::completion_counter::{Cancel, Canceller, CompletionCounter, CounterSource, event_file, told};
use crate::driver::completion::Completion;
use crate::kernel::error::{Error, Result};
use crate::kernel::event;
use crate::kernel::process::Origin;
use crate::verbs::cq::{CompletionChannel, CompletionQueue};

/// Number of completions that are taken at a time.
const BATCH: usize = 16;

impl CompletionQueue {
    /// Takes all completions from the queue, so that [`CompletionCounter`]s count them, and discards them. Returns their number.
    ///
    /// For queues whose completions the program does not need. [`poll`](Self::poll) counts them too, and returns them.
    pub fn progress(&mut self) -> usize {
        self.take_all(&mut drop)
    }

    /// Passes all completions in the queue to `take`.
    fn take_all(&mut self, take: &mut impl FnMut(Completion)) -> usize {
        let mut batch = Completion::batch::<BATCH>();
        let mut sum = 0;
        loop {
            let found = self.poll(&mut batch);
            batch[..found].iter().copied().for_each(&mut *take);
            sum += found;
            if found < BATCH {
                return sum;
            }
        }
    }

    /// Waits like [`CompletionCounter::wait`], and meanwhile takes and discards completions like [`progress`](Self::progress):
    /// for programs with one thread.
    ///
    /// If the queue has a [`CompletionChannel`], the thread sleeps in between. It takes the queue's events from the channel,
    /// which no other queue may use. Without a channel the thread polls repeatedly and yields the processor. The wait object of
    /// the counter is irrelevant. A hardware counter wakes no thread, so for it the thread does not sleep.
    ///
    /// # Errors
    /// Those of [`CompletionCounter::wait`], and of [`notify`](Self::notify) and [`CompletionChannel::next_event`].
    ///
    /// ```
    /// use uverbs::{CompletionCounter, Counted, Frame, SendRequest, WaitObject};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let mut cq = context.create_cq(16)?;
    /// let mut qp = context.alloc_pd()?.raw_packet(&cq).inline(64).create()?;
    /// let sent = CompletionCounter::new(WaitObject::None)?;
    /// qp.bind_counter(&sent, Counted::SEND)?;
    /// qp.bring_up(1)?;
    /// qp.post_send(&[SendRequest::inline(1, Frame::Whole, &[0; 60]).signaled()])?;
    /// cq.progress_until(&sent, 1, None)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "fi_cntr_wait")]
    pub fn progress_until(
        &mut self,
        counter: &CompletionCounter,
        threshold: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let op = "cq.progress_until";
        self.check_origin(op)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if counter.source() != CounterSource::Software {
            // A hardware counter wakes no waiter.
            let take = || {
                self.progress();
            };
            return told(op, counter.watch(threshold, deadline, take)?);
        }
        let channel = self.channel().cloned();
        let file = Arc::new(event_file(op)?);
        // Other threads may change the counter while this one sleeps on the channel.
        let mut wait = counter.tell_file(file.clone(), threshold);
        loop {
            let found = self.progress();
            if let Some(outcome) = wait.outcome() {
                return told(op, Some(outcome));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return told(op, None);
            }
            match &channel {
                _ if found > 0 => {}
                None => std::thread::yield_now(),
                Some(channel) => self.sleep(op, channel, &file, left)?,
            }
        }
    }

    /// Sleeps until there may be a completion, `file` is readable, or the time has run out.
    fn sleep(
        &mut self,
        op: &'static str,
        channel: &CompletionChannel,
        file: &EventFd,
        left: Option<Duration>,
    ) -> Result<()> {
        self.notify(false)?;
        // No event announces completions that arrived before `notify`.
        if self.progress() == 0 {
            event::wait_any(op, [channel.as_fd(), file.as_fd()], left)?;
            while channel.next_event()?.is_some() {}
        }
        Ok(())
    }
}

/// A thread that takes completions from a queue as they arrive, so that [`CompletionCounter`]s count them. It ends when this
/// handle is dropped.
///
/// ```
/// use uverbs::{CompletionCounter, Counted, Frame, Progress, SendRequest, WaitObject};
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let channel = context.create_comp_channel()?;
/// let cq = context.cq(16).channel(&channel).create()?;
/// let mut qp = context.alloc_pd()?.raw_packet(&cq).inline(64).create()?;
/// let sent = CompletionCounter::new(WaitObject::Unspecified)?;
/// qp.bind_counter(&sent, Counted::SEND)?;
/// qp.bring_up(1)?;
///
/// let progress = Progress::start(cq, |_completion| {})?;
/// qp.post_send(&[SendRequest::inline(1, Frame::Whole, &[0; 60]).signaled()])?;
/// sent.wait(1, None)?; // this thread does not poll
/// let _cq = progress.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Progress {
    /// `None` after it has ended.
    thread: Option<JoinHandle<(CompletionQueue, Result<()>)>>,
    stop: Arc<Stop>,
    /// A child of `fork` does not have the thread, and shares the file that ends it with its parent.
    origin: Origin,
}

#[derive(Debug)]
struct Stop {
    wanted: AtomicBool,
    file: EventFd,
    origin: Origin,
}

impl Cancel for Stop {
    fn cancel(&self) {
        // A child of `fork` shares the file with its parent.
        if self.origin.is_here() {
            self.wanted.store(true, Ordering::Release);
            // A file that is full is readable.
            let _ = self.file.write(1);
        }
    }
}

impl Progress {
    /// Starts a thread for a queue with a [`CompletionChannel`] that no other queue uses. The thread passes every completion to
    /// `take` after it is counted.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a queue without a channel; those of `eventfd(2)` and of starting a
    /// thread.
    pub fn start(cq: CompletionQueue, mut take: impl FnMut(Completion) + Send + 'static) -> Result<Self> {
        let op = "progress.start";
        cq.check_origin(op)?;
        let Some(channel) = cq.channel().cloned() else {
            let hint = "the completion queue was made without a channel, so nothing wakes the thread";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        };
        let origin = Origin::new().map_err(|errno| Error::kernel(op, errno))?;
        let stop = Arc::new(Stop { wanted: AtomicBool::new(false), file: event_file(op)?, origin });
        let seen = stop.clone();
        let run = move || {
            let mut cq = cq;
            let end = run(&mut cq, &channel, &seen, &mut take);
            (cq, end)
        };
        let thread = std::thread::Builder::new().name("uverbs-progress".into()).spawn(run);
        let thread = thread.map_err(|error| {
            Error::kernel(op, error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw))
        })?;
        Ok(Self { thread: Some(thread), stop, origin })
    }

    /// Ends the thread and returns the queue.
    ///
    /// # Errors
    /// The error with which the thread ended before: those of [`CompletionQueue::notify`] and [`CompletionChannel::next_event`],
    /// such as [`Disassociated`](crate::ErrorKind::Disassociated), which it also is in a child of `fork`. The queue is lost then.
    ///
    /// # Panics
    /// If the thread has panicked, that is, if `take` has panicked.
    pub fn stop(mut self) -> Result<CompletionQueue> {
        self.origin.check("progress.stop")?;
        given_back("progress.stop", self.end())
    }

    /// Waits until a [canceller](Self::canceller) ends the thread, or an error, and returns the queue.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    ///
    /// # Panics
    /// As [`stop`](Self::stop).
    ///
    /// ```
    /// # use uverbs::Progress;
    /// # fn main() -> uverbs::Result<()> {
    /// # let context = uverbs::SoftDevice::default().open()?;
    /// # let channel = context.create_comp_channel()?;
    /// let progress = Progress::start(context.cq(16).channel(&channel).create()?, |_completion| {})?;
    /// let canceller = progress.canceller();
    /// std::thread::spawn(move || canceller.cancel()); // or where a signal has arrived
    /// let _cq = progress.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self) -> Result<CompletionQueue> {
        self.origin.check("progress.wait")?;
        given_back("progress.wait", self.join())
    }

    /// A handle that ends the thread, from any other one. The queue is returned by [`wait`](Self::wait) or [`stop`](Self::stop).
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.stop.clone())
    }

    fn end(&mut self) -> Option<std::thread::Result<(CompletionQueue, Result<()>)>> {
        if !self.origin.is_here() {
            std::mem::forget(self.thread.take());
            return None;
        }
        self.stop.cancel();
        self.join()
    }

    fn join(&mut self) -> Option<std::thread::Result<(CompletionQueue, Result<()>)>> {
        self.thread.take().map(JoinHandle::join)
    }
}

/// What the thread has returned. `None` if there is no thread any more.
fn given_back(
    op: &'static str,
    ended: Option<std::thread::Result<(CompletionQueue, Result<()>)>>,
) -> Result<CompletionQueue> {
    match ended {
        Some(Ok((cq, end))) => end.map(|()| cq),
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => Err(Error::refused(op, Errno::ESRCH, "the thread has ended already; create another")),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // A panic of `take` was already reported.
        drop(self.end());
    }
}

fn run(
    cq: &mut CompletionQueue,
    channel: &CompletionChannel,
    stop: &Stop,
    take: &mut impl FnMut(Completion),
) -> Result<()> {
    while !stop.wanted.load(Ordering::Acquire) {
        cq.notify(false)?;
        // No event announces completions that arrived before `notify`.
        if cq.take_all(take) == 0 {
            event::wait_any("progress.wait", [channel.as_fd(), stop.file.as_fd()], None)?;
            while channel.next_event()?.is_some() {}
        }
    }
    cq.take_all(take);
    Ok(())
}
