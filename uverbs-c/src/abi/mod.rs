//! The layouts of `infiniband/verbs.h`, one line for each field.
//!
//! A test compares sizes and offsets with the installed header. Structures that the kernel's ABI has in the same layout
//! (`ibv_sge`, `ibv_wc`, `ibv_ah_attr`, `ibv_gid_entry`, `ibv_async_event`, `ibv_qp_cap`) are those of `uverbs::abi`.

use std::ffi::c_void;

/// What a structure of C is called, how large it is, and where its fields are.
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
    (@each $derive:tt $(struct $name:ident = $c:literal, $size:literal { $($fields:tt)* })*) => {
        $(c_structs!(@struct $derive $name, $c, $size, $($fields)*);)*

        /// The structures of this file as data.
        #[cfg(test)]
        pub(super) const LAYOUTS: &[&super::Layout] = &[$(&$name::LAYOUT),*];
    };
    (@struct [$($derive:tt)*] $name:ident, $c:literal, $size:literal,
        $($offset:literal $field:ident $(($c_field:literal))? : $type:ty;)*
    ) => {
        #[doc = concat!("`", $c, "`.")]
        #[repr(C)]
        $($derive)*
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const _: () = {
            // Other processors have larger mutexes, with which what is behind them moves.
            const fn fits(is: usize, of_x86_64: usize) -> bool {
                is == of_x86_64 || cfg!(not(target_arch = "x86_64")) && is > of_x86_64
            }
            assert!(fits(size_of::<$name>(), $size));
            $(assert!(fits(std::mem::offset_of!($name, $field), $offset));)*
        };

        #[cfg(test)]
        impl $name {
            const LAYOUT: super::Layout = super::Layout {
                name: $c,
                size: $size,
                fields: &[$(($offset, c_structs!(@name $field $($c_field)?))),*],
            };
        }
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

/// A function of a table, whose type the header knows.
pub(crate) type Function = *const c_void;

/// `ibv_context_ops`: 32 functions.
pub(crate) type ContextOps = [Function; 32];
