//! What the virtual devices of the tests have in common: a PCI device over vfio-user with interrupts and the guest's memory, a
//! control line, and a wire to another device.

pub mod control;
mod memory;
pub mod pci;
mod server;
pub mod wire;

pub use memory::{Fault, Memory};
pub use server::{Device, Shared, lock, serve};
