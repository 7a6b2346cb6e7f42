//! `libmlx5.so.1`, for programs that call it themselves (`mlx5dv_*`): perftest, UCX, DPDK, pyverbs.
//!
//! rdma-core's libmlx5 does not recognise this library's devices as its own, but some of its calls read fields of objects all the same.
//! This library has the same names in the same versions. It answers queries of known facts about a device, gives programs the rings of
//! queues, which they then use themselves, passes on commands to the firmware, and creates flows by matchers; it refuses all other calls.
//! All of it is implemented in `libibverbs.so.1`, under names with their own version (`UVERBS_1` in `ibverbs.map`); here are only jumps.
//!
//! # Safety
//! A label and a jump: the assembly here has no other effect. The target reads no parameters, or has those that the header `mlx5dv.h` of
//! rdma-core 65 declares.

#![allow(unsafe_code)]
// Without the standard library it has 4 kB, with it 280. A profile whose panics unwind needs it.
#![cfg_attr(panic = "abort", no_std)]

#[path = "../../beside/jumps.rs"]
#[macro_use]
mod jumps;

mod names;

names! { uverbs_mlx5_init_obj_0 => uverbs_init_obj_0 }
names! { uverbs_mlx5_init_obj => uverbs_init_obj_2 }
core::arch::global_asm!(
    ".symver uverbs_init_obj_0,mlx5dv_init_obj@MLX5_1.0",
    ".symver uverbs_init_obj_2,mlx5dv_init_obj@@MLX5_1.2",
);
