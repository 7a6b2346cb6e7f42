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

/// What is read first: other formats may have other fields.
#[derive(Debug, Deserialize)]
struct Head {
    format: u32,
}

/// What the row needs of a report.
#[derive(Debug, Deserialize)]
struct Report {
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
    Output::new().line(row(&read(&text, &name())?))
}

fn read(text: &str, name: &str) -> Outcome<Report> {
    let wrong = |error| Failure::Usage(format!("{name}: no report of uverbs verify: {error}"));
    let Head { format } = serde_json::from_str(text).map_err(wrong)?;
    if format != FORMAT {
        let text = format!("{name}: a report of format {format}; this program knows {FORMAT}");
        return Err(Failure::Unsupported(text));
    }
    serde_json::from_str(text).map_err(wrong)
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

/// A text that stays in its cell, and is no link: the reports of others come from anywhere.
fn cell(text: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || c.is_whitespace() || " .,_-+()".contains(*c);
    let kept: String = text.chars().filter(is_kept).take(CELL).collect();
    // Also without a scheme this would become one.
    let kept = kept.replace("www.", "www ");
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
        assert_eq!(cell("see https://example.org/x"), "see httpsexample.orgx");
        assert_eq!(cell("www.example.org"), "www example.org");
        assert_eq!(cell(&"x".repeat(1000)).len(), CELL);
    }

    #[test]
    fn another_format_is_named_whatever_its_fields_are() {
        let failure = read(r#"{"format": 2}"#, "report").expect_err("it is not known");
        assert_eq!(failure.exit_code(), 5);
        assert_eq!(failure.to_string(), "report: a report of format 2; this program knows 1");
        for text in ["", "[]", "{}", r#"{"format": "1"}"#, r#"{"format": 1}"#] {
            assert_eq!(read(text, "report").expect_err("it is no report").exit_code(), 2, "{text}");
        }
    }
}
