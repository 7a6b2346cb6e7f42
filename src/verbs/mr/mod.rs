//! Memory regions: memory that the device may read and write.

mod advice;
mod change;
mod register;

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use crate::driver::request::{Remote, Sge};
use nix::errno::Errno;
use uverbs_abi::types::AccessFlags;

pub use self::advice::Prefetch;
pub use self::register::MemoryRegionBuilder;
use crate::device::object::{self, Object};
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::mapping::Mapping;
use crate::verbs::pd::ProtectionDomain;

/// Memory that the device may read and write, registered in a protection domain. Created by
/// [`ProtectionDomain::register`](crate::ProtectionDomain::register) or
/// [`ProtectionDomain::memory`](crate::ProtectionDomain::memory).
///
/// The bytes are never lent as a slice, because the device may write to them at any time: [`MemoryRegion::write`] and
/// [`MemoryRegion::read`] copy them. Requests refer to a part of it with [`MemoryRegion::segment`]. Cheap to clone; a posted
/// request keeps its region alive.
///
/// ```
/// use uverbs::AccessFlags;
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let region = context.alloc_pd()?.register(4096, AccessFlags::LOCAL_WRITE)?;
/// region.write(100, b"hello")?;
/// let mut back = [0; 5];
/// region.read(100, &mut back)?;
/// assert_eq!(&back, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion(Arc<MemoryRegionCore>);

#[derive(Debug)]
struct MemoryRegionCore {
    object: Object,
    lkey: u32,
    rkey: u32,
    access: AccessFlags,
    place: Place,
    /// Other memory that the device may use, because a change of the region failed halfway.
    also: Vec<Mapping>,
    pd: ProtectionDomain,
    /// Protection domains that may count the region for the same reason.
    also_pds: Vec<ProtectionDomain>,
}

/// The memory of a region.
#[derive(Debug)]
struct Place {
    /// `None` for memory that is not mapped into the process.
    memory: Option<Mapping>,
    /// Offset of the region in it.
    first: usize,
    len: usize,
    /// Address of the first byte, as the device uses it.
    address: u64,
}

impl Drop for MemoryRegionCore {
    fn drop(&mut self) {
        if self.object.release_for_sure().is_err() {
            // The device may still write to the memory, so it is leaked on purpose.
            std::mem::forget((self.place.memory.take(), std::mem::take(&mut self.also)));
            self.object.abandon();
        }
    }
}

