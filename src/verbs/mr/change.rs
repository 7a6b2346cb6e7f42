//! Changing a memory region.
//!
//! The kernel accepts several changes in one command. The crate sends one at a time, because a driver that refuses the second may have
//! made the first (rxe_rereg_user_mr, rxe_verbs.c, Linux 6.12).

use std::ops::RangeBounds;
use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::types::AccessFlags;
use uverbs_abi::write::{ReregMr, ReregMrResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::register::explain_access;
use super::{MemoryRegion, MemoryRegionCore, Place, meant};
use crate::device::object;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::mapping::Mapping;
use crate::verbs::pd::ProtectionDomain;

/// Bits of [`ReregMr::flags`].
const TRANSLATION: u32 = 1 << 0;
const DOMAIN: u32 = 1 << 1;
const ACCESS: u32 = 1 << 2;

/// Changes of a memory region. Each change may replace the keys: query them again afterwards.
///
/// # Errors
/// [`Busy`](ErrorKind::Busy) while a clone, a memory window or a posted request uses the region;
/// [`Unsupported`](ErrorKind::Unsupported) if the kernel or the driver does not support the change: nothing has changed then. If
/// the command fails in another way, the change may have been made in part, so old and new memory and protection domains are kept
/// until the region is destroyed.
///
/// # Kernel
/// `REREG_MR` through `INVOKE_WRITE` (ib_uverbs_rereg_mr, uverbs_cmd.c, Linux 6.1).
impl MemoryRegion {
    /// Changes the access rights.
    ///
    /// rxe of Linux 6.1 does not support this; that of 6.12 does.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a combination of flags that the kernel refuses; and the errors of every
    /// change.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn change_access(&mut self, access: AccessFlags) -> Result<()> {
        let op = "mr.change_access";
        let inner = self.alone(op)?;
        let request = ReregMr { flags: ACCESS, access_flags: access.bits(), ..ReregMr::new_zeroed() };
        inner.change(op, request, None).map_err(|error| explain_access(error, access))?;
        inner.access = access;
        Ok(())
    }

    /// Moves the region to another protection domain of the same device file.
    ///
    /// rxe of Linux 6.1 does not support this; that of 6.12 does.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) or [`InvalidInput`](ErrorKind::InvalidInput) for a domain of another context; and the
    /// errors of every change.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn change_domain(&mut self, pd: &ProtectionDomain) -> Result<()> {
        let op = "mr.change_domain";
        let inner = self.alone(op)?;
        if !pd.context().is_same(inner.pd.context()) {
            let hint = "the protection domain is of another context";
            return Err(Error::refused(op, nix::errno::Errno::EINVAL, hint));
        }
        let request = ReregMr { flags: DOMAIN, pd_handle: pd.id(), ..ReregMr::new_zeroed() };
        match inner.change(op, request, None) {
            Ok(()) => {
                inner.pd = pd.clone();
                Ok(())
            }
            Err(error) => {
                if may_be_halfway(&error) {
                    inner.also_pds.push(pd.clone());
                }
                Err(error)
            }
        }
    }

    /// Moves the region to another range of memory, which the device addresses with `iova`, or with its address in this process.
    /// The old memory is released.
    ///
    /// rxe does not support this, up to Linux 7.2.
    ///
    /// # Errors
    /// Those of [`register`](super::MemoryRegionBuilder::register), and the errors of every change.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn change_memory(
        &mut self,
        memory: &Mapping,
        range: impl RangeBounds<usize>,
        iova: Option<u64>,
    ) -> Result<()> {
        let op = "mr.change_memory";
        let inner = self.alone(op)?;
        let place = Place::new(op, memory, meant(range, memory.len()), iova)?;
        let request = ReregMr {
            flags: TRANSLATION,
            start: place.start(),
            length: place.len as u64,
            hca_va: place.address,
            ..ReregMr::new_zeroed()
        };
        match inner.change(op, request, Some(memory)) {
            Ok(()) => {
                inner.place = place;
                Ok(())
            }
            Err(error) => {
                if may_be_halfway(&error) {
                    inner.also.extend(place.memory);
                }
                Err(error)
            }
        }
    }

    fn alone(&mut self, op: &'static str) -> Result<&mut MemoryRegionCore> {
        let hint = "a clone, a memory window or a posted request still uses the memory region";
        Arc::get_mut(&mut self.0).ok_or_else(|| object::shared(op, hint))
    }
}

/// An unsupported command has changed nothing; for other failures this is not known.
fn may_be_halfway(error: &Error) -> bool {
    error.kind() != ErrorKind::Unsupported
}

impl MemoryRegionCore {
    fn change(&mut self, op: &'static str, request: ReregMr, memory: Option<&Mapping>) -> Result<()> {
        let request = ReregMr { mr_handle: self.object.id(), ..request };
        let sent = self.object.change_region(op, |context| {
            let mut keys = ReregMrResp::new_zeroed();
            let mut command = Command::write(op, cmd::REREG_MR);
            command.input(CORE_IN, &request).output(CORE_OUT, keys.as_mut_bytes());
            if let Some(memory) = memory {
                command.registers(memory);
            }
            context.invoke(&mut command)?;
            Ok(keys)
        });
        let hint = "the kernel or the driver cannot change a memory region in this way: make a new one";
        let keys = sent.map_err(|error| error.hinted_if(ErrorKind::Unsupported, hint))?;
        (self.lkey, self.rkey) = (keys.lkey, keys.rkey);
        Ok(())
    }
}
