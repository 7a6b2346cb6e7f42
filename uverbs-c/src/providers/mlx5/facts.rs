//! What the kernel tells of a device: its clock, and its ports.

use std::ffi::c_int;

use uverbs::mlx5::Clock;

use super::known;
use crate::answer::{EINVAL, returned};
use crate::boundary::Places;
use crate::context::Context;

/// `struct mlx5dv_clock_info`.
#[repr(C)]
pub(crate) struct ClockInfo {
    nsec: u64,
    last_cycles: u64,
    frac: u64,
    mult: u32,
    shift: u32,
    mask: u64,
}

/// libmlx5 maps the page when the context is opened, this library at each call: programs make it once in a while, and most never.
pub(crate) extern "C" fn get_clock_info(context: Option<&Context>, info: Option<&mut ClockInfo>) -> c_int {
    let get = || {
        let times = Clock::of(known(context)?)?.times()?;
        *info.ok_or(EINVAL)? = ClockInfo {
            nsec: times.start,
            last_cycles: times.ticks,
            frac: times.fraction,
            mult: times.multiplier,
            shift: times.shift,
            mask: times.mask,
        };
        Ok(())
    };
    returned(get())
}

/// `struct mlx5dv_port`, of which a program has the first `len` bytes, is what the kernel answers.
pub(crate) extern "C" fn query_port(
    context: Option<&Context>,
    port: u32,
    mut info: Places<u8>,
    len: usize,
) -> c_int {
    let mut query = || {
        let answer = known(context)?.query_port_mlx5(port)?;
        info.write_prefix(&answer, len).ok_or(EINVAL)
    };
    returned(query())
}
