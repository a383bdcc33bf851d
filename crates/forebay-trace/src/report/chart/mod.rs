//! Charts as SVG, drawn by `plotters`, with their keys and a description as HTML.
//!
//! A chart over two axes is drawn twice, for wide and for narrow windows, so that its text can be
//! read in both. The style sheet shows one of them. `axis` has the scales, `paint` the looks.

mod axis;
mod paint;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) use axis::{Axis, Places, Scale};
pub(super) use paint::{Hue, Paint};
use paint::{look, marker, ring, styled};

/// Letters of a name that are shown beside the end of its line.
const LABEL: usize = 22;
/// Pixels of a letter and of a line of text, about.
const LETTER: u32 = 7;
const LINE: i32 = 15;
/// plotters divides sizes by 1.24: this is 12 pixels.
const FONT: (&str, i32) = ("sans-serif", 15);
/// Pixels at the right, for half of the last figure.
pub(super) const MARGIN: u32 = 26;
/// Most labels below columns: of more, some are left out.
const LABELS: usize = 26;
/// Markers on a line.
const MARKERS: u8 = 6;
/// Size of charts that stand side by side.
const COLUMNS: (u32, u32) = (440, 300);

/// One of the two drawings of a chart.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    class: &'static str,
    size: (u32, u32),
    /// Most figures across and up.
    pub figures: (usize, usize),
    has_labels: bool,
}

const WIDE: Frame = Frame { class: "wide", size: (900, 320), figures: (9, 7), has_labels: true };
const NARROW: Frame =
    Frame { class: "narrow", size: (360, 270), figures: (4, 6), has_labels: false };

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

    /// Points that get a marker: some of them, at places of their own for each line, and those without neighbours.
    fn marked(&self, n: u8, across: &Places) -> Vec<(f64, f64)> {
        let mut marked: Vec<(f64, f64)> = Vec::new();
        for step in 0..MARKERS {
            let wanted = (f64::from(step) + f64::from(n % 7) / 7.0 + 0.1) / f64::from(MARKERS);
            let distance = |at: &(f64, f64)| (across.share(at.0) - wanted).abs();
            let nearest = self.points().min_by(|a, b| distance(a).total_cmp(&distance(b)));
            marked.extend(nearest.filter(|point| marked.last() != Some(point)));
        }
        let alone = self.parts.iter().filter(|part| part.len() == 1).map(|part| part[0]);
        let alone: Vec<_> = alone.filter(|point| !marked.contains(point)).collect();
        marked.extend(alone);
        marked
    }

    /// What the line shows, for those who do not see it.
    fn description(&self, axis: &Axis) -> String {
        let words = |value: f64| (axis.words)(value);
        let ends = self.points().next().zip(self.points().last());
        let Some((first, last)) = ends else { return format!("{}: nothing", self.name) };
        let values = || self.points().map(|(_, y)| y);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        match self.is_mark {
            true => format!("{}: {}", self.name, words(first.1)),
            false => format!(
                "{}: from {} to {}, between {} and {}",
                self.name,
                words(first.1),
                words(last.1),
                words(low),
                words(high)
            ),
        }
    }
}

/// Lines over two axes.
pub(super) fn lines(title: &str, x: Axis, y: Axis, lines: &[Line]) -> Markup {
    let range = |axis: &Axis, of: fn((f64, f64)) -> f64| {
        axis.range(lines.iter().flat_map(Line::points).map(of))
    };
    let across = Places { range: range(&x, |point| point.0), scale: x.scale };
    let up = Places { range: range(&y, |point| point.1), scale: y.scale };
    let described: Vec<String> = lines.iter().map(|line| line.description(&y)).collect();
    let said = description("Line chart", (&x, &across), (&y, &up), &described.join("; "));
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let key = |line: &Line| if line.is_mark { key_of_mark as Key } else { key_of_line };
    let keys = keys(lines.iter().map(|line| (line.name.as_str(), key(line))));
    let drawings = [WIDE, NARROW].map(|frame| {
        let margin = if frame.has_labels { margin_of(&names) } else { MARGIN };
        drawn(frame, |area| {
            let mut chart = over_axes(area, frame, margin, (&x, &across), (&y, &up))?;
            let mut ends = Vec::new();
            for (place, line) in lines.iter().enumerate() {
                let n = look(place);
                let stroke = Paint::Line(n).number().stroke_width(2);
                for part in line.parts.iter().filter(|part| part.len() > 1) {
                    chart.draw_series(LineSeries::new(part.iter().copied(), stroke))?;
                }
                for point in line.marked(n, &across) {
                    let at = chart.backend_coord(&point);
                    match line.is_mark {
                        true => area.draw(&ring(n, at, 8))?,
                        false => area.draw(&marker(n, at))?,
                    }
                }
                ends.extend(line.points().last().map(|end| (chart.backend_coord(&end).1, place)));
            }
            if frame.has_labels && lines.len() > 1 {
                labels(area, lines, ends, frame.size.0 - margin)?;
            }
            Ok(())
        })
    });
    figure(title, &said, &keys, &drawings)
}

