//! A packet of InfiniBand's transports, between queue pairs.

/// The service of a packet: bits 7 to 5 of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the specification")]
pub enum Service {
    Rc = 0,
    Uc = 1,
    Ud = 3,
    Xrc = 5,
}

/// The operation of a packet: bits 4 to 0 of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the specification")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadFirst = 0x0d,
    ReadMiddle = 0x0e,
    ReadLast = 0x0f,
    ReadOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
}

/// An address in the responder's memory (RETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The first byte.
    pub address: u64,
    /// The remote key.
    pub key: u32,
    /// Number of bytes.
    pub len: u32,
}

/// An atomic operation (AtomicETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Atomic {
    /// The first of eight bytes.
    pub address: u64,
    /// The remote key.
    pub key: u32,
    /// The value to write, or to add.
    pub operand: u64,
    /// The value that is expected.
    pub compare: u64,
}

/// A packet without its addresses. Its opcode determines which optional headers it has; the fields of others are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The service.
    pub service: Service,
    /// The operation.
    pub operation: Operation,
    /// The receiver is to be notified.
    pub solicited: bool,
    /// An acknowledgement is requested.
    pub asks: bool,
    /// The partition key.
    pub pkey: u16,
    /// The destination queue pair, 24 bits.
    pub to: u32,
    /// The sequence number, 24 bits.
    pub psn: u32,
    /// XRCETH: the shared queue of requests of `Service::Xrc`.
    pub srq: u32,
    /// DETH: the key of a datagram, and its source queue pair.
    pub qkey: u32,
    /// The source queue pair of a datagram.
    pub from: u32,
    /// RETH.
    pub remote: Remote,
    /// AtomicETH.
    pub atomic: Atomic,
    /// AETH: syndrome, and the 24 bits of the message sequence number.
    pub syndrome: u8,
    /// The message sequence number.
    pub msn: u32,
    /// AtomicAckETH: the old value.
    pub original: u64,
    /// Immediate data, or the key to invalidate, as a big-endian number on the wire.
    pub immediate: u32,
    /// The data, without padding.
    pub payload: Vec<u8>,
}

impl Packet {
    /// An empty packet.
    pub fn new(service: Service, operation: Operation, to: u32) -> Self {
        Self {
            service,
            operation,
            solicited: false,
            asks: false,
            pkey: 0xffff,
            to,
            psn: 0,
            srq: 0,
            qkey: 0,
            from: 0,
            remote: Remote::default(),
            atomic: Atomic::default(),
            syndrome: 0,
            msn: 0,
            original: 0,
            immediate: 0,
            payload: Vec::new(),
        }
    }
}
