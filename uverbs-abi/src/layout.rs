//! The ABI as data: every struct with its offsets, every number with its C name.
//!
//! The crate's structs and numbers are written as tables with the macros of this file. A table is the definition, its check at compile time
//! and its entry in [`structs`] or [`numbers`], so that none of the three can be forgotten.

use crate::{cm, efa, erdma, flow, ids, ioctl, mana, mlx5, netlink, rxe, siw, types, write};

/// One struct of the ABI.
#[derive(Clone, Copy, Debug)]
pub struct StructInfo {
    /// Name in Rust.
    pub name: &'static str,
    /// Name in C, without the word `struct`; a part after a dot names a member (an anonymous struct).
    pub c_name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Fields in the order of their offsets; they cover the struct without a gap.
    pub fields: &'static [FieldInfo],
}

/// One field of a [`StructInfo`].
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    /// Name in Rust.
    pub name: &'static str,
    /// Path of the member in C; empty for padding that C leaves unnamed.
    pub c_name: &'static str,
    /// Distance from the start of the struct in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// One number of the ABI.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Name in C; empty for a number that the C headers do not name.
    pub c_name: &'static str,
    /// The value, sign-extended where it is signed.
    pub value: u64,
}

/// Every struct of the ABI.
pub fn structs() -> impl Iterator<Item = &'static StructInfo> {
    const TABLES: &[&[StructInfo]] = &[
        ioctl::STRUCTS,
        flow::STRUCTS,
        netlink::STRUCTS,
        cm::STRUCTS,
        mlx5::STRUCTS,
        mlx5::wqe::STRUCTS,
        rxe::STRUCTS,
        siw::STRUCTS,
        efa::STRUCTS,
        efa::io::STRUCTS,
        erdma::STRUCTS,
        mana::STRUCTS,
    ];
    write::STRUCTS.iter().chain(TABLES).copied().flatten()
}

/// Every struct of commands to the firmware of mlx5. They are not part of the kernel's ABI: the kernel passes them on.
pub fn firmware_structs() -> impl Iterator<Item = &'static StructInfo> {
    mlx5::prm::STRUCTS.iter()
}

/// Every number of the ABI: ids, commands, values of fields, bits of masks.
pub fn numbers() -> impl Iterator<Item = &'static Number> {
    const TABLES: &[&[Number]] = &[
        ioctl::NUMBERS,
        write::cmd::NUMBERS,
        flow::NUMBERS,
        cm::NUMBERS,
        netlink::NUMBERS,
        netlink::op::NUMBERS,
        netlink::attr::NUMBERS,
        mlx5::NUMBERS,
        mlx5::wqe::NUMBERS,
        mlx5::prm::NUMBERS,
        rxe::NUMBERS,
        siw::NUMBERS,
        efa::NUMBERS,
        efa::io::NUMBERS,
        erdma::NUMBERS,
        mana::NUMBERS,
    ];
    let ids = ids::TABLES.iter().chain(mlx5::ids::TABLES).chain(efa::ids::TABLES).copied().flatten();
    ids.chain(types::VALUES).chain(types::FLAGS).chain(TABLES).copied().flatten()
}

/// Asserts that the fields cover the struct without a gap, in the order in which they are listed.
pub(crate) const fn check(layout: &StructInfo) {
    let mut end = 0;
    let mut i = 0;
    while i < layout.fields.len() {
        assert!(layout.fields[i].offset == end, "gap or overlap before a field");
        end += layout.fields[i].size;
        i += 1;
    }
    assert!(end == layout.size, "bytes behind the last field");
}

