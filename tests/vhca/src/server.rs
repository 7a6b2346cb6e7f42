//! The device on the bus.

use std::io;

use vpci::Memory;
use vpci::pci::{Bar, Interrupts, Layout};

use crate::device::Device;

/// The device, shared by the threads that serve QEMU, execute commands and handle the control line.
pub(crate) type Shared = vpci::Shared<Device>;

/// Size of the only BAR: the initialisation segment and the pages of doorbells.
pub(crate) const BAR_SIZE: u64 = 32 << 20;

/// A network controller. The interrupt table and its pending bits are in the pages before the first doorbell page.
pub(crate) const LAYOUT: Layout = Layout {
    class: [0x02, 0x00],
    bars: &[Bar { index: 0, size: BAR_SIZE, is_wide: true }],
    vectors: 16,
    table: 0x4000,
    pending: 0x5000,
};

impl vpci::Device for Device {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn interrupts(&mut self) -> &mut Interrupts {
        &mut self.interrupts
    }

    fn read_bar(&mut self, _: u32, offset: u64, data: &mut [u8]) {
        self.read_registers(offset, data);
    }

    fn write_bar(&mut self, _: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let rung = self.write_registers(offset, data);
        match (rung, &self.rung) {
            (Some(vector), Some(commands)) => commands.send(vector).map_err(io::Error::other),
            _ => Ok(()),
        }
    }

    fn reset(&mut self) {
        self.reset_by_bus();
    }
}
