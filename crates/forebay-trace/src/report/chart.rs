//! Charts as SVG, drawn by `plotters`, with their keys as HTML.

use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours that a colour-blind reader can distinguish, also by their brightness on paper (Okabe
/// and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(40, 40, 40),
];
/// Pixels that are drawn and left out; where there are more lines than colours, these tell them apart.
const DASHES: [Option<(u32, u32)>; 3] = [None, Some((9, 5)), Some((2, 4))];
pub(super) const WIDTH: u32 = 900;
const HEIGHT: u32 = 300;
/// Charts that stand side by side.
const NARROW: u32 = 560;
pub(super) const INK: RGBColor = RGBColor(87, 96, 106);
pub(super) const MESH: RGBColor = RGBColor(225, 229, 234);

/// How the places of an axis lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Evenly, from 0.
    Linear,
    /// The same for bytes: in steps that are powers of two.
    Bytes,
    /// The same for times since a beginning, in ns: in steps that clocks have.
    Moments,
    /// Each step ten times the one before.
    Log,
    /// Each step twice the one before.
    Log2,
}

/// One axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub scale: Scale,
    /// Its figures in words.
    pub words: fn(f64) -> String,
    /// Where it ends at least.
    pub reaches: Option<f64>,
}

impl Axis {
    pub(super) fn new(scale: Scale, words: fn(f64) -> String) -> Axis {
        Axis { scale, words, reaches: None }
    }

    /// From the least to the greatest of what is shown, to round figures.
    fn range(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let is_linear = matches!(self.scale, Scale::Linear | Scale::Bytes | Scale::Moments);
        let (mut low, mut high) = (f64::INFINITY, self.reaches.unwrap_or(0.0));
        for value in values.filter(|value| *value > 0.0 || is_linear) {
            (low, high) = (low.min(value), high.max(value));
        }
        match self.scale {
            Scale::Linear | Scale::Bytes | Scale::Moments if high <= 0.0 => 0.0..1.0,
            Scale::Linear if self.reaches.is_some_and(|reaches| reaches >= high) => 0.0..high,
            Scale::Linear | Scale::Bytes | Scale::Moments => 0.0..high * 1.05,
            Scale::Log | Scale::Log2 if !low.is_finite() => 1.0..10.0,
            Scale::Log => {
                10f64.powf(low.log10().floor())
                    ..10f64.powf(high.log10().ceil().max(low.log10().floor() + 1.0))
            }
            Scale::Log2 => low.min(high / 2.0)..high,
        }
    }
}

