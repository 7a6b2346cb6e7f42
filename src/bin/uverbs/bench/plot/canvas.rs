//! What the figure is drawn with: text, lines, marks, at places in pixels.

use std::io;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, FontTransform, IntoFont, RGBColor, TextStyle, WHITE};

pub(super) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<io::Error>>;
pub(super) type Place = (i32, i32);

pub(super) const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
pub(super) const GREY: RGBColor = RGBColor(0x5a, 0x5a, 0x5a);
pub(super) const LIGHT: RGBColor = RGBColor(0xc8, 0xc8, 0xc8);
pub(super) const FAINT: RGBColor = RGBColor(0xea, 0xea, 0xea);

/// The colours of Okabe and Ito, which people of all kinds of colour vision tell apart.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// Half of a mark's width.
const MARK: i32 = 9;

/// Where text stands to its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    /// It begins there.
    Left,
    /// It ends there.
    Right,
    /// Its middle is there.
    Middle,
    /// Its middle is there, and it is read from below.
    Upwards,
}

/// How text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) size: i32,
    pub(super) bold: bool,
    pub(super) colour: RGBColor,
}

/// The colour and the mark of a line; each number has its own of both, so that the figure can do without colours.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Look(pub(in crate::bench) usize);

impl Look {
    fn colour(self) -> RGBColor {
        COLOURS.get(self.0 % COLOURS.len()).copied().unwrap_or(INK)
    }
}

/// The sheet that is drawn on.
pub(super) struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

impl<'a> Canvas<'a> {
    /// An empty sheet, whose SVG text goes to `svg`.
    pub(super) fn new(svg: &'a mut String, width: i32, height: i32) -> Drawn<Self> {
        let area =
            SVGBackend::with_string(svg, (width.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
        area.fill(&WHITE)?;
        Ok(Self(area))
    }

    pub(super) fn finish(self) -> Drawn {
        self.0.present()
    }

    pub(super) fn text(&self, text: &str, at: Place, anchor: Anchor, look: Type) -> Drawn {
        let style = if look.bold { FontStyle::Bold } else { FontStyle::Normal };
        let (horizontal, turned) = match anchor {
            Anchor::Left => (HPos::Left, FontTransform::None),
            Anchor::Right => (HPos::Right, FontTransform::None),
            Anchor::Middle => (HPos::Center, FontTransform::None),
            Anchor::Upwards => (HPos::Center, FontTransform::Rotate270),
        };
        let font = ("sans-serif", look.size).into_font().style(style).transform(turned);
        let style = TextStyle::from(font).color(&look.colour).pos(Pos::new(horizontal, VPos::Center));
        self.0.draw(&Text::new(text.to_owned(), at, style))
    }

    /// A thin line, as of a grid.
    pub(super) fn rule(&self, from: Place, to: Place, colour: RGBColor) -> Drawn {
        self.0.draw(&PathElement::new([from, to], colour.stroke_width(2)))
    }

    /// A thin line of dashes, from left to right.
    pub(super) fn dashes(&self, from: Place, to: Place, colour: RGBColor) -> Drawn {
        (from.0..to.0)
            .step_by(20)
            .try_for_each(|x| self.rule((x, from.1), ((x + 11).min(to.0), to.1), colour))
    }

    pub(super) fn frame(&self, from: Place, to: Place) -> Drawn {
        self.0.draw(&Rectangle::new([from, to], INK.stroke_width(2)))
    }

    pub(super) fn line(&self, points: Vec<Place>, look: Look) -> Drawn {
        self.0.draw(&PathElement::new(points, look.colour().stroke_width(4)))
    }

    pub(super) fn mark(&self, at: Place, look: Look) -> Drawn {
        let fill = look.colour().filled();
        let corners = |corners: &[Place]| {
            let placed: Vec<_> = corners.iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
            Polygon::new(placed, fill)
        };
        match look.0 % COLOURS.len() {
            0 => self.0.draw(&Circle::new(at, MARK, fill)),
            1 => self.0.draw(&corners(&[(-8, -8), (8, -8), (8, 8), (-8, 8)])),
            2 => self.0.draw(&corners(&[(0, -11), (10, 8), (-10, 8)])),
            3 => self.0.draw(&corners(&[(0, -11), (11, 0), (0, 11), (-11, 0)])),
            4 => self.0.draw(&corners(&[(0, 11), (10, -8), (-10, -8)])),
            _ => self.0.draw(&corners(&[(-11, -4), (11, -4), (11, 4), (-11, 4)])),
        }
    }
}
