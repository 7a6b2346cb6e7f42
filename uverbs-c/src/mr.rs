//! Memory regions.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};

use uverbs::raw::{Range, Region};
use zerocopy::FromZeros;

use crate::abi::{self, MrInitAttr};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Pointer, change, register};
use crate::buf::Buf;
use crate::owned::{Owned, end};
use crate::pd::Pd;

#[repr(C)]
pub(crate) struct Mr {
    pub(crate) c: abi::Mr,
    region: Owned<Region>,
    /// Whether it is memory of the process, which can be changed.
    is_ours: bool,
}

fn made(pd: &Pd, region: Region, addr: Pointer, length: usize, is_ours: bool) -> Box<Mr> {
    let c = abi::Mr {
        context: pd.c.context,
        pd: Cell::new(Pointer::to(pd)),
        addr: Cell::new(addr),
        length: Cell::new(length),
        handle: region.handle(),
        lkey: Cell::new(region.lkey()),
        rkey: Cell::new(region.rkey()),
    };
    Box::new(Mr { c, region: Owned::new(region), is_ours })
}

fn reg(pd: Option<&Pd>, addr: Pointer, length: usize, iova: u64, access: u32) -> Answer<Box<Mr>> {
    let pd = pd.ok_or(EINVAL)?;
    let region = register(pd.pd.get()?, Range { start: addr.word(), length: length as u64, iova, access })?;
    Ok(made(pd, region, addr, length, true))
}

/// A region of another context. Programs set its address, if they know it (ibv_import_mr(3)).
fn import(pd: Option<&Pd>, handle: u32) -> Answer<Box<Mr>> {
    let pd = pd.ok_or(EINVAL)?;
    let (region, range) = pd.pd.get()?.import_region(handle)?;
    Ok(made(pd, region, Pointer::NULL, range.length as usize, false))
}

pub(crate) extern "C" fn import_mr(pd: Option<&Pd>, handle: u32) -> Option<Box<Mr>> {
    or_null(import(pd, handle))
}

pub(crate) extern "C" fn unimport_mr(mr: Option<Box<Mr>>) {
    if let Some(Ok(region)) = mr.as_ref().map(|mr| mr.region.get()) {
        region.leave();
    }
}

/// A region of a dma-buf. Its address in C is the offset in the buffer.
fn reg_file(pd: Option<&Pd>, fd: c_int, range: Range) -> Answer<Box<Mr>> {
    let pd = pd.ok_or(EINVAL)?;
    let region = pd.pd.get()?.register_dmabuf_at(fd, range)?;
    Ok(made(pd, region, Pointer::from_word(range.start), range.length as usize, false))
}