/// An axis in a chart: linear or not, which plotters has as different types.
pub(super) struct Places {
    pub range: Range<f64>,
    pub scale: Scale,
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range;
        let share = match self.scale {
            Scale::Linear | Scale::Bytes | Scale::Moments => (value - start) / (end - start),
            Scale::Log | Scale::Log2 => (value.max(start) / start).ln() / (end / start).ln(),
        };
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let Range { start, end } = self.range;
        let most = hint.max_num_points();
        if most == 0 {
            return Vec::new();
        }
        let base: f64 = match self.scale {
            Scale::Moments => return moments(end, most),
            Scale::Linear => return round_steps(end, most),
            Scale::Bytes => return steps((end / most as f64).log2().ceil().exp2(), end),
            Scale::Log => 10.0,
            Scale::Log2 => 2.0,
        };
        let first = (start.log(base) - 1e-9).ceil() as i32;
        let last = (end.log(base) + 1e-9).floor() as i32;
        let step = (last - first + 1).max(1).unsigned_abs().div_ceil(most as u32).max(1);
        (first..=last).step_by(step as usize).map(|power| base.powi(power)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Steps of 1, 2 or 5 times a power of ten from 0 to `end`, at most so many.
fn round_steps(end: f64, most: usize) -> Vec<f64> {
    let rough = end / most as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    steps(step, end)
}

/// Seconds below a minute in round steps, then what clocks have, from 0 to `end` ns.
fn moments(end: f64, most: usize) -> Vec<f64> {
    const SECONDS: [f64; 12] =
        [15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0];
    let rough = end / most as f64;
    let clock = SECONDS.into_iter().map(|seconds| seconds * 1e9).find(|step| *step >= rough);
    match clock {
        Some(step) if rough > 10e9 => steps(step, end),
        _ => round_steps(end, most),
    }
}

fn steps(step: f64, end: f64) -> Vec<f64> {
    (0..).map(|n| f64::from(n) * step).take_while(|at| *at <= end * 1.000_001).collect()
}

/// A line of a chart.
pub(super) struct Line {
    pub name: String,
    /// Parts with gaps between them.
    pub parts: Vec<Vec<(f64, f64)>>,
    /// It is a ring around a point.
    is_mark: bool,
}

impl Line {
    /// Through the points that are there; a gap where there is none.
    pub(super) fn new(
        name: impl Into<String>,
        points: impl Iterator<Item = (f64, Option<f64>)>,
    ) -> Line {
        let mut parts = vec![Vec::new()];
        for (x, y) in points {
            match y {
                Some(y) => parts.last_mut().expect("there is one").push((x, y)),
                None if parts.last().is_some_and(|part| !part.is_empty()) => parts.push(Vec::new()),
                None => {}
            }
        }
        Line { name: name.into(), parts, is_mark: false }
    }

    /// A ring around a point.
    pub(super) fn mark(name: impl Into<String>, point: (f64, f64)) -> Line {
        Line { name: name.into(), parts: vec![vec![point]], is_mark: true }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.parts.iter().flatten().copied()
    }
}

/// The colour and the dashes of the line with this number.
fn stroke(n: usize) -> (RGBColor, Option<(u32, u32)>) {
    (COLOURS[n % COLOURS.len()], DASHES[n / COLOURS.len() % DASHES.len()])
}

/// Lines over two axes.
pub(super) fn lines(title: &str, x: Axis, y: Axis, lines: &[Line]) -> Markup {
    let range = |axis: &Axis, of: fn((f64, f64)) -> f64| {
        axis.range(lines.iter().flat_map(Line::points).map(of))
    };
    let (xs, ys) = (range(&x, |point| point.0), range(&y, |point| point.1));
    let svg =
        drawn(WIDTH, |area| {
            let (across, up) =
                (Places { range: xs, scale: x.scale }, Places { range: ys, scale: y.scale });
            let mut builder = ChartBuilder::on(area);
            builder.margin(8).margin_right(24).x_label_area_size(28).y_label_area_size(72);
            let mut chart = builder.build_cartesian_2d(across, up)?;
            let (across, up) = (|at: &f64| (x.words)(*at), |at: &f64| (y.words)(*at));
            let mut mesh = chart.configure_mesh();
            mesh.x_labels(9).y_labels(7).max_light_lines(0).bold_line_style(MESH).axis_style(INK);
            mesh.label_style(("sans-serif", 14).into_font().color(&INK));
            mesh.x_label_formatter(&across).y_label_formatter(&up).draw()?;
            for (n, line) in lines.iter().enumerate() {
                let (colour, dashes) = stroke(n);
                for part in &line.parts {
                    let points = part.iter().copied();
                    match (&part[..], dashes) {
                        (&[one], _) if line.is_mark => {
                            chart.draw_series([Circle::new(one, 8, colour.stroke_width(3))])?
                        }
                        (&[one], _) => chart.draw_series([Circle::new(one, 2, colour.filled())])?,
                        (_, None) => {
                            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                        }
                        (_, Some((drawn, left_out))) => chart.draw_series(
                            DashedLineSeries::new(points, drawn, left_out, colour.stroke_width(2)),
                        )?,
                    };
                }
            }
            Ok(())
        });
    figure(title, lines.iter().map(|line| line.name.as_str()), &svg)
}

/// Columns side by side, a group for each label, scaled by the greatest.
pub(super) fn columns(title: &str, labels: &[String], groups: &[(&str, Vec<f64>)]) -> Markup {
    let most = groups.iter().flat_map(|(_, values)| values).fold(0.0, |a: f64, b| a.max(*b));
    let svg = drawn(NARROW, |area| {
        let across = Places { range: 0.0..labels.len().max(1) as f64, scale: Scale::Linear };
        let up = Places { range: 0.0..most.max(1e-9) * 1.05, scale: Scale::Linear };
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(74).y_label_area_size(62);
        let mut chart = builder.build_cartesian_2d(across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .max_light_lines(0)
            .bold_line_style(MESH)
            .axis_style(INK);
        mesh.label_style(("sans-serif", 15).into_font().color(&INK));
        mesh.y_label_formatter(&|share| format!("{:.0} %", share * 100.0)).draw()?;
        let width = 0.86 / groups.len().max(1) as f64;
        for (n, (_, values)) in groups.iter().enumerate() {
            let (colour, _) = stroke(n);
            let left = |at: usize| at as f64 + 0.07 + n as f64 * width;
            chart.draw_series(values.iter().enumerate().filter(|(_, value)| **value > 0.0).map(
                |(at, value)| {
                    Rectangle::new([(left(at), 0.0), (left(at) + width, *value)], colour.filled())
                },
            ))?;
        }
        let style = ("sans-serif", 14).into_font().color(&INK).transform(FontTransform::Rotate270);
        let style = style.pos(Pos::new(HPos::Right, VPos::Center));
        chart.draw_series(labels.iter().enumerate().map(|(at, label)| {
            EmptyElement::at((at as f64 + 0.5, 0.0))
                + Text::new(label.clone(), (0, 8), style.clone())
        }))?;
        Ok(())
    });
    figure(title, groups.iter().map(|(name, _)| *name), &svg)
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn =
    Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// What `draw` draws.
pub(super) fn drawn(width: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, HEIGHT)).into_drawing_area();
        draw(&area).and_then(|()| area.present()).expect("text is written to memory");
    }
    svg
}

fn figure<'a>(title: &str, names: impl Iterator<Item = &'a str>, svg: &str) -> Markup {
    let names: Vec<_> = names.enumerate().map(|(n, name)| (name, background(stroke(n)))).collect();
    html! {
        figure {
            figcaption {
                (title)
                @if names.len() > 1 {
                    @for (name, background) in &names {
                        span.key { i style=(background) {} (name) }
                    }
                }
            }
            (PreEscaped(svg))
        }
    }
}

