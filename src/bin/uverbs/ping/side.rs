//! One side of a ping: a queue pair, and whose turn it is.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, Endpoint, MemoryRegion,
    ProtectionDomain, QueuePair, ReceiveRequest, Remote, SendRequest, Status,
};

use super::counted::{Counters, Waited};
use super::one_sided::Op;
use super::transport::Transport;
use crate::Outcome;
use crate::failure::Failure;
use crate::job::told;
use crate::samples::{histogram, record};
use crate::stop::Stop;

/// Receives that are posted at a time, at most.
const DEPTH: u32 = 500;
pub(super) const SEND: u64 = 1;
const RECEIVE: u64 = 2;
/// Looks at a completion queue between two looks at the clock; then others get the processor.
pub(super) const SPINS: u64 = 64;
/// What the memory for sending is filled with.
const FILL: u8 = 0x7b;

/// How many messages of how many bytes go each way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) iters: u64,
    pub(super) size: usize,
    pub(super) op: Op,
    /// Wait for completion counters, in place of polling.
    pub(super) counter: bool,
    /// The other side is told of the GID also where the port has a local identifier: on InfiniBand, as libibverbs' programs do when
    /// they are given an index.
    pub(super) has_gid: bool,
}

/// Who takes the completions.
#[derive(Debug)]
pub(super) enum Queue {
    Polled(CompletionQueue),
    Counted(Counters),
}

/// A queue pair with its memory, and how far it is. The memory has the message to send, then room for a received
/// one: there is never more than one under way.
#[derive(Debug)]
pub(super) struct Side<T: Transport> {
    pub(super) plan: Plan,
    pub(super) local: Endpoint,
    pub(super) qp: QueuePair<T>,
    way: Option<T::Way>,
    pub(super) memory: MemoryRegion,
    pub(super) queue: Queue,
    pd: ProtectionDomain,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Receives that are posted.
    room: u32,
    /// Completions that must come before the next message is sent.
    sending: bool,
    receiving: bool,
    asked: Option<Instant>,
    /// Times from sending a message to receiving the next one.
    pub(super) trips: Histogram<u64>,
}

impl<T: Transport> Side<T> {
    pub(super) fn new(context: &Context, options: &ConnectionOptions, plan: Plan, psn: u32) -> Outcome<Self> {
        let pd = context.alloc_pd()?;
        let depth = plan.iters.min(DEPTH.into()) as u32;
        let channel = context.create_comp_channel()?;
        let cq = context.cq(depth + 1).channel(&channel).create()?;
        let mut qp = T::builder(&pd, &cq).send_depth(1).receive_depth(depth).create()?;
        let access = AccessFlags::LOCAL_WRITE | plan.op.remote_access();
        let memory = pd.register(2 * plan.size + T::HEADER, access)?;
        memory.write(0, &vec![FILL; plan.size])?;
        let mut local = qp.endpoint(options, psn)?;
        if local.lid != 0 && !plan.has_gid {
            local.gid = [0; 16];
        }
        let queue =
            if plan.counter { Queue::Counted(Counters::start(&mut qp, cq)?) } else { Queue::Polled(cq) };
        Ok(Self {
            plan,
            local,
            qp,
            way: None,
            memory,
            queue,
            pd,
            sent: 0,
            received: 0,
            room: 0,
            sending: false,
            receiving: true,
            asked: None,
            trips: histogram()?,
        })
    }

    /// Connects, and makes room for messages.
    pub(super) fn connect(&mut self, options: &ConnectionOptions, remote: &Endpoint) -> Outcome {
        self.way = Some(T::connect(&mut self.qp, &self.pd, options, &self.local, remote)?);
        if self.plan.op == Op::Send { self.make_room() } else { Ok(()) }
    }

    /// Where the other side's operations go.
    pub(super) fn there(&self) -> Remote {
        Remote { address: self.memory.address() + self.plan.size as u64, rkey: self.memory.rkey() }
    }

    fn make_room(&mut self) -> Outcome {
        let wanted = self.plan.iters.saturating_sub(self.received).min(DEPTH.into()) as u32;
        if self.room > wanted / 2 {
            return Ok(());
        }
        let size = self.plan.size;
        let segments = [self.memory.segment(size..2 * size + T::HEADER)?];
        let request = ReceiveRequest::new(RECEIVE, &segments);
        self.qp.post_receive(&vec![request; (wanted - self.room) as usize])?;
        self.room = wanted;
        Ok(())
    }

    /// Sends the next message.
    pub(super) fn send(&mut self) -> Outcome {
        let Some(way) = &self.way else { return Ok(()) };
        let segments = [self.memory.segment(0..self.plan.size)?];
        let request = SendRequest::new(SEND, T::send(way), &segments).signaled();
        (self.sending, self.receiving) = (true, true);
        self.asked = Some(Instant::now());
        self.qp.post_send(&[request])?;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sent >= self.plan.iters && self.received >= self.plan.iters
    }

    /// Takes completions, and answers when it is this side's turn; says whether there were any.
    fn step(&mut self) -> Outcome<bool> {
        let Queue::Polled(cq) = &mut self.queue else { return Ok(false) };
        let mut completions = Completion::batch::<2>();
        let count = cq.poll(&mut completions);
        for completion in &completions[..count] {
            self.take(completion)?;
        }
        if count > 0 && !self.sending && !self.receiving && self.sent < self.plan.iters {
            self.send()?;
        }
        if count > 0 {
            self.make_room()?;
        }
        Ok(count > 0)
    }

