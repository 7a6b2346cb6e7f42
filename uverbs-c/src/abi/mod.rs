//! The layouts of `infiniband/verbs.h`, one line for each field: its offset on x86_64 and, if it differs, on aarch64, where a mutex
//! (`pthread_mutex_t`) has 48 bytes instead of 40.
//!
//! The build fails if a layout differs on one of these two. A test compares sizes and offsets with the installed header. Structures with
//! the same layout in the kernel's ABI (`ibv_sge`, `ibv_wc`, `ibv_ah_attr`, `ibv_gid_entry`, `ibv_async_event`, `ibv_qp_cap`) are those of
//! `uverbs::abi`.

use std::ffi::c_void;

/// The name of a C structure, its size, and the offsets of its fields.
#[cfg(test)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: &'static [(usize, &'static str)],
}

macro_rules! c_structs {
    (values; $($rest:tt)*) => {
        c_structs!(@each [#[derive(Clone, Copy, zerocopy::FromZeros)]] $($rest)*);
    };
    (objects; $($rest:tt)*) => {
        c_structs!(@each [] $($rest)*);
    };
    (@each $derive:tt $(struct $name:ident = $c:literal, $size:literal $(| $of_aarch64:literal)? { $($fields:tt)* })*) => {
        $(c_structs!(@struct $derive $name, $c, [$size $($of_aarch64)?], $($fields)*);)*

        /// The layouts of this file's structures.
        #[cfg(test)]
        pub(super) const LAYOUTS: &[&super::Layout] = &[$(&$name::LAYOUT),*];
    };
    (@struct [$($derive:tt)*] $name:ident, $c:literal, $size:tt,
        $($offset:literal $(| $of_aarch64:literal)? $field:ident $(($c_field:literal))? : $type:ty;)*
    ) => {
        #[doc = concat!("`", $c, "`.")]
        #[repr(C)]
        $($derive)*
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const _: () = {
            // For other processors no offsets are listed. Their mutexes are no smaller, so offsets and sizes are no smaller either.
            const fn fits(is: usize, wanted: usize) -> bool {
                is == wanted || cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) && is > wanted
            }
            assert!(fits(size_of::<$name>(), c_structs!(@here $size)));
            $(assert!(fits(std::mem::offset_of!($name, $field), c_structs!(@here [$offset $($of_aarch64)?])));)*
        };

        #[cfg(test)]
        impl $name {
            const LAYOUT: super::Layout = super::Layout {
                name: $c,
                size: c_structs!(@here $size),
                fields: &[$((c_structs!(@here [$offset $($of_aarch64)?]), c_structs!(@name $field $($c_field)?))),*],
            };
        }
    };
    (@here [$everywhere:literal]) => { $everywhere };
    (@here [$of_x86_64:literal $of_aarch64:literal]) => {
        if cfg!(target_arch = "aarch64") { $of_aarch64 } else { $of_x86_64 }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $c_field:literal) => { $c_field };
}

mod attr;
mod objects;
mod requests;
#[cfg(test)]
mod tests;

pub(crate) use nix::libc::{pthread_cond_t as Cond, pthread_mutex_t as Mutex};

pub(crate) use self::attr::*;
pub(crate) use self::objects::*;
pub(crate) use self::requests::*;
pub(crate) use crate::boundary::Pointer;

/// A function of a table. The header declares its type.
pub(crate) type Function = *const c_void;

/// `ibv_context_ops`: 32 functions.
pub(crate) type ContextOps = [Function; 32];
