//! Address handles for bindings: from the kernel's own attributes.

use uverbs_abi::write::AhAttr;

use super::AddressHandle;
use crate::error::Result;
use crate::pd::ProtectionDomain;

impl ProtectionDomain {
    /// Makes an address handle for any way that the kernel takes.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_ah`].
    pub fn create_ah_from(&self, attr: AhAttr) -> Result<AddressHandle> {
        self.make_ah(attr)
    }
}

impl AddressHandle {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.0.object.id()
    }

    /// The driver's number for it, which datagrams carry ([`UdWr::ah_num`](uverbs_abi::rxe::UdWr::ah_num)).
    pub fn driver_number(&self) -> u32 {
        self.number()
    }
}
