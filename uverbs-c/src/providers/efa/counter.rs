//! Completion counters of the device.

use uverbs::CompletionCounter;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{device, given, only};
use crate::abi::CompCntrInitAttr;
use crate::answer::{Answer, EINVAL, or_null};
use crate::boundary::Pointer;
use crate::comp_cntr::{CompCntr, WRS};
use crate::context::Context;

/// `struct efadv_comp_cntr_init_attr`. Its memory descriptions are not read: the values are in memory that the library allocates.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct OwnInitAttr {
    comp_mask: u64,
    flags: u32,
    reserved: u32,
    ext_mem: [[u64; 4]; 2],
}

fn make(
    context: Option<&Context>,
    attr: Option<&CompCntrInitAttr>,
    own: Pointer,
    len: u32,
) -> Answer<Box<CompCntr>> {
    device(context)?;
    let own: OwnInitAttr = given(own, len, size_of::<OwnInitAttr>())?;
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    only(matches!(attr, CompCntrInitAttr { comp_mask: 0, type_: WRS, flags: 0 }))?;
    only(own.comp_mask == 0 && own.flags == 0)?;
    Ok(CompCntr::made(context, CompletionCounter::builder().create_on(&context.context)?))
}

pub(crate) extern "C" fn create_comp_cntr(
    context: Option<&Context>,
    attr: Option<&CompCntrInitAttr>,
    own: Pointer,
    len: u32,
) -> Option<Box<CompCntr>> {
    or_null(make(context, attr, own, len))
}
