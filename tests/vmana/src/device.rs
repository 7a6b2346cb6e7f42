//! The device: its state, and its interface to the bus.

use std::collections::VecDeque;
use std::io;

use vpci::pci::{Bar, Interrupts, Layout};
use vpci::{Fault, Memory, Table};

use crate::command::Faults;
use crate::hwc::Hwc;
use crate::limits::Limits;
use crate::net::{Net, NetQueue};
use crate::queue::{Cq, Eq};
use crate::rdma::Rdma;
use crate::region::{Pages, Region};
use crate::trace::Trace;

const BAR: u64 = 4 << 20;
/// The shared memory by which the command channel is established.
const SHARED: u64 = 0x3000;
const SHARED_SIZE: u64 = 32;
/// The pages of doorbells, up to the end of the BAR.
const DOORBELLS: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A network controller for Ethernet. The interrupt table and its pending bits are after the registers.
pub(crate) const LAYOUT: Layout = Layout {
    class: [0x02, 0x00],
    bars: &[Bar { index: 0, size: BAR, is_wide: true }],
    vectors: 32,
    table: 0x1000,
    pending: 0x2000,
};

/// Number of complaints that are kept for the control line; they cannot be reported to the driver.
const COMPLAINTS_KEPT: usize = 256;

/// A virtual MANA.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: Memory,
    pub(crate) interrupts: Interrupts,
    pub(crate) interrupts_raised: u64,
    pub(crate) limits: Limits,
    pub(crate) mac: [u8; 6],
    pub(crate) hwc: Hwc,
    pub(crate) faults: Faults,
    pub(crate) trace: Trace,
    pub(crate) eqs: Table<Eq>,
    pub(crate) cqs: Table<Cq>,
    /// Pages of doorbells, other than those of the kernel's own devices.
    pub(crate) doorbells: Table<()>,
    /// The lists of pages that no other object has yet.
    pub(crate) lists: Table<Pages>,
    pub(crate) pds: Table<()>,
    pub(crate) regions: Table<Region>,
    /// The queues of the network interface.
    pub(crate) wqs: Table<NetQueue>,
    pub(crate) net: Net,
    pub(crate) rdma: Rdma,
    /// Actions of the guest that no device would accept.
    pub(crate) complaints: VecDeque<String>,
    /// The lower half of a doorbell that is written in two parts.
    half: Option<(u64, u32)>,
}

impl Device {
    pub(crate) fn new(limits: Limits, mac: [u8; 6]) -> Self {
        Self {
            memory: Memory::default(),
            interrupts: Interrupts::new(LAYOUT.vectors),
            interrupts_raised: 0,
            limits,
            mac,
            hwc: Hwc::default(),
            faults: Faults::default(),
            trace: Trace::default(),
            eqs: Table::new(0, 1),
            cqs: Table::new(0, 1),
            doorbells: Table::new(0, 1),
            lists: Table::new(0, 1),
            pds: Table::new(0, 1),
            regions: Table::new(0, 1),
            wqs: Table::new(0, 1),
            net: Net::default(),
            rdma: Rdma::default(),
            complaints: VecDeque::new(),
            half: None,
        }
    }

    /// Removes every object, as in a reset. The settings of the control line stay, and so do the wire and the record of commands.
    pub(crate) fn drop_objects(&mut self) {
        self.hwc = Hwc::default();
        self.eqs = Table::new(0, self.limits.max_eq);
        self.cqs = Table::new(0, self.limits.max_cq);
        self.doorbells = Table::new(1, ((BAR - DOORBELLS) / PAGE) as u32 - 1);
        self.lists = Table::new(1, 0xff_ffff);
        self.pds = Table::new(1, self.limits.max_pd);
        self.regions = Table::new(1, self.limits.max_mr);
        self.wqs = Table::new(0x80_0000, 0x1000);
        self.net.clear();
        self.rdma.clear();
    }

    /// Records an action that is not allowed.
    pub(crate) fn complain(&mut self, what: String) {
        if self.complaints.len() == COMPLAINTS_KEPT {
            self.complaints.pop_front();
        }
        self.complaints.push_back(what);
    }

    /// Records an access to an address that is not memory of the guest.
    pub(crate) fn note_fault(&mut self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.complain(fault.to_string());
        }
    }

    fn register(&self, offset: u64) -> u8 {
        let shared = offset.checked_sub(SHARED).filter(|at| *at < SHARED_SIZE);
        if let Some(at) = shared {
            return self.hwc.shared[at as usize];
        }
        let (at, value) = match offset {
            0x08..0x10 => (0x08, DOORBELLS),
            0x10..0x14 => (0x10, PAGE),
            0x18..0x20 => (0x18, SHARED),
            _ => return 0,
        };
        value.to_le_bytes()[(offset - at) as usize]
    }

    /// A write to the pages of doorbells, of eight bytes or of two halves of which the upper one is the last.
    fn write_doorbell(&mut self, offset: u64, data: &[u8]) {
        let value = match (<[u8; 8]>::try_from(data), <[u8; 4]>::try_from(data)) {
            (Ok(bytes), _) => u64::from_le_bytes(bytes),
            (_, Ok(bytes)) => {
                let word = u32::from_le_bytes(bytes);
                let Some((_, low)) = self.half.take().filter(|(at, _)| at + 4 == offset) else {
                    self.half = Some((offset, word));
                    return;
                };
                return self.ring_at(offset - 4, u64::from(word) << 32 | u64::from(low));
            }
            _ => return self.complain(format!("a doorbell of {} bytes", data.len())),
        };
        self.ring_at(offset, value);
    }

    fn ring_at(&mut self, offset: u64, value: u64) {
        self.ring((offset / PAGE) as u32, offset % PAGE, value);
    }
}

impl vpci::Device for Device {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn interrupts(&mut self) -> &mut Interrupts {
        &mut self.interrupts
    }

    fn read_bar(&mut self, _: u32, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = self.register(offset.wrapping_add(i as u64));
        }
    }

    fn write_bar(&mut self, _: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(at) = offset.checked_sub(DOORBELLS).filter(|at| *at < BAR - DOORBELLS) {
            self.write_doorbell(at, data);
        } else if let Some(at) = offset.checked_sub(SHARED).filter(|at| *at < SHARED_SIZE) {
            self.write_shared(at as usize, data);
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.drop_objects();
    }
}
