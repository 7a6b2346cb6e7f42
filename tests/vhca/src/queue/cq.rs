//! Completion queues.

use super::Pages;
use crate::bits::{Bits, BitsMut};
use crate::command::Status;
use crate::ifc::command::{create_cq_in, modify_cq_in};
use crate::ifc::context::cqc;
use vpci::{Fault, Memory};

/// What a completion says, by the numbers of `MLX5_CQE_*` in the kernel's `include/linux/mlx5/cq.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Requester = 0,
    ResponderWriteImmediate = 1,
    Responder = 2,
    ResponderImmediate = 3,
    ResponderInvalidate = 4,
    /// The queue goes on in another ring.
    Resized = 5,
    RequesterError = 13,
    ResponderError = 14,
}

/// What went wrong, by the numbers of `MLX5_CQE_SYNDROME_*` there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    Length = 0x01,
    Operation = 0x02,
    Protection = 0x04,
    Flushed = 0x05,
    Bind = 0x06,
    BadResponse = 0x10,
    RemoteInvalidRequest = 0x12,
    RemoteAccess = 0x13,
    RemoteOperation = 0x14,
    RetryExceeded = 0x15,
    RnrRetryExceeded = 0x16,
}

/// A completion, of which the queue fills in who owns it.
#[derive(Clone, Debug)]
pub(crate) struct CompletionEntry {
    pub(crate) bytes: [u8; 64],
    /// The first half of an entry of 128 bytes, if there is data in it.
    front: Option<[u8; 64]>,
    opcode: Opcode,
    is_solicited: bool,
}

impl CompletionEntry {
    /// The completion of the work request with this counter, in a queue with this user index.
    pub(crate) fn new(opcode: Opcode, user_index: u32, counter: u16) -> Self {
        let mut bytes = [0; 64];
        bytes[32..36].copy_from_slice(&(user_index & 0xff_ffff).to_be_bytes());
        bytes[60..62].copy_from_slice(&counter.to_be_bytes());
        bytes[63] = (opcode as u8) << 4;
        Self { bytes, front: None, opcode, is_solicited: false }
    }

    /// Puts up to 64 bytes of data into the entry; above 32 it has 128 bytes.
    pub(crate) fn put_inline(&mut self, data: &[u8]) {
        let len = data.len().min(64);
        if len > 32 {
            let mut front = [0; 64];
            front[..len].copy_from_slice(&data[..len]);
            self.front = Some(front);
            self.bytes[63] |= 2 << 2;
        } else if len > 0 {
            self.bytes[..len].copy_from_slice(&data[..len]);
            self.bytes[63] |= 1 << 2;
        }
    }

    /// Says that the sender has asked for an event.
    pub(crate) fn solicited(self) -> Self {
        Self { is_solicited: true, ..self }
    }

    pub(crate) fn user_index(&mut self, index: u32) {
        self.word(32, index & 0xff_ffff);
    }

    pub(crate) fn error(mut self, syndrome: Syndrome) -> Self {
        self.bytes[55] = syndrome as u8;
        self
    }

    pub(crate) fn word(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Says when; in a completion that fails, something else stands there.
    pub(crate) fn at(mut self, time: u64) -> Self {
        if !self.is_error() {
            self.bytes[48..56].copy_from_slice(&time.to_be_bytes());
        }
        self
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self.opcode, Opcode::RequesterError | Opcode::ResponderError)
    }
}

/// What follows from a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Silently,
    /// The queue was armed: an event is due.
    Event,
    /// The queue was full, and is of no use any more.
    Overrun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Not,
    Any,
    /// For errors, and for what the sender has marked.
    Solicited,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) context: Vec<u8>,
    pages: Pages,
    log_size: u32,
    entry: u64,
    pub(crate) eqn: u32,
    doorbell: u64,
    ignores_overrun: bool,
    overrun: bool,
    producer: u32,
    /// Where the last completion is that the sender has asked an event for, or an error, for an armed queue that waits for one.
    last_solicited: Option<u32>,
    /// Completions before this one were there when the last event was made (`last_notified_index` of its context).
    notified: u32,
    armed: Armed,
}

/// Where the entries are.
fn ring(context: &[u8], list: &[u8], entry: u64) -> Result<Pages, Status> {
    let log_size = context.num(cqc::log_cq_size);
    if log_size > 22 {
        return Err(Status::BadParameter);
    }
    Pages::new(list, context.num(cqc::log_page_size), context.num(cqc::page_offset), entry << log_size)
}

