//! The page for people.

use super::report::{Report, Result, Row};
use crate::table::{Cell, Colours, Style, Table};
use crate::target::Target;

/// All rows, those that differ with what was expected, and the counts in the last line.
pub(super) fn of(target: &Target, report: &Report) -> String {
    let colours = Colours::new();
    let device = &report.device;
    let kernel = report.kernel.as_deref().unwrap_or("unknown");
    let firmware = if device.firmware.is_empty() { "none" } else { &device.firmware };
    let name = target.device.name().escape_debug();
    let mut text =
        format!("{name}: {}, firmware {firmware}, Linux {kernel}, uverbs {}\n", device.driver, report.uverbs);
    let mut before: Option<&Row> = None;
    for row in &report.rows {
        let before = before.replace(row).filter(|before| before.area == row.area);
        if before.is_none() {
            text.push_str(&format!("\n{}\n", colours.paint(row.area, Style::Head)));
        }
        // The same reason is not repeated.
        line(&mut text, row, before.is_some_and(|before| before.why == row.why), colours);
    }
    if !report.times.is_empty() {
        text.push_str(&format!("\n{}\n", colours.paint("times, median", Style::Head)));
        let mut table = Table::default();
        for time in &report.times {
            let cell = match (time.median_ns, &time.why) {
                (Some(ns), _) => Cell::number(format!("{ns} ns")),
                (None, why) => Cell::from(format!("not measured: {}", why.as_deref().unwrap_or_default()))
                    .styled(Style::Faint),
            };
            table.push(vec![time.what.into(), cell]);
        }
        table.write(&mut text, "  ", colours);
    }
    let counts = report.counts;
    text.push_str(&format!(
        "\n{} hold, {} differ, {} not supported, {} skipped, in {:.1} s\n",
        counts.holds,
        counts.differs,
        counts.not_supported,
        counts.skipped,
        report.elapsed_ms as f64 / 1000.0
    ));
    if report.interrupted {
        text.push_str("the run was ended; the rest was not tried\n");
    }
    text
}

fn line(text: &mut String, row: &Row, is_known: bool, colours: Colours) {
    let (word, style) = match row.result {
        Result::Holds => ("holds", Style::Plain),
        Result::Differs => ("DIFFERS", Style::Warning),
        Result::NotSupported => ("not supported", Style::Faint),
        Result::Skipped => ("skipped", Style::Faint),
    };
    text.push_str(&format!(
        "  {}{:width$}{}\n",
        colours.paint(word, style),
        "",
        row.behaviour,
        width = 15 - word.len()
    ));
    let mut add = |what: &str, value: &Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("                   {what}{value}\n"));
        }
    };
    add("step:     ", &row.step);
    add("expected: ", &row.expected);
    add("seen:     ", &row.seen);
    match row.by {
        _ if is_known => {}
        Some("uverbs") => add("by this program: ", &row.why),
        Some(by) => add(&format!("by the {by}: "), &row.why),
        None => add("", &row.why),
    }
}