/// Defines the ABI structs of a module, one line for each field: offset, name, type, meaning.
///
/// Parentheses after the field's name contain its path in C if that differs, and are empty if it has none.
macro_rules! layout {
    ($(
        $(#[$attr:meta])*
        struct $name:ident = $c_struct:literal, $size:literal {
            $($offset:literal $field:ident $(($($c_field:literal)?))? : $type:ty, $doc:literal;)*
        }
    )*) => {
        $(
            $(#[$attr])*
            #[doc(alias = $c_struct)]
            #[repr(C)]
            #[derive(
                Clone, Copy, Debug, PartialEq, Eq,
                zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
            )]
            pub struct $name {
                $(#[doc = $doc] pub $field: $type,)*
            }

            impl Default for $name {
                /// All bytes zero.
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }

            const _: () = {
                assert!(core::mem::size_of::<$name>() == $size, "size");
                $(assert!(core::mem::offset_of!($name, $field) == $offset, "offset");)*
            };
        )*

        /// The structs of this module as data.
        pub(crate) const STRUCTS: &[crate::layout::StructInfo] = &[$({
            const LAYOUT: crate::layout::StructInfo = crate::layout::StructInfo {
                name: stringify!($name),
                c_name: $c_struct,
                size: core::mem::size_of::<$name>(),
                fields: &[$(crate::layout::FieldInfo {
                    name: stringify!($field),
                    c_name: c_name!("" $field $(($($c_field)?))?),
                    offset: core::mem::offset_of!($name, $field),
                    size: core::mem::size_of::<$type>(),
                },)*],
            };
            crate::layout::check(&LAYOUT);
            LAYOUT
        },)*];
    };
}

/// Defines the numbers of a module, one line each: name, value, meaning; grouped by type and C prefix.
///
/// Parentheses after the name contain the C name if that is not prefix + name, and are empty if there is none.
macro_rules! numbers {
    ($(
        $type:ident $prefix:literal {
            $($name:ident $(($($c_name:literal)?))? = $value:expr, $doc:literal;)*
        }
    )*) => {
        $($(
            #[doc = c_doc!($doc $prefix $name $(($($c_name)?))?)]
            pub const $name: $type = $value;
        )*)*

        /// The numbers of this module as data.
        pub(crate) const NUMBERS: &[crate::layout::Number] = &[$($(crate::layout::Number {
            c_name: c_name!($prefix $name $(($($c_name)?))?),
            value: $name as u64,
        },)*)*];
    };
}

/// Defines modules of numbers of one kind each, and `VALUES`, the table of all of them.
macro_rules! values {
    ($(
        $(#[$attr:meta])*
        $module:ident: $type:ident $prefix:literal {
            $($name:ident $(($($c_name:literal)?))? = $value:expr, $doc:literal;)*
        }
    )*) => {
        $(
            $(#[$attr])*
            pub mod $module {
                numbers! { $type $prefix { $($name $(($($c_name)?))? = $value, $doc;)* } }
            }
        )*

        /// The numbers of the modules here as data.
        pub(crate) const VALUES: &[&[crate::layout::Number]] = &[$($module::NUMBERS,)*];
    };
}

/// Defines sets of bits, and `FLAGS`, the table of all of them.
macro_rules! flags {
    ($(
        $(#[$attr:meta])*
        struct $set:ident: $type:ident $prefix:literal {
            $($name:ident $(($($c_name:literal)?))? = $value:expr, $doc:literal;)*
        }
    )*) => {
        $(
            bitflags::bitflags! {
                $(#[$attr])*
                #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
                pub struct $set: $type {
                    $(#[doc = c_doc!($doc $prefix $name $(($($c_name)?))?)] const $name = $value;)*
                }
            }
        )*

        /// The bits of the sets here as data.
        pub(crate) const FLAGS: &[&[crate::layout::Number]] = &[$(&[$(crate::layout::Number {
            c_name: c_name!($prefix $name $(($($c_name)?))?),
            value: $set::$name.bits() as u64,
        },)*],)*];
    };
}

/// Defines one ioctl object: a module with its number, its methods, and a module of attributes per method.
macro_rules! object {
    (
        $(#[$attr:meta])*
        $object:ident $(($($c_object:literal)?))? = $number:literal;
        $($method:ident: $prefix:literal {
            $($name:ident $(($($c_name:literal)?))? = $value:literal, $doc:literal;)*
        })*
    ) => {
        $(#[$attr])*
        pub mod $object {
            #[doc = c_doc!("Number of the object." "" OBJECT $(($($c_object)?))?)]
            pub const OBJECT: u16 = $number;

            $(
                #[doc = module_doc!($method)]
                pub mod $method {
                    numbers! { u16 $prefix { $($name $(($($c_name)?))? = $value, $doc;)* } }
                }
            )*

            /// The numbers of this object as data.
            pub(crate) const TABLES: &[&[crate::layout::Number]] = &[
                &[crate::layout::Number {
                    c_name: c_name!("" OBJECT $(($($c_object)?))?),
                    value: OBJECT as u64,
                }],
                $($method::NUMBERS,)*
            ];
        }
    };
}

/// The first line of the documentation of a module inside an object.
macro_rules! module_doc {
    (method) => {
        "Methods of the object."
    };
    ($method:ident) => {
        concat!("Attributes of the method `", stringify!($method), "`.")
    };
}

/// The C name of an item: prefix and Rust name, or the name that is given.
macro_rules! c_name {
    ($prefix:literal $name:ident) => {
        concat!($prefix, stringify!($name))
    };
    ($prefix:literal $name:ident ($c_name:literal)) => {
        $c_name
    };
    ($prefix:literal $name:ident ()) => {
        ""
    };
}

/// Documentation of a number: its sentence, and its C name if there is one.
macro_rules! c_doc {
    ($doc:literal $prefix:literal $name:ident ()) => {
        $doc
    };
    ($doc:literal $prefix:literal $name:ident $(($c_name:literal))?) => {
        concat!($doc, "\n\nIn C: `", c_name!($prefix $name $(($c_name))?), "`.")
    };
}
