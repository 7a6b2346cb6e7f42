//! One side of a ping: its lines, and what they share.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, MemoryRegion, Progress,
    ProtectionDomain, QueuePair, ReceiveRequest, Remote, Status,
};

use super::address::Address;
use super::counted::Watch;
use super::exchange::Words;
use super::gid::Own;
use super::line::{Ended, Line, Shared};
use super::one_sided::Op;
use super::transport::Transport;
use crate::Outcome;
use crate::failure::Failure;
use crate::job::told;
use crate::samples::{histogram, record};
use crate::stop::Stop;

/// Maximum number of receives that are posted at a time.
const DEPTH: u32 = 500;
pub(super) const SEND: u64 = 1;
pub(super) const RECEIVE: u64 = 2;
/// Number of polls of a completion queue between two readings of the clock. After these, the thread yields the processor.
pub(super) const SPINS: u64 = 64;
/// Completions that are taken in one poll: those of a message and of the reply.
const BATCH: usize = 2;
/// The byte with which the memory for sending is filled.
const FILL: u8 = 0x7b;

/// The number and the size of the messages in each direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// For all lines together.
    pub(super) iters: u64,
    pub(super) size: usize,
    pub(super) op: Op,
    pub(super) words: Words,
    /// The GID is sent to the other side even if the port has a local identifier: on InfiniBand, libibverbs' programs do this if they are
    /// given an index.
    pub(super) has_gid: bool,
}

impl Plan {
    /// Number of receives to post when `received` messages have arrived. With several lines, pingpong programs send until they know that
    /// all messages have arrived, and therefore one more on each of the other lines.
    fn room(&self, received: u64) -> u32 {
        let most = self.iters.saturating_add(self.words.lines() as u64 - 1);
        most.saturating_sub(received).min(DEPTH.into()) as u32
    }

    /// The maximum number that is ever posted.
    pub(super) fn depth(&self) -> u32 {
        self.room(0)
    }
}

/// The source of completions.
#[derive(Debug)]
pub(super) enum Queue {
    Polled(CompletionQueue),
    Counted(Progress),
}

/// Lines with their memory, and their progress. The memory contains the message to send, followed by room for a received one, whose
/// contents do not matter.
#[derive(Debug)]
pub(super) struct Side<T: Transport> {
    pub(super) plan: Plan,
    pub(super) lines: Vec<Line<T>>,
    pub(super) queue: Queue,
    /// The shared receive queue, if receives are posted to one.
    shared: Option<Shared>,
    pub(super) memory: MemoryRegion,
    pd: ProtectionDomain,
    /// Number of messages that were posted, that were sent, and that arrived.
    posted: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Number of receives that are posted.
    room: u32,
    /// Times from sending a message to receiving the next one.
    pub(super) trips: Histogram<u64>,
}

impl<T: Transport> Side<T> {
    pub(super) fn new(
        context: &Context,
        options: Option<&ConnectionOptions>,
        plan: Plan,
        watch: Option<&Watch>,
    ) -> Outcome<Self> {
        let pd = context.alloc_pd()?;
        let (depth, lines) = (plan.depth(), plan.words.lines());
        let channel = context.create_comp_channel()?;
        let cq = context.cq(depth + lines as u32).channel(&channel).create()?;
        let shared = Shared::new(&pd, &cq, context, plan.words, depth)?;
        let line = |_| Line::new(&pd, &cq, shared.as_ref(), &plan, options);
        let mut lines: Vec<_> = (0..lines).map(line).collect::<uverbs::Result<_>>()?;
        let access = AccessFlags::LOCAL_WRITE | plan.op.remote_access();
        let memory = pd.register(2 * plan.size + T::HEADER, access)?;
        memory.write(0, &vec![FILL; plan.size])?;
        let queue = match watch {
            Some(watch) => {
                lines.iter_mut().try_for_each(|line| line.count(watch))?;
                Queue::Counted(watch.start(cq, lines.iter().find_map(Line::unbound))?)
            }
            None => Queue::Polled(cq),
        };
        Ok(Self {
            plan,
            lines,
            queue,
            shared,
            memory,
            pd,
            posted: 0,
            sent: 0,
            received: 0,
            room: 0,
            trips: histogram()?,
        })
    }

