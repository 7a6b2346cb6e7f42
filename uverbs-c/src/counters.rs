//! Counters of flows.

use std::ffi::c_int;

use uverbs::{Counters as Library, Point, ReadCountersFlags};

use crate::abi::{self, CounterAttachAttr, CountersInitAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Places, Pointer};
use crate::context::Context;
use crate::flow::Flow;
use crate::owned::{Owned, end};

#[repr(C)]
pub(crate) struct Counters {
    c: abi::Counters,
    pub(crate) counters: Owned<Library>,
}

fn create(context: Option<&Context>, attr: Option<&CountersInitAttr>) -> Answer<Box<Counters>> {
    let context = context.ok_or(EINVAL)?;
    if attr.ok_or(EINVAL)?.comp_mask != 0 {
        return Err(EOPNOTSUPP);
    }
    let counters = Owned::new(context.context.create_counters()?);
    Ok(Box::new(Counters { c: abi::Counters { context: Pointer::to(context) }, counters }))
}

pub(crate) extern "C" fn create_counters(
    context: Option<&Context>,
    attr: Option<&CountersInitAttr>,
) -> Option<Box<Counters>> {
    or_null(create(context, attr))
}

pub(crate) extern "C" fn destroy_counters(counters: Option<Box<Counters>>) -> c_int {
    returned(end(counters, |counters| counters.counters.destroy(Library::destroy)))
}

pub(crate) extern "C" fn attach_counters_point_flow(
    counters: Option<&Counters>,
    attr: Option<&CounterAttachAttr>,
    flow: Option<&Flow>,
) -> c_int {
    let attach = || {
        let (counters, attr) = (counters.ok_or(EINVAL)?.counters.get()?, attr.ok_or(EINVAL)?);
        if attr.comp_mask != 0 {
            return Err(EOPNOTSUPP);
        }
        let point = Point::try_from(attr.counter_desc)?;
        match flow {
            None => Ok(counters.attach(point, attr.index)?),
            Some(flow) => Ok(counters.attach_live(flow.flow.get()?, point, attr.index)?),
        }
    };
    returned(attach())
}

/// More than a command has room for: the length of an attribute is a number of sixteen bits.
const MOST: u32 = u16::MAX as u32 / 8;

pub(crate) extern "C" fn read_counters(
    counters: Option<&Counters>,
    mut places: Places<u64>,
    count: u32,
    flags: u32,
) -> c_int {
    let mut read = || {
        let counters = counters.ok_or(EINVAL)?.counters.get()?;
        if count > MOST {
            return Err(EINVAL);
        }
        let mut values = vec![0; count as usize];
        counters.read_with(&mut values, ReadCountersFlags::from_bits_retain(flags))?;
        for (place, value) in places.get(values.len()).iter_mut().zip(values) {
            place.write(value);
        }
        Ok(())
    };
    returned(read())
}
