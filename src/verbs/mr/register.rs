//! Creating memory regions.

use std::ops::{Range, RangeBounds};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ids::mr::{self, reg_dmabuf};
use uverbs_abi::types::{AccessFlags, OdpGeneralCaps};
use uverbs_abi::write::{RegMr, RegMrResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::{MemoryRegion, MemoryRegionCore, Place, meant};
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result, limit};
use crate::kernel::mapping::Mapping;
use crate::verbs::pd::ProtectionDomain;

/// The unit in which the kernel pins memory.
const PAGE: u64 = 4096;

/// Builder for a memory region; see [`ProtectionDomain::memory`].
#[derive(Debug)]
#[must_use = "nothing is made before `register`"]
pub struct MemoryRegionBuilder<'a> {
    pd: &'a ProtectionDomain,
    memory: &'a Mapping,
    range: Option<Range<usize>>,
    access: AccessFlags,
    iova: Option<u64>,
}

impl ProtectionDomain {
    /// Allocates and registers `len` zeroed bytes.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a length of zero or a combination of flags that the kernel refuses (remote
    /// write or atomics without local write); [`Exhausted`](ErrorKind::Exhausted) for more memory than the process can allocate
    /// or may pin.
    ///
    /// # Kernel
    /// `REG_MR` through `INVOKE_WRITE` (ib_uverbs_reg_mr, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_msgs")]
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn register(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion> {
        if len == 0 {
            return Err(Error::outside(OP, "bytes of memory", len, "at least 1"));
        }
        let memory = Mapping::block(len).map_err(|_| {
            let hint = format!(
                "the process cannot have {len} bytes of memory: see `ulimit -v` and the memory that is free"
            );
            Error::refused(OP, Errno::ENOMEM, hint)
        })?;
        self.memory(&memory).range(0..len).access(access).register()
    }

    /// Starts a builder for a region of this memory; default all of it. The region keeps the memory alive.
    pub fn memory<'a>(&'a self, memory: &'a Mapping) -> MemoryRegionBuilder<'a> {
        MemoryRegionBuilder { pd: self, memory, range: None, access: AccessFlags::empty(), iova: None }
    }

    /// Registers `range` of a dma-buf: memory of another device, such as a GPU, given by a file descriptor. Its first byte has
    /// the address `iova` for the device and its peers.
    ///
    /// The kernel keeps the dma-buf, so the descriptor may be closed afterwards. The memory is not mapped into the process:
    /// [`MemoryRegion::read`] and [`MemoryRegion::write`] return `Unsupported`.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for drivers without dma-bufs: rxe of all kernels on which this crate is tested,
    /// and the soft device; [`InvalidInput`](ErrorKind::InvalidInput) for an empty range, an iova whose offset in its page
    /// differs from that of the range, or a file that is not a dma-buf.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_REG_DMABUF_MR` (uverbs_std_types_mr.c, Linux 6.1).
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn register_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        range: Range<u64>,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion> {
        let op = "mr.register_dmabuf";
        let (offset, length) = (range.start, range.end.saturating_sub(range.start));
        let len = usize::try_from(length).ok().filter(|len| *len > 0).ok_or_else(|| {
            let given = format!("{}..{}", range.start, range.end);
            Error::outside(op, "range of the dma-buf", given, "at least one byte")
        })?;
        same_offset(op, offset, iova)?;
        let made = self.register_file(op, fd.as_raw_fd(), [offset, length, iova], access.bits());
        let made = made.map_err(|error| {
            let hint = "the driver cannot register memory of another device";
            explain_access(error.hinted_if(ErrorKind::Unsupported, hint), access)
        })?;
        let place = Place { memory: None, first: 0, len, address: iova };
        // The memory is pinned, or the other device says when it moves: advice is about memory of a process.
        Ok(self.region(made, access, place, false))
    }

    /// Registers a part of a dma-buf with the kernel. The array contains the offset, the length in bytes, and the device's address
    /// of the first byte.
    pub(crate) fn register_file(
        &self,
        op: &'static str,
        number: i32,
        [offset, length, iova]: [u64; 3],
        access: u32,
    ) -> Result<RegMrResp> {
        let (mut lkey, mut rkey) = (0_u32, 0_u32);
        let mut command = Command::new(op, mr::OBJECT, mr::method::REG_DMABUF);
        command
            .new_handle(reg_dmabuf::HANDLE)
            .handle(reg_dmabuf::PD_HANDLE, self.id())
            .input(reg_dmabuf::OFFSET, &offset)
            .input(reg_dmabuf::LENGTH, &length)
            .input(reg_dmabuf::IOVA, &iova)
            .input(reg_dmabuf::FD, &number)
            .flags(reg_dmabuf::ACCESS_FLAGS, access)
            .output(reg_dmabuf::RESP_LKEY, lkey.as_mut_bytes())
            .output(reg_dmabuf::RESP_RKEY, rkey.as_mut_bytes());
        self.context().invoke(&mut command)?;
        let mr_handle = command.new_handle_of(reg_dmabuf::HANDLE)?;
        Ok(RegMrResp { mr_handle, lkey, rkey })
    }

    /// Refuses memory that is paged on demand at addresses that the driver would not find, on a device with paging.
    pub(crate) fn check_paging(&self, op: &'static str, access: u32, start: u64, iova: u64) -> Result<()> {
        let is_paged = AccessFlags::from_bits_retain(access).contains(AccessFlags::ON_DEMAND);
        if !is_paged || start == iova || !self.context().driver().believes_paging() {
            return Ok(());
        }
        let caps = self.context().query_device()?.odp_caps.general_caps;
        if !OdpGeneralCaps::from_bits_retain(caps).contains(OdpGeneralCaps::SUPPORT) {
            return Ok(());
        }
        let hint = "rxe finds memory that is paged on demand only by its address in the process: register it without an iova";
        Err(Error::refused(op, Errno::EOPNOTSUPP, hint))
    }

    /// Takes ownership of a region that the kernel has just created.
    fn region(&self, made: RegMrResp, access: AccessFlags, place: Place, is_paged: bool) -> MemoryRegion {
        let object = Object::new(self.context(), Kind::Mr, made.mr_handle).paged(is_paged, made.lkey);
        let RegMrResp { lkey, rkey, .. } = made;
        let (also, also_pds) = (Vec::new(), Vec::new());
        let pd = self.clone();
        MemoryRegion(Arc::new(MemoryRegionCore { object, lkey, rkey, access, place, also, pd, also_pds }))
    }
}

const OP: &str = "mr.register";

impl MemoryRegionBuilder<'_> {
    /// Registers only this part of the memory, in bytes: `64..128`, `..64`.
    pub fn range(mut self, range: impl RangeBounds<usize>) -> Self {
        self.range = Some(meant(range, self.memory.len()));
        self
    }

