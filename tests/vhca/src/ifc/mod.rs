//! Layouts of the device's structures: commands, contexts, capabilities and match values of flows.
//!
//! All names are those of the kernel's `include/linux/mlx5/mlx5_ifc.h`, with the same bit offsets and widths. `tests.rs` compares all of
//! them with that header, if it is available, and with `golden/mlx5_ifc.txt`.

/// Defines a module for each structure with a [`Field`] for each row, and lists them in `TABLES`.
macro_rules! layouts {
    ($($structure:ident { $($field:ident: $offset:literal + $width:literal,)* })*) => {
        $(
            #[allow(non_upper_case_globals, dead_code, reason = "the kernel's names; fields document their structure")]
            pub(crate) mod $structure {
                use crate::bits::Field;
                $(pub(crate) const $field: Field = Field::new($offset, $width);)*
                pub(crate) const ALL: &[(&str, Field)] = &[$((stringify!($field), $field)),*];
            }
        )*
        pub(super) const TABLES: &[(&str, &[(&str, crate::bits::Field)])] =
            &[$((stringify!($structure), $structure::ALL)),*];
    };
}

pub(crate) mod capability;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod counter;
pub(crate) mod steering;
#[cfg(test)]
mod tests;

use crate::bits::Field;

/// Every structure with its fields.
pub(crate) fn tables() -> impl Iterator<Item = &'static (&'static str, &'static [(&'static str, Field)])> {
    [command::TABLES, context::TABLES, counter::TABLES, steering::TABLES, capability::TABLES]
        .into_iter()
        .flatten()
}

/// The field of a structure, by the names of both.
pub(crate) fn find(structure: &str, field: &str) -> Option<Field> {
    let (_, fields) = tables().find(|(name, _)| *name == structure)?;
    fields.iter().find(|(name, _)| *name == field).map(|(_, field)| *field)
}
