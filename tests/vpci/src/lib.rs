//! What the virtual devices of the tests have in common: a PCI device over vfio-user, and the guest's memory.

mod memory;
pub mod pci;

pub use memory::{Fault, Memory};