/// Room for names beside the ends of their lines.
fn margin_of(names: &[&str]) -> u32 {
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(LABEL);
    match names.len() {
        0 | 1 => MARGIN,
        _ => 30 + LETTER * longest as u32,
    }
}

/// Names beside the ends of their lines, each in a row of its own: how far down a line ends, and its place.
fn labels(area: &Area<'_>, lines: &[Line], mut ends: Vec<(i32, usize)>, x: u32) -> Drawn {
    ends.sort_unstable();
    let mut row = i32::MIN;
    for end in &mut ends {
        end.0 = end.0.max(row);
        row = end.0 + LINE;
    }
    let mut row = area.dim_in_pixel().1 as i32 - 2 * LINE;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(row);
        row = end.0 - LINE;
    }
    let style = text().pos(Pos::new(HPos::Left, VPos::Center));
    for (y, place) in ends {
        let (line, n) = (&lines[place], look(place));
        let at = (x as i32 + 11, y);
        match line.is_mark {
            true => area.draw(&ring(n, at, 5))?,
            false => area.draw(&marker(n, at))?,
        }
        let short: String = line.name.chars().take(LABEL).collect();
        let short = if short == line.name { short } else { format!("{short}…") };
        area.draw(&Text::new(short, (at.0 + 10, y), style.clone()))?;
    }
    Ok(())
}

type Chart<'a, 's> = ChartContext<'a, SVGBackend<'s>, Cartesian2d<Places, Places>>;

/// Axes with their titles and figures.
pub(super) fn over_axes<'a, 's>(
    area: &'a Area<'s>,
    frame: Frame,
    margin_right: u32,
    (x, across): (&Axis, &Places),
    (y, up): (&Axis, &Places),
) -> Result<Chart<'a, 's>, Fault> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_right(margin_right).x_label_area_size(46).y_label_area_size(84);
    let mut chart = builder.build_cartesian_2d(across.clone(), up.clone())?;
    let (across, up) = (|at: &f64| (x.words)(*at), |at: &f64| (y.words)(*at));
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(frame.figures.0).y_labels(frame.figures.1).max_light_lines(0);
    mesh.bold_line_style(Paint::Mesh.number()).axis_style(Paint::Ink.number());
    mesh.label_style(text()).axis_desc_style(text()).x_desc(x.title).y_desc(y.title);
    mesh.x_label_formatter(&across).y_label_formatter(&up).draw()?;
    Ok(chart)
}

pub(super) fn text() -> TextStyle<'static> {
    FONT.into_font().color(&Paint::Ink.number())
}

/// What a chart shows, for those who do not see it.
pub(super) fn description(
    kind: &str,
    (x, across): (&Axis, &Places),
    (y, up): (&Axis, &Places),
    what: &str,
) -> String {
    let span = |axis: &Axis, places: &Places| {
        let ends = [places.range.start, places.range.end].map(axis.words);
        format!("{}, {} to {}", axis.title, ends[0], ends[1])
    };
    format!("{kind}. Across: {}. Up: {}. {what}.", span(x, across), span(y, up))
}

