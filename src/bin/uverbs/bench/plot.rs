//! Figures: panels of curves over logarithmic axes, drawn by `plotters` as SVG.

use std::io;
use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{EmptyElement, PathElement, Polygon, Text};
use plotters::prelude::SVGBackend;
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle, WHITE};

use super::tally::Tally;
use crate::Outcome;
use crate::failure::Failure;

const WIDTH: u32 = 1800;
/// Height of the title, the description and the names of the lines.
const HEAD: u32 = 190;
const PANEL: u32 = 700;

const GREY: RGBColor = RGBColor(0x5a, 0x5a, 0x5a);
const LIGHT: RGBColor = RGBColor(0xc8, 0xc8, 0xc8);
const FAINT: RGBColor = RGBColor(0xea, 0xea, 0xea);

/// The colours of Okabe and Ito, which people with any kind of colour vision can distinguish, each with its own mark, so that the figure
/// is also readable without colours.
const LOOKS: [(RGBColor, &[Place]); 5] = [
    (RGBColor(0x00, 0x72, 0xb2), &[(-5, -9), (5, -9), (9, -5), (9, 5), (5, 9), (-5, 9), (-9, 5), (-9, -5)]),
    (RGBColor(0xd5, 0x5e, 0x00), &[(-8, -8), (8, -8), (8, 8), (-8, 8)]),
    (RGBColor(0x00, 0x9e, 0x73), &[(0, -11), (10, 8), (-10, 8)]),
    (RGBColor(0xcc, 0x79, 0xa7), &[(0, -11), (11, 0), (0, 11), (-11, 0)]),
    (RGBColor(0xe6, 0x9f, 0x00), &[(0, 11), (10, -8), (-10, -8)]),
];

/// Number of points of a curve for each halving of the distance to 100 %.
const STEPS: u32 = 10;
/// The percentiles at which curves have marks.
const MARKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

type Place = (i32, i32);
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The values of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Times in ns.
    Time,
    /// Numbers.
    Number,
    /// Percentiles, spaced by the number of samples of which one is above.
    Percentile,
}

impl Scale {
    /// The label at a power of ten.
    fn label(self, value: f64) -> String {
        match (self, value) {
            (Self::Percentile, _) => (100.0 - 100.0 / value).to_string(),
            (Self::Number, ..1e3) => value.to_string(),
            (Self::Number, ..1e6) => format!("{},000", value / 1e3),
            (Self::Number, _) => format!("{},000,000", value / 1e6),
            (Self::Time, ..1e3) => format!("{value} ns"),
            (Self::Time, ..1e6) => format!("{} µs", value / 1e3),
            (Self::Time, ..1e9) => format!("{} ms", value / 1e6),
            (Self::Time, _) => format!("{} s", value / 1e9),
        }
    }
}

/// The powers of ten that enclose these values; without values, the first two. The other number is the number of labels.
fn range(values: impl Iterator<Item = f64>) -> (Range<f64>, usize) {
    let powers = values.map(|value| value.max(1.0).log10());
    let (low, high) = powers.fold((f64::INFINITY, 0.0_f64), |(low, high), power| {
        (low.min(power.floor()), high.max(power.ceil()))
    });
    let low = if low.is_finite() { low as i32 } else { 0 };
    let high = (high as i32).max(low + 1);
    (10_f64.powi(low)..10_f64.powi(high), (high - low) as usize + 1)
}

/// A line: values on both axes.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// The index of its colour and mark.
    pub(super) look: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// The positions of its marks.
    pub(super) marks: Vec<(f64, f64)>,
}

impl Line {
    fn look(&self) -> (RGBColor, &'static [Place]) {
        LOOKS[self.look % LOOKS.len()]
    }

    /// A mark, around its position.
    fn mark(&self) -> Polygon<Place> {
        let (colour, corners) = self.look();
        Polygon::new(corners, colour.filled())
    }
}

/// A panel.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: (Scale, &'static str),
    pub(super) y: (Scale, &'static str),
    pub(super) lines: Vec<Line>,
    /// A height for comparison, and its name.
    pub(super) floor: Option<(f64, &'static str)>,
}

/// A figure.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) title: String,
    /// What was measured, and how.
    pub(super) subtitle: String,
    /// The first panel has the whole width and the names of all lines; the others share a row.
    pub(super) panels: Vec<Panel>,
}

fn text(size: u32, style: FontStyle) -> FontDesc<'static> {
    FontDesc::new(FontFamily::SansSerif, size.into(), style)
}

impl Sheet {
    /// The figure as SVG.
    pub(super) fn svg(&self) -> Outcome<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| Failure::Other(format!("no figure: {error}")))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let rows = if self.panels.len() > 1 { 2 } else { 1 };
        let sheet = SVGBackend::with_string(svg, (WIDTH, HEAD + rows * PANEL)).into_drawing_area();
        sheet.fill(&WHITE)?;
        let (head, body) = sheet.split_vertically(HEAD);
        let head = head.margin(25, 0, 0, 0).titled(&self.title, text(46, FontStyle::Bold))?;
        let head = head.titled(&self.subtitle, TextStyle::from(text(30, FontStyle::Normal)).color(&GREY))?;
        let lines = self.panels.first().map_or(&[][..], |first| &first.lines);
        for (line, place) in lines.iter().zip(head.margin(0, 0, 200, 0).split_evenly((1, lines.len().max(1))))
        {
            let style = TextStyle::from(text(32, FontStyle::Normal)).pos(Pos::new(HPos::Left, VPos::Center));
            let (colour, _) = line.look();
            place.draw(&PathElement::new([(0, 40), (80, 40)], colour.stroke_width(4)))?;
            place.draw(&(EmptyElement::at((40, 40)) + line.mark()))?;
            place.draw(&Text::new(line.name, (98, 40), style))?;
        }
        let (top, bottom) = body.split_vertically(PANEL);
        let mut panels = self.panels.iter();
        if let Some(first) = panels.next() {
            first.draw(&top, 12)?;
        }
        let places = bottom.split_evenly((1, panels.len().max(1)));
        panels.zip(&places).try_for_each(|(panel, place)| panel.draw(place, 4))?;
        sheet.present()
    }
}

