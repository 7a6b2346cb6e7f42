//! Names that only a program linked with the archive needs: those of the drivers' libraries that belong to this one, and some of the
//! header's. The header refers to the drivers that the program selects
//! (`RDMA_STATIC_PROVIDERS`) as variables, whose addresses it passes to a function. All drivers are defined.
//!
//! The linker's map does not list these names, so the shared library does not have them.

use super::one;
use crate::convert::nothing;

one! { ibv_static_providers => nothing; }

/// Names that jump to a name of this library.
macro_rules! names {
    ($to:ident => $($name:ident)*) => {
        $(core::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ": ", $crate::export::jump!(), " ", stringify!($to)),
            concat!(".size ", stringify!($name), ",.-", stringify!($name)),
        );)*
    };
}

#[path = "../../efa/src/names.rs"]
mod efa;
#[path = "../../mlx5/src/names.rs"]
mod mlx5;

// A program that is linked now has the newest version.
names! { uverbs_mlx5_init_obj => mlx5dv_init_obj }

/// Variables of one byte that are never read.
macro_rules! providers {
    ($($name:ident)*) => {
        $(core::arch::global_asm!(
            ".pushsection .rodata",
            concat!(".globl verbs_provider_", stringify!($name)),
            concat!(".type verbs_provider_", stringify!($name), ",@object"),
            concat!("verbs_provider_", stringify!($name), ": .byte 0"),
            concat!(".size verbs_provider_", stringify!($name), ",1"),
            ".popsection",
        );)*
    };
}

providers! {
    all bnxt_re cxgb4 efa erdma hfi1verbs hns ipathverbs irdma mana mlx4 mlx5 mthca none ocrdma qedr rxe siw vmw_pvrdma
}
