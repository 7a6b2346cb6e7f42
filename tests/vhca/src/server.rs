//! The device as QEMU sees it, over vfio-user.

use std::fs::File;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::device::Device;
use vpci::pci::Config;

/// The device, shared by the threads that serve QEMU, carry out commands and obey the control line.
pub(crate) type Shared = Arc<Mutex<Device>>;

/// The device, for as long as the guard lives. A thread that panicked leaves a device that is still worth looking at.
pub(crate) fn lock(device: &Shared) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one QEMU.
#[derive(Debug)]
pub(crate) struct Backend {
    device: Shared,
    config: Config,
    /// Takes the bits of rung commands to the thread that carries them out.
    commands: Sender<u32>,
}

impl Backend {
    pub(crate) fn new(device: Shared, config: Config, commands: Sender<u32>) -> Self {
        Self { device, config, commands }
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => lock(&self.device).read_bar(offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.write(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => {
                if let Some(vector) = lock(&self.device).write_bar(offset, data) {
                    self.commands.send(vector).map_err(io::Error::other)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        len: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        // Without a file it is memory that only QEMU can reach (a ROM, say): no use to the device.
        file.map_or(Ok(()), |file| lock(&self.device).memory.map(address, len, &file, offset))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, len: u64) -> io::Result<()> {
        let memory = &mut lock(&self.device).memory;
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            memory.unmap_all();
        } else {
            memory.unmap(address, len);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        lock(&self.device).reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        if index == VFIO_PCI_MSIX_IRQ_INDEX && flags & VFIO_IRQ_SET_ACTION_TRIGGER != 0 {
            let interrupts = &mut lock(&self.device).interrupts;
            if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                interrupts.set(start, count, files);
            } else if count == 0 {
                interrupts.clear();
            }
        }
        Ok(())
    }
}
