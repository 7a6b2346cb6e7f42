//! Memory windows.

use std::cell::Cell;
use std::ffi::c_int;

use uverbs::raw::Window;

use crate::abi::{self, MwBind, SendWr};
use crate::answer::{Answer, EINVAL, or_null, returned};
use crate::boundary::Pointer;
use crate::mr::Mr;
use crate::owned::{Owned, end};
use crate::pd::Pd;
use crate::qp::Qp;
use uverbs::abi::types::{AccessFlags, wr_opcode};
use zerocopy::FromZeros;

/// `IBV_MW_TYPE_1`.
const TYPE_1: u32 = 1;

#[repr(C)]
pub(crate) struct Mw {
    pub(crate) c: abi::Mw,
    window: Owned<Window>,
}

impl Mw {
    pub(crate) fn is_type_1(&self) -> bool {
        self.c.type_ == TYPE_1
    }
}

fn alloc(pd: Option<&Pd>, type_: u32) -> Answer<Box<Mw>> {
    let pd = pd.ok_or(EINVAL)?;
    let number = u8::try_from(type_).map_err(|_| EINVAL)?;
    let window = pd.pd.get()?.create_window(number)?;
    let c = abi::Mw {
        context: pd.c.context,
        pd: Pointer::to(pd),
        rkey: Cell::new(window.rkey()),
        handle: window.handle(),
        type_,
    };
    Ok(Box::new(Mw { c, window: Owned::new(window) }))
}

pub(crate) extern "C" fn alloc_mw(pd: Option<&Pd>, type_: u32) -> Option<Box<Mw>> {
    or_null(alloc(pd, type_))
}

pub(crate) extern "C" fn dealloc_mw(mw: Option<Box<Mw>>) -> c_int {
    returned(end(mw, |mw| mw.window.destroy(Window::destroy)))
}

/// The key of the next bind: `ibv_inc_rkey`.
fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

/// Only windows of type 1: the header, which calls this, checks the type.
pub(crate) extern "C" fn bind_mw(qp: Option<&Qp>, mw: Option<&Mw>, bind: Option<&MwBind>) -> c_int {
    let (Some(qp), Some(mw), Some(bind)) = (qp, mw, bind) else { return EINVAL.get() };
    let info = bind.bind_info;
    let is_foreign = info.mr.get::<Mr>().is_some_and(|mr| mr.c.pd.get().word() != mw.c.pd.word());
    if is_foreign {
        return nix::libc::EPERM;
    }
    if info.mw_access_flags & AccessFlags::ZERO_BASED.bits() != 0 {
        return EINVAL.get();
    }
    let key = next_key(mw.c.rkey.get());
    let wr = SendWr {
        wr_id: bind.wr_id,
        opcode: wr_opcode::BIND_MW,
        send_flags: bind.send_flags,
        bind_mw: [Pointer::to(mw).word(), key.into()],
        bind_info: info,
        ..SendWr::new_zeroed()
    };
    let answer = (qp.post)(qp, Pointer::to(&wr), None);
    if answer == 0 {
        mw.c.rkey.set(key);
    }
    answer
}
