//! A packet of the transports, between queue pairs.

/// The service of a packet: bits 7 to 5 of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Rc = 0,
    Uc = 1,
    Ud = 3,
    Xrc = 5,
}

/// The operation of a packet: bits 4 to 0 of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
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
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) len: u32,
}

/// An atomic operation (AtomicETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// The value to write, or to add.
    pub(crate) operand: u64,
    pub(crate) compare: u64,
}

/// A packet without its addresses. Its opcode determines which optional headers it has; the fields of others are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) service: Service,
    pub(crate) operation: Operation,
    pub(crate) solicited: bool,
    /// An acknowledgement is requested.
    pub(crate) asks: bool,
    pub(crate) pkey: u16,
    /// The destination queue pair, 24 bits.
    pub(crate) to: u32,
    /// 24 bits.
    pub(crate) psn: u32,
    /// XRCETH: the shared queue of requests of `Service::Xrc`.
    pub(crate) srq: u32,
    /// DETH: the key of a datagram, and its source queue pair.
    pub(crate) qkey: u32,
    pub(crate) from: u32,
    pub(crate) remote: Remote,
    pub(crate) atomic: Atomic,
    /// AETH: syndrome, and the 24 bits of the message sequence number.
    pub(crate) syndrome: u8,
    pub(crate) msn: u32,
    /// AtomicAckETH: the old value.
    pub(crate) original: u64,
    /// Immediate data, or the key to invalidate, as a big-endian number on the wire.
    pub(crate) immediate: u32,
    pub(crate) payload: Vec<u8>,
}

/// The source and destination of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// InfiniBand: local identifiers (zero on Ethernet).
    pub(crate) slid: u16,
    pub(crate) dlid: u16,
    /// Ethernet: hardware addresses.
    pub(crate) smac: [u8; 6],
    pub(crate) dmac: [u8; 6],
    /// With a global header; always set on Ethernet.
    pub(crate) has_grh: bool,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) service_level: u8,
    /// RoCE v2's source port; the destination is 4791.
    pub(crate) udp_source: u16,
}

impl Packet {
    /// An empty packet.
    pub(crate) fn new(service: Service, operation: Operation, to: u32) -> Self {
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
