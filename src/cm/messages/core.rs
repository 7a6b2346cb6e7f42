//! What one side knows: its connection, its buffers, and what has come.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use nix::errno::Errno;

use super::flow::Flow;
use super::queues::{CONTROLS, Queues, SEND};
use super::wire::{HEAD, Head, Kind};
use crate::cm::call::Call;
use crate::cm::connection::{Closed, Connection};
use crate::driver::completion::{Completion, Status};
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::CompletionChannel;

/// Number of completions that are taken at a time.
const BATCH: usize = 16;

/// Why no message can be sent or received any more.
#[derive(Clone, Debug)]
enum Failure {
    Status(Status),
    Closed(Closed),
    Malformed(&'static str),
    Other(Error),
}

impl Failure {
    fn error(&self, op: &'static str) -> Error {
        let reset = |hint: String| Error::refused(op, Errno::ECONNRESET, hint);
        match self {
            Self::Status(Status::Flushed) | Self::Closed(Closed::Disconnected | Closed::Unanswered) => {
                reset("the other side has ended the connection without closing it".to_owned())
            }
            Self::Status(status) => reset(format!("the connection has failed: {status}")),
            Self::Closed(Closed::DeviceGone) => Error::device_gone(op),
            Self::Closed(Closed::NeighbourLost) => {
                reset("the other side has another hardware address now".to_owned())
            }
            Self::Malformed(what) => Error::malformed(op, *what),
            Self::Other(error) => error.clone(),
        }
    }
}

/// The buffer of a message, and a copy of its bytes.
pub(super) type Arrived = (u32, Vec<u8>);

#[derive(Debug)]
pub(super) struct Core {
    /// `None` after the end. The queue pair is in it, and is dropped before its queues.
    connection: Option<Connection>,
    queues: Queues,
    channel: CompletionChannel,
    /// An event was asked for and has not been read.
    is_armed: bool,
    flow: Flow,
    /// Messages of the program that were not taken yet: their buffers and lengths.
    arrived: VecDeque<(u32, u32)>,
    /// Buffers that no send uses.
    sends: Vec<u32>,
    controls: Vec<u32>,
    /// Memory of messages that were dropped.
    spare: Vec<Vec<u8>>,
    /// Whether a message has come that is not one of the program.
    pub(super) is_greeted: bool,
    /// The other side has said that no message follows, and whether this was answered.
    has_ended: bool,
    owes_answer: bool,
    /// This side has said so, and the other one has answered.
    is_ending: bool,
    is_answered: bool,
    failure: Option<Failure>,
}

impl Core {
    pub(super) fn new(
        connection: Connection,
        queues: Queues,
        channel: CompletionChannel,
        (depth, peer_depth): (u16, u16),
    ) -> Self {
        let depths = u32::from(depth);
        Self {
            connection: Some(connection),
            queues,
            channel,
            is_armed: false,
            flow: Flow::new(depth, peer_depth),
            arrived: VecDeque::new(),
            sends: (0..depths).collect(),
            controls: (depths..depths + CONTROLS).collect(),
            spare: Vec::new(),
            is_greeted: false,
            has_ended: false,
            owes_answer: false,
            is_ending: false,
            is_answered: false,
            failure: None,
        }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Ends the connection. The caller drops it without the lock.
    pub(super) fn end(&mut self) -> Option<Connection> {
        self.connection.take()
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Takes all completions, and sends what they make due. Returns whether there were any.
    pub(super) fn pump(&mut self) -> bool {
        let (mut batch, mut any) = (Completion::batch::<BATCH>(), false);
        loop {
            let found = self.queues.poll(&mut batch);
            for completion in &batch[..found] {
                self.take(completion);
            }
            any |= found > 0;
            if found < BATCH {
                break;
            }
        }
        if any {
            self.settle();
        }
        any
    }

    fn take(&mut self, completion: &Completion) {
        if completion.status != Status::Success {
            return self.fail(Failure::Status(completion.status));
        }
        // Numbers of buffers, which have 32 bits.
        let buffer = completion.wr_id as u32;
        if completion.wr_id & SEND == 0 {
            return self.receive(buffer, completion.len);
        }
        let list = if self.is_control(buffer) { &mut self.controls } else { &mut self.sends };
        list.push(buffer);
    }

    fn is_control(&self, buffer: u32) -> bool {
        buffer >= self.flow.depth()
    }

    fn receive(&mut self, buffer: u32, len: u32) {
        let head = match self.queues.head(buffer) {
            Ok(head) => head.filter(|_| len as usize >= HEAD),
            Err(error) => return self.fail(Failure::Other(error)),
        };
        let Some(Head { kind, granted }) = head else {
            return self
                .fail(Failure::Malformed("a message without a head: the other side is of another kind"));
        };
        if self.has_ended && kind == Kind::Data || !self.flow.receive(kind == Kind::Data, granted) {
            return self.fail(Failure::Malformed("a message for which the other side knows no receive"));
        }
        match kind {
            Kind::Data => return self.arrived.push_back((buffer, len)),
            Kind::Credit => self.is_greeted = true,
            Kind::End => (self.has_ended, self.owes_answer) = (true, true),
            Kind::EndTaken => self.is_answered = true,
        }
        self.post_receive(buffer);
    }

    fn post_receive(&mut self, buffer: u32) {
        if let Some(connection) = self.connection.as_mut().filter(|_| self.failure.is_none())
            && let Err(error) = self.queues.receive(connection.queue_pair(), buffer)
        {
            self.fail(Failure::Other(error));
        }
    }

    /// Gives the buffer of a message back, and its memory.
    pub(super) fn give_back(&mut self, buffer: u32, bytes: Vec<u8>) {
        self.spare.push(bytes);
        self.post_receive(buffer);
        self.flow.give_back();
        self.settle();
    }

    /// Sends what is due and is not a message of the program, as far as there are buffers.
    fn settle(&mut self) {
        if self.owes_answer && self.post_control(Kind::EndTaken) {
            self.owes_answer = false;
        }
        if !self.has_ended && self.flow.must_tell() {
            self.post_control(Kind::Credit);
        }
    }

    /// Sends what is not a message of the program. False if there is no buffer for it now.
    pub(super) fn post_control(&mut self, kind: Kind) -> bool {
        let Some(buffer) = self.controls.pop() else { return false };
        self.post(buffer, kind, &[]);
        true
    }

    fn post(&mut self, buffer: u32, kind: Kind, bytes: &[u8]) {
        let Some(connection) = self.connection.as_mut().filter(|_| self.failure.is_none()) else { return };
        let head = Head { kind, granted: self.flow.tell() };
        if let Err(error) = self.queues.send(connection.queue_pair(), buffer, head, bytes) {
            self.fail(Failure::Other(error));
        }
    }

    /// Asks for an event at the next completion, and looks for the end of the connection. Returns whether something has come meanwhile;
    /// if not, the waker is called when something does.
    pub(super) fn listen(&mut self, op: &'static str, call: &mut Call<'_>, waker: &Waker) -> bool {
        match self.arm() {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                self.fail(Failure::Other(error));
                return true;
            }
        }
        let Some(connection) = &self.connection else { return false };
        match connection.link().poll_end(op, call, waker) {
            Poll::Pending => false,
            // What was received before the end may be among the completions by now.
            Poll::Ready(end) => {
                self.pump();
                self.fail(end.map_or_else(Failure::Other, Failure::Closed));
                true
            }
        }
    }

    fn arm(&mut self) -> Result<bool> {
        if self.is_armed {
            while self.channel.next_event()?.is_some() {
                self.is_armed = false;
            }
        }
        if self.is_armed {
            return Ok(false);
        }
        self.queues.cq.notify(false)?;
        self.is_armed = true;
        // No event announces completions that arrived before.
        Ok(self.pump())
    }

    /// The next message, `None` if the other side has closed; nothing if there is neither.
    pub(super) fn next(&mut self, op: &'static str) -> Option<Result<Option<Arrived>>> {
        if let Some((buffer, len)) = self.arrived.pop_front() {
            let mut bytes = self.spare.pop().unwrap_or_default();
            let read = self.queues.contents(buffer, len, &mut bytes);
            return Some(read.map(|()| Some((buffer, bytes))));
        }
        if self.has_left() {
            return Some(Ok(None));
        }
        self.failed(op).map(Err)
    }

    /// Whether the other side has closed, and its end is answered: it waits for that.
    fn has_left(&self) -> bool {
        let is_answered = !self.owes_answer && self.controls.len() == CONTROLS as usize;
        self.has_ended && (is_answered || self.failure.is_some())
    }

    fn failed(&self, op: &'static str) -> Option<Error> {
        self.failure.as_ref().map(|failure| failure.error(op))
    }

    /// Sends a message, if there is room here and there.
    pub(super) fn send(&mut self, op: &'static str, bytes: &[u8]) -> Option<Result<()>> {
        if self.has_ended {
            return Some(Err(Error::refused(op, Errno::EPIPE, "the other side has closed")));
        }
        if let Some(error) = self.failed(op) {
            return Some(Err(error));
        }
        if !self.flow.may_send() {
            return None;
        }
        let buffer = self.sends.pop()?;
        self.flow.send();
        self.post(buffer, Kind::Data, bytes);
        Some(self.failed(op).map_or(Ok(()), Err))
    }

    /// Says that no message follows. Done when the other side has received all.
    pub(super) fn close(&mut self, op: &'static str) -> Option<Result<()>> {
        if self.is_answered || self.has_left() {
            return Some(Ok(()));
        }
        if let Some(error) = self.failed(op) {
            return Some(Err(error));
        }
        self.is_ending = self.is_ending || !self.has_ended && self.post_control(Kind::End);
        None
    }

    /// Over iWARP: whether the first message of the other side has come.
    pub(super) fn greeting(&mut self, op: &'static str) -> Option<Result<()>> {
        if self.is_greeted { Some(Ok(())) } else { self.failed(op).map(Err) }
    }
}
