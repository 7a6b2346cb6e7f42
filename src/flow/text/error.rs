//! An error in a text, and its place.

use std::fmt;

use nix::errno::Errno;

use crate::kernel::error::Error;

/// Characters of the text that are shown before the column, including it, and after it.
const BEFORE: usize = 70;
const AFTER: usize = 30;

/// An error in the text of a rule: what is wrong, at which column, and what was expected.
///
/// The alternate form (`{:#}`) also shows the text, with a caret below the column:
///
/// ```
/// let error = uverbs::AnyRule::parse("ip src 10.0.0.1/33", 1).unwrap_err();
/// assert_eq!(error.column(), 17);
/// let shown = "\
/// column 17: `33` is more than 32; expected a prefix length, or a mask such as 255.0.255.0
///   ip src 10.0.0.1/33
///                   ^";
/// assert_eq!(format!("{error:#}"), shown);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    text: String,
    column: usize,
    message: String,
    expected: Vec<&'static str>,
}

/// An error whose text is not available here: the column, and the rest of the error.
pub(super) struct Fault {
    pub(super) column: usize,
    pub(super) message: String,
    pub(super) expected: Vec<&'static str>,
}

impl Fault {
    pub(super) fn new(column: usize, message: impl Into<String>) -> Self {
        Self { column, message: message.into(), expected: Vec::new() }
    }

    pub(super) fn expecting(mut self, expected: impl IntoIterator<Item = &'static str>) -> Self {
        for word in expected {
            if !self.expected.contains(&word) {
                self.expected.push(word);
            }
        }
        self
    }

    pub(super) fn of(self, text: &str) -> RuleError {
        let Self { column, message, expected } = self;
        RuleError { text: text.to_owned(), column, message, expected }
    }
}

impl RuleError {
    /// The column of the error, in characters from 1; behind the last word if the text ends too early.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What was expected: keywords, and descriptions of values (which contain spaces).
    pub fn expected(&self) -> &[&'static str] {
        &self.expected
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)?;
        for (number, word) in self.expected.iter().enumerate() {
            f.write_str(match number {
                0 => "; expected ",
                _ if number + 1 == self.expected.len() => " or ",
                _ => ", ",
            })?;
            match word.contains(' ') {
                true => f.write_str(word)?,
                false => write!(f, "`{word}`")?,
            }
        }
        if f.alternate() {
            // One character per column, whatever the text contains, and only a part of a long text.
            let skipped = self.column.saturating_sub(BEFORE);
            let cut = if skipped > 0 { "…" } else { "" };
            let shown = self.text.chars().skip(skipped).take(BEFORE + AFTER);
            let shown = shown.map(|c| if c.is_whitespace() || c.is_control() { ' ' } else { c });
            let before = " ".repeat(self.column - skipped - 1);
            write!(f, "\n  {cut}{}\n", shown.collect::<String>().trim_end())?;
            write!(f, "  {}{before}^", if skipped > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for RuleError {}

impl From<RuleError> for Error {
    fn from(error: RuleError) -> Self {
        Self::refused("rule.parse", Errno::EINVAL, error.to_string())
    }
}

/// A word in quotes that fits in a line: nothing unprintable, and not too long.
pub(super) fn quoted(word: &str) -> String {
    const MOST: usize = 40;
    let short: String = word.chars().take(MOST).collect();
    let dots = if short.len() < word.len() { "…" } else { "" };
    format!("`{}{dots}`", short.escape_debug())
}
