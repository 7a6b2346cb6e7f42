//! Memory regions for bindings: memory by its address, of which the crate knows nothing else.
//!
//! # Safety
//! A device reads and writes registered memory at any time until it is deregistered. Here nobody keeps the memory: who
//! registers an address promises what [`ProtectionDomain::register_at`] and [`Region::change`] ask for. Nothing in this
//! file looks at the memory.

#![allow(unsafe_code)]

use crate::driver::request::Sge;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ids::mr::{self, advise};
use uverbs_abi::write::{RegMr, RegMrResp, ReregMr, ReregMrResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::Command;
use crate::error::{Error, Result};
use crate::object::{Kind, Object};
use crate::pd::ProtectionDomain;

/// A range of addresses to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// First address in the process.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// What the device and remote peers call the first byte.
    pub iova: u64,
    /// Bits of [`AccessFlags`](crate::AccessFlags), not looked at here.
    pub access: u32,
}

/// Registered memory that its user keeps.
#[derive(Debug)]
pub struct Region {
    object: Object,
    lkey: u32,
    rkey: u32,
    pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Registers memory by its address.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Safety
    /// Until the region is destroyed, the device (and remote peers, as `access` allows) may read and write the memory: it
    /// stays mapped, and nothing else is put there, and no reference says otherwise. Memory that is not there at all is
    /// refused by the kernel.
    pub unsafe fn register_at(&self, range: Range) -> Result<Region> {
        let Range { start, length, iova, access } = range;
        let request = RegMr {
            start,
            length,
            hca_va: iova,
            pd_handle: self.id(),
            access_flags: access,
            ..RegMr::new_zeroed()
        };
        let mut made = RegMrResp::new_zeroed();
        let mut plan = self.context().driver().plan_mr();
        let mut command = Command::write("mr.register", cmd::REG_MR);
        command.input(CORE_IN, &request).output(CORE_OUT, made.as_mut_bytes()).driver_payload(plan.payload());
        self.context().invoke(&mut command)?;
        Ok(self.made(made))
    }

    /// Registers a range of a dma-buf: `start` is an offset in it, not an address of the process. A number that is no open
    /// file is the kernel's to refuse.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn register_dmabuf_at(&self, fd: i32, range: Range) -> Result<Region> {
        let Range { start, length, iova, access } = range;
        Ok(self.made(self.register_file("mr.register_dmabuf", fd, [start, length, iova], access)?))
    }

    fn made(&self, made: RegMrResp) -> Region {
        let object = Object::new(self.context(), Kind::Mr, made.mr_handle);
        Region { object, lkey: made.lkey, rkey: made.rkey, pd: self.clone() }
    }

    /// Has the device bring in pages of regions that are registered for paging on demand. `advice` is one of
    /// [`uverbs_abi::types::advise`], `flags` are [`uverbs_abi::types::AdviseFlags`]; keys are local keys.
    ///
    /// # Errors
    /// Those of the kernel, such as [`Unsupported`](crate::ErrorKind::Unsupported) where there is no paging on demand.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_ADVISE_MR` (uverbs_std_types_mr.c, Linux 6.1).
    pub fn advise(&self, advice: u32, flags: u32, pieces: &[Sge]) -> Result<()> {
        let mut command = Command::new("mr.advise", mr::OBJECT, mr::method::ADVISE);
        command
            .handle(advise::PD_HANDLE, self.id())
            .value(advise::ADVICE, advice.into())
            .flags(advise::FLAGS, flags)
            .input(advise::SGE_LIST, pieces);
        self.context().invoke(&mut command)
    }
}

impl Region {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.object.id()
    }

    /// Local key.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Remote key.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Changes what `flags` say (bit 0 the addresses, bit 1 the domain, bit 2 access). The keys may be others then.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Safety
    /// As [`ProtectionDomain::register_at`], of the old memory and the new: when the kernel fails, either may be registered.
    pub unsafe fn change(&mut self, flags: u32, range: Range, pd: Option<&ProtectionDomain>) -> Result<()> {
        let Range { start, length, iova, access } = range;
        let request = ReregMr {
            mr_handle: self.object.id(),
            flags,
            start,
            length,
            hca_va: iova,
            pd_handle: pd.map_or(0, ProtectionDomain::id),
            access_flags: access,
            ..ReregMr::new_zeroed()
        };
        let mut made = ReregMrResp::new_zeroed();
        let mut command = Command::write("mr.change", cmd::REREG_MR);
        command.input(CORE_IN, &request).output(CORE_OUT, made.as_mut_bytes());
        self.object.context().invoke(&mut command)?;
        (self.lkey, self.rkey) = (made.lkey, made.rkey);
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        Ok(())
    }

    /// Deregisters the memory and says how that went.
    ///
    /// # Errors
    /// Those of the kernel, such as [`Busy`](crate::ErrorKind::Busy) while a memory window is bound to it.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.object.release_for_sure().map_err(|error| (self, error))
    }
}
