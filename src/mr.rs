//! Memory regions: memory that the device may read and write.

use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::rxe::Sge;
use uverbs_abi::types::AccessFlags;
use uverbs_abi::write::{RegMr, RegMrResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::Command;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::object::{self, Kind, Object};
use crate::pd::ProtectionDomain;

/// Memory that the device may read and write, registered in a protection domain.
///
/// The bytes are never lent as a slice, since the device may write to them at any time: they are copied
/// in and out with [`MemoryRegion::write`] and [`MemoryRegion::read`]. Requests name a part of it with
/// [`MemoryRegion::segment`]. Cheap to clone; a posted request keeps its region alive.
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
pub struct MemoryRegion(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    object: Object,
    keys: RegMrResp,
    len: usize,
    memory: Option<Mapping>,
    _pd: ProtectionDomain,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.object.release_for_sure().is_err() {
            // The device may still write to the memory: it is leaked on purpose.
            std::mem::forget(self.memory.take());
            self.object.abandon();
        }
    }
}

impl ProtectionDomain {
    /// Registers `len` zeroed bytes of the crate's own memory.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a length of zero or a combination of flags
    /// that the kernel refuses (remote write or atomics without local write).
    ///
    /// # Kernel
    /// `REG_MR` by `INVOKE_WRITE` (ib_uverbs_reg_mr, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion> {
        let op = "mr.register";
        let memory = Mapping::block(len)
            .map_err(|errno| Error::kernel(op, errno).hinted("the length must be one byte at least"))?;
        let start = memory.address();
        let request = RegMr {
            start,
            length: len as u64,
            hca_va: start,
            pd_handle: self.id(),
            access_flags: access.bits(),
            ..RegMr::new_zeroed()
        };
        let mut keys = RegMrResp::new_zeroed();
        let mut command = Command::write(op, cmd::REG_MR);
        command.input(CORE_IN, &request).output(CORE_OUT, keys.as_mut_bytes()).registers(&memory);
        self.context().invoke(&mut command)?;
        let object = Object::new(self.context(), Kind::Mr, keys.mr_handle);
        let inner = Inner { object, keys, len, memory: Some(memory), _pd: self.clone() };
        Ok(MemoryRegion(Arc::new(inner)))
    }
}

impl MemoryRegion {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Always false: there is no region of length zero.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The key by which requests of this process name the region.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.0.keys.lkey
    }

    /// The key by which a remote peer names the region.
    pub fn rkey(&self) -> u32 {
        self.0.keys.rkey
    }

    /// Address of the first byte, as the device and a remote peer know it.
    #[inline]
    pub fn address(&self) -> u64 {
        self.0.memory.as_ref().map_or(0, Mapping::address)
    }

    /// Copies bytes from `offset` on into `bytes`.
    ///
    /// A device that writes there at the same time gives a mix of old and new bytes.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when that leaves the region.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let op = "mr.read";
        self.inside(op, offset, bytes.len())?;
        let done = self.0.memory.as_ref().is_some_and(|memory| memory.read(offset, bytes));
        if done { Ok(()) } else { Err(outside(op)) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when that leaves the region.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let op = "mr.write";
        self.inside(op, offset, bytes.len())?;
        let done = self.0.memory.as_ref().is_some_and(|memory| memory.write(offset, bytes));
        if done { Ok(()) } else { Err(outside(op)) }
    }

    /// The part of the region that a request names.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when `range` leaves the region.
    pub fn segment(&self, range: Range<usize>) -> Result<Segment<'_>> {
        let op = "mr.segment";
        let len = range.end.checked_sub(range.start).ok_or_else(|| outside(op))?;
        self.inside(op, range.start, len)?;
        let length = u32::try_from(len).map_err(|_| outside(op))?;
        Ok(Segment { region: self, offset: range.start as u64, length })
    }

    /// Whether both are clones of one region.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn inside(&self, op: &'static str, offset: usize, len: usize) -> Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.0.len);
        if inside { Ok(()) } else { Err(outside(op)) }
    }

    /// Deregisters the region and says how that went.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone or a posted request still has it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            let hint = "a clone or a posted request still uses the memory region";
            return Err((self, object::shared("mr.destroy", hint)));
        };
        inner.object.release_for_sure().map_err(|error| (self, error))
    }
}

fn outside(op: &'static str) -> Error {
    Error::refused(op, Errno::EINVAL, "that is outside the memory region")
}

/// A part of a memory region, for a request; made by [`MemoryRegion::segment`].
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_sge")]
pub struct Segment<'a> {
    region: &'a MemoryRegion,
    offset: u64,
    length: u32,
}

impl Segment<'_> {
    #[inline]
    pub(crate) fn region(&self) -> &MemoryRegion {
        self.region
    }

    #[inline]
    pub(crate) fn sge(&self) -> Sge {
        Sge { addr: self.region.address() + self.offset, length: self.length, lkey: self.region.lkey() }
    }
}
