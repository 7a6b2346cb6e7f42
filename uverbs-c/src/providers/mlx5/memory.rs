//! Rings in memory of the program (`mlx5dv_set_context_attr`): DPDK's are in memory that its other processes have too.

use std::ffi::c_int;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs::raw::BlockSource;

use super::known;
use crate::answer::{EINVAL, EOPNOTSUPP, returned};
use crate::boundary::{Pointer, memory_of};
use crate::context::Context;

/// `struct mlx5dv_ctx_allocators`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocators {
    alloc: Option<extern "C" fn(usize, u64) -> Pointer>,
    free: Option<extern "C" fn(u64, u64)>,
    data: u64,
}

/// `MLX5DV_CTX_ATTR_BUF_ALLOCATORS`.
const ALLOCATORS: u32 = 1;

/// A block that goes back to the program.
struct Block {
    address: u64,
    free: extern "C" fn(u64, u64),
    data: u64,
}

impl Drop for Block {
    fn drop(&mut self) {
        (self.free)(self.address, self.data);
    }
}

/// Rings that are created from now on are in memory that `alloc` returns, if there are both functions.
pub(crate) extern "C" fn set_context_attr(
    context: Option<&Context>,
    kind: u32,
    attr: Option<&Allocators>,
) -> c_int {
    let set = || {
        let context = known(context)?;
        if kind != ALLOCATORS {
            return Err(EOPNOTSUPP);
        }
        context.use_memory_mlx5(match *attr.ok_or(EINVAL)? {
            Allocators { alloc: Some(alloc), free: Some(free), data } => BlockSource::new(move |len| {
                let block = alloc(len, data);
                let owner = || Arc::new(Block { address: block.word(), free, data }) as _;
                memory_of(block, len, owner).ok_or(Errno::ENOMEM)
            }),
            _ => BlockSource::default(),
        });
        Ok(())
    };
    returned(set())
}
