//! A device as QEMU sees it, over vfio-user.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_BAR5_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::Memory;
use crate::pci::{Config, Interrupts, Layout, PciId};

/// A device on the bus.
pub trait Device: std::fmt::Debug + Send + 'static {
    /// The part of the guest's memory that it can access.
    fn memory(&mut self) -> &mut Memory;

    /// Its interrupts.
    fn interrupts(&mut self) -> &mut Interrupts;

    /// The guest reads from a BAR.
    fn read_bar(&mut self, bar: u32, offset: u64, data: &mut [u8]);

    /// The guest writes to a BAR.
    ///
    /// # Errors
    /// If the device has to end.
    fn write_bar(&mut self, bar: u32, offset: u64, data: &[u8]) -> io::Result<()>;

    /// A reset by the bus.
    fn reset(&mut self);
}

/// A device, shared by the threads that serve QEMU, do its work and handle the control line.
pub type Shared<D> = Arc<Mutex<D>>;

/// Locks the device. If a thread has panicked with the lock, the device can still be examined.
pub fn lock<D>(shared: &Mutex<D>) -> MutexGuard<'_, D> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one machine, and ends with it.
///
/// # Errors
/// If the socket cannot be created, or if a message on it is not valid vfio-user.
pub fn serve<D: Device>(
    socket: &Path,
    device: Shared<D>,
    id: PciId,
    layout: &Layout,
) -> Result<(), vfio_user::Error> {
    let server = vfio_user::Server::new(socket, true, layout.irqs(), layout.regions())?;
    server.run(&mut Backend { device, config: Config::new(id, layout) })
}

#[derive(Debug)]
struct Backend<D> {
    device: Shared<D>,
    config: Config,
}

const LAST_BAR: u32 = VFIO_PCI_BAR5_REGION_INDEX;

impl<D: Device> ServerBackend for Backend<D> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX..=LAST_BAR => lock(&self.device).read_bar(region, offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.write(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX..=LAST_BAR => lock(&self.device).write_bar(region, offset, data)?,
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
        // Without a file, only QEMU can access this memory (a ROM, for example), so the device does not need it.
        file.map_or(Ok(()), |file| lock(&self.device).memory().map(address, len, &file, offset))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, len: u64) -> io::Result<()> {
        let mut device = lock(&self.device);
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            device.memory().unmap_all();
        } else {
            device.memory().unmap(address, len);
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
            let mut device = lock(&self.device);
            if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                device.interrupts().set(start, count, files);
            } else if count == 0 {
                device.interrupts().clear();
            }
        }
        Ok(())
    }
}
