//! The PCI interface: configuration space, regions, interrupts.

use std::fs::File;
use std::io::Write as _;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS,
    VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{IrqInfo, ServerRegion};

const CONFIG_SIZE: usize = 256;
/// The offset of the BARs' addresses, and the number of their words.
const BARS: usize = 0x10;
const BAR_WORDS: usize = 6;
const MSIX_CAPABILITY: usize = 0x80;

/// Vendor and device number, by which a driver identifies the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciId {
    /// The vendor.
    pub vendor: u16,
    /// The device.
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

/// A BAR: its number, its size, a power of two, and how it is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// 0 to 5; one of 64 bits takes the next number too.
    pub index: u32,
    /// In bytes.
    pub size: u64,
    /// With 64 bits of address, and prefetchable; otherwise with 32, and not prefetchable.
    pub is_wide: bool,
}

/// The properties of a kind of device, without its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Base class and subclass.
    pub class: [u8; 2],
    /// Its registers and memory.
    pub bars: &'static [Bar],
    /// Number of interrupts.
    pub vectors: u16,
    /// Offset of the interrupt table in BAR 0.
    pub table: u32,
    /// Offset of the pending bits in BAR 0.
    pub pending: u32,
}

impl Layout {
    fn size_of(&self, region: u32) -> u64 {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            return CONFIG_SIZE as u64;
        }
        self.bars.iter().find(|bar| bar.index == region).map_or(0, |bar| bar.size)
    }

    /// The regions that QEMU queries; only the configuration space and the BARs exist.
    pub(crate) fn regions(&self) -> Vec<ServerRegion> {
        let region = |index| {
            let size = self.size_of(index);
            let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
            let argsz = size_of::<vfio_region_info>() as u32;
            let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
            ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
        };
        (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
    }

    /// The kinds of interrupts that QEMU queries; only MSI-X exists.
    pub(crate) fn irqs(&self) -> Vec<IrqInfo> {
        let irq = |index| {
            let there = index == VFIO_PCI_MSIX_IRQ_INDEX;
            let (flags, count) =
                if there { (VFIO_IRQ_INFO_EVENTFD, u32::from(self.vectors)) } else { (0, 0) };
            IrqInfo { index, flags, count }
        };
        (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
    }
}

/// The configuration space.
#[derive(Debug)]
pub struct Config {
    bytes: [u8; CONFIG_SIZE],
    /// Which bits of the BARs' addresses can be written.
    writable: [u8; BAR_WORDS * 4],
}

impl Config {
    /// The configuration space of a device.
    pub fn new(id: PciId, layout: &Layout) -> Self {
        let mut bytes = [0; CONFIG_SIZE];
        let mut put =
            |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(0x00, &id.vendor.to_le_bytes());
        put(0x02, &id.device.to_le_bytes());
        put(0x06, &0x0010_u16.to_le_bytes()); // there is a list of capabilities
        let [base, sub] = layout.class;
        put(0x0a, &[sub, base]);
        put(0x2c, &id.vendor.to_le_bytes());
        put(0x34, &[MSIX_CAPABILITY as u8]);
        put(MSIX_CAPABILITY, &[0x11, 0]);
        put(MSIX_CAPABILITY + 2, &layout.vectors.saturating_sub(1).to_le_bytes());
        put(MSIX_CAPABILITY + 4, &layout.table.to_le_bytes());
        put(MSIX_CAPABILITY + 8, &layout.pending.to_le_bytes());
        let mut writable = [0; BAR_WORDS * 4];
        for bar in layout.bars {
            let mask = (!(bar.size - 1)).to_le_bytes();
            let len = if bar.is_wide { 8 } else { 4 };
            let words = writable.iter_mut().skip(bar.index as usize * 4).take(len);
            words.zip(mask).for_each(|(to, from)| *to = from);
            if bar.is_wide {
                put(BARS + bar.index as usize * 4, &[0x0c]); // 64 bits, prefetchable
            }
        }
        Self { bytes, writable }
    }

    /// Reads it; zeros beyond its end.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(i));
            *byte = at.and_then(|at| self.bytes.get(at)).copied().unwrap_or(0);
        }
    }

    /// Writes the command register, the addresses and the interrupt control; everything else is read-only.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (i, byte) in data.iter().enumerate() {
            let Some(at) = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(i)) else {
                return;
            };
            if matches!(at, 0x04 | 0x05 | 0x0c | 0x3c | 0x83) {
                self.bytes[at] = *byte;
            } else if let Some(mask) = at.checked_sub(BARS).and_then(|at| self.writable.get(at)) {
                self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            }
        }
    }
}

/// The event files by which the guest is interrupted.
#[derive(Debug)]
pub struct Interrupts {
    files: Vec<Option<File>>,
}

impl Interrupts {
    /// For a device with this many vectors, none of them enabled.
    pub fn new(vectors: u16) -> Self {
        Self { files: (0..vectors).map(|_| None).collect() }
    }

    /// Sets the event files of `count` vectors from `start` on; without files, removes them.
    pub fn set(&mut self, start: u32, count: u32, files: Vec<File>) {
        let vectors = self.files.iter_mut().skip(start as usize).take(count as usize);
        if files.is_empty() {
            vectors.for_each(|slot| *slot = None);
        } else {
            vectors.zip(files).for_each(|(slot, file)| *slot = Some(file));
        }
    }

    /// Removes all event files.
    pub fn clear(&mut self) {
        self.files.fill_with(|| None);
    }

    /// Interrupts the guest. Nothing happens for a vector that is not enabled, as on a real device.
    pub fn raise(&mut self, vector: u32) {
        if let Some(Some(file)) = self.files.get_mut(vector as usize) {
            // Only a counter at its maximum refuses, and then an interrupt is pending anyway.
            let _ = file.write_all(&1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        class: [2, 0x80],
        bars: &[
            Bar { index: 0, size: 16 << 10, is_wide: false },
            Bar { index: 2, size: 32 << 20, is_wide: true },
        ],
        vectors: 16,
        table: 0x2000,
        pending: 0x3000,
    };

    fn config() -> Config {
        Config::new("15b3:1018".parse().unwrap(), &LAYOUT)
    }

    #[test]
    fn the_configuration_names_the_device_and_its_interrupts() {
        let mut config = config();
        let mut data = [0; 4];
        config.read(0, &mut data);
        assert_eq!(data, [0xb3, 0x15, 0x18, 0x10]);
        config.read(8, &mut data);
        assert_eq!(data, [0, 0, 0x80, 2]);
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
    fn the_sizes_of_the_bars_can_be_probed() {
        let mut config = config();
        config.write(0x10, &[0xff; 24]);
        let mut data = [0; 24];
        config.read(0x10, &mut data);
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4)], [!((16 << 10) - 1), 0]);
        assert_eq!([word(8), word(12)], [!((32 << 20) - 1) | 0xc, u32::MAX]);
        assert_eq!([word(16), word(20)], [0, 0]);
    }
}
