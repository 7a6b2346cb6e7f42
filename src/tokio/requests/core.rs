//! The requests in flight: a state machine behind the lock.

use std::hash::{BuildHasher, RandomState};
use std::task::{Poll, Waker};
use std::time::Duration;

use nix::errno::Errno;

use crate::driver::completion::{Completion, Status};
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::cq::{CompletionChannel, CompletionQueue};
use crate::verbs::qp::{QpType, QueuePair};

/// Number of completions that are taken at a time.
const BATCH: usize = 16;

/// What to do without the lock: wakers run other code.
#[derive(Debug, Default)]
pub(super) struct After {
    pub(super) wakers: Vec<Waker>,
    /// Room that has become free.
    pub(super) sends: usize,
    pub(super) receives: usize,
    /// Nothing is posted any more.
    pub(super) is_over: bool,
}

#[derive(Debug)]
enum Slot {
    /// No request has this number.
    Free,
    /// In flight, with who waits for it; `None` before its first poll.
    Posted(bool, Option<Waker>),
    /// In flight, and nobody waits.
    Abandoned(bool),
    Done(Completion),
}

#[derive(Clone, Debug)]
enum State {
    Open,
    /// The queue pair is in the error state, and the driver polls its queues.
    Draining,
    Drained,
    Failed(Error),
}

pub(super) struct Core<T: QpType> {
    parts: Option<(QueuePair<T>, Vec<CompletionQueue>)>,
    channel: CompletionChannel,
    /// An event was asked for and has not been read.
    is_armed: bool,
    /// The upper half of the numbers of requests: random, so that it does not collide with what was posted before.
    tag: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: usize,
    state: State,
    pub(super) driver: Option<Waker>,
    drains: Vec<Waker>,
}