pub(crate) extern "C" fn reg_dmabuf_mr(
    pd: Option<&Pd>,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> Option<Box<Mr>> {
    or_null(reg_file(pd, fd, Range { start: offset, length: length as u64, iova, access: access as u32 }))
}

/// `enum ibv_mr_init_attr_mask`.
const HAS_IOVA: u64 = 1 << 0;
const HAS_ADDR: u64 = 1 << 1;
const HAS_FD: u64 = 1 << 2;
const HAS_FD_OFFSET: u64 = 1 << 3;
const HAS_BUF: u64 = 1 << 5;

/// Registers memory of any kind. Handles for direct memory access are not supported. The checks have the order of rdma-core 65
/// (ibv_reg_mr_ex, verbs.c; reg_mr_ex, dummy_ops.c).
fn reg_ex(pd: Option<&Pd>, attr: Option<&MrInitAttr>) -> Answer<Box<Mr>> {
    let attr = attr.ok_or(EINVAL)?;
    let has = |bits| attr.comp_mask & bits != 0;
    let length = attr.length as u64;
    if has(HAS_BUF) {
        let owner = Pointer::to(pd.ok_or(EINVAL)?);
        let is_in = |buf: &Buf| buf.has(owner, attr.addr.word(), length);
        if !has(HAS_ADDR) || has(HAS_FD | HAS_FD_OFFSET) || !attr.buf.get::<Buf>().is_some_and(is_in) {
            return Err(EINVAL);
        }
    }
    if has(!(HAS_IOVA | HAS_ADDR | HAS_FD | HAS_FD_OFFSET | HAS_BUF)) {
        return Err(EOPNOTSUPP);
    }
    let access = attr.access as u32;
    if has(HAS_FD) {
        if has(HAS_ADDR) || !has(HAS_FD_OFFSET) || !has(HAS_IOVA) {
            return Err(EINVAL);
        }
        return reg_file(pd, attr.fd, Range { start: attr.fd_offset, length, iova: attr.iova, access });
    }
    if !has(HAS_ADDR) || has(HAS_FD_OFFSET) {
        return Err(EINVAL);
    }
    let iova = if has(HAS_IOVA) { attr.iova } else { attr.addr.word() };
    reg(pd, attr.addr, attr.length, iova, access)
}

pub(crate) extern "C" fn reg_mr_ex(pd: Option<&Pd>, attr: Option<&MrInitAttr>) -> Option<Box<Mr>> {
    or_null(reg_ex(pd, attr))
}

pub(crate) extern "C" fn reg_buf_mr(
    pd: Option<&Pd>,
    buf: Pointer,
    addr: Pointer,
    length: usize,
    access: c_int,
) -> Option<Box<Mr>> {
    let comp_mask = HAS_BUF | HAS_ADDR;
    or_null(reg_ex(
        pd,
        Some(&MrInitAttr { length, access, comp_mask, addr, buf, ..MrInitAttr::new_zeroed() }),
    ))
}

pub(crate) extern "C" fn advise_mr(
    pd: Option<&Pd>,
    advice: u32,
    flags: u32,
    list: Pointer,
    count: u32,
) -> c_int {
    let advise = || {
        let list = list.array(count).ok_or(EINVAL)?;
        Ok(pd.ok_or(EINVAL)?.pd.get()?.advise(advice, flags, list)?)
    };
    returned(advise())
}

/// Access flags that a driver may ignore: `IBV_ACCESS_OPTIONAL_RANGE`.
const OPTIONAL: c_uint = 0x3ff0_0000;

pub(crate) extern "C" fn reg_mr(
    pd: Option<&Pd>,
    addr: Pointer,
    length: usize,
    access: c_int,
) -> Option<Box<Mr>> {
    or_null(reg(pd, addr, length, addr.word(), access as u32))
}

pub(crate) extern "C" fn reg_mr_iova(
    pd: Option<&Pd>,
    addr: Pointer,
    length: usize,
    iova: u64,
    access: c_int,
) -> Option<Box<Mr>> {
    or_null(reg(pd, addr, length, iova, access as u32))
}

/// The function that the header's macros call for optional access flags. All kernels on which the library runs know these flags.
pub(crate) extern "C" fn reg_mr_iova2(
    pd: Option<&Pd>,
    addr: Pointer,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Option<Box<Mr>> {
    or_null(reg(pd, addr, length, iova, access).or_else(|code| {
        // A driver that does not support them returns EOPNOTSUPP.
        let plain = access & !OPTIONAL;
        if code == Code::new(nix::libc::EOPNOTSUPP) && plain != access {
            reg(pd, addr, length, iova, plain)
        } else {
            Err(code)
        }
    }))
}

/// `enum ibv_rereg_mr_flags` and `enum ibv_rereg_mr_err_code`.
const CHANGE_TRANSLATION: u32 = 1;
const CHANGE_PD: u32 = 2;
const CHANGE_ACCESS: u32 = 4;
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

pub(crate) extern "C" fn rereg_mr(
    mr: Option<&mut Mr>,
    flags: c_int,
    pd: Option<&Pd>,
    addr: Pointer,
    length: usize,
    access: c_int,
) -> c_int {
    let flags = flags as u32;
    let refused = || {
        EINVAL.set();
        ERR_INPUT
    };
    let Some(mr) = mr else { return refused() };
    let known = CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS;
    let has = |flag| flags & flag != 0;
    if flags & !known != 0
        || (has(CHANGE_TRANSLATION) && (length == 0 || addr.is_null()))
        || (has(CHANGE_PD) && pd.is_none())
        || !mr.is_ours
    {
        return refused();
    }
    let mut changed = || -> Answer {
        let range = Range {
            start: if has(CHANGE_TRANSLATION) { addr.word() } else { 0 },
            length: if has(CHANGE_TRANSLATION) { length as u64 } else { 0 },
            iova: if has(CHANGE_TRANSLATION) { addr.word() } else { 0 },
            access: if has(CHANGE_ACCESS) { access as u32 } else { 0 },
        };
        let domain = pd.filter(|_| has(CHANGE_PD)).map(|pd| pd.pd.get()).transpose()?;
        let region = mr.region.get_mut()?;
        change(region, flags, range, domain)?;
        mr.c.lkey.set(region.lkey());
        mr.c.rkey.set(region.rkey());
        if has(CHANGE_TRANSLATION) {
            mr.c.addr.set(addr);
            mr.c.length.set(length);
        }
        if let Some(pd) = pd.filter(|_| has(CHANGE_PD)) {
            mr.c.pd.set(Pointer::to(pd));
        }
        Ok(())
    };
    match changed() {
        Ok(()) => 0,
        Err(code) => {
            code.set();
            ERR_CMD
        }
    }
}

pub(crate) extern "C" fn dereg_mr(mr: Option<Box<Mr>>) -> c_int {
    returned(end(mr, |mr| mr.region.destroy(Region::destroy)))
}
