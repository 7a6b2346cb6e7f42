//! Protection domains and address handles.

use std::ffi::c_int;

use uverbs::abi::write::AhAttr;
use uverbs::{AddressHandle, ProtectionDomain};

use crate::abi;
use crate::answer::{Answer, EINVAL, or_null, returned};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::domain::{Parts, Uses, unused};
use crate::owned::{Owned, end};

#[repr(C)]
pub(crate) struct Pd {
    pub(crate) c: abi::Pd,
    pub(crate) pd: Owned<ProtectionDomain>,
    /// Parent domains of this one, of which the kernel does not know.
    pub(crate) uses: Uses,
    /// The domains that a parent domain combines.
    pub(crate) parts: Option<Parts>,
}

fn alloc(context: Option<&Context>) -> Answer<Box<Pd>> {
    let context = context.ok_or(EINVAL)?;
    let pd = context.context.alloc_pd()?;
    let c = abi::Pd { context: Pointer::to(context), handle: pd.handle() };
    Ok(Box::new(Pd { c, pd: Owned::new(pd), uses: Uses::default(), parts: None }))
}

/// A domain of another context, in the same context of the kernel.
fn import(context: Option<&Context>, handle: u32) -> Answer<Box<Pd>> {
    let context = context.ok_or(EINVAL)?;
    let pd = context.context.import_pd(handle)?;
    let c = abi::Pd { context: Pointer::to(context), handle };
    Ok(Box::new(Pd { c, pd: Owned::new(pd), uses: Uses::default(), parts: None }))
}

pub(crate) extern "C" fn import_pd(context: Option<&Context>, handle: u32) -> Option<Box<Pd>> {
    or_null(import(context, handle))
}

pub(crate) extern "C" fn unimport_pd(pd: Option<Box<Pd>>) {
    if let Some(Ok(pd)) = pd.as_ref().map(|pd| pd.pd.get()) {
        pd.leave();
    }
}

pub(crate) extern "C" fn alloc_pd(context: Option<&Context>) -> Option<Box<Pd>> {
    or_null(alloc(context))
}

pub(crate) extern "C" fn dealloc_pd(pd: Option<Box<Pd>>) -> c_int {
    let destroyed = end(pd, |pd| match &pd.parts {
        Some(parts) => parts.end(),
        // Whether any other object uses it is for the kernel to say: others may have deregistered an imported region.
        None => unused(&pd.uses).and_then(|()| Ok(pd.pd.get()?.deallocate()?)),
    });
    returned(destroyed)
}

#[repr(C)]
pub(crate) struct Ah {
    pub(crate) c: abi::Ah,
    pub(crate) ah: Owned<AddressHandle>,
    /// In the format of mlx5, for programs that write requests themselves.
    pub(crate) vector: [u32; 12],
}

fn make_ah(pd: Option<&Pd>, attr: Option<&AhAttr>) -> Answer<Box<Ah>> {
    let (pd, attr) = (pd.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    let ah = pd.pd.get()?.create_ah_from(AhAttr { reserved: 0, ..*attr })?;
    let c = abi::Ah { context: pd.c.context, pd: Pointer::to(pd), handle: ah.handle() };
    let vector = crate::providers::address_vector(&ah);
    Ok(Box::new(Ah { c, ah: Owned::new(ah), vector }))
}

pub(crate) extern "C" fn create_ah(pd: Option<&Pd>, attr: Option<&AhAttr>) -> Option<Box<Ah>> {
    or_null(make_ah(pd, attr))
}

pub(crate) extern "C" fn destroy_ah(ah: Option<Box<Ah>>) -> c_int {
    returned(end(ah, |ah| ah.ah.destroy(AddressHandle::destroy)))
}
