//! The common parts of the virtual devices: a PCI device over vfio-user with interrupts and the guest's memory, a control line, a wire
//! to another device, limits, the time of timers, and the transport of connected queue pairs over RoCE v2.

pub mod bytes;
mod clock;
pub mod control;
mod limits;
mod memory;
pub mod pci;
mod server;
mod table;
pub mod timers;
pub mod transport;
pub mod wire;

pub use memory::{Fault, Memory};
pub use server::{Device, Shared, lock, serve};
pub use table::Table;

/// A hardware address on the command line, as in 52:54:00:ca:fe:01.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Result<Vec<_>, _> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "six bytes with colons are wanted".to_owned())
}
