//! The admin queue: commands of the driver, executed in their order. Each is answered before the write of its doorbell returns.

mod check;
mod fault;
mod feature;
mod object;
mod queue;
mod ring;
#[cfg(test)]
pub(crate) mod tests;
mod trace;

pub(crate) use self::fault::{Fault, Faults};
pub(crate) use self::ring::AdminQueue;
pub(crate) use self::trace::Trace;

use crate::bytes::BytesMut;

/// The errors of a command (`efa_admin_aq_completion_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// There are no more objects of this kind.
    Exhausted = 1,
    /// No command has this number.
    Opcode = 2,
    /// The device does not support it.
    Unsupported = 3,
    /// The entry is malformed.
    Malformed = 4,
    /// An object that it names does not exist, or must not be used in this way.
    Illegal = 5,
    /// The object is in use.
    Busy = 7,
}

impl From<vpci::Fault> for Status {
    fn from(_: vpci::Fault) -> Self {
        Self::Illegal
    }
}

/// The bytes of an answer, from the beginning of the completion on: the first 8 belong to the ring.
pub(crate) type Answer = [u8; 64];

/// An empty answer.
pub(crate) const EMPTY: Answer = [0; 64];

/// An answer with numbers of 16 bits.
pub(crate) fn numbers(values: &[u16]) -> Answer {
    let mut answer = EMPTY;
    values.iter().enumerate().for_each(|(i, value)| answer.put_u16(8 + i * 2, *value));
    answer
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) id: u16,
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) payload: [u8; 60],
}

impl Command {
    /// Whether it names a buffer.
    pub(crate) fn has_control(&self) -> bool {
        self.flags & 2 != 0
    }

    /// Whether the buffer contains the addresses of other buffers.
    pub(crate) fn is_indirect(&self) -> bool {
        self.flags & 4 != 0
    }
}

/// The existing commands (`efa_admin_aq_opcode`, 7.3).
pub(crate) const COMMANDS: [(u8, &str); 24] = [
    (1, "CREATE_QP"),
    (2, "MODIFY_QP"),
    (3, "QUERY_QP"),
    (4, "DESTROY_QP"),
    (5, "CREATE_AH"),
    (6, "DESTROY_AH"),
    (7, "REG_MR"),
    (8, "DEREG_MR"),
    (9, "CREATE_CQ"),
    (10, "DESTROY_CQ"),
    (11, "GET_FEATURE"),
    (12, "SET_FEATURE"),
    (13, "GET_STATS"),
    (14, "ALLOC_PD"),
    (15, "DEALLOC_PD"),
    (16, "ALLOC_UAR"),
    (17, "DEALLOC_UAR"),
    (18, "CREATE_EQ"),
    (19, "DESTROY_EQ"),
    (25, "CREATE_COUNTER"),
    (26, "DESTROY_COUNTER"),
    (27, "ATTACH_COUNTER"),
    (28, "MODIFY_COUNTER"),
    (29, "DETACH_COUNTER"),
];

pub(crate) fn name(opcode: u8) -> &'static str {
    COMMANDS.iter().find(|(number, _)| *number == opcode).map_or("?", |(_, name)| name)
}
