//! Memory regions.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};

use uverbs::raw::{Range, Region};

use crate::abi;
use crate::answer::{Answer, Code, EINVAL, or_null, returned};
use crate::boundary::{Pointer, change, register};
use crate::owned::{Owned, end};
use crate::pd::Pd;

#[repr(C)]
pub(crate) struct Mr {
    pub(crate) c: abi::Mr,
    region: Owned<Region>,
}

fn reg(pd: Option<&Pd>, addr: Pointer, length: usize, iova: u64, access: u32) -> Answer<Box<Mr>> {
    let pd = pd.ok_or(EINVAL)?;
    let region = register(pd.pd.get()?, Range { start: addr.word(), length: length as u64, iova, access })?;
    let c = abi::Mr {
        context: pd.c.context,
        pd: Cell::new(Pointer::to(pd)),
        addr: Cell::new(addr),
        length: Cell::new(length),
        handle: region.handle(),
        lkey: Cell::new(region.lkey()),
        rkey: Cell::new(region.rkey()),
    };
    Ok(Box::new(Mr { c, region: Owned::new(region) }))
}

/// Rights that a driver may ignore: `IBV_ACCESS_OPTIONAL_RANGE`.
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

/// The one of the macros in the header, which knows optional rights: all kernels that the library runs on know them too.
pub(crate) extern "C" fn reg_mr_iova2(
    pd: Option<&Pd>,
    addr: Pointer,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Option<Box<Mr>> {
    or_null(reg(pd, addr, length, iova, access).or_else(|code| {
        // A driver without them says so.
        let plain = access & !OPTIONAL;
        if code == Code(nix::libc::EOPNOTSUPP) && plain != access {
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
