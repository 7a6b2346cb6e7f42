//! What waits have cost, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::super::clock::Floor;
use super::super::figures::{Figures, WarmUp, json, table};
use super::super::plot::{Look, Panel, Scale, Sheet, curve};
use super::object::Object;
use super::turns::Measured;
use crate::Outcome;

/// What every figure must be read with.
const NOTE: &str = "no device: counters in the process's own memory";

/// What holds for all measurements of a run.
#[derive(Debug)]
pub(super) struct About {
    pub(super) kernel: String,
    pub(super) clock: String,
    pub(super) floor: Floor,
    pub(super) cpus: Vec<usize>,
}

impl About {
    /// Who did what where.
    fn load(&self) -> String {
        let list = self.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let place = if self.cpus.is_empty() { String::new() } else { format!(", on CPU {list}") };
        format!("one thread adds 1, another waits for it, in turns{place}")
    }
}

/// One measurement.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) object: Object,
    pub(super) warm_up: Measured,
    pub(super) measured: Measured,
}

/// A row with everything that is to be known of it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    wait_object: Object,
    #[serde(flatten)]
    figures: Figures,
    early: u64,
    floor_ns: u64,
    clock_ns: u64,
    clock: &'a str,
    device: Option<&'a str>,
    kernel: &'a str,
    note: &'static str,
    cpus: &'a [usize],
    elapsed_ns: u64,
    warmup: WarmUp,
}

impl<'a> Line<'a> {
    fn new(about: &'a About, row: &Row) -> Self {
        Self {
            wait_object: row.object,
            figures: Figures::new(&row.measured.latency),
            early: row.measured.early,
            floor_ns: about.floor.system_call,
            clock_ns: about.floor.clock,
            clock: &about.clock,
            device: None,
            kernel: &about.kernel,
            note: NOTE,
            cpus: &about.cpus,
            elapsed_ns: row.measured.elapsed,
            warmup: WarmUp::new(&row.warm_up.latency),
        }
    }
}

/// One JSON object a line.
pub(super) fn lines(about: &About, rows: &[Row]) -> Outcome<String> {
    json(rows.iter().map(|row| Line::new(about, row)))
}

/// A table, and what it must be read with.
pub(super) fn text(about: &About, rows: &[Row]) -> String {
    let About { kernel, clock, floor, .. } = about;
    let mut text = format!(
        "device   {NOTE}
kernel   {kernel}
clock    {clock}; two looks cost {} ns, contained in each sample
floor    {} ns a system call that does nothing
load     {}

",
        floor.clock,
        floor.system_call,
        about.load(),
    );
    let lines: Vec<_> = rows.iter().map(|row| Line::new(about, row)).collect();
    let what = |line: &Line<'_>| [line.wait_object.name().to_owned()];
    let figures: Vec<_> = lines.iter().map(|line| (what(line), &line.figures, &line.warmup)).collect();
    text += &table(["wait-object"], &figures);
    for Line { wait_object, early, .. } in lines.iter().filter(|line| line.early > 0) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "early    {}: in {early} samples the value was there before the wait began",
            wait_object.name()
        );
    }
    text
}

/// The percentiles of each wait object, as SVG.
pub(super) fn figure(about: &About, rows: &[Row]) -> Outcome<String> {
    let look = |row: &Row| Look(row.object as usize);
    let panel = Panel {
        title: "From the look at the clock before `add` to the one after the wait".to_owned(),
        x: (Scale::Percentile, "percentile of the samples (%)"),
        y: (Scale::Time, "wake-up latency"),
        lines: rows.iter().map(|row| curve(look(row), &row.measured.latency)).collect(),
        floor: Some((about.floor.system_call.max(1) as f64, "system call that does nothing".to_owned())),
    };
    let sheet = Sheet {
        title: "Time to wake a thread that waits for a completion counter".to_owned(),
        subtitle: format!(
            "{}; Linux {}; {} ns of the clock in each sample",
            about.load(),
            about.kernel,
            about.floor.clock
        ),
        legend: rows.iter().map(|row| (row.object.name(), look(row))).collect(),
        panels: vec![panel],
    };
    sheet.svg()
}
