//! The device: its state, its registers and its doorbells.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use vpci::Memory;
use vpci::pci::{Bar, Interrupts, Layout};

use crate::bytes::{Bytes as _, BytesMut as _};
use crate::command::Commands;
use crate::cq::{self, Cq};
use crate::event::{ASYNCHRONOUS, COMMANDS, Eq};
use crate::network::Network;
use crate::object::{DoorbellPage, Statistics};
use crate::qp::Qp;
use crate::region::Region;

const PAGE: u64 = 4096;
const REGISTERS: u64 = 16 << 20;

/// A network controller of no known kind. The driver wants exactly these two BARs (`erdma_probe_dev`, erdma_main.c).
pub(crate) const LAYOUT: Layout = Layout {
    class: [0x02, 0x80],
    bars: &[
        Bar { index: 0, size: REGISTERS, is_wide: true },
        Bar { index: 2, size: 64 << 10, is_wide: true },
    ],
    vectors: 32,
    // In BAR 2: the lowest bits of an offset are the number of the BAR.
    table: 2,
    pending: 0x8002,
};

/// Registers, `ERDMA_REGS_*`.
mod register {
    pub(super) const VERSION: usize = 0x00;
    pub(super) const PROTOCOL: usize = 0x0c;
    pub(super) const CONTROL: usize = 0x10;
    pub(super) const STATUS: usize = 0x14;
    pub(super) const MAC: usize = 0x18;
    pub(super) const COMMAND_DEPTH: usize = 0x30;
    pub(super) const EQ_DEPTH: usize = 0x34;
    pub(super) const AEQ_DEPTH: usize = 0x48;
    pub(super) const AEQ_DOORBELL: u64 = 0x50;
    pub(super) const EQ_DOORBELLS: u64 = 0x100;
    pub(super) const COMMAND_SQ: u64 = 0x200;
    pub(super) const COMMAND_CQ: u64 = 0x300;
    pub(super) const END: usize = 0x100;
}

const ROCE: u32 = 1;
const RESET: u32 = 1;
const INITIALISE: u32 = 2;
const DONE: u32 = 3;

/// The doorbells of the kernel and of processes without pages of their own.
const SENDS: u64 = 0x1000;
const RECEIVES: u64 = SENDS + (384 << 10);
const COMPLETIONS: u64 = RECEIVES + (96 << 10);
/// The first page for a process.
pub(crate) const FIRST_PAGE: u16 = 0x100;
pub(crate) const LAST_PAGE: u16 = (REGISTERS / PAGE) as u16 - 1;

const COMPLAINTS_KEPT: usize = 256;
const COMMANDS_KEPT: usize = 256;

/// A virtual eRDMA.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: Memory,
    pub(crate) interrupts: Interrupts,
    registers: [u8; register::END],
    /// The first half of a doorbell that comes in two.
    half: Option<(u64, u32)>,
    pub(crate) mac: [u8; 6],
    pub(crate) flags: u8,
    pub(crate) mtu: u32,
    pub(crate) commands: Commands,
    pub(crate) eqs: BTreeMap<u8, Eq>,
    pub(crate) pages: BTreeMap<u16, DoorbellPage>,
    pub(crate) regions: BTreeMap<u32, Region>,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    pub(crate) qps: BTreeMap<u32, Qp>,
    pub(crate) addresses: BTreeMap<u32, crate::qp::Path>,
    pub(crate) gids: BTreeMap<u16, [u8; 16]>,
    pub(crate) network: Network,
    pub(crate) statistics: Statistics,
    /// Opcodes that fail, with the number of times.
    pub(crate) faults: BTreeMap<(u8, u8), u32>,
    /// Actions of the guest that no device would accept.
    pub(crate) complaints: VecDeque<String>,
    pub(crate) trace: VecDeque<String>,
    /// Queue pairs with something due.
    pub(crate) waiting: BTreeSet<u32>,
}

impl Device {
    pub(crate) fn new(mac: [u8; 6], flags: u8) -> Self {
        let mut device = Self {
            memory: Memory::default(),
            interrupts: Interrupts::new(LAYOUT.vectors),
            registers: [0; register::END],
            half: None,
            mac,
            flags,
            mtu: 1500,
            commands: Commands::default(),
            eqs: BTreeMap::new(),
            pages: BTreeMap::new(),
            regions: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            addresses: BTreeMap::new(),
            gids: BTreeMap::new(),
            network: Network::default(),
            statistics: Statistics::default(),
            faults: BTreeMap::new(),
            complaints: VecDeque::new(),
            trace: VecDeque::new(),
            waiting: BTreeSet::new(),
        };
        device.drop_objects();
        device
    }

    /// Removes every object, as in a reset.
    fn drop_objects(&mut self) {
        self.commands = Commands::default();
        self.eqs.clear();
        self.pages.clear();
        self.regions.clear();
        self.cqs.clear();
        self.qps.clear();
        self.addresses.clear();
        self.gids.clear();
        self.waiting.clear();
        self.network.clear();
        self.registers = [0; register::END];
        self.registers.put_u32(register::VERSION, 1);
        self.registers.put_u32(register::PROTOCOL, ROCE);
        // As a number: the last byte is the lowest.
        let [a, b, rest @ ..] = self.mac;
        self.registers.put_u32(register::MAC, u32::from_be_bytes(rest));
        self.registers.put_u32(register::MAC + 4, u32::from(a) << 8 | u32::from(b));
    }

