//! Counters of flows.

use std::ffi::c_int;

use uverbs::raw::MOST_VALUES;
use uverbs::{Counters as Library, ErrorKind, Point, ReadCountersFlags};

use crate::abi::{self, CounterAttachAttr, CountersInitAttr};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, or_null, returned};
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
    let counters = context.context.create_counters().map_err(|error| match error.kind() {
        // The kernel returns EPROTONOSUPPORT for a method that its driver lacks; libibverbs returns this for a function that librxe lacks.
        ErrorKind::Unsupported => EOPNOTSUPP,
        _ => Code::from(error),
    })?;
    let counters = Owned::new(counters);
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
            // No driver can attach counters to an existing flow.
            Some(flow) => {
                flow.flow.get()?;
                Err(EOPNOTSUPP)
            }
        }
    };
    returned(attach())
}

/// The number of values that are read without an allocation.
const FEW: usize = 32;

/// The caller's array is written after all values are read. Its places after the last value become zero.
pub(crate) extern "C" fn read_counters(
    counters: Option<&Counters>,
    mut places: Places<'_, u64>,
    count: u32,
    flags: u32,
) -> c_int {
    let mut read = || {
        let counters = counters.ok_or(EINVAL)?.counters.get()?;
        let (count, mut few, mut many) = (count as usize, [0; FEW], Vec::new());
        let values = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.try_reserve_exact(count.min(MOST_VALUES))?;
                many.resize(count.min(MOST_VALUES), 0);
                &mut many
            }
        };
        counters.read_with(values, ReadCountersFlags::from_bits_retain(flags))?;
        let all = values.iter().copied().chain(std::iter::repeat(0));
        for (place, value) in places.get(count).iter_mut().zip(all) {
            place.write(value);
        }
        Ok(())
    };
    returned(read())
}
