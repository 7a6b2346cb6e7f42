//! The half of a connected queue pair that receives: the order of packets, and which response each gets.
//!
//! It has neither memory nor a socket. Its owner passes on packets, does what the [`Step`] says, and reports the result, which gives the
//! response.

use std::collections::VecDeque;

use super::packet::{Operation, Packet, Service};
use super::psn;

/// Number of results of atomic operations that are kept for repeated requests.
const ATOMICS_KEPT: usize = 128;

// Syndromes of responses: the InfiniBand specification, 9.7.5.2. Credits are not counted.
const ACKNOWLEDGED: u8 = 0x1f;
const NOT_READY: u8 = 0x20;
const REFUSED: u8 = 0x60;

/// The kind of message of which a packet is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// It fills a receive.
    Send,
    /// It is written to memory that the first packet names.
    Write,
}

/// Part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The kind of the message.
    pub message: Message,
    /// It is the first one.
    pub begins: bool,
    /// It is the last one.
    pub ends: bool,
    /// Number of bytes of the message in packets before it.
    pub offset: u32,
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Drop,
    /// It came before: [`Responder::acknowledgement`] is sent again.
    Acknowledge,
    /// It came too early: this refusal is sent.
    Missing,
    /// Its data is put in its place; then [`Responder::taken`].
    Part(Part),
    /// The memory is read and sent; then, if it is new, [`Responder::taken`].
    Read {
        /// It did not come before.
        is_new: bool,
    },
    /// The operation is executed; then [`Responder::executed`].
    Atomic,
    /// The operation was executed: its result is sent again.
    AtomicAgain(u64),
    /// The packet is not one that may come now: [`Refusal::InvalidRequest`].
    Invalid,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no receive; the code of the time after which the peer tries again.
    NotReady(u8),
    /// The request is invalid.
    InvalidRequest,
    /// The peer may not access this memory.
    Access,
    /// The responder has failed.
    Operation,
}

/// The state of the receiver.
#[derive(Debug, Default)]
pub struct Responder {
    expected: u32,
    /// Number of finished messages.
    messages: u32,
    /// A loss was reported, and the missing packet has not arrived since.
    has_asked: bool,
    /// The message in progress, and how many bytes of it have arrived.
    current: Option<(Message, u32)>,
    /// The following packets belong to a message that is dropped.
    drops: bool,
    atomics: VecDeque<(u32, u64)>,
    /// An acknowledgement was requested and not sent yet.
    owed: bool,
}

impl Responder {
    /// Begins with this sequence number.
    pub fn begin(&mut self, expected: u32) {
        *self = Self { expected, ..Self::default() };
    }

    /// The sequence number that is expected next.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// What is done with a packet of a reliable service that is not a response, with `len` bytes of data.
    pub fn arrive(&mut self, packet: &Packet, len: usize, mtu: u32) -> Step {
        let ahead = psn::distance(self.expected, packet.psn);
        if ahead > 0 {
            return if std::mem::replace(&mut self.has_asked, true) { Step::Drop } else { Step::Missing };
        }
        if ahead < 0 {
            return self.again(packet);
        }
        self.has_asked = false;
        match packet.operation {
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd
                if self.current.is_some() =>
            {
                Step::Invalid
            }
            Operation::ReadRequest => Step::Read { is_new: true },
            Operation::CompareSwap | Operation::FetchAdd => Step::Atomic,
            _ => self.part(packet, len, mtu).map_or(Step::Invalid, Step::Part),
        }
    }

    fn again(&self, packet: &Packet) -> Step {
        match packet.operation {
            // It may request less than the first time.
            Operation::ReadRequest => Step::Read { is_new: false },
            Operation::CompareSwap | Operation::FetchAdd => {
                let found = self.atomics.iter().find(|(psn, _)| *psn == packet.psn);
                found.map_or(Step::Drop, |(_, original)| Step::AtomicAgain(*original))
            }
            _ => Step::Acknowledge,
        }
    }

    /// What is done with a packet of an unreliable service: one that does not fit is dropped, with the rest of its message.
    pub fn arrive_unreliable(&mut self, packet: &Packet, len: usize, mtu: u32) -> Option<Part> {
        let (_, begins, _) = kind_of(packet.operation)?;
        let is_missing = packet.psn != self.expected;
        self.expected = psn::add(packet.psn, 1);
        if begins {
            (self.drops, self.current) = (false, None);
        } else if is_missing {
            self.drops = true;
        }
        if self.drops {
            return None;
        }
        let part = self.part(packet, len, mtu);
        self.drops = part.is_none();
        part
    }

    /// The rest of the message is dropped.
    pub fn drop_rest(&mut self) {
        self.drops = true;
        self.current = None;
    }

