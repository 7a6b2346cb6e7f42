//! Tables with columns as wide as their contents, and with colours on terminals that have them.

use std::fmt::Write;
use std::io::{self, IsTerminal};

/// The appearance of a cell on a terminal with colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Head,
    Faint,
    Warning,
}

impl Style {
    /// The number of SGR (ECMA-48, 8.3.117).
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Head => Some("1"),
            Self::Faint => Some("2"),
            Self::Warning => Some("33"),
        }
    }
}

/// Whether colours are used: on a terminal that is not called dumb, unless NO_COLOR is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colours(bool);

impl Colours {
    pub(crate) fn new() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        Self(io::stdout().is_terminal() && !is_dumb && !is_set("NO_COLOR"))
    }

    #[cfg(test)]
    pub(crate) fn all() -> Self {
        Self(true)
    }

    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(false)
    }

    pub(crate) fn paint(self, text: &str, style: Style) -> String {
        match style.code().filter(|_| self.0 && !text.is_empty()) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[m"),
            None => text.to_owned(),
        }
    }
}

/// A cell. Numbers are aligned to the right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    pub(crate) fn number(text: impl ToString) -> Self {
        Self { text: text.to_string(), right: true, ..Self::default() }
    }

    /// A number, or a dash if there is none.
    pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> Self {
        Self::number(value.map_or_else(|| "-".to_owned(), |value| value.to_string()))
    }

    pub(crate) fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// Lines of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(Vec<Vec<Cell>>);

impl Table {
    /// A table with a line of headings. Headings of numbers are aligned to the right too.
    pub(crate) fn with_head(head: &[&str]) -> Self {
        let cells = head.iter().map(|text| Cell::from(*text).styled(Style::Head));
        Self(vec![cells.collect()])
    }

    pub(crate) fn push(&mut self, line: Vec<Cell>) {
        self.0.push(line);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the lines to a text, each after `indent`.
    pub(crate) fn write(&self, text: &mut String, indent: &str, colours: Colours) {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.0.iter().filter_map(move |line| line.get(column));
        let len = |cell: &Cell| cell.text.chars().count();
        let widths: Vec<_> = (0..columns).map(|column| cells(column).map(len).max().unwrap_or(0)).collect();
        let are_numbers: Vec<_> = (0..columns).map(|column| cells(column).any(|cell| cell.right)).collect();
        for line in &self.0 {
            let mut padding = 0;
            text.push_str(indent);
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let right = cell.right || (are_numbers[column] && cell.style == Style::Head);
                let missing = width - len(cell);
                let before = padding + if right { missing } else { 0 };
                if !cell.text.is_empty() {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{:before$}{}", "", colours.paint(&cell.text, cell.style));
                    padding = 0;
                }
                // Spaces at the end of a line are left out.
                padding += if cell.text.is_empty() {
                    *width
                } else if right {
                    0
                } else {
                    missing
                };
                padding += 2;
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(colours: Colours) -> String {
        let mut table = Table::with_head(&["NAME", "VALUE", "NOTE"]);
        table.push(vec!["a".into(), Cell::number(7), "full".into()]);
        table.push(vec!["longer".into(), Cell::number(12345), Cell::default()]);
        table.push(vec![Cell::default(), Cell::number(1), Cell::from("x").styled(Style::Warning)]);
        let mut text = String::new();
        table.write(&mut text, "  ", colours);
        text
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let wanted = "  NAME    VALUE  NOTE\n  a           7  full\n  longer  12345\n              1  x\n";
        assert_eq!(shown(Colours::none()), wanted);
    }

    #[test]
    fn colours_change_no_width() {
        let coloured = shown(Colours::all());
        assert!(coloured.contains("\x1b[1mNAME\x1b[m    \x1b[1mVALUE\x1b[m"), "{coloured:?}");
        let mut plain = coloured;
        for code in ["\x1b[1m", "\x1b[33m", "\x1b[m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, shown(Colours::none()));
    }
}
