//! Packets as bytes: the base header, the headers that their opcode requires, the data, and padding up to whole words.
//!
//! Source: InfiniBand Architecture Specification 1.4, volume 1, sections 9.2 to 9.4.

use super::packet::{Atomic, Operation, Packet, Remote, Service};

/// Bytes of the base header.
pub const BASE: usize = 12;

/// Bits of the second byte. The path is always in the migrated state; the version of the headers is zero.
const SOLICITED: u8 = 1 << 7;
const MIGRATED: u8 = 1 << 6;

/// The highest bit of the word with the packet's sequence number.
const ASKS: u32 = 1 << 31;

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The headers are cut off.
    #[error("the headers are cut off")]
    Short,
    /// There is no such opcode.
    #[error("no such opcode")]
    Opcode,
    /// There is no such version.
    #[error("no such version of the headers")]
    Version,
    /// The data is too long, too short, or not padded.
    #[error("this length of data does not go with the opcode")]
    Data,
}

/// The headers after the base header, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Headers {
    xrc: bool,
    datagram: bool,
    remote: bool,
    atomic: bool,
    acknowledge: bool,
    original: bool,
    immediate: bool,
}

impl Headers {
    fn of(service: Service, operation: Operation) -> Self {
        use Operation::*;
        let is_answer = matches!(
            operation,
            ReadFirst | ReadMiddle | ReadLast | ReadOnly | Acknowledge | AtomicAcknowledge
        );
        Self {
            xrc: service == Service::Xrc && !is_answer,
            datagram: service == Service::Ud,
            remote: matches!(operation, WriteFirst | WriteOnly | WriteOnlyImmediate | ReadRequest),
            atomic: matches!(operation, CompareSwap | FetchAdd),
            acknowledge: is_answer && operation != ReadMiddle,
            original: operation == AtomicAcknowledge,
            immediate: matches!(
                operation,
                SendLastImmediate
                    | SendOnlyImmediate
                    | WriteLastImmediate
                    | WriteOnlyImmediate
                    | SendLastInvalidate
                    | SendOnlyInvalidate
            ),
        }
    }
}

/// Sizes of the headers that a packet may have, as [`Headers`] says.
const XRC: usize = 4;
const DATAGRAM: usize = 8;
const REMOTE: usize = 16;
const ATOMIC: usize = 28;
const ACKNOWLEDGE: usize = 4;
const ORIGINAL: usize = 8;
const IMMEDIATE: usize = 4;

fn service(opcode: u8) -> Option<Service> {
    [Service::Rc, Service::Uc, Service::Ud, Service::Xrc]
        .into_iter()
        .find(|known| *known as u8 == opcode >> 5)
}

fn operation(opcode: u8) -> Option<Operation> {
    use Operation::*;
    const KNOWN: [Operation; 23] = [
        SendFirst,
        SendMiddle,
        SendLast,
        SendLastImmediate,
        SendOnly,
        SendOnlyImmediate,
        WriteFirst,
        WriteMiddle,
        WriteLast,
        WriteLastImmediate,
        WriteOnly,
        WriteOnlyImmediate,
        ReadRequest,
        ReadFirst,
        ReadMiddle,
        ReadLast,
        ReadOnly,
        Acknowledge,
        AtomicAcknowledge,
        CompareSwap,
        FetchAdd,
        SendLastInvalidate,
        SendOnlyInvalidate,
    ];
    KNOWN.into_iter().find(|known| *known as u8 == opcode & 0x1f)
}

/// Whether a service has an operation.
fn exists(service: Service, operation: Operation) -> bool {
    match service {
        Service::Rc | Service::Xrc => true,
        Service::Uc => (operation as u8) <= Operation::WriteOnlyImmediate as u8,
        Service::Ud => matches!(operation, Operation::SendOnly | Operation::SendOnlyImmediate),
    }
}

/// The allowed lengths of data: packets in the middle of a message are full, and therefore end at a word.
fn fits(operation: Operation, len: usize, pad: usize) -> bool {
    use Operation::*;
    match operation {
        ReadRequest | Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd => len == 0 && pad == 0,
        SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadFirst | ReadMiddle => pad == 0,
        _ => true,
    }
}

impl Packet {
    /// Length from its base header on in bytes, without the checksum.
    pub fn size(&self) -> usize {
        let headers = Headers::of(self.service, self.operation);
        let optional: usize = [
            (headers.xrc, XRC),
            (headers.datagram, DATAGRAM),
            (headers.remote, REMOTE),
            (headers.atomic, ATOMIC),
            (headers.acknowledge, ACKNOWLEDGE),
            (headers.original, ORIGINAL),
            (headers.immediate, IMMEDIATE),
        ]
        .into_iter()
        .map(|(is_there, bytes)| if is_there { bytes } else { 0 })
        .sum();
        BASE + optional + self.payload.len().next_multiple_of(4)
    }