    /// The addresses of this side's lines.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.lines.iter().map(|line| line.local).collect()
    }

    /// Changes the GID that the other side is told, if it is told one.
    pub(super) fn set_gid(&mut self, gid: &Own) {
        for line in &mut self.lines {
            if line.local.endpoint.gid != [0; 16] {
                line.local.endpoint.gid = gid.raw();
            }
        }
    }

    /// Connects each line with one of the other side's, and posts receives.
    pub(super) fn connect(&mut self, options: &ConnectionOptions, gid: &Own, remotes: &[Address]) -> Outcome {
        for (line, remote) in self.lines.iter_mut().zip(remotes) {
            gid.check(&remote.endpoint)?;
            line.connect(&self.pd, options, remote)?;
        }
        if self.plan.op == Op::Send { self.make_room() } else { Ok(()) }
    }

    /// The memory at the other side on which this side operates.
    pub(super) fn there(&self) -> Remote {
        Remote { address: self.memory.address() + self.plan.size as u64, rkey: self.memory.rkey() }
    }

    fn make_room(&mut self) -> Outcome {
        self.post_room(None)
    }

    /// Posts receives, to the queue pair if it is lent.
    pub(super) fn post_room(&mut self, lent: Option<&mut QueuePair<T>>) -> Outcome {
        let wanted = self.plan.room(self.received);
        let missing = wanted.saturating_sub(self.room);
        // Each of the other lines may use one receive at the same time.
        if missing == 0 || self.room > (wanted / 2).max(self.lines.len() as u32 - 1) {
            return Ok(());
        }
        let size = self.plan.size;
        let segments = [self.memory.segment(size..2 * size + T::HEADER)?];
        let requests = vec![ReceiveRequest::new(RECEIVE, &segments); missing as usize];
        match (lent, &mut self.shared) {
            (Some(qp), _) => qp.post_receive(&requests)?,
            (None, Some(shared)) => shared.srq.post_receive(&requests)?,
            (None, None) => self.lines[0].post_receive(&requests)?,
        }
        self.room = wanted;
        Ok(())
    }

    /// Sends the first message of each line. The time of the replies is not measured if the other side may not be connected yet.
    pub(super) fn begin(&mut self, is_measured: bool) -> Outcome {
        for line in 0..self.lines.len() {
            self.send(line)?;
            self.lines[line].asked.take_if(|_| !is_measured);
        }
        Ok(())
    }

    /// Sends the next message of a line, if there is one.
    fn send(&mut self, line: usize) -> Outcome {
        if self.posted < self.plan.iters {
            let segment = self.memory.segment(0..self.plan.size)?;
            self.lines[line].send(segment)?;
            self.posted += 1;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sent >= self.plan.iters && self.received >= self.plan.iters
    }

    /// Handles what has completed, and replies. Returns whether there was anything.
    fn step(&mut self) -> Outcome<bool> {
        let mut any = false;
        if let Queue::Polled(cq) = &mut self.queue {
            let mut completions = Completion::batch::<BATCH>();
            let count = cq.poll(&mut completions);
            for completion in &completions[..count] {
                completion.ok().map_err(|status| self.failed(completion.wr_id, status))?;
                let line = self.line_of(completion.qp_num)?;
                let received = Ended::Received(completion.len.into());
                self.take(line, if completion.wr_id == RECEIVE { received } else { Ended::Sent })?;
            }
            any = count > 0;
        } else {
            for line in 0..self.lines.len() {
                let ended = self.lines[line].ended();
                for ended in ended.into_iter().flatten() {
                    any = true;
                    self.take(line, ended)?;
                }
            }
        }
        if any {
            self.make_room()?;
        }
        Ok(any)
    }

    fn take(&mut self, line: usize, ended: Ended) -> Outcome {
        let of = &mut self.lines[line];
        match ended {
            Ended::Sent => {
                of.sending = false;
                self.sent += 1;
            }
            Ended::Received(len) => {
                of.receiving = false;
                if let Some(asked) = of.asked.take() {
                    record(&mut self.trips, asked);
                }
                self.received += 1;
                self.room = self.room.saturating_sub(1);
                self.check_size(len)?;
            }
        }
        if self.lines[line].is_ready() { self.send(line) } else { Ok(()) }
    }

    /// The line whose queue pair has this number.
    fn line_of(&self, qp_num: u32) -> Outcome<usize> {
        let found = match &*self.lines {
            [_] => Some(0),
            lines => lines.iter().position(|line| line.has(qp_num)),
        };
        found.ok_or_else(|| {
            Failure::Other(format!(
                "a completion of queue pair {qp_num:#x} arrived, which does not belong to this ping"
            ))
        })
    }

    /// Checks that a received message has the size of the ping's messages.
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

    fn failed(&self, wr_id: u64, status: Status) -> Failure {
        let (what, done) =
            if wr_id == RECEIVE { ("receiving", self.received) } else { ("sending", self.sent) };
        let hint = match status {
            Status::RetryExceeded => ": the other side does not answer",
            // The errors of a message that is longer than the room for it, on the two sides.
            Status::LocalLength
            | Status::LocalQpOperation
            | Status::RemoteInvalidRequest
            | Status::RemoteOperation => ": is --size the same on both sides?",
            _ => "",
        };
        Failure::Other(format!("{what} message {} of {}: {status}{hint}", done + 1, self.plan.iters))
    }

    fn silent(&self, timeout: Duration) -> Failure {
        let (sent, received, iters) = (self.sent, self.received, self.plan.iters);
        Failure::Other(format!(
            "nothing came in {timeout:?}, after {sent} messages sent and {received} received of \
             {iters}; are --iters and --size the same on both sides?"
        ))
    }

    /// Releases everything, children before parents. Every release is attempted; the first error is returned.
    pub(super) fn release(self) -> uverbs::Result<()> {
        let Self { lines, queue, shared, memory, pd, .. } = self;
        let cq = match queue {
            Queue::Polled(cq) => cq,
            Queue::Counted(progress) => progress.stop()?,
        };
        let mut results: Vec<_> = lines.into_iter().flat_map(Line::release).collect();
        results.extend(shared.into_iter().flat_map(Shared::release));
        results.extend([told(memory.destroy()), told(cq.destroy()), told(pd.destroy())]);
        results.into_iter().collect()
    }
}