    /// The access rights; by default only the device may access the memory, and only read it.
    ///
    /// A device ignores unknown flags of [`AccessFlags::OPTIONAL_RANGE`], such as relaxed ordering; any other unknown flag is
    /// refused. Huge pages need no flag.
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
    #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
    #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
    #[doc(alias = "IBV_ACCESS_MW_BIND")]
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = access;
        self
    }

    /// The address of the first byte for the device and its peers, instead of the address in this process. Its offset in a page
    /// of 4096 bytes must be the same as that of the memory: zero for a region of whole pages.
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub fn iova(mut self, iova: u64) -> Self {
        self.iova = Some(iova);
        self
    }

    /// Registers the memory.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an empty range or one that exceeds the memory, an iova with another offset in
    /// its page, or a combination of flags that the kernel refuses (remote write or atomics without local write; on-demand paging
    /// if the device does not support it); [`Unsupported`](ErrorKind::Unsupported) for a flag that the driver does not support;
    /// [`Exhausted`](ErrorKind::Exhausted) for more memory than the process may pin (`RLIMIT_MEMLOCK`).
    ///
    /// # Kernel
    /// `REG_MR` through `INVOKE_WRITE` (ib_uverbs_reg_mr, uverbs_cmd.c; ib_umem_get, umem.c; Linux 6.1).
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(self) -> Result<MemoryRegion> {
        let range = self.range.unwrap_or(0..self.memory.len());
        let place = Place::new(OP, self.memory, range, self.iova)?;
        self.pd.check_paging(OP, self.access.bits(), place.start(), place.address)?;
        let request = RegMr {
            start: place.start(),
            length: place.len as u64,
            hca_va: place.address,
            pd_handle: self.pd.id(),
            access_flags: self.access.bits(),
            ..RegMr::new_zeroed()
        };
        let mut made = RegMrResp::new_zeroed();
        let mut plan = self.pd.context().driver().plan_mr();
        let mut command = Command::write(OP, cmd::REG_MR);
        command
            .input(CORE_IN, &request)
            .output(CORE_OUT, made.as_mut_bytes())
            .driver_payload(plan.payload())
            .registers(self.memory);
        let sent = self.pd.context().invoke(&mut command);
        sent.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unsupported
                if self.access.contains(AccessFlags::ON_DEMAND) =>
            {
                error.hinted("the device may have no on-demand paging")
            }
            ErrorKind::Unsupported => error.hinted("the driver does not know one of the access flags"),
            ErrorKind::Exhausted => error.hinted(format!(
                "memory is pinned, {} bytes here: see `ulimit -l`; or the device has no room for more regions",
                place.len
            )),
            _ => explain_access(error, self.access),
        })?;
        Ok(self.pd.region(made, self.access, place, self.access.contains(AccessFlags::ON_DEMAND)))
    }
}