impl Panel {
    /// Draws it, with at most `most` labels on the horizontal axis.
    fn draw(&self, area: &Area<'_>, most: usize) -> Drawn {
        let area = area.titled(&self.title, text(34, FontStyle::Bold))?;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let floor = self.floor.map(|(height, _)| height);
        let (x, x_labels) = range(points().map(|point| point.0));
        let (y, y_labels) = range(points().map(|point| point.1).chain(floor));
        let mut chart = ChartBuilder::on(&area)
            .margin(20)
            .margin_right(75)
            .x_label_area_size(100)
            .y_label_area_size(160)
            .build_cartesian_2d(x.clone().log_scale(), y.log_scale())?;
        chart
            .configure_mesh()
            .x_labels(x_labels.min(most))
            .y_labels(y_labels)
            // Between whole percentiles the spacing is not even.
            .x_max_light_lines(if self.x.0 == Scale::Percentile { 0 } else { 10 })
            .bold_line_style(LIGHT.stroke_width(2))
            .light_line_style(FAINT.stroke_width(2))
            .label_style(text(30, FontStyle::Normal))
            .x_label_formatter(&|value| self.x.0.label(*value))
            .y_label_formatter(&|value| self.y.0.label(*value))
            .x_desc(self.x.1)
            .y_desc(self.y.1)
            .draw()?;
        if let Some((height, what)) = self.floor {
            let ends = [(x.start, height), (x.end, height)];
            chart.draw_series(DashedLineSeries::new(ends, 11, 9, GREY.stroke_width(2)))?;
            let beside = Pos::new(HPos::Right, VPos::Bottom);
            let style = TextStyle::from(text(26, FontStyle::Normal)).color(&GREY).pos(beside);
            chart.draw_series([Text::new(what, (x.end, height), style)])?;
        }
        for line in &self.lines {
            let (colour, _) = line.look();
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(4)))?;
            chart.draw_series(line.marks.iter().map(|at| EmptyElement::at(*at) + line.mark()))?;
        }
        Ok(())
    }
}

/// Times by percentile, up to the percentile that only the longest time exceeds.
pub(super) fn curve(name: &'static str, look: usize, tally: &Tally) -> Line {
    let last = 1.0 - 1.0 / tally.count().max(2) as f64;
    // One in so many is above.
    let point = |share: f64, time: u64| (1.0 / (1.0 - share), time.max(1) as f64);
    let shares = || tally.shares(STEPS).filter(|share| *share < last);
    let at = |share| point(share, tally.quantile(share));
    let points = std::iter::once(0.0).chain(shares()).map(at).chain([point(last, tally.max())]).collect();
    let marks = MARKED.into_iter().filter(|share| *share < last).map(at).collect();
    Line { name, look, points, marks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_units() {
        let label = |scale: Scale| move |power| scale.label(10_f64.powi(power));
        let times: Vec<_> = (0..11).map(label(Scale::Time)).collect();
        let wanted =
            ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"];
        assert_eq!(times, wanted);
        assert_eq!([0, 3, 4, 7].map(label(Scale::Number)), ["1", "1,000", "10,000", "10,000,000"]);
        assert_eq!([0, 1, 2, 4, 7].map(label(Scale::Percentile)), ["0", "90", "99", "99.99", "99.99999"]);
    }

    #[test]
    fn a_range_encloses_everything() {
        let found = |values: &[f64]| range(values.iter().copied());
        assert_eq!(found(&[31.6, 1584.0]), (10.0..1e4, 4));
        assert_eq!(found(&[100.0]), (100.0..1000.0, 2));
        assert_eq!(found(&[0.0]), (1.0..10.0, 2));
        assert_eq!(found(&[]), (1.0..10.0, 2));
    }

    #[test]
    fn each_power_has_one_label() {
        for powers in 1..12 {
            let far = 10_f64.powi(powers);
            let lines = vec![Line {
                name: "one",
                look: 9,
                points: vec![(1.0, 1.0), (far, far)],
                marks: vec![(far, far)],
            }];
            let (x, y) = ((Scale::Percentile, "share"), (Scale::Time, "time"));
            let panels = vec![Panel { title: String::new(), x, y, lines, floor: Some((1.0, "floor")) }];
            let svg = Sheet { title: String::new(), subtitle: String::new(), panels }.svg().unwrap();
            for (scale, power) in
                [Scale::Percentile, Scale::Time].into_iter().flat_map(|s| (0..=powers).map(move |p| (s, p)))
            {
                let label = scale.label(10_f64.powi(power));
                assert_eq!(svg.lines().filter(|line| *line == label).count(), 1, "{label} of {powers}");
            }
        }
    }
}