/// Columns side by side, a group for each label, scaled by the greatest. Every second group is hollow.
pub(super) fn columns(
    title: &str,
    [across, up]: [&str; 2],
    labels: &[String],
    groups: &[(&str, Vec<f64>)],
) -> Markup {
    let most = groups.iter().flat_map(|(_, values)| values).fold(0.0, |a: f64, b| a.max(*b));
    // Without a column it is the whole.
    let top = if most > 0.0 { most * 1.05 } else { 1.0 };
    let share = |share: f64| format!("{:.0} %", share * 100.0);
    let frame = Frame { class: "columns", size: COLUMNS, figures: (0, 6), has_labels: false };
    let svg = drawn(frame, |area| {
        let x = Places { range: 0.0..labels.len().max(1) as f64, scale: Scale::Linear };
        let y = Places { range: 0.0..top, scale: Scale::Linear };
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(98).y_label_area_size(70);
        let mut chart = builder.build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).y_labels(frame.figures.1).max_light_lines(0);
        mesh.bold_line_style(Paint::Mesh.number()).axis_style(Paint::Ink.number());
        mesh.label_style(text()).axis_desc_style(text()).x_desc(across).y_desc(up);
        mesh.y_label_formatter(&|value| share(*value)).draw()?;
        let width = 0.86 / groups.len().max(1) as f64;
        for (place, (_, values)) in groups.iter().enumerate() {
            let left = |at: usize| at as f64 + 0.07 + place as f64 * width;
            let style = column(look(place));
            let filled = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
            chart.draw_series(filled.map(|(at, value)| {
                Rectangle::new([(left(at), 0.0), (left(at) + width, *value)], style)
            }))?;
        }
        let style = text().transform(FontTransform::Rotate270);
        let style = style.pos(Pos::new(HPos::Right, VPos::Center));
        let shown = labels.iter().enumerate().step_by(labels.len().div_ceil(LABELS).max(1));
        chart.draw_series(shown.map(|(at, label)| {
            EmptyElement::at((at as f64 + 0.5, 0.0))
                + Text::new(label.clone(), (0, 8), style.clone())
        }))?;
        Ok(())
    });
    let greatest = |(name, values): &(&str, Vec<f64>)| {
        let most = values.iter().zip(labels).max_by(|a, b| a.0.total_cmp(b.0));
        most.map(|(value, label)| format!("{name}: most at {label}, {}", share(*value)))
    };
    let said: Vec<String> = groups.iter().filter_map(greatest).collect();
    let said = format!("Column chart. Across: {across}. Up: {up}. {}.", said.join("; "));
    figure(
        title,
        &said,
        &keys(groups.iter().map(|(name, _)| (*name, key_of_column as Key))),
        &[svg],
    )
}

fn column(n: u8) -> ShapeStyle {
    match n % 2 {
        0 => Paint::Whole(n).number().filled(),
        _ => Paint::Whole(n).number().stroke_width(2),
    }
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Fault = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;
pub(super) type Drawn = Result<(), Fault>;

/// The wide and the narrow drawing of a chart.
pub(super) fn both(draw: impl Fn(&Area<'_>, Frame) -> Drawn) -> [Markup; 2] {
    [WIDE, NARROW].map(|frame| drawn(frame, |area| draw(area, frame)))
}

/// What `draw` draws.
fn drawn(frame: Frame, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Markup {
    let svg = svg(frame.size, draw);
    html! { div class=(frame.class) { (PreEscaped(svg)) } }
}

fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area).and_then(|()| area.present()).expect("text is written to memory");
    }
    styled(&svg)
}

/// A chart with its title and its keys. What it shows is said to those who do not see it.
pub(super) fn figure(title: &str, said: &str, keys: &Markup, drawings: &[Markup]) -> Markup {
    html! {
        figure {
            figcaption { span.title { (title) } (keys) }
            div role="img" aria-label={ (title) ". " (said) } { @for drawing in drawings { (drawing) } }
        }
    }
}

/// Draws the look of a line or a column with this number.
type Key = fn(u8, &Area<'_>) -> Drawn;

/// Names with their looks, where there are several.
fn keys<'a>(of: impl ExactSizeIterator<Item = (&'a str, Key)>) -> Markup {
    if of.len() < 2 {
        return Markup::default();
    }
    html! {
        @for (place, (name, key)) in of.enumerate() {
            span.key { span.look aria-hidden="true" { (PreEscaped(svg((36, 14), |area| key(look(place), area)))) } (name) }
        }
    }
}

