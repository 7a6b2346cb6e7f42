//! `libefa.so.1`, for programs that call it themselves (`efadv_*`): libfabric, perftest, pyverbs.
//!
//! rdma-core's libefa does not recognise this library's devices as its own. This library has the same names in the same versions, with the
//! same behaviour. All of it is implemented in `libibverbs.so.1`, under names with their own version (`UVERBS_1` in `ibverbs.map`); here
//! are only jumps.
//!
//! # Safety
//! A label and a jump: the assembly here has no other effect. The target has the parameters that the header `efadv.h` of rdma-core 65
//! declares.

#![allow(unsafe_code)]
// Without the standard library it has 4 kB, with it 280. A profile whose panics unwind needs it.
#![cfg_attr(panic = "abort", no_std)]

#[path = "../../beside/jumps.rs"]
#[macro_use]
mod jumps;

mod names;
