//! The PCI side: configuration space, regions, interrupts.

use std::fs::File;
use std::io::Write as _;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info,
};
use vfio_user::{IrqInfo, ServerRegion};

/// Size of the only BAR: the initialisation segment and the pages of doorbells.
pub const BAR_SIZE: u64 = 32 << 20;
/// Interrupts the device has.
pub const VECTORS: u16 = 16;
/// Where in the BAR the interrupt table and its pending bits are, in the pages before the first doorbell page.
const MSIX_TABLE: u32 = 0x4000;
const MSIX_PENDING: u32 = 0x5000;

const CONFIG_SIZE: usize = 256;
const MSIX_CAPABILITY: usize = 0x80;

/// Vendor and device number: which ConnectX the driver takes it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciId {
    /// Who made it.
    pub vendor: u16,
    /// What it is.
    pub device: u16,
}

impl std::str::FromStr for PciId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part| u16::from_str_radix(part, 16).ok();
        text.split_once(':')
            .and_then(|(vendor, device)| Some(Self { vendor: number(vendor)?, device: number(device)? }))
            .ok_or_else(|| "two hexadecimal numbers are wanted, as in 15b3:1018".to_owned())
    }
}

/// The configuration space.
#[derive(Debug)]
pub struct Config {
    bytes: [u8; CONFIG_SIZE],
}

impl Config {
    /// That of a device.
    pub fn new(id: PciId) -> Self {
        let mut bytes = [0; CONFIG_SIZE];
        let mut put =
            |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(0x00, &id.vendor.to_le_bytes());
        put(0x02, &id.device.to_le_bytes());
        put(0x06, &0x0010_u16.to_le_bytes()); // there is a list of capabilities
        put(0x0b, &[0x02]); // a network controller
        put(0x10, &0x0c_u32.to_le_bytes()); // BAR0: 64 bits, prefetchable
        put(0x2c, &id.vendor.to_le_bytes());
        put(0x34, &[MSIX_CAPABILITY as u8]);
        put(MSIX_CAPABILITY, &[0x11, 0]);
        put(MSIX_CAPABILITY + 2, &(VECTORS - 1).to_le_bytes());
        put(MSIX_CAPABILITY + 4, &MSIX_TABLE.to_le_bytes());
        put(MSIX_CAPABILITY + 8, &MSIX_PENDING.to_le_bytes());
        Self { bytes }
    }

    /// Reads it; there are zeros behind its end.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(i));
            *byte = at.and_then(|at| self.bytes.get(at)).copied().unwrap_or(0);
        }
    }

    /// Writes the command register, the addresses and the interrupt control; all else is read-only.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (i, byte) in data.iter().enumerate() {
            let Some(at) = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(i)) else {
                return;
            };
            if matches!(at, 0x04 | 0x05 | 0x0c | 0x14..=0x17 | 0x3c | 0x83) {
                self.bytes[at] = *byte;
            } else if at == 0x13 {
                self.bytes[at] = *byte & (!(BAR_SIZE - 1) >> 24) as u8;
            }
        }
    }
}

/// Every region QEMU asks for; only the configuration space and BAR0 are there.
pub fn regions() -> Vec<ServerRegion> {
    let region = |index| {
        let size = match index {
            VFIO_PCI_BAR0_REGION_INDEX => BAR_SIZE,
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE as u64,
            _ => 0,
        };
        let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
        let argsz = size_of::<vfio_region_info>() as u32;
        let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
        ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

/// Every kind of interrupt QEMU asks for; only MSI-X is there.
pub fn irqs() -> Vec<IrqInfo> {
    let irq = |index| {
        let there = index == VFIO_PCI_MSIX_IRQ_INDEX;
        let (flags, count) = if there { (VFIO_IRQ_INFO_EVENTFD, u32::from(VECTORS)) } else { (0, 0) };
        IrqInfo { index, flags, count }
    };
    (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
}

/// The event files through which the guest is interrupted.
#[derive(Debug, Default)]
pub struct Interrupts {
    files: [Option<File>; VECTORS as usize],
}

impl Interrupts {
    /// Takes the event files of `count` vectors from `start` on; none at all takes them away.
    pub fn set(&mut self, start: u32, count: u32, files: Vec<File>) {
        let vectors = self.files.iter_mut().skip(start as usize).take(count as usize);
        if files.is_empty() {
            vectors.for_each(|slot| *slot = None);
        } else {
            vectors.zip(files).for_each(|(slot, file)| *slot = Some(file));
        }
    }

    /// Takes all event files away.
    pub fn clear(&mut self) {
        self.files = Default::default();
    }

    /// Interrupts the guest. A vector it has not enabled does nothing, as on a real device.
    pub fn raise(&mut self, vector: u32) {
        if let Some(Some(file)) = self.files.get_mut(vector as usize) {
            // Only a counter at its very end refuses, and then an interrupt is pending anyway.
            let _ = file.write_all(&1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_the_device_and_its_interrupts() {
        let mut config = Config::new("15b3:1018".parse().unwrap());
        let mut data = [0; 4];
        config.read(0, &mut data);
        assert_eq!(data, [0xb3, 0x15, 0x18, 0x10]);
        config.read(0x80, &mut data);
        assert_eq!(data, [0x11, 0, 15, 0]);
        config.write(0, &[0; 4]);
        config.write(0x04, &[6, 0]);
        config.read(0x02, &mut data);
        assert_eq!(data, [0x18, 0x10, 6, 0]);
        config.read(0xfe, &mut data);
        config.read(u64::MAX, &mut data);
        config.write(u64::MAX - 1, &[1]);
        assert!("15b3".parse::<PciId>().is_err());
    }

    #[test]
    fn the_size_of_the_bar_can_be_probed() {
        let mut config = Config::new("15b3:1018".parse().unwrap());
        config.write(0x10, &[0xff; 8]);
        let mut data = [0; 8];
        config.read(0x10, &mut data);
        assert_eq!(!(u64::from_le_bytes(data) & !0xf) + 1, BAR_SIZE);
    }
}