    fn part(&self, packet: &Packet, len: usize, mtu: u32) -> Option<Part> {
        let (message, begins, ends) = kind_of(packet.operation)?;
        let len = u32::try_from(len).ok()?;
        // All packets but the last are full, and the last one of several is not empty.
        let fits = if ends { len <= mtu && (begins || len > 0) } else { len == mtu };
        let offset = match self.current {
            None if begins => 0,
            Some((current, offset)) if !begins && current == message => offset,
            _ => return None,
        };
        fits.then_some(Part { message, begins, ends, offset })
    }

    /// A packet was executed: a part of a message with `len` bytes of data, or a read with `count` packets as response.
    pub fn taken(&mut self, packet: &Packet, len: usize, count: u32) {
        self.expected = psn::add(packet.psn, count);
        let Some((message, _, ends)) = kind_of(packet.operation) else {
            self.messages = psn::add(self.messages, 1);
            return;
        };
        let before = self.current.take().map_or(0, |(_, offset)| offset);
        if ends {
            self.messages = psn::add(self.messages, 1);
        } else {
            self.current = Some((message, before.saturating_add(u32::try_from(len).unwrap_or(u32::MAX))));
        }
        self.owed |= packet.asks;
    }

    /// An atomic operation was executed. Returns its response.
    pub fn executed(&mut self, packet: &Packet, original: u64) -> Packet {
        self.expected = psn::add(packet.psn, 1);
        self.messages = psn::add(self.messages, 1);
        if self.atomics.len() == ATOMICS_KEPT {
            self.atomics.pop_front();
        }
        self.atomics.push_back((packet.psn, original));
        self.result(packet, original)
    }

    /// The response of an atomic operation.
    pub fn result(&self, packet: &Packet, original: u64) -> Packet {
        Packet { original, ..self.response(packet, Operation::AtomicAcknowledge, packet.psn, ACKNOWLEDGED) }
    }

    /// Packet number `index` of the `count` that respond to a read, without its data.
    pub fn read_response(&self, packet: &Packet, index: u32, count: u32) -> Packet {
        let operation = match (index == 0, index + 1 == count) {
            (true, true) => Operation::ReadOnly,
            (true, false) => Operation::ReadFirst,
            (false, true) => Operation::ReadLast,
            (false, false) => Operation::ReadMiddle,
        };
        self.response(packet, operation, psn::add(packet.psn, index), ACKNOWLEDGED)
    }

    /// An acknowledgement of everything that has arrived.
    pub fn acknowledgement(&mut self, service: Service) -> Packet {
        self.owed = false;
        let packet = Packet::new(service, Operation::Acknowledge, 0);
        self.response(&packet, Operation::Acknowledge, psn::add(self.expected, 0xff_ffff), ACKNOWLEDGED)
    }

    /// An acknowledgement is to be sent.
    pub fn owe(&mut self) {
        self.owed = true;
    }

    /// Whether an acknowledgement was requested and not sent yet.
    pub fn is_owed(&self) -> bool {
        self.owed
    }

    /// A packet is missing.
    pub fn missing(&mut self, service: Service) -> Packet {
        let packet = Packet::new(service, Operation::Acknowledge, 0);
        self.response(&packet, Operation::Acknowledge, self.expected, REFUSED)
    }

    /// The request in a packet is refused.
    pub fn refuse(&mut self, packet: &Packet, refusal: Refusal) -> Packet {
        let syndrome = match refusal {
            Refusal::NotReady(code) => {
                // The peer repeats this packet, so those after it need not be reported as missing.
                self.has_asked = true;
                NOT_READY | code & 0x1f
            }
            Refusal::InvalidRequest => REFUSED | 1,
            Refusal::Access => REFUSED | 2,
            Refusal::Operation => REFUSED | 3,
        };
        self.response(packet, Operation::Acknowledge, packet.psn, syndrome)
    }

    /// A response to the sender of `packet`; the owner knows its number.
    fn response(&self, packet: &Packet, operation: Operation, psn: u32, syndrome: u8) -> Packet {
        Packet { psn, syndrome, msn: self.messages, ..Packet::new(packet.service, operation, 0) }
    }
}

/// The message of which an operation is a part, whether it begins it, and whether it ends it.
fn kind_of(operation: Operation) -> Option<(Message, bool, bool)> {
    use Operation::*;
    Some(match operation {
        SendFirst => (Message::Send, true, false),
        SendMiddle => (Message::Send, false, false),
        SendLast | SendLastImmediate | SendLastInvalidate => (Message::Send, false, true),
        SendOnly | SendOnlyImmediate | SendOnlyInvalidate => (Message::Send, true, true),
        WriteFirst => (Message::Write, true, false),
        WriteMiddle => (Message::Write, false, false),
        WriteLast | WriteLastImmediate => (Message::Write, false, true),
        WriteOnly | WriteOnlyImmediate => (Message::Write, true, true),
        _ => return None,
    })
}
