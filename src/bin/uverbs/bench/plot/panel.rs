//! One panel of the figure: axes, and lines with marks.

use super::axis::{Scale, range};
use super::canvas::{Anchor, Canvas, Drawn, FAINT, GREY, INK, LIGHT, Look, Place, Type};

/// Room for what stands around the axes: the title above, and the labels.
const LEFT: i32 = 170;
const RIGHT: i32 = 80;
const TOP: i32 = 70;
const BOTTOM: i32 = 115;

/// Width of a digit of a label, at most.
const DIGIT: i32 = 19;

const LABEL: Type = Type { size: 30, bold: false, colour: INK };
const TITLE: Type = Type { size: 34, bold: true, colour: INK };
const SMALL: Type = Type { size: 26, bold: false, colour: GREY };

/// A line: values on both axes.
#[derive(Debug)]
pub(in crate::bench) struct Line {
    pub(in crate::bench) look: Look,
    pub(in crate::bench) points: Vec<(f64, f64)>,
    /// Where it has marks.
    pub(in crate::bench) marks: Vec<(f64, f64)>,
}

/// A panel.
#[derive(Debug)]
pub(in crate::bench) struct Panel {
    pub(in crate::bench) title: String,
    pub(in crate::bench) x: (Scale, &'static str),
    pub(in crate::bench) y: (Scale, &'static str),
    pub(in crate::bench) lines: Vec<Line>,
    /// A height to compare with, and what it is.
    pub(in crate::bench) floor: Option<(f64, String)>,
}

/// Where the axes are, in powers and in pixels.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    from: Place,
    to: Place,
}

impl Frame {
    fn x(&self, position: f64) -> i32 {
        let share = (position - self.x.0) / (self.x.1 - self.x.0);
        self.from.0 + (share.clamp(0.0, 1.0) * f64::from(self.to.0 - self.from.0)).round() as i32
    }

    fn y(&self, position: f64) -> i32 {
        let share = (position - self.y.0) / (self.y.1 - self.y.0);
        self.to.1 - (share.clamp(0.0, 1.0) * f64::from(self.to.1 - self.from.1)).round() as i32
    }
}

impl Panel {
    /// Draws it into the rectangle.
    pub(super) fn draw(&self, canvas: &Canvas<'_>, from: Place, to: Place) -> Drawn {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let floor = self.floor.iter().map(|(value, _)| self.y.0.position(*value));
        let frame = Frame {
            x: range(points().map(|point| self.x.0.position(point.0))),
            y: range(points().map(|point| self.y.0.position(point.1)).chain(floor)),
            from: (from.0 + LEFT, from.1 + TOP),
            to: (to.0 - RIGHT, to.1 - BOTTOM),
        };
        canvas.text(&self.title, (frame.from.0, from.1 + TOP / 2), Anchor::Left, TITLE)?;
        self.grid(canvas, &frame)?;
        self.labels(canvas, &frame, from, to)?;
        if let Some((value, what)) = &self.floor {
            let y = frame.y(self.y.0.position(*value));
            canvas.dashes((frame.from.0, y), (frame.to.0, y), GREY)?;
            // Above the line, unless that is outside.
            let beside = if y - 24 > frame.from.1 + 16 { y - 22 } else { y + 24 };
            canvas.text(what, (frame.to.0 - 14, beside), Anchor::Right, SMALL)?;
        }
        let place = |(x, y): &(f64, f64)| (frame.x(self.x.0.position(*x)), frame.y(self.y.0.position(*y)));
        for line in &self.lines {
            canvas.line(line.points.iter().map(place).collect(), line.look)?;
        }
        for line in &self.lines {
            line.marks.iter().try_for_each(|point| canvas.mark(place(point), line.look))?;
        }
        Ok(())
    }

    /// A line at each power, and a fainter one at each multiple.
    fn grid(&self, canvas: &Canvas<'_>, frame: &Frame) -> Drawn {
        for (position, colour) in ticks(self.y.0, frame.y) {
            let y = frame.y(position);
            canvas.rule((frame.from.0, y), (frame.to.0, y), colour)?;
        }
        for (position, colour) in ticks(self.x.0, frame.x) {
            let x = frame.x(position);
            canvas.rule((x, frame.from.1), (x, frame.to.1), colour)?;
        }
        canvas.frame(frame.from, frame.to)
    }

    fn labels(&self, canvas: &Canvas<'_>, frame: &Frame, from: Place, to: Place) -> Drawn {
        for power in frame.y.0 as i32..=frame.y.1 as i32 {
            let at = (frame.from.0 - 16, frame.y(power.into()));
            canvas.text(&self.y.0.label(power), at, Anchor::Right, LABEL)?;
        }
        let powers = frame.x.0 as i32..=frame.x.1 as i32;
        let widest =
            powers.clone().map(|power| self.x.0.label(power).len() as i32 * DIGIT).max().unwrap_or(0);
        let apart = (frame.to.0 - frame.from.0) / (frame.x.1 - frame.x.0).max(1.0) as i32;
        // As many as stand beside each other.
        let step = 1 + (widest + DIGIT) / apart.max(1);
        for power in powers.step_by(step.unsigned_abs() as usize) {
            let at = (frame.x(power.into()), frame.to.1 + 30);
            canvas.text(&self.x.0.label(power), at, Anchor::Middle, LABEL)?;
        }
        let middle = ((frame.from.0 + frame.to.0) / 2, (frame.from.1 + frame.to.1) / 2);
        canvas.text(self.x.1, (middle.0, to.1 - 35), Anchor::Middle, LABEL)?;
        canvas.text(self.y.1, (from.0 + 20, middle.1), Anchor::Upwards, LABEL)
    }
}

/// The lines of a grid, the fainter ones first.
fn ticks(scale: Scale, (low, high): (f64, f64)) -> Vec<(f64, plotters::style::RGBColor)> {
    let powers = || (low as i32..=high as i32).map(f64::from);
    let multiples =
        powers().flat_map(|power| (2..10).map(move |multiple| power + f64::from(multiple).log10()));
    let faint = multiples.filter(|position| scale != Scale::Percentile && *position < high);
    faint.map(|position| (position, FAINT)).chain(powers().map(|position| (position, LIGHT))).collect()
}
