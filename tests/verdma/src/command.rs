//! The command queue.

use vpci::Fault;

use crate::bytes::Bytes as _;
use crate::cq::{ARM, Entry, Queue};
use crate::device::Device;
use crate::event::{ASYNCHRONOUS, COMMANDS as COMMAND_EVENTS, Eq};
use crate::memory::SLOT;

/// Size of a command in bytes, and in slots.
const LEN: usize = 128;
const SLOTS: u16 = 4;
const POSITION: u64 = 0xff_ffff;

/// The commands, by module and opcode.
pub(crate) const COMMANDS: &[((u8, u8), &str)] = &[
    ((0, 0), "QUERY_DEVICE"),
    ((0, 1), "CREATE_QP"),
    ((0, 2), "DESTROY_QP"),
    ((0, 3), "MODIFY_QP"),
    ((0, 4), "CREATE_CQ"),
    ((0, 5), "DESTROY_CQ"),
    ((0, 6), "REFLUSH"),
    ((0, 8), "REG_MR"),
    ((0, 9), "DEREG_MR"),
    ((0, 14), "SET_GID"),
    ((0, 15), "CREATE_AH"),
    ((0, 16), "DESTROY_AH"),
    ((0, 17), "QUERY_QP"),
    ((1, 0), "CREATE_EQ"),
    ((1, 1), "DESTROY_EQ"),
    ((1, 2), "QUERY_FW_INFO"),
    ((1, 3), "CONF_MTU"),
    ((1, 4), "GET_STATS"),
    ((1, 5), "CONF_DEVICE"),
    ((1, 8), "ALLOC_DB"),
    ((1, 9), "FREE_DB"),
];

/// Why a command fails: the syndrome of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Invalid = 1,
    Unknown = 2,
    InUse = 3,
    Full = 4,
    Opcode = 5,
    /// The control line asked for it.
    Told = 6,
}

/// The command queue and its completion queue.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    base: u64,
    completions: u64,
    depth: u32,
    consumed: u16,
    produced: u32,
    is_armed: bool,
}

impl Commands {
    pub(crate) fn begin(&mut self, base: u64, completions: u64, depth: u32) {
        *self = Self { base, completions, depth, ..Self::default() };
    }
}

impl Device {
    /// The doorbell of the command queue.
    pub(crate) fn ring_commands(&mut self, end: u16) {
        while self.commands.consumed != end {
            if u32::from(end.wrapping_sub(self.commands.consumed)) > self.commands.depth {
                return self.complain(format!("{end} is beyond the command queue"));
            }
            if let Err(fault) = self.command() {
                return self.complain(fault.to_string());
            }
        }
    }

    fn command(&mut self) -> Result<(), Fault> {
        let slot = self.commands.consumed;
        let mut command = [0; LEN];
        let at = u64::from(u32::from(slot) & (self.commands.depth - 1)) * SLOT;
        self.memory.read(self.commands.base.wrapping_add(at), &mut command)?;
        self.commands.consumed = slot.wrapping_add(SLOTS);
        let head = command.u64(0);
        let which = ((head >> 24) as u8 & 3, (head >> 16) as u8);
        if head >> 52 & 7 != u64::from(SLOTS) - 1 {
            self.complain(format!("a command of {} slots", (head >> 52 & 7) + 1));
        }
        let result = match self.faults.get_mut(&which) {
            Some(times) => {
                *times -= 1;
                if *times == 0 {
                    self.faults.remove(&which);
                }
                Err(Refusal::Told)
            }
            None => self.execute(which, &command),
        };
        let name = COMMANDS.iter().find(|(known, _)| *known == which).map_or("?", |(_, name)| name);
        let words = (8..64).step_by(4).map(|at| format!(" {:x}", command.u32(at))).collect::<String>();
        self.note(format!("{name}{words} -> {result:x?}"));
        let (syndrome, [first, second]) = match result {
            Ok(answer) => (0, answer),
            Err(refusal) => (refusal as u8, [0, 0]),
        };
        self.complete_command(which.1, slot, syndrome, [first, second])
    }

