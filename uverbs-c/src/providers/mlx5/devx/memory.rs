//! Memory for objects of the firmware, and pages of doorbells.

use std::ffi::c_int;

use uverbs::abi::mlx5::UAR_BFREG;
use uverbs::mlx5::devx::{Uar, UarKind, Umem, UmemRange, Var};

use super::known;
use crate::answer::{Answer, EBADF, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Pointer, register_umem};
use crate::context::Context;
use crate::owned::{Owned, end};

/// `struct mlx5dv_devx_umem`, and what it is for the library.
#[repr(C)]
pub(crate) struct DevxUmem {
    umem_id: u32,
    umem: Owned<Umem>,
}

/// `struct mlx5dv_devx_umem_in`.
#[repr(C)]
pub(crate) struct UmemIn {
    addr: Pointer,
    size: usize,
    access: u32,
    pgsz_bitmap: u64,
    comp_mask: u64,
    dmabuf_fd: c_int,
}

/// `MLX5DV_UMEM_MASK_DMABUF`.
const DMABUF: u64 = 1 << 0;

fn reg(context: Option<&Context>, range: UmemRange) -> Answer<Box<DevxUmem>> {
    let umem = register_umem(known(context)?, range)?;
    Ok(Box::new(DevxUmem { umem_id: umem.number(), umem: Owned::new(umem) }))
}

pub(crate) extern "C" fn umem_reg(
    context: Option<&Context>,
    addr: Pointer,
    size: usize,
    access: u32,
) -> Option<Box<DevxUmem>> {
    let (start, length) = (addr.word(), size as u64);
    or_null(reg(context, UmemRange { start, length, access, page_sizes: None, dmabuf: None }))
}

pub(crate) extern "C" fn umem_reg_ex(
    context: Option<&Context>,
    attr: Option<&UmemIn>,
) -> Option<Box<DevxUmem>> {
    let make = || {
        known(context)?;
        let attr = attr.ok_or(EINVAL)?;
        if attr.comp_mask & !DMABUF != 0 {
            return Err(EOPNOTSUPP);
        }
        let dmabuf = match attr.comp_mask & DMABUF {
            0 => None,
            _ => Some(u32::try_from(attr.dmabuf_fd).map_err(|_| EBADF)?),
        };
        let (start, length) = (attr.addr.word(), attr.size as u64);
        let (access, page_sizes) = (attr.access, Some(attr.pgsz_bitmap));
        reg(context, UmemRange { start, length, access, page_sizes, dmabuf })
    };
    or_null(make())
}

pub(crate) extern "C" fn umem_dereg(umem: Option<Box<DevxUmem>>) -> c_int {
    returned(end(umem, |umem| umem.umem.destroy(Umem::destroy)))
}

/// `struct mlx5dv_devx_uar`, and what it is for the library.
#[repr(C)]
pub(crate) struct DevxUar {
    reg_addr: u64,
    base_addr: u64,
    page_id: u32,
    mmap_off: i64,
    comp_mask: u64,
    _uar: Uar,
}

/// `MLX5DV_UAR_ALLOC_TYPE_NC` and `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`. Here each page that is not cached has one owner.
const NOT_CACHED: u32 = 1 << 0;
const DEDICATED: u32 = 1 << 31;

pub(crate) extern "C" fn alloc_uar(context: Option<&Context>, flags: u32) -> Option<Box<DevxUar>> {
    let make = || {
        let context = known(context)?;
        let kind = match flags {
            0 => UarKind::WriteCombining,
            _ if flags & !(NOT_CACHED | DEDICATED) == 0 => UarKind::NotCached,
            _ => return Err(EOPNOTSUPP),
        };
        let uar = Uar::alloc(context, kind)?;
        let base_addr = uar.address();
        Ok(Box::new(DevxUar {
            reg_addr: base_addr + UAR_BFREG as u64,
            base_addr,
            page_id: uar.number(),
            mmap_off: uar.mmap_offset().cast_signed(),
            comp_mask: 0,
            _uar: uar,
        }))
    };
    or_null(make())
}

pub(crate) extern "C" fn free_uar(uar: Option<Box<DevxUar>>) {
    drop(uar);
}

/// `struct mlx5dv_var`, and what it is for the library.
#[repr(C)]
pub(crate) struct DevxVar {
    page_id: u32,
    length: u32,
    mmap_off: i64,
    comp_mask: u64,
    _var: Var,
}

/// `MLX5DV_VAR_ALLOC_FLAG_TLP`.
const PACKETS: u32 = 1 << 0;

pub(crate) extern "C" fn alloc_var(context: Option<&Context>, flags: u32) -> Option<Box<DevxVar>> {
    let make = || {
        let context = known(context)?;
        if flags & !PACKETS != 0 {
            return Err(EOPNOTSUPP);
        }
        let var = Var::alloc(context, flags != 0)?;
        let (offset, length) = var.mmap_range();
        let (page_id, mmap_off) = (var.number(), offset.cast_signed());
        Ok(Box::new(DevxVar { page_id, length, mmap_off, comp_mask: 0, _var: var }))
    };
    or_null(make())
}

pub(crate) extern "C" fn free_var(var: Option<Box<DevxVar>>) {
    drop(var);
}
