//! Commands of any shape, also to a real device.
//!
//! # Safety
//! The kernel follows the addresses in a raw command. Those that the tests send to real devices are made by
//! `RawAttr`'s own constructors, whose attributes point to memory of theirs or to address 1; their lengths are
//! changed downwards only, their headers count the attributes that are there, and what they register comes from
//! `RawConnection::memory`. The few that say more than there is (255 attributes, a region of 2^64 - 1 bytes) are those
//! that the kernel refuses unread. Commands made by chance go to the soft device alone (`tests/soft/random.rs`, fuzzing).

#![allow(unsafe_code)]

use uverbs::transport::RawConnection;

use super::Target;

impl Target {
    /// A file on the device that takes commands of any shape.
    pub fn raw(&self) -> RawConnection {
        if let Some(soft) = &self.soft {
            return soft.raw();
        }
        let node = self.device.node().expect("a real device has a node");
        // SAFETY: the tests send only what is described above.
        unsafe { RawConnection::open(node, self.device.driver_id()) }.expect("the device under test opens")
    }
}
