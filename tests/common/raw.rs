//! Commands of any shape, for the soft device and for real devices.
//!
//! # Safety
//! The kernel follows the addresses in a raw command. Those that the tests send to real devices are created by `RawAttr`'s own
//! constructors, whose attributes point to memory of theirs or to address 1; their lengths are only reduced, their headers count the
//! existing attributes, and the memory that they register comes from `RawConnection::memory`. The few that claim more than there is (255
//! attributes, a region of 2^64 - 1 bytes) are refused by the kernel before it reads them. Random commands are sent only to the soft
//! device (`tests/soft/random.rs`, fuzzing).

#![allow(unsafe_code)]

use uverbs::transport::RawConnection;

use super::Target;

impl Target {
    /// A file on the device that accepts commands of any shape.
    pub fn raw(&self) -> RawConnection {
        if let Some(soft) = &self.soft {
            return soft.raw();
        }
        let node = self.device.node().expect("a real device has a node");
        // SAFETY: the tests send only what is described above.
        unsafe { RawConnection::open(node, self.device.driver_id()) }.expect("the device under test opens")
    }
}