/// A line in the key, as CSS.
fn background((RGBColor(red, green, blue), dashes): (RGBColor, Option<(u32, u32)>)) -> String {
    let colour = format!("rgb({red},{green},{blue})");
    match dashes {
        None => format!("background:{colour}"),
        Some((drawn, left_out)) => format!(
            "background:repeating-linear-gradient(90deg,{colour} 0 {drawn}px,transparent {drawn}px {}px)",
            drawn + left_out
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_figures() {
        assert_eq!(round_steps(10.5, 6), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_steps(1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(moments(7200e9, 9).len(), 9);
        assert_eq!(moments(7200e9, 9)[1], 900e9);
        assert_eq!(moments(9e9, 9)[1], 1e9);
        let log = Axis::new(Scale::Log, |_| String::new());
        assert_eq!(log.range([3e4, 2e6].into_iter()), 1e4..1e7);
        assert_eq!(log.range([1e4].into_iter()), 1e4..1e5);
        assert_eq!(log.range(std::iter::empty()), 1.0..10.0);
    }

    #[test]
    fn a_chart_escapes_what_it_is_told_and_draws_all_parts() {
        let axis = Axis::new(Scale::Linear, super::super::figures::number);
        let points = [(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(1.0))];
        let two = [Line::new("<a>", points.into_iter()), Line::new("b", std::iter::empty())];
        let text = lines("x < y", axis, axis, &two).into_string();
        assert!(text.contains("x &lt; y") && text.contains("&lt;a&gt;"), "{text}");
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn no_two_of_twenty_lines_look_the_same() {
        let axis = Axis::new(Scale::Linear, super::super::figures::number);
        let line =
            |n: u32| Line::new("line", [0.0, 9.0].map(|x| (x, Some(f64::from(n)))).into_iter());
        let text = lines("many", axis, axis, &(0..20).map(line).collect::<Vec<_>>()).into_string();
        let keys = text.split("<i style=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let keys: std::collections::HashSet<_> = keys.collect();
        assert_eq!(keys.len(), 20, "{keys:?}");
        // Seven whole ones, and the dashes of thirteen.
        let drawn = text.matches("<polyline").count();
        assert!(drawn > 7 + 13 * 10, "{drawn}");
    }
}