impl Cq {
    /// A queue as CREATE_CQ describes it.
    ///
    /// # Errors
    /// `BadParameter` for what the device does not have, and as [`Pages::new`].
    pub(crate) fn new(input: &[u8]) -> Result<Self, Status> {
        let context = input.part(create_cq_in::cq_context);
        let log_size = context.num(cqc::log_cq_size);
        let entry = match context.num(cqc::cqe_sz) {
            0 => 64,
            1 | 2 => 128,
            _ => return Err(Status::BadParameter),
        };
        if context.is(cqc::cqe_comp_en) || context.is(cqc::cc) {
            return Err(Status::BadParameter);
        }
        let pages = ring(context, input.part(create_cq_in::pas), entry)?;
        Ok(Self {
            pages,
            log_size,
            entry,
            eqn: context.num(cqc::c_eqn_or_apu_element) & 0xff,
            doorbell: context.wide(cqc::dbr_addr),
            ignores_overrun: context.is(cqc::oi),
            overrun: false,
            producer: 0,
            last_solicited: None,
            notified: 0,
            armed: Armed::Not,
            context: context.to_vec(),
        })
    }

    /// Bytes of an entry.
    pub(crate) fn entry_size(&self) -> u64 {
        self.entry
    }

    /// Writes a completion. Of a 128-byte entry it is the second half. Its last bit turns with each round.
    ///
    /// # Errors
    /// When the queue is not in the guest's memory.
    pub(crate) fn post(&mut self, memory: &Memory, mut completion: CompletionEntry) -> Result<Posted, Fault> {
        let size = 1 << self.log_size;
        let consumer = memory.word(self.doorbell)?;
        if self.overrun || self.producer.wrapping_sub(consumer) & 0xff_ffff >= size && !self.ignores_overrun {
            let first = !std::mem::replace(&mut self.overrun, true);
            self.context.set(cqc::status, 9_u32);
            return Ok(if first { Posted::Overrun } else { Posted::Silently });
        }
        completion.bytes[63] |= (self.producer >> self.log_size) as u8 & 1;
        let at = u64::from(self.producer & (size - 1)) * self.entry + self.entry - 64;
        if let Some(front) = completion.front.filter(|_| self.entry == 128) {
            self.pages.publish(memory, at - 64, &front)?;
        }
        self.pages.publish(memory, at, &completion.bytes)?;
        let is_solicited = completion.is_error() || completion.is_solicited;
        if is_solicited {
            self.last_solicited = Some(self.producer);
        }
        self.producer = self.producer.wrapping_add(1) & 0xff_ffff;
        self.context.set(cqc::producer_counter, self.producer);
        let due = self.armed == Armed::Any || self.armed == Armed::Solicited && is_solicited;
        Ok(if due { self.fire() } else { Posted::Silently })
    }

    /// Goes on in the ring that MODIFY_CQ describes, behind an entry in the old one that says so.
    ///
    /// # Errors
    /// `BadSize` when what waits, with that entry, does not fit into either ring, `BadParameter` for entries of another size,
    /// and as [`new`](Self::new).
    pub(crate) fn resize(&mut self, memory: &Memory, input: &[u8]) -> Result<(), Status> {
        let wanted = input.part(modify_cq_in::cq_context);
        if wanted.num(cqc::cqe_sz) != self.context.num(cqc::cqe_sz) {
            return Err(Status::BadParameter);
        }
        let pages = ring(wanted, input.part(modify_cq_in::pas), self.entry)?;
        let consumer = memory.word(self.doorbell).map_err(|_| Status::BadResourceState)?;
        let waiting = self.producer.wrapping_sub(consumer) & 0xff_ffff;
        let log_size = wanted.num(cqc::log_cq_size);
        if waiting + 1 > 1 << log_size.min(self.log_size) {
            return Err(Status::BadSize);
        }
        let armed = std::mem::replace(&mut self.armed, Armed::Not);
        let posted = self.post(memory, CompletionEntry::new(Opcode::Resized, 0, 0));
        self.armed = armed;
        posted.map_err(|_| Status::BadResourceState)?;
        (self.pages, self.log_size) = (pages, log_size);
        for field in [cqc::log_cq_size, cqc::log_page_size, cqc::page_offset] {
            self.context.set(field, wanted.wide(field));
        }
        Ok(())
    }

    fn fire(&mut self) -> Posted {
        self.armed = Armed::Not;
        self.notified = self.producer;
        Posted::Event
    }

    /// Asks for an event: at the next completion after those that `doorbell` says were seen, and those that there was an event
    /// for. It may be there already.
    pub(crate) fn arm(&mut self, doorbell: u32) -> Posted {
        let unseen = |seen: u32| self.producer.wrapping_sub(seen) & 0xff_ffff;
        let (polled, notified) = (doorbell & 0xff_ffff, self.notified);
        let seen = if unseen(polled) < unseen(notified) { polled } else { notified };
        let unseen = unseen(seen);
        let solicited = doorbell >> 24 & 1 == 1;
        self.armed = if solicited { Armed::Solicited } else { Armed::Any };
        let since = |at: u32| at.wrapping_sub(seen) & 0xff_ffff < unseen;
        let due = if solicited { self.last_solicited.is_some_and(since) } else { unseen != 0 };
        if due { self.fire() } else { Posted::Silently }
    }
}