    fn take(&mut self, completion: &Completion) -> Outcome {
        let receive = completion.wr_id == RECEIVE;
        completion.ok().map_err(|status| self.failed(receive, status))?;
        if !receive {
            self.sent += 1;
            self.sending = false;
            return Ok(());
        }
        if let Some(asked) = self.asked.take() {
            record(&mut self.trips, asked);
        }
        self.received += 1;
        self.room = self.room.saturating_sub(1);
        self.receiving = false;
        self.check_size(completion.len.into())
    }

    /// Whether a message of so many bytes is one of the ping's.
    fn check_size(&self, len: u64) -> Outcome {
        let wanted = self.plan.size + T::HEADER;
        if len != wanted as u64 {
            let got = len.saturating_sub(T::HEADER as u64);
            return Err(Failure::Other(format!(
                "a message of {got} bytes came; here --size is {}, and it must be the same on both sides",
                self.plan.size
            )));
        }
        Ok(())
    }

    fn failed(&self, receive: bool, status: Status) -> Failure {
        let (what, done) = if receive { ("receiving", self.received) } else { ("sending", self.sent) };
        let hint = match status {
            Status::RetryExceeded => ": the other side does not answer",
            // The errors of a message that is longer than the room for it, on either side.
            Status::LocalLength
            | Status::LocalQpOperation
            | Status::RemoteInvalidRequest
            | Status::RemoteOperation => ": is --size the same on both sides?",
            _ => "",
        };
        Failure::Other(format!("{what} message {} of {}: {status}{hint}", done + 1, self.plan.iters))
    }

    /// Waits until the last message is sent and the next has come, and answers. None if a signal came first.
    fn turn(&mut self, timeout: Duration, stop: &Stop) -> Outcome<Option<()>> {
        let Queue::Counted(counters) = &self.queue else { return Ok(Some(())) };
        let mut waited = Waited::Reached;
        if self.sending {
            waited = counters.wait(&counters.sent, self.sent + 1, timeout, stop)?;
        }
        let hears = self.receiving && self.received < self.plan.iters;
        let before = self.received * (self.plan.size + T::HEADER) as u64;
        let mut len = None;
        if hears && matches!(waited, Waited::Reached) {
            waited = counters.wait(&counters.received, self.received + 1, timeout, stop)?;
            // The other side says nothing more before it has an answer.
            len = Some(counters.bytes.read().wrapping_sub(before));
        }
        match waited {
            Waited::Reached => {}
            Waited::Stopped => return Ok(None),
            Waited::TimedOut => return Err(self.silent(timeout)),
            Waited::Failed(wr_id, status) => return Err(self.failed(wr_id == RECEIVE, status)),
        }
        if std::mem::take(&mut self.sending) {
            self.sent += 1;
        }
        if let Some(len) = len {
            if let Some(asked) = self.asked.take() {
                record(&mut self.trips, asked);
            }
            self.received += 1;
            self.room = self.room.saturating_sub(1);
            self.receiving = false;
            self.check_size(len)?;
        }
        if self.sent < self.plan.iters {
            self.send()?;
        }
        self.make_room().map(Some)
    }

    fn silent(&self, timeout: Duration) -> Failure {
        let (sent, received, iters) = (self.sent, self.received, self.plan.iters);
        Failure::Other(format!(
            "nothing came in {timeout:?}, after {sent} messages sent and {received} received of \
             {iters}; are --iters and --size the same on both sides?"
        ))
    }

    /// Releases everything, children before parents. All is tried; the first error is told.
    pub(super) fn release(self) -> uverbs::Result<()> {
        let Self { qp, way, memory, queue, pd, .. } = self;
        let cq = match queue {
            Queue::Polled(cq) => cq,
            Queue::Counted(counters) => counters.stop()?,
        };
        let qp = told(qp.destroy());
        drop(way);
        let rest = [told(memory.destroy()), told(cq.destroy()), told(pd.destroy())];
        [qp].into_iter().chain(rest).collect()
    }
}

/// Sends messages to and fro until there were as many as planned, or a signal comes. `sides` are those in this
/// process: one, or both.
pub(super) fn play<T: Transport>(sides: &mut [Side<T>], timeout: Duration, stop: &Stop) -> Outcome {
    if sides.iter().all(|side| side.plan.counter) {
        return take_turns(sides, timeout, stop);
    }
    let (mut moved, mut idle) = (Instant::now(), 0_u64);
    while !sides.iter().all(Side::is_done) {
        let mut any = false;
        for side in &mut *sides {
            any |= side.step()?;
        }
        idle = if any { 0 } else { idle + 1 };
        if idle == 1 {
            moved = Instant::now();
        }
        if idle % SPINS != 0 {
            continue;
        }
        if stop.is_set() {
            return Ok(());
        }
        if idle > 0 {
            if moved.elapsed() >= timeout {
                let [side, ..] = sides else { return Ok(()) };
                return Err(side.silent(timeout));
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// The same by counters. Of two sides the first one has begun, so the other's turn is first.
fn take_turns<T: Transport>(sides: &mut [Side<T>], timeout: Duration, stop: &Stop) -> Outcome {
    while !sides.iter().all(Side::is_done) {
        for side in sides.iter_mut().rev() {
            if !side.is_done() && side.turn(timeout, stop)?.is_none() {
                return Ok(());
            }
        }
    }
    Ok(())
}
