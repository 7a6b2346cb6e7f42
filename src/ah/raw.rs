//! Address handles for bindings: from the kernel's own attributes.

use std::sync::Arc;

use uverbs_abi::write::AhAttr;

use super::AddressHandle;
use crate::error::{Error, Result};
use crate::object;
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
        self.0._object.id()
    }

    /// The driver's number for it, which datagrams carry ([`UdWr::ah_num`](uverbs_abi::rxe::UdWr::ah_num)).
    pub fn driver_number(&self) -> u32 {
        self.number()
    }

    /// Destroys it and says how that went.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone is around; those of the kernel.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            return Err((self, object::shared("ah.destroy", "a clone of the address handle is around")));
        };
        inner._object.release().map_err(|error| (self, error))
    }
}