fn key_of_line(n: u8, area: &Area<'_>) -> Drawn {
    area.draw(&PathElement::new([(0, 7), (36, 7)], Paint::Line(n).number().stroke_width(2)))?;
    area.draw(&marker(n, (18, 7)))
}

fn key_of_mark(n: u8, area: &Area<'_>) -> Drawn {
    area.draw(&ring(n, (18, 7), 5))
}

fn key_of_column(n: u8, area: &Area<'_>) -> Drawn {
    area.draw(&Rectangle::new([(10, 1), (26, 13)], column(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(title: &'static str) -> Axis {
        Axis::new(title, Scale::Linear, super::super::figures::number)
    }

    #[test]
    fn a_chart_escapes_what_it_is_told_and_draws_all_parts() {
        let points = [(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(1.0))];
        let two = [Line::new("<a>", points.into_iter()), Line::new("b", std::iter::empty())];
        let text = lines("x < y", axis("time"), axis("rate"), &two).into_string();
        assert!(text.contains("x &lt; y") && text.contains("&lt;a&gt;"), "{text}");
        // The whole part in both drawings, and both keys.
        assert_eq!(text.matches("stroke-dasharray").count(), 2 + 2, "{text}");
        // Three points, and the label of the line.
        assert_eq!(text.matches("<polygon").count(), 3 + 1 + 3 + 2, "{text}");
        assert!(!text.contains("NaN") && !text.contains("\"#"), "{text}");
    }

    #[test]
    fn a_chart_says_what_it_shows() {
        let line = Line::new("reads", [(0.0, Some(4.0)), (10.0, Some(2.0))].into_iter());
        let mark = Line::mark("advised", (5.0, 3.0));
        let text =
            lines("Rates", axis("time (s)"), axis("rate (1/s)"), &[line, mark]).into_string();
        let said = "Rates. Line chart. Across: time (s), 0 to 10.5. Up: rate (1/s), 0 to 4.2. \
                    reads: from 4 to 2, between 2 and 4; advised: 3.";
        assert!(text.contains(&format!("role=\"img\" aria-label=\"{said}\"")), "{text}");
        for title in ["time (s)", "rate (1/s)"] {
            assert_eq!(text.matches(&format!(">\n{title}\n<")).count(), 2, "{text}");
        }
    }

    #[test]
    fn names_beside_lines_do_not_cover_each_other() {
        let line =
            |n: u32| Line::new(format!("line {n}"), [0.0, 9.0].map(|x| (x, Some(1.0))).into_iter());
        let text = lines("many", axis("x"), axis("y"), &(0..15).map(line).collect::<Vec<_>>())
            .into_string();
        let wide = text
            .split("class=\"wide\"")
            .nth(1)
            .and_then(|rest| rest.split("</svg>").next())
            .unwrap();
        let y = |n: u32| {
            let before = wide.split(&format!("\nline {n}\n")).next().unwrap();
            let y = before.rsplit(" y=\"").next().and_then(|rest| rest.split('"').next()).unwrap();
            y.parse::<i32>().unwrap()
        };
        let mut places: Vec<i32> = (0..15).map(y).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[1] - two[0] >= LINE), "{places:?}");
        assert!(places[0] >= 0 && places[14] < WIDE.size.1 as i32, "{places:?}");
    }

    #[test]
    fn a_chart_has_any_number_of_lines_and_of_columns() {
        let line = |n: usize| Line::new(format!("line {n}"), [(1.0, Some(1.0))].into_iter());
        let many: Vec<Line> = (0..300).map(line).collect();
        let text = lines("many", axis("x"), axis("y"), &many).into_string();
        assert!(text.contains("line 299: from 1 to 1"), "{text}");
        let none = columns("none", ["x", "y"], &["here".to_owned()], &[("all", vec![0.0])]);
        let none = none.into_string();
        for figure in ["\n0 %\n", "\n100 %\n"] {
            assert_eq!(none.matches(figure).count(), 1, "{figure}: {none}");
        }
        let groups: Vec<(&str, Vec<f64>)> = (0..300).map(|_| ("group", vec![1.0])).collect();
        let text = columns("many", ["x", "y"], &["here".to_owned()], &groups).into_string();
        assert_eq!(text.matches("group: most at here").count(), 300, "{text}");
    }
}
