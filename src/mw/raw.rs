//! Memory windows for bindings: the kernel object alone. Binds are requests like any other.

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{AllocMw, AllocMwResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::Command;
use crate::error::{Error, Result};
use crate::object::{Kind, Object};
use crate::pd::ProtectionDomain;

/// A memory window that knows nothing of what is bound.
#[derive(Debug)]
pub struct Window {
    object: Object,
    rkey: u32,
    pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Makes a memory window of type 1 or 2.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn create_window(&self, type_: u8) -> Result<Window> {
        let request = AllocMw { pd_handle: self.id(), mw_type: type_, ..AllocMw::new_zeroed() };
        let mut made = AllocMwResp::new_zeroed();
        let mut command = Command::write("mw.alloc", cmd::ALLOC_MW);
        command.input(CORE_IN, &request).output(CORE_OUT, made.as_mut_bytes());
        self.context().invoke(&mut command)?;
        let object = Object::new(self.context(), Kind::Mw, made.mw_handle);
        Ok(Window { object, rkey: made.rkey, pd: self.clone() })
    }
}

impl Window {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.object.id()
    }

    /// The key that it was made with.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Destroys it and says how that went.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let Self { object, rkey, pd } = self;
        object.destroy().map_err(|(object, error)| (Self { object, rkey, pd }, error))
    }
}
