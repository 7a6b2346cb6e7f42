//! Figures: what was measured, a legend, and panels.

mod axis;
mod canvas;
mod panel;

pub(super) use self::axis::Scale;
pub(super) use self::canvas::Look;
use self::canvas::{Anchor, Canvas, Drawn, GREY, INK, Type};
pub(super) use self::panel::{Line, Panel};
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

/// A figure.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) title: String,
    /// What was measured, and how.
    pub(super) subtitle: String,
    /// The names of what has lines.
    pub(super) legend: Vec<(&'static str, Look)>,
    /// The first has the whole width; others share a row.
    pub(super) panels: Vec<Panel>,
}

impl Sheet {
    /// The figure as SVG.
    pub(super) fn svg(&self) -> Outcome<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| Failure::Other(format!("no figure: {error}")))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let height = HEAD + PANEL * if self.panels.len() > 1 { 2 } else { 1 } + MARGIN;
        let canvas = Canvas::new(svg, WIDTH, height)?;
        self.head(&canvas)?;
        let mut panels = self.panels.iter();
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

    fn head(&self, canvas: &Canvas<'_>) -> Drawn {
        canvas.text(&self.title, (WIDTH / 2, 50), Anchor::Middle, TITLE)?;
        canvas.text(&self.subtitle, (WIDTH / 2, 108), Anchor::Middle, SUBTITLE)?;
        let width = |(name, _): &(&str, Look)| 100 + 17 * name.len() as i32;
        let all = self.legend.iter().map(width).sum::<i32>() + 50 * (self.legend.len() as i32 - 1);
        let mut x = (WIDTH - all) / 2;
        for entry @ (name, look) in &self.legend {
            let y = 172;
            canvas.line(vec![(x, y), (x + 80, y)], *look)?;
            canvas.mark((x + 40, y), *look)?;
            canvas.text(name, (x + 98, y), Anchor::Left, LEGEND)?;
            x += width(entry) + 50;
        }
        Ok(())
    }
}

/// Times by percentile, up to that which the longest one alone is above.
pub(super) fn curve(look: Look, tally: &Tally) -> Line {
    let last = 1.0 - 1.0 / tally.count().max(2) as f64;
    let point = |share: f64| (share, tally.quantile(share) as f64);
    let shares = tally.shares(STEPS).filter(|share| *share < last);
    let points = std::iter::once(0.0).chain(shares).map(point).chain([(last, tally.max() as f64)]).collect();
    let marks = MARKED.into_iter().filter(|share| *share < last).map(point).collect();
    Line { look, points, marks }
}
