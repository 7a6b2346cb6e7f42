//! The row of a table for a report, which others have written.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::report::{Counts, FORMAT};
use crate::Outcome;
use crate::failure::Failure;
use crate::output::Output;

/// No report is so large.
const LARGEST: u64 = 4 << 20;
/// Longest text of a cell, in characters.
const CELL: usize = 60;

/// What the row needs of a report.
#[derive(Debug, Deserialize)]
struct Report {
    format: u32,
    uverbs: String,
    kernel: Option<String>,
    device: Device,
    interrupted: bool,
    counts: Counts,
    times: Vec<Time>,
}

#[derive(Debug, Deserialize)]
struct Device {
    kind: String,
    driver: String,
    firmware: String,
    board: Option<String>,
    link_layer: String,
}

#[derive(Debug, Deserialize)]
struct Time {
    what: String,
    median_ns: Option<u64>,
}

/// Prints the row.
pub(super) fn print(path: &Path) -> Outcome {
    let name = || path.display().to_string();
    let failed = |error| Failure::File(name(), error);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{}: no report of uverbs verify: {error}", name())))?;
    if report.format != FORMAT {
        let text = format!("{}: a report of format {}; this program knows {FORMAT}", name(), report.format);
        return Err(Failure::Unsupported(text));
    }
    Output::new().line(row(&report))
}

fn row(report: &Report) -> String {
    let device = &report.device;
    let time = |what: &str| {
        let time = report.times.iter().find(|time| time.what == what).and_then(|time| time.median_ns);
        time.map_or_else(|| "-".to_owned(), |ns| format!("{ns} ns"))
    };
    let counts = report.counts;
    let board = device.board.as_deref().unwrap_or_default();
    let cells = [
        format!("{} {board} ({})", device.driver, device.kind),
        device.link_layer.clone(),
        device.firmware.clone(),
        report.kernel.clone().unwrap_or_default(),
        report.uverbs.clone(),
        format!("{}{}", counts.holds, if report.interrupted { ", not to its end" } else { "" }),
        counts.differs.to_string(),
        counts.not_supported.to_string(),
        counts.skipped.to_string(),
        time("read two counters"),
        time("read two counters, prepared"),
        time("write 8 bytes, until it has completed"),
    ];
    format!("| {} |", cells.map(|text| cell(&text)).join(" | "))
}

/// A text that stays in its cell.
fn cell(text: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || c.is_whitespace() || " .,_-+()/:".contains(*c);
    let kept: String = text.chars().filter(is_kept).take(CELL).collect();
    let words: Vec<_> = kept.split_whitespace().collect();
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_no_end_inside() {
        assert_eq!(cell("a | b\n<script>`x`"), "a b scriptx");
        assert_eq!(cell("  "), "-");
        assert_eq!(cell(&"x".repeat(1000)).len(), CELL);
    }
}
