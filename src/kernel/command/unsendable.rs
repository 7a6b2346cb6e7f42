//! Why a command cannot be sent.

use std::borrow::Cow;

use super::CAPACITY;
use crate::kernel::error::limit;

/// What is wrong with a command. It is found while the command is built.
#[derive(Clone, Copy)]
pub(super) enum Unsendable {
    /// It has more attributes than there is room for.
    TooMany,
    /// An attribute has this number of bytes.
    TooLong(usize),
    Nested,
}

impl Unsendable {
    /// The hint of the error with which it is refused.
    pub(super) fn hint(self) -> Cow<'static, str> {
        match self {
            Self::TooMany => {
                limit("attributes of a command", CAPACITY + 1, format_args!("at most {CAPACITY}")).into()
            }
            Self::TooLong(len) => {
                limit("bytes of an attribute", len, format_args!("at most {}", u16::MAX)).into()
            }
            Self::Nested => "only one nested input, with its address inside the outer one".into(),
        }
    }
}
