//! The figures of a measurement, for people and for programs: those of perftest's latency tests.

use std::fmt::Write;

use serde::Serialize;

use super::tally::Tally;
use crate::Outcome;
use crate::failure::Failure;

/// The figures of one measurement.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    count: u64,
    min_ns: u64,
    typical_ns: u64,
    mean_ns: f64,
    stdev_ns: f64,
    p99_ns: u64,
    p999_ns: u64,
    p9999_ns: u64,
    max_ns: u64,
}

/// The figures of the warm-up samples.
#[derive(Debug, Serialize)]
pub(super) struct WarmUp {
    count: u64,
    typical_ns: u64,
    max_ns: u64,
}

/// The names of the columns, after perftest's.
const COLUMNS: [&str; 10] = [
    "#samples",
    "t_min[ns]",
    "t_max[ns]",
    "t_typical[ns]",
    "t_avg[ns]",
    "t_stdev[ns]",
    "99%[ns]",
    "99.9%[ns]",
    "99.99%[ns]",
    "#warm-up",
];

impl Figures {
    pub(super) fn new(latency: &Tally) -> Self {
        Self {
            count: latency.count(),
            min_ns: latency.min(),
            typical_ns: latency.quantile(0.5),
            mean_ns: latency.mean(),
            stdev_ns: latency.stdev(),
            p99_ns: latency.quantile(0.99),
            p999_ns: latency.quantile(0.999),
            p9999_ns: latency.quantile(0.9999),
            max_ns: latency.max(),
        }
    }

    fn cells(&self, warm_up: &WarmUp) -> [String; COLUMNS.len()] {
        [
            self.count.to_string(),
            self.min_ns.to_string(),
            self.max_ns.to_string(),
            self.typical_ns.to_string(),
            format!("{:.1}", self.mean_ns),
            format!("{:.1}", self.stdev_ns),
            self.p99_ns.to_string(),
            self.p999_ns.to_string(),
            self.p9999_ns.to_string(),
            warm_up.count.to_string(),
        ]
    }
}

impl WarmUp {
    pub(super) fn new(latency: &Tally) -> Self {
        Self { count: latency.count(), typical_ns: latency.quantile(0.5), max_ns: latency.max() }
    }
}

/// A row of the table: what was measured, and the figures.
pub(super) type Row<'a, const N: usize> = ([String; N], &'a Figures, &'a WarmUp);

/// A table, whose first columns, `head`, say what was measured.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[Row<'_, N>]) -> String {
    let names = head.into_iter().chain(COLUMNS).map(str::to_owned).collect();
    let cells =
        rows.iter().map(|(what, figures, warm_up)| [&what[..], &figures.cells(warm_up)].concat()).collect();
    let lines: Vec<Vec<String>> = [vec![names], cells].concat();
    let width =
        |column: usize| lines.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for row in &lines {
        let line = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<0$}", width(column)),
            _ => format!("{cell:>0$}", width(column)),
        });
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// One JSON object a line.
pub(super) fn json<T: Serialize>(lines: impl IntoIterator<Item = T>) -> Outcome<String> {
    let line = |line| serde_json::to_string(&line).map(|line| line + "\n");
    lines.into_iter().map(line).collect::<Result<_, _>>().map_err(|error| Failure::Other(error.to_string()))
}
