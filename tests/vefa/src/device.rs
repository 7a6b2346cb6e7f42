//! The device: its state, and its interface to the bus.

use std::collections::VecDeque;
use std::io;

use vpci::pci::{Bar, Interrupts, Layout};
use vpci::{Fault, Memory, Table};

use crate::admin::{AdminQueue, Faults, Trace};
use crate::counter::Counter;
use crate::event::{Aenq, Eq};
use crate::fabric::{Fabric, Gid};
use crate::limits::Limits;
use crate::object::{Address, Uar};
use crate::queue::{Cq, Qp};
use crate::region::Region;
use crate::registers::Registers;
use crate::statistics::Statistics;

/// The BAR of doorbells: a page for each user.
pub(crate) const DOORBELL_BAR: u16 = 4;
const DOORBELLS: u64 = 1 << 20;
/// The BAR of send queues.
const SEND_BAR: u32 = 2;
pub(crate) const SEND_MEMORY: u64 = 64 << 20;
pub(crate) const PAGE: u64 = 4096;

/// A network controller of no known kind. The interrupt table and its pending bits are after the registers.
pub(crate) const LAYOUT: Layout = Layout {
    class: [0x02, 0x80],
    bars: &[
        Bar { index: 0, size: 16 << 10, is_wide: false },
        Bar { index: SEND_BAR, size: SEND_MEMORY, is_wide: true },
        Bar { index: DOORBELL_BAR as u32, size: DOORBELLS, is_wide: true },
    ],
    vectors: 16,
    table: 0x2000,
    pending: 0x3000,
};

/// A version of the interface between driver and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Api {
    pub(crate) major: u8,
    pub(crate) minor: u8,
}

impl std::str::FromStr for Api {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('.')
            .and_then(|(major, minor)| Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? }))
            .ok_or_else(|| "two numbers are wanted, as in 0.3".to_owned())
    }
}

/// Number of complaints that are kept for the control line; they cannot be reported to the driver.
const COMPLAINTS_KEPT: usize = 256;

/// A virtual EFA.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: Memory,
    pub(crate) interrupts: Interrupts,
    pub(crate) api: Api,
    pub(crate) limits: Limits,
    pub(crate) gid: Gid,
    pub(crate) registers: Registers,
    pub(crate) admin: AdminQueue,
    pub(crate) aenq: Aenq,
    pub(crate) faults: Faults,
    pub(crate) trace: Trace,
    pub(crate) statistics: Statistics,
    /// The driver's information about itself and its host.
    pub(crate) host: Vec<u8>,
    /// The memory of send queues.
    pub(crate) send_memory: Vec<u8>,
    pub(crate) eqs: Table<Eq>,
    pub(crate) pds: Table<()>,
    pub(crate) uars: Table<Uar>,
    pub(crate) addresses: Table<Address>,
    pub(crate) regions: Table<Region>,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Qp>,
    pub(crate) counters: Table<Counter>,
    /// Number of queue pairs created so far, for the upper bits of their numbers.
    pub(crate) generation: u16,
    pub(crate) fabric: Fabric,
    /// Actions of the guest that no device would accept.
    pub(crate) complaints: VecDeque<String>,
}

impl Device {
    pub(crate) fn new(limits: Limits, api: Api, gid: Gid) -> Self {
        let mut device = Self {
            memory: Memory::default(),
            interrupts: Interrupts::new(LAYOUT.vectors),
            api,
            limits,
            gid,
            registers: Registers::default(),
            admin: AdminQueue::default(),
            aenq: Aenq::default(),
            faults: Faults::default(),
            trace: Trace::default(),
            statistics: Statistics::default(),
            host: Vec::new(),
            send_memory: vec![0; SEND_MEMORY as usize],
            eqs: Table::new(1, 0xff),
            pds: Table::new(1, 0xfffe),
            // Page 0 is never assigned.
            uars: Table::new(1, (DOORBELLS / PAGE) as u32 - 1),
            addresses: Table::new(1, 0xfffe),
            regions: Table::new(0x101, 0xff_0000),
            cqs: Table::new(1, 0xfffe),
            qps: Table::new(0, 1),
            counters: Table::new(1, 0xffff),
            generation: 0,
            fabric: Fabric::default(),
            complaints: VecDeque::new(),
        };
        device.drop_objects();
        device
    }

    /// Bits of a queue pair's number that distinguish it from all others.
    pub(crate) fn qp_bits(&self) -> u32 {
        self.limits.max_qp.clamp(1, 1 << 15).next_power_of_two().trailing_zeros()
    }

    /// Removes every object, as in a reset. The settings of the control line stay.
    pub(crate) fn drop_objects(&mut self) {
        self.admin.begin();
        self.aenq = Aenq::default();
        self.eqs.clear();
        self.pds.clear();
        self.uars.clear();
        self.addresses.clear();
        self.regions.clear();
        self.cqs.clear();
        self.qps = Table::new(0, 1 << self.qp_bits());
        self.counters.clear();
        self.fabric.clear();
    }

    /// Records an action that is not allowed.
    pub(crate) fn complain(&mut self, what: String) {
        self.statistics.complaints += 1;
        if self.complaints.len() == COMPLAINTS_KEPT {
            self.complaints.pop_front();
        }
        self.complaints.push_back(what);
    }

    /// Counts an access to an address that is not memory of the guest.
    pub(crate) fn note_fault(&mut self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.statistics.faults += 1;
            self.complain(fault.to_string());
        }
    }
}

/// The words of a write. A rest that is not a whole word is ignored.
fn words(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, u32)> {
    let (words, _) = data.as_chunks::<4>();
    words
        .iter()
        .enumerate()
        .map(move |(i, word)| (offset.wrapping_add(i as u64 * 4), u32::from_le_bytes(*word)))
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
            let at = offset.wrapping_add(i as u64);
            // Send queues and doorbells can only be written.
            let word = if bar == 0 { self.register(at & !3) } else { 0 };
            *byte = word.to_le_bytes()[(at & 3) as usize];
        }
    }

    fn write_bar(&mut self, bar: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match bar {
            0 => words(offset, data).for_each(|(offset, word)| self.write_register(offset, word)),
            SEND_BAR => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let room = self.send_memory.get_mut(start..).unwrap_or_default();
                room.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
            }
            _ => words(offset, data).for_each(|(offset, word)| self.ring(offset, word)),
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.drop_objects();
        self.registers = Registers::default();
    }
}