/// Exchanges messages until the planned number is reached or a signal arrives. `sides` are those in this process: one or both.
pub(super) fn play<T: Transport>(
    sides: &mut [Side<T>],
    watch: Option<&Watch>,
    timeout: Duration,
    stop: &Stop,
) -> Outcome {
    let (mut moved, mut idle) = (Instant::now(), 0_u64);
    while !sides.iter().all(Side::is_done) {
        let known = watch.map_or(0, Watch::moved);
        let mut any = false;
        for side in &mut *sides {
            any |= side.step()?;
        }
        idle = if any { 0 } else { idle + 1 };
        if idle == 1 {
            moved = Instant::now();
        }
        match watch {
            Some(watch) if idle > 0 => {
                if let Some(failed) = watch.wait(known, timeout)? {
                    return Err(failure(sides, &failed));
                }
            }
            None if !idle.is_multiple_of(SPINS) => continue,
            None if idle > 0 => std::thread::yield_now(),
            _ => {}
        }
        if stop.is_set() {
            return Ok(());
        }
        if let ([side, ..], true) = (&*sides, idle > 0 && moved.elapsed() >= timeout) {
            return Err(side.silent(timeout));
        }
    }
    Ok(())
}

/// Converts a failed completion to the error of the side to which it belongs.
fn failure<T: Transport>(sides: &[Side<T>], failed: &Completion) -> Failure {
    let of = |side: &&Side<T>| side.lines.iter().any(|line| line.has(failed.qp_num));
    match sides.iter().find(of).or(sides.first()) {
        Some(side) => side.failed(failed.wr_id, failed.status),
        None => Failure::Other(failed.status.to_string()),
    }
}
