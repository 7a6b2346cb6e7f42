//! The hint of an error.

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

/// The hint of a refused number, with the number and its limit: `segments of a request: 40 given, at most 30 allowed`.
pub(crate) fn limit(what: &str, given: impl fmt::Display, allowed: impl fmt::Display) -> String {
    format!("{what}: {given} given, {allowed} allowed")
}

/// A hint. That of a refusal on the path of data contains only numbers, and its text is written when it is read, so that the refusal
/// allocates nothing.
#[derive(Clone)]
pub(super) enum Hint {
    Text(Cow<'static, str>),
    Numbers(Numbers, OnceLock<Box<str>>),
}

/// What was refused on the path of data.
#[derive(Clone, Copy)]
pub(crate) enum Numbers {
    /// More than `most`; and the consequence.
    Beyond { what: &'static str, given: u64, most: u64, so: &'static str },
    /// A range outside of a memory region of `len` bytes.
    Range { start: usize, end: usize, len: usize },
}

impl Hint {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Numbers(numbers, text) => text.get_or_init(|| numbers.to_string().into()),
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Beyond { what, given, most, so } => limit(what, given, format_args!("at most {most}")) + so,
            Self::Range { start, end, len } => {
                let (given, allowed) = (format!("{start}..{end}"), format!("0..{len}"));
                limit("range of the memory region", given, allowed)
            }
        };
        f.write_str(&text)
    }
}

impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl PartialEq for Hint {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Hint {}

impl Hint {
    pub(super) fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn numbers(numbers: Numbers) -> Self {
        Self::Numbers(numbers, OnceLock::new())
    }
}
