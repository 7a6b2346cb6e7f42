//! Numbers that no queue pair gets.

use std::collections::BTreeMap;
use std::ffi::c_int;

use uverbs::mlx5::{QpNumber, QpNumbers};

use super::known;
use crate::answer::{EINVAL, returned};
use crate::boundary::Places;
use crate::context::Context;

/// The numbers that a program has reserved in a context. They are free again when the context is closed.
#[derive(Default)]
pub(crate) struct Reserved {
    /// What the device said of such numbers.
    source: Option<QpNumbers>,
    numbers: BTreeMap<u32, QpNumber>,
}

pub(crate) extern "C" fn reserved_qpn_alloc(context: Option<&Context>, mut number: Places<'_, u32>) -> c_int {
    let mut reserve = || {
        let opened = known(context)?;
        let place = number.get(1).first_mut().ok_or(EINVAL)?;
        let reserved = &context.ok_or(EINVAL)?.reserved;
        // Commands are not sent under the lock, which spins.
        let known = reserved.lock()?.source.clone();
        let source = known.map_or_else(|| QpNumbers::new(opened), Ok)?;
        let source = reserved.lock()?.source.get_or_insert(source).clone();
        let made = source.reserve()?;
        place.write(made.number());
        reserved.lock()?.numbers.insert(made.number(), made);
        Ok(())
    };
    returned(reserve())
}

pub(crate) extern "C" fn reserved_qpn_dealloc(context: Option<&Context>, number: u32) -> c_int {
    let free = || {
        known(context)?;
        let reserved = &context.ok_or(EINVAL)?.reserved;
        let freed = reserved.lock()?.numbers.remove(&number);
        freed.map(drop).ok_or(EINVAL)
    };
    returned(free())
}
