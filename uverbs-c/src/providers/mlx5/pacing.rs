//! Entries of the device's rate table.

use uverbs::mlx5::PacingEntry;

use super::known;
use crate::answer::{EINVAL, EOPNOTSUPP, or_null};
use crate::boundary::Pointer;
use crate::context::Context;

/// `struct mlx5dv_pp`, and what it is for the library.
#[repr(C)]
pub(crate) struct Pp {
    index: u16,
    _entry: PacingEntry,
}

/// `MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX`.
const DEDICATED: u32 = 1 << 0;

/// The most bytes that an attribute of the kernel can have.
const MOST: usize = u16::MAX as usize;

pub(crate) extern "C" fn pp_alloc(
    context: Option<&Context>,
    len: usize,
    described: Pointer,
    flags: u32,
) -> Option<Box<Pp>> {
    let make = || {
        let context = known(context)?;
        if flags & !DEDICATED != 0 {
            return Err(EOPNOTSUPP);
        }
        let described = described.items::<u8>(len).filter(|_| len <= MOST).ok_or(EINVAL)?;
        let entry = PacingEntry::with_context(context, described, flags != 0)?;
        Ok(Box::new(Pp { index: entry.index(), _entry: entry }))
    };
    or_null(make())
}

pub(crate) extern "C" fn pp_free(entry: Option<Box<Pp>>) {
    drop(entry);
}
