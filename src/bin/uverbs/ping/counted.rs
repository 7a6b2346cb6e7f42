//! A ping that waits for completion counters instead of polling: threads take the completions.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use uverbs::{
    Completion, CompletionCounter, CompletionQueue, Counted, CounterEvents, ErrorKind, Progress, QpType,
    QueuePair, WaitObject,
};

use super::line::Ended;
use super::side::RECEIVE;
use crate::Outcome;
use crate::failure::Failure;

/// Maximum time between two checks for signals.
const SLICE: Duration = Duration::from_millis(50);
/// Maximum time between counting a failure and receiving its completion from the thread.
const TOLD: Duration = Duration::from_secs(1);

/// What the sides in this process wait for, each for all of its lines.
#[derive(Debug)]
pub(super) struct Watch {
    /// Counts everything that was sent and received.
    moved: Arc<CompletionCounter>,
    /// Sends the failed completions.
    tell: Sender<Completion>,
    failures: Receiver<Completion>,
}

impl Watch {
    pub(super) fn new() -> Outcome<Self> {
        let (tell, failures) = channel();
        Ok(Self { moved: Arc::new(CompletionCounter::new(WaitObject::Unspecified)?), tell, failures })
    }

    /// The number so far.
    pub(super) fn moved(&self) -> u64 {
        self.moved.read()
    }

    /// Waits until the number is larger than `moved`, until a failure, or for a limited time.
    pub(super) fn wait(&self, moved: u64, timeout: Duration) -> Outcome<Option<Completion>> {
        // No failure is missed: the first one ends the ping.
        match self.moved.wait_since(moved + 1, 0, Some(timeout.min(SLICE))) {
            Err(error) if error.kind() == ErrorKind::OperationFailed => {
                self.failures.recv_timeout(TOLD).map(Some).map_err(|_| Failure::from(error))
            }
            Err(error) if error.kind() != ErrorKind::TimedOut => Err(error.into()),
            _ => Ok(None),
        }
    }

    /// Starts the thread of a queue. If receives do not belong to a queue pair to which counters could be bound, the thread counts them
    /// itself.
    pub(super) fn start(&self, cq: CompletionQueue, unbound: Option<Arc<Messages>>) -> Outcome<Progress> {
        let (moved, tell) = (self.moved.clone(), self.tell.clone());
        let progress = Progress::start(cq, move |completion| {
            let is_ok = completion.ok().is_ok();
            if !is_ok {
                // When the ping is over, nothing receives this any more.
                let _ = tell.send(completion);
            }
            let Some(messages) = unbound.as_ref().filter(|_| completion.wr_id == RECEIVE) else {
                return;
            };
            // Counters in memory accept every value.
            let _ = match is_ok {
                true => messages.add(completion.len.into()).and_then(|()| moved.add(1)),
                false => moved.add_err(1),
            };
        })?;
        Ok(progress)
    }
}

/// Counters of received messages.
#[derive(Debug)]
pub(super) struct Messages {
    count: CompletionCounter,
    bytes: CompletionCounter,
}

impl Messages {
    fn add(&self, bytes: u64) -> uverbs::Result<()> {
        self.bytes.add(bytes)?;
        self.count.add(1)
    }
}

/// The counters of a line, and their last known values.
#[derive(Debug)]
pub(super) struct Tally {
    sent: CompletionCounter,
    received: Arc<Messages>,
    known: [u64; 3],
}

impl Tally {
    /// Binds counters to a queue pair that is not connected yet, including those of received messages if it receives.
    pub(super) fn new<T: QpType>(
        qp: &mut QueuePair<T>,
        watch: &Watch,
        receives: bool,
    ) -> uverbs::Result<Self> {
        let [sent, count] = [(); 2].map(|()| CompletionCounter::new(WaitObject::None));
        let (sent, count) = (sent?, count?);
        let bytes = CompletionCounter::builder().events(CounterEvents::Bytes).create()?;
        qp.bind_counter(&sent, Counted::SEND)?;
        let mut all = Counted::SEND;
        if receives {
            // Bound first, so that the bytes of a counted message are counted too.
            qp.bind_counter(&bytes, Counted::RECEIVE)?;
            qp.bind_counter(&count, Counted::RECEIVE)?;
            all |= Counted::RECEIVE;
        }
        // Bound last, so that a thread that it wakes finds the others up to date.
        qp.bind_counter(&watch.moved, all)?;
        Ok(Self { sent, received: Arc::new(Messages { count, bytes }), known: [0; 3] })
    }

    pub(super) fn messages(&self) -> Arc<Messages> {
        self.received.clone()
    }

    /// The operations that ended since the last call. The other side sends nothing more before it gets an answer, so this is at most one
    /// message.
    pub(super) fn ended(&mut self) -> [Option<Ended>; 2] {
        let [sent, received, bytes] = &mut self.known;
        let grown = |counter: &CompletionCounter, known: &mut u64| {
            let before = std::mem::replace(known, counter.read());
            *known - before
        };
        let was_sent = grown(&self.sent, sent) > 0;
        let was_received = grown(&self.received.count, received) > 0;
        [
            was_sent.then_some(Ended::Sent),
            was_received.then(|| Ended::Received(grown(&self.received.bytes, bytes))),
        ]
    }
}
