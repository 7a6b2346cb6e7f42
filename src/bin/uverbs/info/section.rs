//! A listing in two forms at the same time: indented text, laid out as by ibv_devinfo, and JSON.

use std::fmt::Display;

use serde_json::{Map, Value};

const TAB: usize = 8;
/// The indentation of names of flags.
const FLAG: &str = "\t\t\t\t\t";

/// Fields of one indentation.
#[derive(Debug)]
pub(super) struct Section {
    indent: usize,
    /// The column of values, if the field's name leaves room.
    column: usize,
    pub(super) text: String,
    pub(super) json: Map<String, Value>,
}

impl Section {
    /// A section that is indented by `indent` tabs; values begin at tab number `column`.
    pub(super) fn new(indent: usize, column: usize) -> Self {
        Self { indent, column: column * TAB, text: String::new(), json: Map::new() }
    }

    /// A field whose JSON is not just its text.
    pub(super) fn field(&mut self, key: &str, text: impl Display, json: impl Into<Value>) {
        let end = self.indent * TAB + key.len() + 1;
        let tabs = self.column.saturating_sub(end).div_ceil(TAB).max(1);
        self.text.push_str(&format!("{}{key}:{}{text}\n", "\t".repeat(self.indent), "\t".repeat(tabs)));
        self.json.insert(key.to_owned(), json.into());
    }

    /// A field that is text in JSON too.
    pub(super) fn text(&mut self, key: &str, text: impl Display) {
        let text = text.to_string();
        self.field(key, &text, text.clone());
    }

    /// A decimal number.
    pub(super) fn number(&mut self, key: &str, number: impl Into<u64>) {
        let number = number.into();
        self.field(key, number, number);
    }

    /// A name with its number.
    pub(super) fn coded(&mut self, key: &str, name: &str, number: impl Display) {
        self.text(key, format_args!("{name} ({number})"));
    }

    /// A separate line.
    pub(super) fn remark(&mut self, text: &str) {
        self.text.push_str(&format!("{}{text}\n", "\t".repeat(self.indent)));
    }

    /// Names of flags, on lines after the last one.
    pub(super) fn flags<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            self.text.push_str(&format!("{FLAG}{name}\n"));
        }
    }

    /// Names of flags under a title, and a list in JSON.
    pub(super) fn flag_list(&mut self, key: &str, names: Vec<String>) {
        self.remark(&format!("{key}:"));
        self.flags(names.iter().map(String::as_str));
        self.json.insert(key.to_owned(), names.into());
    }

    /// A section under a title.
    pub(super) fn nest(&mut self, key: &str, inner: Self) {
        self.remark(&format!("{key}:"));
        self.text.push_str(&inner.text);
        self.json.insert(key.to_owned(), inner.json.into());
    }
}

/// The names of the bits that are set, lowest first, followed by the bits without a name.
pub(super) fn named(bits: u64, names: &[(u64, &str)]) -> Vec<String> {
    let known = names.iter().filter(|(bit, _)| bits & bit != 0);
    let mut words: Vec<_> = known.map(|(_, name)| (*name).to_owned()).collect();
    let rest = names.iter().fold(bits, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        words.push(format!("Unknown flags: {rest:#X}"));
    }
    words
}
