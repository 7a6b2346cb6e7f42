//! Domains of extended reliable connections.

use std::ffi::c_int;

use uverbs::XrcDomain;

use crate::abi::{self, XrcdInitAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::owned::{Owned, end};

#[repr(C)]
pub(crate) struct Xrcd {
    c: abi::Xrcd,
    pub(crate) xrcd: Owned<XrcDomain>,
}

/// `enum ibv_xrcd_init_attr_mask`.
const HAS_FD: u32 = 1 << 0;
const HAS_FLAGS: u32 = 1 << 1;

/// Instead of a file descriptor: the domain belongs to no file.
const NO_FILE: c_int = -1;

fn open(context: Option<&Context>, attr: Option<&XrcdInitAttr>) -> Answer<Box<Xrcd>> {
    let context = context.ok_or(EINVAL)?;
    // Before the attributes are checked: librxe checks nothing.
    context.context.needs_xrc("xrcd.open")?;
    let attr = attr.ok_or(EINVAL)?;
    if attr.comp_mask & !(HAS_FD | HAS_FLAGS) != 0 {
        return Err(EOPNOTSUPP);
    }
    if attr.comp_mask != HAS_FD | HAS_FLAGS {
        return Err(EINVAL);
    }
    let fd = (attr.fd != NO_FILE).then_some(attr.fd);
    let xrcd = context.context.open_xrcd_raw(fd, attr.oflags)?;
    Ok(Box::new(Xrcd { c: abi::Xrcd { context: Pointer::to(context) }, xrcd: Owned::new(xrcd) }))
}

pub(crate) extern "C" fn open_xrcd(
    context: Option<&Context>,
    attr: Option<&XrcdInitAttr>,
) -> Option<Box<Xrcd>> {
    or_null(open(context, attr))
}

pub(crate) extern "C" fn close_xrcd(xrcd: Option<Box<Xrcd>>) -> c_int {
    returned(end(xrcd, |xrcd| xrcd.xrcd.destroy(XrcDomain::destroy)))
}
