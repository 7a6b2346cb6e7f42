//! Layouts of the device's structures: commands, contexts, capabilities and what flows match.
//!
//! Everything is named as in the kernel's `include/linux/mlx5/mlx5_ifc.h`, with the bit offset and width it has there.
//! `tests.rs` compares all of it with that header, where there is one, and with `golden/mlx5_ifc.txt`.

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

/// The field of a structure by their names.
pub(crate) fn find(structure: &str, field: &str) -> Option<Field> {
    let (_, fields) = tables().find(|(name, _)| *name == structure)?;
    fields.iter().find(|(name, _)| *name == field).map(|(_, field)| *field)
}
