//! What a chart is painted with: names of colours, which the page's style sheet turns into colours
//! of a light or a dark theme; dashes and markers, which tell lines apart without colour.
//!
//! plotters writes colours as numbers. So each [`Paint`] has a number of its own, and [`styled`]
//! writes the style instead of it.

use plotters::prelude::*;

/// Lines with a colour of their own, `--line-0` … in the style sheet.
pub(super) const COLOURS: u8 = 7;
/// Pixels that are drawn and left out, by turns.
const DASHES: [&str; 5] = ["none", "9 5", "2 4", "14 4 3 4", "5 3"];

/// Something that has its colour from the style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Paint {
    /// Text and axes.
    Ink,
    /// Lines across a chart.
    Mesh,
    /// The line with this number, with its dashes.
    Line(u8),
    /// The same colour without dashes: markers and columns.
    Whole(u8),
    /// A step of a hue, from little to much.
    Step(Hue, u8),
}

/// A hue whose steps differ in brightness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Hue {
    Blue,
    Red,
}

impl Paint {
    /// The number that stands for it until [`styled`] replaces it.
    pub(in crate::report) fn number(self) -> RGBColor {
        match self {
            Paint::Ink => RGBColor(0, 0, 0),
            Paint::Mesh => RGBColor(1, 0, 0),
            Paint::Line(n) => RGBColor(2, n, 0),
            Paint::Whole(n) => RGBColor(3, n, 0),
            Paint::Step(Hue::Blue, step) => RGBColor(4, step, 0),
            Paint::Step(Hue::Red, step) => RGBColor(5, step, 0),
        }
    }

    fn of(RGBColor(kind, n, _): RGBColor) -> Paint {
        match kind {
            0 => Paint::Ink,
            1 => Paint::Mesh,
            2 => Paint::Line(n),
            3 => Paint::Whole(n),
            4 => Paint::Step(Hue::Blue, n),
            _ => Paint::Step(Hue::Red, n),
        }
    }

    /// Its colour as CSS.
    pub(in crate::report) fn colour(self) -> String {
        match self {
            Paint::Ink => "var(--ink)".to_owned(),
            Paint::Mesh => "var(--mesh)".to_owned(),
            Paint::Line(n) | Paint::Whole(n) => format!("var(--line-{})", n % COLOURS),
            Paint::Step(Hue::Blue, step) => format!("var(--blue-{step})"),
            Paint::Step(Hue::Red, step) => format!("var(--red-{step})"),
        }
    }

    /// CSS that paints a `fill` or a `stroke`.
    fn style(self, property: &str) -> String {
        let dashes = match self {
            Paint::Line(n) => format!(";stroke-dasharray:{}", dashes(n)),
            Paint::Ink | Paint::Mesh | Paint::Whole(_) | Paint::Step(..) => String::new(),
        };
        format!("{property}:{}{dashes}", self.colour())
    }
}

/// Lines with the same marker have different dashes.
fn dashes(n: u8) -> &'static str {
    let n = usize::from(n);
    DASHES[(n + n / SHAPES.len()) % DASHES.len()]
}

/// A drawing of plotters with styles instead of numbers.
pub(super) fn styled(svg: &str) -> String {
    let mut styled = String::with_capacity(svg.len() * 2);
    let mut rest = svg;
    // Text has no plain quotation marks, so this is an attribute.
    while let Some((before, after)) = rest.split_once("=\"#") {
        let (whole, property) = before.rsplit_once(' ').expect("an attribute follows a space");
        let (number, after) = after.split_once('"').expect("an attribute is closed");
        let [_, kind, n, last] =
            u32::from_str_radix(number, 16).expect("a colour is a number").to_be_bytes();
        let style = Paint::of(RGBColor(kind, n, last)).style(property);
        styled.push_str(whole);
        styled.push_str(&format!(" style=\"{style}\""));
        rest = after;
    }
    styled + rest
}

/// The number by which the line or column with this place in its chart is painted: the looks of so many differ, the others repeat them.
pub(super) fn look(place: usize) -> u8 {
    // Columns are filled or hollow by turns.
    (place % (2 * SHAPES.len() * DASHES.len())) as u8
}

type Corner = (i32, i32);

/// Circle, square, triangles, diamond, cross, and cross lying on its side: corners around the middle.
const SHAPES: [&[Corner]; 7] = [
    &[
        (0, -5),
        (3, -4),
        (4, -3),
        (5, 0),
        (4, 3),
        (3, 4),
        (0, 5),
        (-3, 4),
        (-4, 3),
        (-5, 0),
        (-4, -3),
        (-3, -4),
    ],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -5), (5, 4), (-5, 4)],
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    &[(0, 5), (5, -4), (-5, -4)],
    &[
        (-2, -6),
        (2, -6),
        (2, -2),
        (6, -2),
        (6, 2),
        (2, 2),
        (2, 6),
        (-2, 6),
        (-2, 2),
        (-6, 2),
        (-6, -2),
        (-2, -2),
    ],
    &[
        (-5, -3),
        (-3, -5),
        (0, -2),
        (3, -5),
        (5, -3),
        (2, 0),
        (5, 3),
        (3, 5),
        (0, 2),
        (-3, 5),
        (-5, 3),
        (-2, 0),
    ],
];

/// The marker of the line with this number, around a point.
pub(super) fn marker(n: u8, (x, y): Corner) -> Polygon<Corner> {
    let shape = SHAPES[usize::from(n) % SHAPES.len()];
    let corners: Vec<Corner> = shape.iter().map(|(right, down)| (x + right, y + down)).collect();
    Polygon::new(corners, Paint::Whole(n).number().filled())
}

/// The ring of a point that is marked.
pub(super) fn ring(n: u8, at: Corner, radius: i32) -> Circle<Corner, i32> {
    Circle::new(at, radius, Paint::Whole(n).number().stroke_width(3))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_of_thirty_five_lines_look_the_same_without_colour() {
        let looks: HashSet<_> =
            (0..35u8).map(|n| (usize::from(n) % SHAPES.len(), dashes(n))).collect();
        assert_eq!(looks.len(), 35);
    }

    #[test]
    fn a_number_is_replaced_by_its_style() {
        let paints = [
            Paint::Ink,
            Paint::Mesh,
            Paint::Line(9),
            Paint::Whole(3),
            Paint::Step(Hue::Blue, 4),
            Paint::Step(Hue::Red, 2),
        ];
        for paint in paints {
            assert_eq!(Paint::of(paint.number()), paint);
        }
        assert_eq!(
            styled("<line x=\"1\" stroke=\"#020100\" y=\"2\"/><text fill=\"#000000\">#1</text>"),
            "<line x=\"1\" style=\"stroke:var(--line-1);stroke-dasharray:9 5\" y=\"2\"/>\
             <text style=\"fill:var(--ink)\">#1</text>"
        );
    }
}