impl MemoryRegion {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.place.len
    }

    /// Always false: a region cannot have length zero.
    pub fn is_empty(&self) -> bool {
        self.0.place.len == 0
    }

    /// The key with which requests of this process refer to the region.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// The key with which a remote peer refers to the region.
    pub fn rkey(&self) -> u32 {
        self.0.rkey
    }

    /// Address of the first byte for the device and for a remote peer: the address in this process, unless
    /// [another was requested](MemoryRegionBuilder::iova).
    #[inline]
    pub fn address(&self) -> u64 {
        self.0.place.address
    }

    /// The address and key of the region's first byte for the peer: what a peer needs for its requests, as
    /// [`MemoryWindow::remote`](crate::MemoryWindow::remote). Which operations the peer may use depends on the
    /// [access rights](Self::access).
    ///
    /// ```
    /// use uverbs::{AccessFlags, Remote};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let region = context.alloc_pd()?.register(4096, AccessFlags::REMOTE_READ)?;
    /// assert_eq!(region.remote(), Remote { address: region.address(), rkey: region.rkey() });
    /// # Ok(())
    /// # }
    /// ```
    pub fn remote(&self) -> Remote {
        Remote { address: self.address(), rkey: self.rkey() }
    }

    /// The access rights of the device and of the remote side.
    pub fn access(&self) -> AccessFlags {
        self.0.access
    }

    pub(crate) fn object(&self) -> &Object {
        &self.0.object
    }

    pub(crate) fn is_in(&self, pd: &ProtectionDomain) -> bool {
        self.0.pd.is_same(pd)
    }

    /// Copies bytes from `offset` into `bytes`.
    ///
    /// If the device writes at the same time, the result is a mix of old and new bytes.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the range exceeds the region;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for memory of another device, which is not mapped here.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let op = "mr.read";
        self.inside(op, offset, bytes.len())?;
        let memory = self.memory(op)?;
        let is_read = memory.read(self.0.place.first + offset, bytes);
        if is_read { Ok(()) } else { Err(self.outside(op, offset..offset + bytes.len())) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// As [`MemoryRegion::read`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let op = "mr.write";
        self.inside(op, offset, bytes.len())?;
        let memory = self.memory(op)?;
        let is_written = memory.write(self.0.place.first + offset, bytes);
        if is_written { Ok(()) } else { Err(self.outside(op, offset..offset + bytes.len())) }
    }

    /// A part of the region for a request: a range of bytes as for a slice, `64..128`, `..64` or `..`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if `range` exceeds the region.
    pub fn segment(&self, range: impl RangeBounds<usize>) -> Result<Segment<'_>> {
        let op = "mr.segment";
        let range = meant(range, self.len());
        let len = range.end.checked_sub(range.start).ok_or_else(|| self.outside(op, range.clone()))?;
        self.inside(op, range.start, len)?;
        let length =
            u32::try_from(len).map_err(|_| Error::beyond(op, "bytes of a segment", len, u32::MAX))?;
        let addr = self.address().wrapping_add(range.start as u64);
        Ok(Segment { region: self, sge: Sge { addr, length, lkey: self.lkey() } })
    }

    /// Number of clones, including this one.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Identifies this region while it exists: greater than one, and the same for its clones.
    #[inline]
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn memory(&self, op: &'static str) -> Result<&Mapping> {
        self.0.place.memory.as_ref().ok_or_else(|| {
            Error::refused(op, Errno::EOPNOTSUPP, "the memory is another device's and is not mapped here")
        })
    }

    pub(crate) fn inside(&self, op: &'static str, offset: usize, len: usize) -> Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.0.place.len);
        if inside { Ok(()) } else { Err(self.outside(op, offset..offset.saturating_add(len))) }
    }

    #[cold]
    fn outside(&self, op: &'static str, range: Range<usize>) -> Error {
        let given = format!("{}..{}", range.start, range.end);
        Error::outside(op, "range of the memory region", given, format_args!("0..{}", self.len()))
    }

    /// Deregisters the region and reports any error.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone, a memory window or a posted request uses it.
    #[doc(alias = "ibv_dereg_mr")]
    #[doc(alias = "rdma_dereg_mr")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            let hint = "a clone, a memory window or a posted request still uses the memory region";
            return Err((self, object::shared("mr.destroy", hint)));
        };
        let hint = "a memory window may still be bound to it";
        let released = inner.object.release_for_sure();
        released.map_err(|error| (self, error.hinted_if(ErrorKind::InvalidInput, hint)))
    }
}

/// The range of bytes that `range` selects in memory of `len` bytes. It is not limited to that memory.
pub(crate) fn meant(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    start..end
}

/// A part of a memory region, for a request; created by [`MemoryRegion::segment`].
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_sge")]
pub struct Segment<'a> {
    region: &'a MemoryRegion,
    /// The form in which requests contain it. The region does not change while it is borrowed.
    sge: Sge,
}

impl Segment<'_> {
    #[inline]
    pub(crate) fn region(&self) -> &MemoryRegion {
        self.region
    }

    /// Fills `bytes` with the first bytes of the segment, as many as are available and fit, and returns the part that was not
    /// filled.
    pub(crate) fn read_into<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8]> {
        let (now, rest) = bytes.split_at_mut(bytes.len().min(self.sge.length as usize));
        self.region.read(self.sge.addr.wrapping_sub(self.region.address()) as usize, now)?;
        Ok(rest)
    }

    #[inline]
    pub(crate) fn sge(&self) -> &Sge {
        &self.sge
    }
}