    /// Records an action that is not allowed.
    pub(crate) fn complain(&mut self, what: String) {
        if self.complaints.len() == COMPLAINTS_KEPT {
            self.complaints.pop_front();
        }
        self.complaints.push_back(what);
    }

    pub(crate) fn note(&mut self, command: String) {
        if self.trace.len() == COMMANDS_KEPT {
            self.trace.pop_front();
        }
        self.trace.push_back(command);
    }

    /// A register with the high half of an address, followed by the low one or the other way round.
    fn address(&self, low: usize, high: usize) -> u64 {
        u64::from(self.registers.u32(low)) | u64::from(self.registers.u32(high)) << 32
    }

    fn write_register(&mut self, at: usize, value: u32) {
        match at {
            register::CONTROL if value & RESET != 0 => return self.drop_objects(),
            register::CONTROL if value & INITIALISE != 0 => {
                let depth = self.registers.u32(register::COMMAND_DEPTH);
                self.commands.begin(self.address(0x20, 0x24), self.address(0x28, 0x2c), depth);
                let commands = Eq::new(self.address(0x38, 0x3c), self.registers.u32(register::EQ_DEPTH), 0);
                let events = Eq::new(self.address(0x40, 0x44), self.registers.u32(register::AEQ_DEPTH), 0);
                match (commands, events, depth.is_power_of_two()) {
                    (Some(commands), Some(events), true) => {
                        self.eqs.insert(COMMANDS, commands);
                        self.eqs.insert(ASYNCHRONOUS, events);
                        self.registers.put_u32(register::STATUS, DONE);
                    }
                    _ => self.complain("queues of no valid depth".to_owned()),
                }
                return;
            }
            register::VERSION | register::PROTOCOL | register::STATUS | register::MAC | 0x1c => return,
            _ => {}
        }
        self.registers.put_u32(at, value);
    }

    /// A doorbell was rung.
    fn ring(&mut self, offset: u64, value: u64) {
        match offset {
            register::AEQ_DOORBELL => self.ring_eq(ASYNCHRONOUS, value),
            register::EQ_DOORBELLS..register::COMMAND_SQ => {
                self.ring_eq(((offset - register::EQ_DOORBELLS) / 8) as u8, value);
            }
            register::COMMAND_SQ => self.ring_commands(value as u16),
            register::COMMAND_CQ => self.ring_command_cq(value),
            SENDS..RECEIVES => self.ring_sends(value, None),
            RECEIVES..COMPLETIONS => self.ring_receives(value, None),
            COMPLETIONS.. if offset / PAGE < FIRST_PAGE.into() => self.ring_cq(value, None),
            _ => self.ring_page(offset, value),
        }
    }

    /// A doorbell in a page of a process. The kernel maps the page for receives where the library has its completion queues, and the other
    /// way round (`alloc_db_resources`, erdma_verbs.c, 6.12 and 7.3), so the value says what it is: only one of a completion queue arms.
    fn ring_page(&mut self, offset: u64, value: u64) {
        let page = (offset / PAGE) as u16;
        let within = (offset % PAGE) as u32;
        let Some(found) = self.pages.get(&page).copied() else {
            return self.complain(format!("a doorbell at {offset:#x}, which is nobody's"));
        };
        let number = (value >> 32) as u32;
        let (place, owner) = match found {
            DoorbellPage::Sends => ((number & 0x1f) * 128, page),
            DoorbellPage::Receives { completions } if value & cq::ARM != 0 => {
                ((number & 0x1ff) * 8, completions)
            }
            DoorbellPage::Completions { receives } if value & cq::ARM == 0 => {
                ((number & 0x7f) * 32, receives)
            }
            DoorbellPage::Receives { .. } => ((number & 0x7f) * 32, page),
            DoorbellPage::Completions { .. } => ((number & 0x1ff) * 8, page),
        };
        if place != within {
            return self.complain(format!("a doorbell {value:#x} at {offset:#x}, which has no place there"));
        }
        match found {
            DoorbellPage::Sends => self.ring_sends(value, Some(owner)),
            _ if value & cq::ARM != 0 => self.ring_cq(value, Some(owner)),
            _ => self.ring_receives(value, Some(owner)),
        }
    }
}

impl vpci::Device for Device {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn interrupts(&mut self) -> &mut Interrupts {
        &mut self.interrupts
    }

    fn read_bar(&mut self, bar: u32, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(i));
            let found = at.filter(|_| bar == 0).and_then(|at| self.registers.get(at));
            *byte = found.copied().unwrap_or(0);
        }
    }

    fn write_bar(&mut self, bar: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if bar != 0 {
            return Ok(());
        }
        let is_register = offset < register::END as u64 && offset != register::AEQ_DOORBELL;
        match (data.len(), is_register) {
            (4 | 8, true) => {
                for (i, word) in data.as_chunks::<4>().0.iter().enumerate() {
                    self.write_register(offset as usize + i * 4, u32::from_le_bytes(*word));
                }
            }
            (8, false) => self.ring(offset, data.u64(0)),
            (4, false) if offset.is_multiple_of(8) => self.half = Some((offset, data.u32(0))),
            (4, false) => match self.half.take() {
                Some((at, low)) if at + 4 == offset => {
                    self.ring(at, u64::from(low) | u64::from(data.u32(0)) << 32);
                }
                _ => self.complain(format!("half a doorbell at {offset:#x}")),
            },
            (len, _) => self.complain(format!("a write of {len} bytes at {offset:#x}")),
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.drop_objects();
    }
}
