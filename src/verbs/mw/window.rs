//! The kernel object of a memory window. It contains no information about what is bound, because binds are requests in a send
//! queue.

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{AllocMw, AllocMwResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::verbs::pd::ProtectionDomain;

/// The kernel object of a memory window, without information about what is bound.
#[derive(Debug)]
pub struct Window {
    object: Object,
    rkey: u32,
    pub(super) pd: ProtectionDomain,
}

#[cfg(feature = "raw")]
impl ProtectionDomain {
    /// Creates a memory window of type 1 or 2.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn create_window(&self, type_: u8) -> Result<Window> {
        Window::new(self, type_)
    }
}

impl Window {
    pub(super) fn new(pd: &ProtectionDomain, type_: u8) -> Result<Self> {
        let request = AllocMw { pd_handle: pd.id(), mw_type: type_, ..AllocMw::new_zeroed() };
        let mut made = AllocMwResp::new_zeroed();
        let mut command = Command::write("mw.alloc", cmd::ALLOC_MW);
        command.input(CORE_IN, &request).output(CORE_OUT, made.as_mut_bytes());
        pd.context().invoke(&mut command)?;
        let object = Object::new(pd.context(), Kind::Mw, made.mw_handle);
        Ok(Self { object, rkey: made.rkey, pd: pd.clone() })
    }

    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.object.id()
    }

    /// The key with which it was created.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Destroys the window and reports any error.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.release().map_err(|error| (self, error))
    }

    /// Destroys the window in place. A second call does nothing.
    pub(super) fn release(&mut self) -> Result<()> {
        self.object.release()
    }
}