/// The error with a hint if the kernel has refused the access flags (ib_check_mr_access, ib_verbs.h, Linux 6.1).
pub(super) fn explain_access(error: Error, access: AccessFlags) -> Error {
    if error.errno() != Some(Errno::EINVAL as i32) {
        return error;
    }
    let changes = access & (AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC);
    if !changes.is_empty() && !access.contains(AccessFlags::LOCAL_WRITE) {
        return error.hinted(limit(
            "access flags",
            shown(access),
            "REMOTE_WRITE and REMOTE_ATOMIC only with LOCAL_WRITE",
        ));
    }
    let unknown = access.difference(AccessFlags::all());
    if !unknown.is_empty() {
        return error.hinted(limit("access flags", shown(access), "those of AccessFlags"));
    }
    error.hinted(format!("the kernel refuses the memory, or these access flags: {}", shown(access)))
}

/// The names of flags, and a number for those without a name.
fn shown(access: AccessFlags) -> String {
    let unknown = access.difference(AccessFlags::all());
    let names =
        access.iter_names().filter(|(name, _)| *name != "OPTIONAL_RANGE").map(|(name, _)| name.to_owned());
    let rest = (!unknown.is_empty()).then(|| format!("{:#x}", unknown.bits()));
    names.chain(rest).collect::<Vec<_>>().join(" | ")
}

impl Place {
    /// A range of memory that has the address `iova` for the device.
    pub(super) fn new(
        op: &'static str,
        memory: &Mapping,
        range: Range<usize>,
        iova: Option<u64>,
    ) -> Result<Self> {
        let len = range.end.checked_sub(range.start).filter(|_| range.end <= memory.len());
        let len = len.ok_or_else(|| {
            let given = format!("{}..{}", range.start, range.end);
            Error::outside(op, "range of the memory", given, format_args!("0..{}", memory.len()))
        })?;
        if len == 0 {
            return Err(Error::outside(op, "bytes of memory", len, "at least 1"));
        }
        let start = memory.address() + range.start as u64;
        let address = iova.unwrap_or(start);
        same_offset(op, start, address)?;
        if address.checked_add(len as u64).is_none() {
            let most = u64::MAX - len as u64;
            return Err(Error::beyond(op, "iova", format_args!("{address:#x}"), format_args!("{most:#x}")));
        }
        Ok(Self { memory: Some(memory.clone()), first: range.start, len, address })
    }

    /// Address in this process.
    pub(super) fn start(&self) -> u64 {
        self.memory.as_ref().map_or(0, Mapping::address) + self.first as u64
    }
}

/// Checks the kernel's rule that the memory and the iova have the same offset in a page.
fn same_offset(op: &'static str, start: u64, iova: u64) -> Result<()> {
    if start % PAGE == iova % PAGE {
        return Ok(());
    }
    let what = "offset of the iova in a page of 4096 bytes, as that of the memory";
    Err(Error::outside(op, what, iova % PAGE, start % PAGE))
}
