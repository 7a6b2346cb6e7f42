//! The figure: percentiles of each mode, times by number of counters, ages of cached values.

mod axis;
mod canvas;
mod panel;

use self::axis::Scale;
use self::canvas::{Anchor, Canvas, Drawn, GREY, INK, Look, Type};
use self::panel::{Line, Panel};
use super::mode::Mode;
use super::report::{About, Row};
use super::tally::Tally;
use crate::Outcome;
use crate::failure::Failure;

const WIDTH: i32 = 1800;
/// Title, what was measured, and the legend.
const HEAD: i32 = 210;
const PANEL: i32 = 660;
const MARGIN: i32 = 20;

const TITLE: Type = Type { size: 46, bold: true, colour: INK };
const SUBTITLE: Type = Type { size: 30, bold: false, colour: GREY };
const LEGEND: Type = Type { size: 32, bold: false, colour: INK };

/// Points of a curve for each halving of what is left up to 100 %.
const STEPS: u32 = 10;
/// Where curves have marks.
const MARKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The figure as SVG.
pub(super) fn figure(about: &About, rows: &[Row]) -> Outcome<String> {
    let mut svg = String::new();
    draw(&mut svg, about, rows).map_err(|error| Failure::Other(format!("no figure: {error}")))?;
    Ok(svg)
}

fn draw(svg: &mut String, about: &About, rows: &[Row]) -> Drawn {
    let panels = panels(about, rows);
    // The first has the whole width; others share a row.
    let height = HEAD + PANEL * if panels.len() > 1 { 2 } else { 1 } + MARGIN;
    let canvas = Canvas::new(svg, WIDTH, height)?;
    head(&canvas, about, rows)?;
    let mut panels = panels.iter();
    if let Some(first) = panels.next() {
        first.draw(&canvas, (MARGIN, HEAD), (WIDTH - MARGIN, HEAD + PANEL))?;
    }
    let rest = panels.len() as i32;
    for (number, panel) in (0..).zip(panels) {
        let edge = |number| MARGIN + (WIDTH - 2 * MARGIN) * number / rest;
        panel.draw(&canvas, (edge(number), HEAD + PANEL), (edge(number + 1), HEAD + 2 * PANEL))?;
    }
    canvas.finish()
}

fn head(canvas: &Canvas<'_>, about: &About, rows: &[Row]) -> Drawn {
    let About { kind, device, kernel, floor, .. } = about;
    let title = format!("Time to read flow counters, {kind} {device}");
    canvas.text(&title, (WIDTH / 2, 50), Anchor::Middle, TITLE)?;
    let clock = floor.clock;
    let subtitle = format!("{}; Linux {kernel}; {clock} ns of the clock in each sample", about.load());
    canvas.text(&subtitle, (WIDTH / 2, 108), Anchor::Middle, SUBTITLE)?;
    let modes = modes(rows);
    let width = |mode: &Mode| 100 + 17 * mode.name().len() as i32;
    let mut x = (WIDTH - modes.iter().map(width).sum::<i32>() - 50 * (modes.len() as i32 - 1)) / 2;
    for mode in &modes {
        let y = 172;
        canvas.line(vec![(x, y), (x + 80, y)], look(*mode))?;
        canvas.mark((x + 40, y), look(*mode))?;
        canvas.text(mode.name(), (x + 98, y), Anchor::Left, LEGEND)?;
        x += width(mode) + 50;
    }
    Ok(())
}

/// Every mode that was measured, once.
fn modes(rows: &[Row]) -> Vec<Mode> {
    let mut modes: Vec<_> = rows.iter().map(|row| row.mode).collect();
    modes.sort_unstable();
    modes.dedup();
    modes
}

/// A mode looks the same in every figure.
fn look(mode: Mode) -> Look {
    Look(mode as usize)
}

fn panels(about: &About, rows: &[Row]) -> Vec<Panel> {
    let least = rows.iter().map(|row| row.counters).min().unwrap_or(1);
    let first: Vec<_> = rows.iter().filter(|row| row.counters == least).collect();
    let counters =
        if least == 1 { "1 counters object".to_owned() } else { format!("{least} counters objects") };
    let floor = (about.floor.system_call.max(1) as f64, "system call that does nothing".to_owned());
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
    let latency = first.iter().map(|row| curve(row.mode, &row.result.measured.latency)).collect();
    add(format!("Latency, {counters}"), percentiles(latency), "latency", Some(floor));
    if rows.iter().any(|row| row.counters != least) {
        let lines = modes(rows).into_iter().map(|mode| by_counters(mode, rows)).collect();
        let x = (Scale::Number, "counters objects", lines);
        add("Median time to read all".to_owned(), x, "median latency", None);
    }
    let aged = first.iter().filter(|row| row.result.measured.age.count() > 0);
    let ages: Vec<_> = aged.map(|row| curve(row.mode, &row.result.measured.age)).collect();
    if !ages.is_empty() {
        add(format!("Age of cached values, {counters}"), percentiles(ages), "age", None);
    }
    panels
}

/// Times by percentile, up to that which the longest one alone is above.
fn curve(mode: Mode, tally: &Tally) -> Line {
    let last = 1.0 - 1.0 / tally.count().max(2) as f64;
    let point = |share: f64| (share, tally.quantile(share) as f64);
    let shares = tally.shares(STEPS).filter(|share| *share < last);
    let points = std::iter::once(0.0).chain(shares).map(point).chain([(last, tally.max() as f64)]).collect();
    let marks = MARKED.into_iter().filter(|share| *share < last).map(point).collect();
    Line { look: look(mode), points, marks }
}

/// Medians by number of counters.
fn by_counters(mode: Mode, rows: &[Row]) -> Line {
    let rows = rows.iter().filter(|row| row.mode == mode);
    let points: Vec<_> =
        rows.map(|row| (f64::from(row.counters), row.result.measured.latency.quantile(0.5) as f64)).collect();
    Line { look: look(mode), marks: points.clone(), points }
}
