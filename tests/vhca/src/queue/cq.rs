//! Completion queues.

use super::Pages;
use super::compress::{MOST, Session, Small};
use crate::bits::{Bits, BitsMut};
use crate::command::Status;
use crate::ifc::command::{create_cq_in, modify_cq_in};
use crate::ifc::context::cqc;
use vpci::{Fault, Memory};

/// The kinds of completions, by the numbers of `MLX5_CQE_*` in the kernel's `include/linux/mlx5/cq.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Requester = 0,
    ResponderWriteImmediate = 1,
    Responder = 2,
    ResponderImmediate = 3,
    ResponderInvalidate = 4,
    /// The queue continues in another ring.
    Resized = 5,
    RequesterError = 13,
    ResponderError = 14,
}

/// The kinds of errors, by the numbers of `MLX5_CQE_SYNDROME_*` there.
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

/// A completion, of which the queue fills in the owner bit.
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

    /// Puts up to 64 bytes of data into the entry; with more than 32, the entry has 128 bytes.
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

    /// Marks that the sender has requested an event.
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

    /// Sets the time. A failed completion has another field at this place.
    pub(crate) fn at(mut self, time: u64) -> Self {
        if !self.is_error() {
            self.bytes[48..56].copy_from_slice(&time.to_be_bytes());
        }
        self
    }

    pub(crate) fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Whether it is an error, and no consequence of an earlier one.
    pub(crate) fn is_failure(&self) -> bool {
        self.is_error() && self.bytes[55] != Syndrome::Flushed as u8
    }

    /// Says a byte more than there is.
    pub(crate) fn lengthen(&mut self) {
        let [.., a, b, c, d] = self.bytes[44..48] else { return };
        self.word(44, u32::from_be_bytes([a, b, c, d]) + 1);
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self.opcode, Opcode::RequesterError | Opcode::ResponderError)
    }
}

/// The effect of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Silently,
    /// The queue was armed: an event must be made.
    Event,
    /// The queue was full and cannot be used any more.
    Overrun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Not,
    Any,
    /// For errors, and for completions that the sender has marked.
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
    /// For completions that may be compressed.
    session: Option<Session>,
    /// The position of the last completion for which the sender requested an event, or of the last error, for an armed queue that waits
    /// for one.
    last_solicited: Option<u32>,
    /// The completions before this one existed when the last event was made (`last_notified_index` of its context).
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
    /// The queue that CREATE_CQ describes.
    ///
    /// # Errors
    /// `BadParameter` for what the device does not support, and the errors of [`Pages::new`].
    pub(crate) fn new(input: &[u8]) -> Result<Self, Status> {
        let context = input.part(create_cq_in::cq_context);
        let log_size = context.num(cqc::log_cq_size);
        let entry = match context.num(cqc::cqe_sz) {
            0 => 64,
            1 | 2 => 128,
            _ => return Err(Status::BadParameter),
        };
        if context.is(cqc::cc) {
            return Err(Status::BadParameter);
        }
        let session = if context.is(cqc::cqe_comp_en) {
            let small = Small::from_number(context.num(cqc::mini_cqe_res_format)).filter(|_| entry == 64);
            Some(Session::new(small.ok_or(Status::BadParameter)?))
        } else {
            None
        };
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
            session,
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

    /// Whether a completion with `held` before it has no place.
    fn is_lost(&mut self, memory: &Memory, held: u32) -> Result<bool, Fault> {
        let used = self.producer.wrapping_sub(memory.word(self.doorbell)?) & 0xff_ffff;
        Ok(self.overrun || used + held >= 1 << self.log_size && !self.ignores_overrun)
    }

    /// The queue was full.
    fn lose(&mut self) -> Posted {
        self.context.set(cqc::status, 9_u32);
        if std::mem::replace(&mut self.overrun, true) { Posted::Silently } else { Posted::Overrun }
    }

    /// Writes a completion, or holds it for [`release`](Self::release), if it may be compressed with others and they may come at once.
    ///
    /// # Errors
    /// If the queue is not in the guest's memory.
    pub(crate) fn post(
        &mut self,
        memory: &Memory,
        completion: CompletionEntry,
        others_come: bool,
    ) -> Result<Posted, Fault> {
        let most = MOST.min(1 << self.log_size >> 1);
        let holds =
            |session: &&mut Session| others_come && session.len() < most && session.takes(&completion);
        let released = match self.session.as_mut().filter(holds) {
            Some(_) => Posted::Silently,
            None => self.release(memory)?,
        };
        let held = self.session.as_ref().map_or(0, Session::len);
        if self.is_lost(memory, held)? {
            self.release(memory)?;
            return Ok(self.lose());
        }
        if let Some(session) = self.session.as_mut().filter(holds) {
            session.hold(completion);
            return Ok(released);
        }
        let posted = self.write(memory, completion)?;
        Ok(if posted == Posted::Silently { released } else { posted })
    }

    /// Writes the completions that are held: more than one as a compressed one.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub(crate) fn release(&mut self, memory: &Memory) -> Result<Posted, Fault> {
        let Some(session) = &mut self.session else { return Ok(Posted::Silently) };
        let (count, entries) = (session.len(), session.entries());
        if count == 0 {
            return Ok(Posted::Silently);
        }
        for (at, mut bytes) in entries {
            if at == 0 {
                bytes[63] |= self.owner();
            }
            self.pages.publish(memory, self.place(at), &bytes)?;
        }
        Ok(self.advance(count, false))
    }

    /// The last bit of the next completion, which changes with each round.
    fn owner(&self) -> u8 {
        (self.producer >> self.log_size) as u8 & 1
    }

    /// Where the last 64 bytes of an entry are, counted from the next one.
    fn place(&self, at: u32) -> u64 {
        u64::from((self.producer + at) & ((1 << self.log_size) - 1)) * self.entry + self.entry - 64
    }

    /// Writes a completion. In a 128-byte entry it is the second half.
    fn write(&mut self, memory: &Memory, mut completion: CompletionEntry) -> Result<Posted, Fault> {
        completion.bytes[63] |= self.owner();
        let at = self.place(0);
        if let Some(front) = completion.front.filter(|_| self.entry == 128) {
            self.pages.publish(memory, at - 64, &front)?;
        }
        self.pages.publish(memory, at, &completion.bytes)?;
        Ok(self.advance(1, completion.is_error() || completion.is_solicited))
    }

    /// So many have been written, of which the last one may be an error, or have been marked by its sender.
    fn advance(&mut self, count: u32, is_solicited: bool) -> Posted {
        if is_solicited {
            self.last_solicited = Some(self.producer);
        }
        self.producer = self.producer.wrapping_add(count) & 0xff_ffff;
        self.context.set(cqc::producer_counter, self.producer);
        let due = self.armed == Armed::Any || self.armed == Armed::Solicited && is_solicited;
        if due { self.fire() } else { Posted::Silently }
    }

    /// Continues in the ring that MODIFY_CQ describes, after a special entry in the old ring.
    ///
    /// # Errors
    /// `BadSize` if the remaining completions, with that entry, do not fit into either ring, `BadParameter` for entries of another size,
    /// and the errors of [`new`](Self::new).
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
        let posted = self.post(memory, CompletionEntry::new(Opcode::Resized, 0, 0), false);
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

    /// Requests an event at the next completion after those that `doorbell` names as seen, and those that had an event. It may already
    /// exist.
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
