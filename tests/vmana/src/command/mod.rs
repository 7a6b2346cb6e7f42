//! Commands: their headers, and which of them there are.

mod base;
mod fault;
mod net;
mod rdma;
#[cfg(test)]
mod tests;

use vpci::bytes::{Bytes as _, BytesMut as _};

pub(crate) use self::fault::{Fault, Faults};
use crate::device::Device;

/// Why a command fails: the status in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    /// The kernel takes it for EPROTO, as it does every status without a meaning of its own.
    pub(crate) const INVALID: Self = Self(1);
    pub(crate) const EXHAUSTED: Self = Self(2);
    /// More pages are to come.
    const MORE: Self = Self(0x105);
    /// The kernel takes it for EOPNOTSUPP.
    pub(crate) const UNSUPPORTED: Self = Self(u32::MAX);
}

/// Size of the headers of a request and of an answer in bytes.
const REQUEST: usize = 40;
const ANSWER: usize = 32;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) code: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Command {
    pub(crate) fn parse(mut bytes: Vec<u8>) -> Self {
        let size = bytes.u32(12) as usize;
        bytes.truncate(size.max(REQUEST));
        Self { code: bytes.u32(4), bytes }
    }

    /// The kind of the kernel's device that it is from or for: 1 the channel, 2 Ethernet, 3 RDMA.
    fn device(&self) -> u16 {
        self.bytes.u16(32)
    }

    fn bytes_u8(&self, at: usize) -> u8 {
        self.bytes.u8(at)
    }

    fn bytes_u16(&self, at: usize) -> u16 {
        self.bytes.u16(at)
    }

    fn u32(&self, at: usize) -> u32 {
        self.bytes.u32(at)
    }

    fn u64(&self, at: usize) -> u64 {
        self.bytes.u64(at)
    }

    /// The answer without its content: its size and version are those that are asked for.
    fn answer(&self) -> Vec<u8> {
        let size = (self.u32(28) as usize).clamp(ANSWER, 4096);
        let mut answer = vec![0; size];
        answer.put_u32(4, self.code);
        answer.put_u16(8, self.bytes.u16(24));
        answer.put_u16(10, self.bytes.u16(10));
        answer.put_u32(12, size as u32);
        answer.put_u32(16, self.u32(32));
        answer.put_u32(20, self.u32(36));
        answer
    }
}

/// The local and the remote key of a region. They differ, so that the use of one for the other is detected.
pub(crate) fn local_key(number: u32) -> u32 {
    number << 8 | 0x11
}

pub(crate) fn remote_key(number: u32) -> u32 {
    number << 8 | 0x22
}

/// Defines the names of codes.
macro_rules! codes {
    ($($name:ident = $code:literal,)*) => {
        pub(crate) mod code {
            $(pub(crate) const $name: u32 = $code;)*
        }

        const NAMES: &[(&str, u32)] = &[$((stringify!($name), $code)),*];
    };
}

codes! {
    VERIFY_VERSION = 0x1,
    QUERY_RESOURCES = 0x2,
    LIST_DEVICES = 0x3,
    REGISTER_DEVICE = 0x4,
    DEREGISTER_DEVICE = 0x5,
    TEST_EVENT = 0xa,
    CREATE_QUEUE = 0xc,
    DISABLE_QUEUE = 0xd,
    ALLOCATE_RANGE = 0x16,
    DESTROY_RANGE = 0x18,
    CREATE_DMA_REGION = 0x19,
    ADD_PAGES = 0x1a,
    DESTROY_DMA_REGION = 0x1b,
    CREATE_PD = 0x1d,
    DESTROY_PD = 0x1e,
    CREATE_MR = 0x1f,
    DESTROY_MR = 0x20,
    QUERY_DEVICE_CONFIG = 0x20001,
    QUERY_FUNCTION_STATISTICS = 0x20002,
    CONFIG_PORT_TX = 0x20003,
    CREATE_WQ_OBJECT = 0x20004,
    DESTROY_WQ_OBJECT = 0x20005,
    FENCE_RQ = 0x20006,
    CONFIG_PORT_RX = 0x20007,
    QUERY_PORT_CONFIG = 0x20008,
    QUERY_LINK_CONFIG = 0x2000a,
    QUERY_PHY_STATISTICS = 0x2000c,
    QUERY_CAPABILITIES = 0x30001,
    CREATE_ADAPTER = 0x30002,
    DESTROY_ADAPTER = 0x30003,
    CONFIG_IP = 0x30004,
    CONFIG_MAC = 0x30005,
    CREATE_UD_QP = 0x30006,
    DESTROY_UD_QP = 0x30007,
    CREATE_CQ = 0x30008,
    DESTROY_CQ = 0x30009,
    CREATE_RC_QP = 0x3000a,
    DESTROY_QP = 0x3000b,
    SET_QP_STATE = 0x3000d,
    QUERY_COUNTERS = 0x30022,
    QUERY_DEVICE_COUNTERS = 0x30023,
}

/// The name of a code.
pub(crate) fn name(code: u32) -> &'static str {
    NAMES.iter().find(|(_, number)| *number == code).map_or("?", |(name, _)| name)
}

/// The code of a name or a number.
pub(crate) fn code_of(word: &str) -> Option<u32> {
    let named = NAMES.iter().find(|(name, _)| *name == word).map(|(_, code)| *code);
    named.or_else(|| vpci::control::number(word).and_then(|number| number.try_into().ok()))
}

impl Device {
    /// Executes a command, and returns its answer.
    pub(crate) fn execute(&mut self, command: Command) -> (Vec<u8>, Command) {
        let mut answer = command.answer();
        let result = match self.faults.next(command.code) {
            Some(status) => Err(Status(status)),
            None => self.execute_good(&command, &mut answer[ANSWER..]),
        };
        if let Err(Status(status)) = result {
            answer.put_u32(24, status);
        }
        (answer, command)
    }

    /// `out` is the content of the answer.
    fn execute_good(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        match command.code {
            ..0x20000 => self.execute_base(command, out),
            0x20000..0x30000 => self.execute_net(command, out),
            _ => self.execute_rdma(command, out),
        }
    }
}
