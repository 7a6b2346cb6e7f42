//! Advice on memory that is paged on demand.

use std::ops::RangeBounds;

use nix::errno::Errno;
use uverbs_abi::ids::mr::{self, advise as attribute};
use uverbs_abi::types::{AccessFlags, AdviseFlags, advise};
use zerocopy::FromZeros;

use super::{MemoryRegion, meant};
use crate::driver::request::Sge;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::pd::ProtectionDomain;

/// What the device is to be ready for: see [`MemoryRegion::prefetch`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ib_uverbs_advise_mr_advice")]
pub enum Prefetch {
    /// Reading the memory. Pages that are not there are brought in.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH")]
    Read,
    /// Reading and writing it. Pages that are not there are brought in, and those shared with another process copied.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE")]
    Write,
    /// Accessing the pages that are there already. None is brought in.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT")]
    Present,
}

/// The longest piece of memory in a command, and the number of pieces in it. A piece may have 4 GiB less a byte in the ABI, but rxe stores
/// its length in an `int` (`rxe_odp_do_pagefault_and_lock`, rxe_odp.c, Linux 7.3).
const LONGEST: usize = 1 << 30;
const PIECES: usize = 64;

impl MemoryRegion {
    /// Brings a part of the region in, so that the device need not wait for it later, and returns when that is done. `range` is in bytes,
    /// as for a slice: `64..128`, `..64` or `..`. An empty one does nothing.
    ///
    /// Only a region that is registered with [`AccessFlags::ON_DEMAND`] is paged. The memory may be paged out again at any time.
    ///
    /// ```
    /// use uverbs::{AccessFlags, ErrorKind, Prefetch, SoftDevice};
    /// # fn main() -> uverbs::Result<()> {
    /// let pd = SoftDevice::default().open()?.alloc_pd()?;
    /// match pd.register(1 << 20, AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND) {
    ///     Ok(region) => region.prefetch(..4096, Prefetch::Write)?,
    ///     // A device without paging, such as the soft device.
    ///     Err(error) => assert_eq!(error.hint(), Some("the device may have no on-demand paging")),
    /// }
    /// let pinned = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
    /// let error = pinned.prefetch(.., Prefetch::Read).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a region that is not paged on demand, and if `range` exceeds it; on rxe also for
    /// a region without [`LOCAL_WRITE`](AccessFlags::LOCAL_WRITE). [`PermissionDenied`](ErrorKind::PermissionDenied) for
    /// [`Prefetch::Write`] of memory that the device may not write. [`Unsupported`](ErrorKind::Unsupported) if the driver has paging and
    /// no advice. If the memory is not there any more, the error is the kernel's EFAULT.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_ADVISE_MR` with `IB_UVERBS_ADVISE_MR_FLAG_FLUSH` (uverbs_std_types_mr.c, Linux 6.1; mlx5_ib_advise_mr, mr.c;
    /// rxe_ib_advise_mr, rxe_odp.c, Linux 7.3), for each 64 GiB.
    #[doc(alias = "ibv_advise_mr")]
    #[doc(alias = "IBV_ADVISE_MR_FLAG_FLUSH")]
    pub fn prefetch(&self, range: impl RangeBounds<usize>, what: Prefetch) -> Result<()> {
        self.advise("mr.prefetch", range, what, AdviseFlags::FLUSH)
    }

    /// Has the kernel bring a part of the region in, as [`prefetch`](Self::prefetch) does, and returns at once. Whether it succeeds
    /// is not reported.
    ///
    /// ```
    /// use uverbs::{AccessFlags, Prefetch, SoftDevice};
    /// # fn main() -> uverbs::Result<()> {
    /// let pd = SoftDevice::default().open()?.alloc_pd()?;
    /// // The soft device has no paging.
    /// if let Ok(region) = pd.register(1 << 20, AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND) {
    ///     region.start_prefetch(.., Prefetch::Read)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch), but for memory that is not there.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_ADVISE_MR` (uverbs_std_types_mr.c, Linux 6.1); the work is done by a kernel thread.
    #[doc(alias = "ibv_advise_mr")]
    pub fn start_prefetch(&self, range: impl RangeBounds<usize>, what: Prefetch) -> Result<()> {
        self.advise("mr.start_prefetch", range, what, AdviseFlags::empty())
    }

    fn advise(
        &self,
        op: &'static str,
        range: impl RangeBounds<usize>,
        what: Prefetch,
        flags: AdviseFlags,
    ) -> Result<()> {
        if !self.access().contains(AccessFlags::ON_DEMAND) {
            let hint =
                "the region was registered without `AccessFlags::ON_DEMAND`: its memory is always there";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let range = meant(range, self.len());
        if range.start > range.end || range.end > self.len() {
            let allowed = format!("within 0..{}", self.len());
            return Err(Error::outside(op, "bytes of the region", format_args!("{range:?}"), allowed));
        }
        let advice = match what {
            Prefetch::Read => advise::PREFETCH,
            Prefetch::Write => advise::PREFETCH_WRITE,
            Prefetch::Present => advise::PREFETCH_NO_FAULT,
        };
        let mut pieces = pieces(self.address(), range.start, range.end, self.lkey());
        loop {
            let mut list = [Sge::new_zeroed(); PIECES];
            let count = list.iter_mut().zip(pieces.by_ref()).map(|(place, piece)| *place = piece).count();
            if count == 0 {
                return Ok(());
            }
            self.0.pd.send_advice(op, [advice, flags.bits()], &list[..count]).map_err(|error| {
                error.hinted_if(ErrorKind::Unsupported, "the driver of this kernel has no advice on memory")
            })?;
        }
    }
}

/// The pieces of a part of a region.
fn pieces(address: u64, start: usize, end: usize, lkey: u32) -> impl Iterator<Item = Sge> {
    (start..end).step_by(LONGEST).map(move |at| {
        let length = (end - at).min(LONGEST) as u32;
        Sge { addr: address.wrapping_add(at as u64), length, lkey }
    })
}

impl ProtectionDomain {
    /// Sends advice, `[advice, flags]`, about pieces of regions of this domain.
    pub(crate) fn send_advice(
        &self,
        op: &'static str,
        [advice, flags]: [u32; 2],
        pieces: &[Sge],
    ) -> Result<()> {
        let mut command = Command::new(op, mr::OBJECT, mr::method::ADVISE);
        command
            .handle(attribute::PD_HANDLE, self.id())
            .value(attribute::ADVICE, advice.into())
            .flags(attribute::FLAGS, flags)
            .input(attribute::SGE_LIST, pieces);
        // A list that is too long is refused before anything else, as in libibverbs.
        command.sendable()?;
        let _regions = self.context().paged().hold(self.context(), op, [advice, flags], pieces)?;
        self.context().invoke(&mut command)
    }
}

#[cfg(test)]
mod tests;