    fn complete_command(
        &mut self,
        opcode: u8,
        slot: u16,
        syndrome: u8,
        answer: [u64; 2],
    ) -> Result<(), Fault> {
        let [first, second] = answer;
        let entry = Entry {
            opcode,
            queue: Queue::Command,
            syndrome,
            slot: slot.into(),
            words: [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32],
            is_solicited: false,
            info: 0,
        };
        let commands = &mut self.commands;
        let bytes = entry.to_bytes(commands.produced & commands.depth == 0);
        let at = u64::from(commands.produced & (commands.depth - 1)) * SLOT;
        self.memory.publish_word(commands.completions.wrapping_add(at), &bytes, 0)?;
        commands.produced = commands.produced.wrapping_add(1);
        // Before it arms for the first time, the driver polls.
        if std::mem::take(&mut commands.is_armed) {
            self.event(COMMAND_EVENTS, [0, 0, 0]);
        }
        Ok(())
    }

    /// The driver asks for an event after the commands that it has seen.
    pub(crate) fn ring_command_cq(&mut self, doorbell: u64) {
        let has_more = doorbell & POSITION != u64::from(self.commands.produced) & POSITION;
        let arms = doorbell & ARM != 0;
        self.commands.is_armed = arms && !has_more;
        if arms && has_more {
            self.event(COMMAND_EVENTS, [0, 0, 0]);
        }
    }

    fn execute(&mut self, which: (u8, u8), command: &[u8]) -> Result<[u64; 2], Refusal> {
        let nothing = |()| [0, 0];
        match which {
            (0, 0) => Ok(self.capabilities()),
            (0, 1) => self.create_qp(command).map(nothing),
            (0, 2) => self.destroy_qp(command).map(nothing),
            (0, 3) => self.modify_qp(command).map(nothing),
            (0, 4) => self.create_cq(command).map(nothing),
            (0, 5) => self.destroy_cq(command).map(nothing),
            (0, 6) => self.flush_again(command).map(nothing),
            (0, 8) => self.register(command).map(nothing),
            (0, 9) => self.deregister(command).map(nothing),
            (0, 14) => self.set_gid(command).map(nothing),
            (0, 15) => self.create_address(command).map(nothing),
            (0, 16) => self.destroy_address(command).map(nothing),
            (0, 17) => self.query_qp(command).map(|answer| [answer, 0]),
            (1, 0) => self.create_eq(command).map(nothing),
            (1, 1) => self.eqs.remove(&command.u8(17)).map(|_| [0, 0]).ok_or(Refusal::Unknown),
            // The version of the firmware.
            (1, 2) => Ok([0x0001_0002, 0]),
            (1, 3) => {
                self.mtu = command.u32(8);
                Ok([0, 0])
            }
            (1, 4) => self.get_statistics(command).map(nothing),
            (1, 5) => Ok([0, 0]),
            (1, 8) => self.allocate_pages(command),
            (1, 9) => self.free_pages(command).map(nothing),
            _ => Err(Refusal::Opcode),
        }
    }

    /// What the device has, as powers of two: GIDs, entries, requests of a receive queue, addresses, bytes of a region; its flags; then the
    /// key of all memory, and queue pairs by the thousand.
    fn capabilities(&self) -> [u64; 2] {
        let [gids, entries, receives, addresses, bytes] = [4_u64, 20, 15, 12, 31];
        let flags = u64::from(self.flags);
        let first = gids << 48 | entries << 40 | flags << 24 | receives << 16 | addresses << 8 | bytes;
        [first, u64::from(crate::region::ALL_MEMORY) << 32 | 4 << 16]
    }

    fn create_eq(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let (base, vector, number, log) = (command.u64(8), command.u8(16), command.u8(17), command.u8(18));
        if log > 20 || number == COMMAND_EVENTS || number == ASYNCHRONOUS {
            return Err(Refusal::Invalid);
        }
        if self.eqs.contains_key(&number) {
            return Err(Refusal::InUse);
        }
        self.eqs.insert(number, Eq::new(base, 1 << log, vector).ok_or(Refusal::Invalid)?);
        Ok(())
    }
}
