//! The rows of a reader, whose memory is used again for each reading.

use std::time::Instant;

use super::meaning::Meaning;
use super::statistic::{Source, Statistic};

/// Rows in the order in which they arrive. As long as the same rows arrive, nothing is allocated.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Statistic>,
    /// The position of the next row.
    next: usize,
    /// There is a row that did not exist before.
    has_grown: bool,
    /// A row that may wrap is lower than before.
    may_have_wrapped: bool,
    /// When the reading began.
    taken: Instant,
}

impl Default for Table {
    fn default() -> Self {
        let (rows, taken) = (Vec::new(), Instant::now());
        Self { rows, next: 0, has_grown: false, may_have_wrapped: false, taken }
    }
}

/// The owner of a row: port, and source.
pub(super) type Place = (Option<u32>, Source);

impl Table {
    pub(super) fn begin(&mut self) {
        *self = Self { rows: std::mem::take(&mut self.rows), ..Self::default() };
    }

    /// Stores a value.
    pub(super) fn put(&mut self, place: Place, name: &[u8], raw: u64, meaning: impl FnOnce(&str) -> Meaning) {
        let is_it = |row: &Statistic| (row.port, row.source) == place && is_name(&row.name, name);
        match self.rows.get(self.next..).unwrap_or_default().iter().position(is_it) {
            // The rows before it do not exist any more.
            Some(0) => {}
            Some(gone) => drop(self.rows.drain(self.next..self.next + gone)),
            None => {
                let name = String::from_utf8_lossy(name).into_owned();
                let meaning = meaning(&name);
                self.rows.insert(self.next, Statistic::new(place, name, raw, meaning, self.taken));
                self.has_grown = true;
            }
        }
        if let Some(row) = self.rows.get_mut(self.next) {
            self.may_have_wrapped |= raw < row.raw && row.meaning.of_packets;
            (row.raw, row.taken) = (raw, self.taken);
        }
        self.next += 1;
    }

    /// Ends a reading. Returns whether a row is new.
    pub(super) fn end(&mut self) -> bool {
        self.rows.truncate(self.next);
        self.has_grown
    }

    /// Whether this reading has a counter that is lower than before because it has wrapped, or was reset.
    pub(super) fn may_have_wrapped(&self) -> bool {
        self.may_have_wrapped
    }

    pub(super) fn rows(&self) -> &[Statistic] {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut [Statistic] {
        &mut self.rows
    }
}

/// Whether a row has this name. Bytes that are not UTF-8 have become replacement characters.
fn is_name(row: &str, name: &[u8]) -> bool {
    row.as_bytes() == name || (str::from_utf8(name).is_err() && String::from_utf8_lossy(name) == row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;

    fn filled(table: &mut Table, names: &[&[u8]], value: u64) -> bool {
        table.begin();
        for name in names {
            table.put((Some(1), Source::Hardware), name, value, |name| {
                Meaning::of(Source::Hardware, name, false, &Driver::Other)
            });
        }
        table.end()
    }

    fn shown(table: &Table) -> Vec<(&str, u64)> {
        table.rows().iter().map(|row| (row.name(), row.raw())).collect()
    }

    #[test]
    fn rows_stay_come_and_go() {
        let mut table = Table::default();
        assert!(filled(&mut table, &[b"a", b"b", b"c"], 1));
        assert!(!filled(&mut table, &[b"a", b"b", b"c"], 2));
        assert_eq!(shown(&table), [("a", 2), ("b", 2), ("c", 2)]);
        assert!(!filled(&mut table, &[b"a", b"c"], 3));
        assert_eq!(shown(&table), [("a", 3), ("c", 3)]);
        assert!(filled(&mut table, &[b"z", b"a", b"c", b"d"], 4));
        assert_eq!(shown(&table), [("z", 4), ("a", 4), ("c", 4), ("d", 4)]);
        filled(&mut table, &[], 5);
        assert_eq!(shown(&table), []);
    }

    #[test]
    fn strange_names_are_rows_like_others() {
        let mut table = Table::default();
        let names = [&b"\xff\xfe"[..], b"", b"a \"b\"\n", "zähler".as_bytes(), b"a", b"a"];
        filled(&mut table, &names, 1);
        assert!(!filled(&mut table, &names, 2), "they are known again");
        assert_eq!(
            shown(&table),
            [("\u{fffd}\u{fffd}", 2), ("", 2), ("a \"b\"\n", 2), ("zähler", 2), ("a", 2), ("a", 2)]
        );
    }
}