impl<T: QpType> Core<T> {
    pub(super) fn new(qp: QueuePair<T>, queues: Vec<CompletionQueue>, channel: CompletionChannel) -> Self {
        Self {
            parts: Some((qp, queues)),
            channel,
            is_armed: false,
            tag: RandomState::new().hash_one("requests") & !u64::from(u32::MAX),
            slots: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            state: State::Open,
            driver: None,
            drains: Vec::new(),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn queue_pair(&mut self) -> Option<&mut QueuePair<T>> {
        self.parts.as_mut().map(|(qp, _)| qp)
    }

    /// Why no request is posted.
    pub(super) fn refusal(&self, op: &'static str) -> Error {
        match &self.state {
            State::Failed(error) => error.clone(),
            _ => Error::refused(op, Errno::EINVAL, "the queue pair was drained, or a request has failed"),
        }
    }

    pub(super) fn post(
        &mut self,
        op: &'static str,
        is_receive: bool,
        post: impl FnOnce(u64, &mut QueuePair<T>) -> Result<()>,
    ) -> Result<u32> {
        let Some((qp, _)) = self.parts.as_mut().filter(|_| matches!(self.state, State::Open)) else {
            return Err(self.refusal(op));
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            // As many as fit into the queues.
            (self.slots.len() - 1) as u32
        });
        if let Err(error) = post(self.tag | u64::from(slot), qp) {
            self.free.push(slot);
            return Err(error);
        }
        self.slots[slot as usize] = Slot::Posted(is_receive, None);
        self.in_flight += 1;
        Ok(slot)
    }

    /// The end of a request. If it is in flight, the waker is called then.
    pub(super) fn poll(
        &mut self,
        op: &'static str,
        slot: u32,
        waker: &Waker,
        after: &mut After,
    ) -> Poll<Result<Completion>> {
        if matches!(self.state, State::Open) {
            self.pump(after);
            if let Some(Slot::Posted(_, waits)) = self.slots.get_mut(slot as usize) {
                *waits = Some(waker.clone());
                self.arm(after);
            }
        }
        match self.slots.get_mut(slot as usize) {
            Some(Slot::Done(completion)) => {
                let completion = *completion;
                self.release(slot);
                Poll::Ready(Ok(completion))
            }
            Some(Slot::Posted(_, waits)) => {
                if let State::Failed(error) = &self.state {
                    return Poll::Ready(Err(error.clone()));
                }
                *waits = Some(waker.clone());
                Poll::Pending
            }
            _ => Poll::Ready(Err(self.refusal(op))),
        }
    }

    /// Nobody waits for a request any more.
    pub(super) fn abandon(&mut self, slot: u32) {
        match self.slots.get_mut(slot as usize) {
            Some(Slot::Done(_)) => self.release(slot),
            Some(place @ Slot::Posted(..)) => {
                if let Slot::Posted(is_receive, _) = *place {
                    *place = Slot::Abandoned(is_receive);
                }
            }
            _ => {}
        }
    }

    fn release(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::Free;
        self.free.push(slot);
    }

    /// Takes all completions, unless the queue pair is being drained, which polls itself.
    fn pump(&mut self, after: &mut After) {
        let mut batch = Completion::batch::<BATCH>();
        let mut at = 0;
        while matches!(self.state, State::Open)
            && let Some(queue) = self.parts.as_mut().and_then(|(_, queues)| queues.get_mut(at))
        {
            let found = queue.poll(&mut batch);
            for completion in &batch[..found] {
                self.complete(completion, after);
            }
            at += usize::from(found < BATCH);
        }
    }

    fn complete(&mut self, completion: &Completion, after: &mut After) {
        let slot = completion.wr_id as u32;
        let is_ours = completion.wr_id & !u64::from(u32::MAX) == self.tag;
        if let Some(place) = self.slots.get_mut(slot as usize).filter(|_| is_ours) {
            let is_receive = match std::mem::replace(place, Slot::Done(*completion)) {
                Slot::Posted(is_receive, waker) => {
                    after.wakers.extend(waker);
                    is_receive
                }
                Slot::Abandoned(is_receive) => {
                    self.release(slot);
                    is_receive
                }
                // No request of this number is in flight.
                other => {
                    *place = other;
                    return;
                }
            };
            self.in_flight -= 1;
            *(if is_receive { &mut after.receives } else { &mut after.sends }) += 1;
        }
        if completion.status != Status::Success {
            self.begin_drain(after);
        }
    }

    /// Asks for an event at the next completion.
    fn arm(&mut self, after: &mut After) {
        if self.is_armed || !matches!(self.state, State::Open) {
            return;
        }
        if let Err(error) = self.notify() {
            return self.fail(error, after);
        }
        // No event announces completions that arrived before.
        self.pump(after);
    }

    fn notify(&mut self) -> Result<()> {
        let Some((_, queues)) = &self.parts else { return Ok(()) };
        for queue in queues {
            queue.notify(false)?;
        }
        self.is_armed = true;
        Ok(())
    }

    /// What the driver does at each poll, after the channel was readable or somebody has woken it. True at the end.
    pub(super) fn step(&mut self, waker: &Waker, after: &mut After) -> bool {
        self.driver = Some(waker.clone());
        if let Err(error) = self.advance(after) {
            self.fail(error, after);
        }
        matches!(self.state, State::Drained | State::Failed(_))
    }

    fn advance(&mut self, after: &mut After) -> Result<()> {
        while self.is_armed && self.channel.next_event()?.is_some() {
            self.is_armed = false;
        }
        self.pump(after);
        if self.in_flight > 0 {
            self.arm(after);
        }
        // What completes between the two rounds is found by the second one, and what completes later is announced.
        if matches!(self.state, State::Draining) && !self.drain_some(after)? {
            self.notify()?;
            self.drain_some(after)?;
        }
        Ok(())
    }

    pub(super) fn begin_drain(&mut self, after: &mut After) {
        if matches!(self.state, State::Open) {
            self.state = State::Draining;
            after.wakers.extend(self.driver.take());
        }
    }

    /// One round of a drain. True when all has completed.
    fn drain_some(&mut self, after: &mut After) -> Result<bool> {
        let mut ended = Vec::new();
        let drained = match &mut self.parts {
            Some((qp, queues)) => {
                let mut queues: Vec<_> = queues.iter_mut().collect();
                qp.drain(&mut queues, Duration::ZERO, |completion| ended.push(completion))
            }
            None => Ok(()),
        };
        ended.iter().for_each(|completion| self.complete(completion, after));
        match drained {
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(false),
            // Nothing is posted in the state RESET.
            Err(error) if error.kind() == ErrorKind::InvalidInput && self.in_flight == 0 => {}
            other => other?,
        }
        self.state = State::Drained;
        self.end(after);
        Ok(true)
    }

    pub(super) fn fail(&mut self, error: Error, after: &mut After) {
        if !matches!(self.state, State::Drained | State::Failed(_)) {
            self.state = State::Failed(error);
            self.end(after);
        }
    }

    fn end(&mut self, after: &mut After) {
        for slot in &mut self.slots {
            if let Slot::Posted(_, waker) = slot {
                after.wakers.extend(waker.take());
            }
        }
        after.wakers.append(&mut self.drains);
        after.is_over = true;
    }

    pub(super) fn poll_drained(&mut self, waker: &Waker) -> Poll<Result<()>> {
        match &self.state {
            State::Drained => Poll::Ready(Ok(())),
            State::Failed(error) => Poll::Ready(Err(error.clone())),
            State::Open | State::Draining => {
                if !self.drains.iter().any(|known| known.will_wake(waker)) {
                    self.drains.push(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    pub(super) fn take_parts(&mut self) -> Option<(QueuePair<T>, Vec<CompletionQueue>)> {
        if matches!(self.state, State::Drained) { self.parts.take() } else { None }
    }
}

/// The error of a queue pair that a clone has returned.
pub(super) fn gone(op: &'static str) -> Error {
    Error::refused(op, Errno::EINVAL, "the queue pair was returned by `into_parts` of a clone")
}