    /// The packet from its base header on, without the checksum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        self.write_headers(self.payload.len(), &mut bytes);
        bytes.extend(&self.payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Appends the headers of a packet with `len` bytes of data. The data, and padding up to a whole word, come after them.
    pub fn write_headers(&self, len: usize, bytes: &mut Vec<u8>) {
        let headers = Headers::of(self.service, self.operation);
        let pad = len.next_multiple_of(4) - len;
        let solicited = if self.solicited { SOLICITED } else { 0 };
        let asks = if self.asks { ASKS } else { 0 };
        let opcode = (self.service as u8) << 5 | self.operation as u8;
        bytes.extend([opcode, solicited | MIGRATED | (pad as u8) << 4]);
        bytes.extend(self.pkey.to_be_bytes());
        bytes.extend(self.to.to_be_bytes());
        bytes.extend((asks | self.psn).to_be_bytes());
        if headers.xrc {
            bytes.extend(self.srq.to_be_bytes());
        }
        if headers.datagram {
            bytes.extend([self.qkey.to_be_bytes(), self.from.to_be_bytes()].as_flattened());
        }
        if headers.remote {
            let Remote { address, key, len } = self.remote;
            bytes.extend(address.to_be_bytes());
            bytes.extend([key.to_be_bytes(), len.to_be_bytes()].as_flattened());
        }
        if headers.atomic {
            let Atomic { address, key, operand, compare } = self.atomic;
            bytes.extend(address.to_be_bytes());
            bytes.extend(key.to_be_bytes());
            bytes.extend([operand.to_be_bytes(), compare.to_be_bytes()].as_flattened());
        }
        if headers.acknowledge {
            bytes.extend((u32::from(self.syndrome) << 24 | self.msn).to_be_bytes());
        }
        if headers.original {
            bytes.extend(self.original.to_be_bytes());
        }
        if headers.immediate {
            bytes.extend(self.immediate.to_be_bytes());
        }
    }

    /// Parses what [`Self::to_bytes`] writes.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let (packet, payload) = Self::split(bytes)?;
        Ok(Self { payload: payload.to_vec(), ..packet })
    }

    /// The headers as a packet without data, and the data.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut rest = Reader(bytes);
        let [opcode, flags] = rest.take()?;
        let (service, operation) = service(opcode).zip(operation(opcode)).ok_or(Malformed::Opcode)?;
        if !exists(service, operation) {
            return Err(Malformed::Opcode);
        }
        if flags & 0xf != 0 {
            return Err(Malformed::Version);
        }
        let mut packet = Self::new(service, operation, 0);
        packet.solicited = flags & SOLICITED != 0;
        packet.pkey = u16::from_be_bytes(rest.take()?);
        packet.to = rest.word()? & 0xff_ffff;
        let number = rest.word()?;
        (packet.asks, packet.psn) = (number & ASKS != 0, number & 0xff_ffff);
        let headers = Headers::of(service, operation);
        if headers.xrc {
            packet.srq = rest.word()? & 0xff_ffff;
        }
        if headers.datagram {
            (packet.qkey, packet.from) = (rest.word()?, rest.word()? & 0xff_ffff);
        }
        if headers.remote {
            packet.remote = Remote { address: rest.wide()?, key: rest.word()?, len: rest.word()? };
        }
        if headers.atomic {
            let (address, key) = (rest.wide()?, rest.word()?);
            packet.atomic = Atomic { address, key, operand: rest.wide()?, compare: rest.wide()? };
        }
        if headers.acknowledge {
            let word = rest.word()?;
            (packet.syndrome, packet.msn) = ((word >> 24) as u8, word & 0xff_ffff);
        }
        if headers.original {
            packet.original = rest.wide()?;
        }
        if headers.immediate {
            packet.immediate = rest.word()?;
        }
        let pad = usize::from(flags >> 4 & 3);
        let len = rest.0.len().checked_sub(pad).ok_or(Malformed::Data)?;
        if !rest.0.len().is_multiple_of(4) || !fits(operation, len, pad) {
            return Err(Malformed::Data);
        }
        Ok((packet, rest.0.get(..len).ok_or(Malformed::Data)?))
    }
}

/// Takes numbers from the beginning of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn wide(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }
}
