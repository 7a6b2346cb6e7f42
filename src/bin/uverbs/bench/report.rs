//! What reads have cost, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::clock::Floor;
use super::figures::{self, Figures, WarmUp};
use super::kind::Kind;
use super::mode::Mode;
use super::run::Measurements;
use crate::Outcome;

/// What applies to all measurements of a run.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) device: String,
    pub(super) driver: &'static str,
    pub(super) kind: Kind,
    pub(super) kernel: String,
    pub(super) clock: String,
    pub(super) floor: Floor,
    /// Median of a command that is refused, in ns.
    pub(super) refused: u64,
    pub(super) threads: u16,
    pub(super) rate: Option<u64>,
    pub(super) batch: u32,
    pub(super) cpus: Vec<usize>,
}

impl About {
    /// How reads were sent: `closed loop, 1 thread`.
    pub(super) fn load(&self) -> String {
        let pace = match self.rate {
            Some(rate) => format!("open loop of {rate} samples/s"),
            None => "closed loop".to_owned(),
        };
        let threads =
            if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        let list = self.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let place = if self.cpus.is_empty() { String::new() } else { format!(" on CPU {list}") };
        format!("{pace}, {threads}{place}")
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) mode: Mode,
    pub(super) counters: u32,
    pub(super) result: Measurements,
}

/// A row with everything that is known about it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    mode: Mode,
    counters: u32,
    threads: u16,
    #[serde(flatten)]
    figures: Figures,
    age_p50_ns: Option<u64>,
    age_max_ns: Option<u64>,
    floor_ns: u64,
    refused_ns: u64,
    clock_ns: u64,
    clock: &'a str,
    device: &'a str,
    device_kind: Kind,
    driver: &'static str,
    kernel: &'a str,
    note: Option<&'static str>,
    #[serde(rename = "loop")]
    pace: &'static str,
    rate: Option<u64>,
    late: u64,
    unsent: u64,
    batch: u32,
    cpus: &'a [usize],
    elapsed_ns: u64,
    warmup: WarmUp,
}

impl<'a> Line<'a> {
    fn new(about: &'a About, row: &Row) -> Self {
        let (measured, warm_up) = (&row.result.measured, &row.result.warm_up);
        let (latency, age) = (&measured.latency, &measured.age);
        let aged = age.count() > 0;
        Self {
            mode: row.mode,
            counters: row.counters,
            threads: about.threads,
            figures: Figures::new(latency),
            age_p50_ns: aged.then(|| age.quantile(0.5)),
            age_max_ns: aged.then(|| age.max()),
            floor_ns: about.floor.system_call,
            refused_ns: about.refused,
            clock_ns: about.floor.clock,
            clock: &about.clock,
            device: &about.device,
            device_kind: about.kind,
            driver: about.driver,
            kernel: &about.kernel,
            note: about.kind.remark(),
            pace: if about.rate.is_some() { "open" } else { "closed" },
            rate: about.rate,
            late: measured.late,
            unsent: measured.unsent,
            batch: about.batch,
            cpus: &about.cpus,
            elapsed_ns: measured.elapsed,
            warmup: WarmUp::new(&warm_up.latency),
        }
    }
}

/// One JSON object per line.
pub(super) fn json(about: &About, rows: &[Row]) -> Outcome<String> {
    figures::json(rows.iter().map(|row| Line::new(about, row)))
}

/// A table, and the remarks needed to read it.
pub(super) fn table(about: &About, rows: &[Row]) -> String {
    let About { device, driver, kernel, clock, floor, .. } = about;
    let note = about.kind.remark().map(|note| format!("; {note}")).unwrap_or_default();
    let batch = if about.batch == 1 { String::new() } else { format!(", means of {} reads", about.batch) };
    let mut text = format!(
        "device   {device}, driver {driver}{note}
kernel   {kernel}
clock    {clock}; two readings cost {} ns, included in each sample
floor    {} ns a system call that does nothing, {} ns a command refused on the same file
load     {}{batch}; each sample reads all counters once

",
        floor.clock,
        floor.system_call,
        about.refused,
        about.load(),
    );
    let lines: Vec<_> = rows.iter().map(|row| Line::new(about, row)).collect();
    let what = |line: &Line<'_>| [line.mode.name().to_owned(), line.counters.to_string()];
    let rows_of: Vec<_> = lines.iter().map(|line| (what(line), &line.figures, &line.warmup)).collect();
    text += &figures::table(["mode", "#counters"], &rows_of);
    remarks(&mut text, about, rows);
    text
}

/// Remarks on single rows.
fn remarks(text: &mut String, about: &About, rows: &[Row]) {
    let mut seen = Vec::new();
    for row in rows {
        let line = Line::new(about, row);
        let name = format!("{}, {} counters", row.mode.name(), row.counters);
        if let (Some(half), Some(max)) = (line.age_p50_ns, line.age_max_ns) {
            let _ = writeln!(
                text,
                "age      {name}: half of what was read was up to {half} ns old, all of it {max} ns"
            );
        }
        if about.rate.is_some() {
            let (late, unsent) = (line.late, line.unsent);
            let _ = writeln!(text, "on time  {name}: {late} sent late, {unsent} not sent before the end");
        }
        if let Some(remark) = row.mode.remark().filter(|_| !seen.contains(&row.mode)) {
            let _ = writeln!(text, "note     {}: {remark}", row.mode.name());
            seen.push(row.mode);
        }
    }
}
