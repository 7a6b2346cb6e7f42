//! Thread domains and parent domains. A parent domain combines a protection domain with a thread domain.
//!
//! Objects of a thread domain are used by one thread at a time. This library gains nothing from that, because an uncontended lock costs
//! very little. But programs create such domains, and errors and use counts are those of the only driver library here that has them
//! (`efa_alloc_parent_domain` and others, providers/efa/verbs.c, rdma-core 65).

use std::ffi::c_int;
use std::sync::Arc;

use crate::abi::{self, ParentDomainInitAttr, TdInitAttr};
use crate::answer::{Answer, EBUSY, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::owned::{Owned, end};
use crate::pd::Pd;

/// Counts the users of a domain.
pub(crate) type Uses = Arc<()>;

/// Refuses to destroy a domain that is in use.
pub(crate) fn unused(uses: &Uses) -> Answer {
    if Arc::strong_count(uses) > 1 { Err(EBUSY) } else { Ok(()) }
}

#[repr(C)]
pub(crate) struct Td {
    c: abi::Td,
    uses: Uses,
}

fn make_td(context: Option<&Context>, attr: Option<&TdInitAttr>) -> Answer<Box<Td>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    if !context.context.has_parent_domains() || attr.comp_mask != 0 {
        return Err(EOPNOTSUPP);
    }
    Ok(Box::new(Td { c: abi::Td { context: Pointer::to(context) }, uses: Uses::default() }))
}

pub(crate) extern "C" fn alloc_td(context: Option<&Context>, attr: Option<&TdInitAttr>) -> Option<Box<Td>> {
    or_null(make_td(context, attr))
}

pub(crate) extern "C" fn dealloc_td(td: Option<Box<Td>>) -> c_int {
    returned(end(td, |td| unused(&td.uses)))
}

/// The domains that a parent domain combines.
pub(crate) struct Parts {
    uses: Uses,
    _of: Uses,
    _td: Option<Uses>,
}

impl Parts {
    /// Whether it may be destroyed.
    pub(crate) fn end(&self) -> Answer {
        unused(&self.uses)
    }
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`. A request for own allocation functions has other bits set too.
const HAS_CONTEXT: u32 = 1 << 1;

fn make(context: Option<&Context>, attr: Option<&ParentDomainInitAttr>) -> Answer<Box<Pd>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    if !context.context.has_parent_domains() {
        return Err(EOPNOTSUPP);
    }
    let of = attr.pd.get::<Pd>().ok_or(EINVAL)?;
    let td = attr.td.get::<Td>();
    // An object of another context.
    let is_foreign = |other: Pointer| other.word() != of.c.context.word();
    if is_foreign(Pointer::to(context)) || td.is_some_and(|td| is_foreign(td.c.context)) {
        return Err(EINVAL);
    }
    if attr.comp_mask & !HAS_CONTEXT != 0 {
        return Err(EOPNOTSUPP);
    }
    // A parent domain cannot be part of another one.
    if of.parts.is_some() {
        return Err(EINVAL);
    }
    let c = abi::Pd { context: of.c.context, handle: of.c.handle };
    let pd = of.pd.get()?.clone();
    let parts = Parts { uses: Uses::default(), _of: of.uses.clone(), _td: td.map(|td| td.uses.clone()) };
    Ok(Box::new(Pd { c, pd: Owned::new(pd), uses: Uses::default(), parts: Some(parts) }))
}

pub(crate) extern "C" fn alloc_parent_domain(
    context: Option<&Context>,
    attr: Option<&ParentDomainInitAttr>,
) -> Option<Box<Pd>> {
    or_null(make(context, attr))
}

/// A reference that keeps a parent domain from being destroyed; `None` for other domains.
pub(crate) fn used(pd: &Pd) -> Option<Uses> {
    pd.parts.as_ref().map(|parts| parts.uses.clone())
}

/// A reference that keeps a parent domain from being destroyed; EINVAL for other domains.
pub(crate) fn used_parent(domain: Pointer) -> Answer<Uses> {
    domain.get::<Pd>().and_then(used).ok_or(EINVAL)
}
