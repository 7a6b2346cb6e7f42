//! The figure of reads: percentiles of each mode, times by number of counters, ages of cached values.

use super::mode::Mode;
use super::plot::{Line, Panel, Scale, Sheet, curve};
use super::report::{About, Row};
use crate::Outcome;

/// The figure as SVG.
pub(super) fn figure(about: &About, rows: &[Row]) -> Outcome<String> {
    let About { kind, device, kernel, floor, .. } = about;
    let sheet = Sheet {
        title: format!("Time to read flow counters, {kind} {device}"),
        subtitle: format!("{}; Linux {kernel}; {} ns of the clock in each sample", about.load(), floor.clock),
        panels: panels(about, rows),
    };
    sheet.svg()
}

/// Every mode that was measured, once.
fn modes(rows: &[Row]) -> Vec<Mode> {
    let mut modes: Vec<_> = rows.iter().map(|row| row.mode).collect();
    modes.sort_unstable();
    modes.dedup();
    modes
}

fn panels(about: &About, rows: &[Row]) -> Vec<Panel> {
    let least = rows.iter().map(|row| row.counters).min().unwrap_or(1);
    let first: Vec<_> = rows.iter().filter(|row| row.counters == least).collect();
    let counters =
        if least == 1 { "1 counters object".to_owned() } else { format!("{least} counters objects") };
    let floor = (about.floor.system_call.max(1) as f64, "system call that does nothing");
    let percentiles = |lines| (Scale::Percentile, "percentile of the samples (%)", lines);
    let mut panels = Vec::new();
    let mut add = |what: String, (scale, x, lines), y, floor| {
        let letter = char::from(b'a' + panels.len() as u8);
        panels.push(Panel {
            title: format!("({letter}) {what}"),
            x: (scale, x),
            y: (Scale::Time, y),
            lines,
            floor,
        });
    };
    // Of a mode that was not reached with so few there is the name alone.
    let latency = modes(rows).into_iter().map(|mode| {
        let row = first.iter().find(|row| row.mode == mode);
        let none = Line { name: mode.name(), look: mode as usize, points: Vec::new(), marks: Vec::new() };
        row.map_or(none, |row| curve(mode.name(), mode as usize, &row.result.measured.latency))
    });
    let latency = latency.collect();
    add(format!("Latency, {counters}"), percentiles(latency), "latency", Some(floor));
    if rows.iter().any(|row| row.counters != least) {
        let lines = modes(rows).into_iter().map(|mode| by_counters(mode, rows)).collect();
        let x = (Scale::Number, "counters objects", lines);
        add("Median time to read all".to_owned(), x, "median latency", None);
    }
    let aged = first.iter().filter(|row| row.result.measured.age.count() > 0);
    let ages: Vec<_> =
        aged.map(|row| curve(row.mode.name(), row.mode as usize, &row.result.measured.age)).collect();
    if !ages.is_empty() {
        add(format!("Age of cached values, {counters}"), percentiles(ages), "age", None);
    }
    panels
}

/// Medians by number of counters.
fn by_counters(mode: Mode, rows: &[Row]) -> Line {
    let rows = rows.iter().filter(|row| row.mode == mode);
    let points: Vec<_> =
        rows.map(|row| (f64::from(row.counters), row.result.measured.latency.quantile(0.5) as f64)).collect();
    Line { name: mode.name(), look: mode as usize, marks: points.clone(), points }
}
