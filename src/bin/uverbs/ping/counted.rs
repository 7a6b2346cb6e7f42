//! A ping that waits for completion counters, where the other one polls: a thread takes the completions.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use uverbs::{
    CompletionCounter, CompletionQueue, Counted, CounterEvents, ErrorKind, Progress, QpType, QueuePair,
    Status, WaitObject,
};

use crate::Outcome;
use crate::failure::Failure;
use crate::stop::Stop;

/// Longest time between two looks at signals.
const SLICE: Duration = Duration::from_millis(50);
/// How long a failure that was counted may take until it is told.
const TOLD: Duration = Duration::from_secs(1);

/// The counters of a side, and the thread that takes its completions.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) sent: CompletionCounter,
    pub(super) received: CompletionCounter,
    /// Bytes that were received.
    pub(super) bytes: CompletionCounter,
    /// Numbers of requests that failed, and why.
    failures: Receiver<(u64, Status)>,
    progress: Progress,
}

/// How a wait ended.
#[derive(Debug)]
pub(super) enum Waited {
    Reached,
    /// A signal came.
    Stopped,
    TimedOut,
    /// The request of this number failed.
    Failed(u64, Status),
}

impl Counters {
    /// Binds counters to a queue pair that is not connected yet, and starts the thread.
    pub(super) fn start<T: QpType>(qp: &mut QueuePair<T>, cq: CompletionQueue) -> Outcome<Self> {
        let [sent, received] = [(); 2].map(|()| CompletionCounter::new(WaitObject::Unspecified));
        let (sent, received) = (sent?, received?);
        let bytes = CompletionCounter::builder().events(CounterEvents::Bytes).create()?;
        qp.bind_counter(&sent, Counted::SEND)?;
        // Bound first, so who is woken by the other one finds the bytes there.
        qp.bind_counter(&bytes, Counted::RECEIVE)?;
        qp.bind_counter(&received, Counted::RECEIVE)?;
        let (tell, failures) = channel();
        let progress = Progress::start(cq, move |completion| {
            if let Err(status) = completion.ok() {
                // Nobody listens any more when the ping is over.
                let _ = tell.send((completion.wr_id, status));
            }
        })?;
        Ok(Self { sent, received, bytes, failures, progress })
    }

    /// Waits for one of the counters.
    pub(super) fn wait(
        &self,
        counter: &CompletionCounter,
        threshold: u64,
        timeout: Duration,
        stop: &Stop,
    ) -> Outcome<Waited> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            // No failure is passed over: the first one ends the ping.
            match counter.wait_since(threshold, 0, Some(left.min(SLICE))) {
                Ok(()) => return Ok(Waited::Reached),
                Err(error) if error.kind() == ErrorKind::OperationFailed => {
                    return match self.failures.recv_timeout(TOLD) {
                        Ok((wr_id, status)) => Ok(Waited::Failed(wr_id, status)),
                        Err(_) => Err(Failure::from(error)),
                    };
                }
                Err(error) if error.kind() != ErrorKind::TimedOut => return Err(error.into()),
                Err(_) if stop.is_set() => return Ok(Waited::Stopped),
                Err(_) if left.is_zero() => return Ok(Waited::TimedOut),
                Err(_) => {}
            }
        }
    }

    /// Ends the thread, and gives the queue back.
    pub(super) fn stop(self) -> uverbs::Result<CompletionQueue> {
        self.progress.stop()
    }
}
