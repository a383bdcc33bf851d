//! The figure as SVG: for each experiment three latencies above, three rates below, over time.

use std::fmt::Write;

use super::{BURST, END, Outcome, Slice};

const WIDTH: f64 = 1080.0;
const PANEL: f64 = 430.0;
const LEFT: f64 = 70.0;
const GAP: f64 = 90.0;
const TOP: f64 = 70.0;
const HEIGHT: f64 = 190.0;
const BETWEEN: f64 = 60.0;

/// A line of a chart: its name, its colour, its value in a slice (`None`: there is none).
struct Line {
    name: &'static str,
    colour: &'static str,
    value: fn(&Slice) -> Option<f64>,
}

fn present(value: f64) -> Option<f64> {
    Some(value).filter(|value| *value > 0.0)
}

const LATENCIES: [Line; 3] = [
    Line { name: "primary storage", colour: "#c33", value: |s| present(s.primary_us / 1000.0) },
    Line { name: "effective", colour: "#1f6feb", value: |s| present(s.effective_us / 1000.0) },
    Line { name: "flash", colour: "#2a9d4a", value: |s| present(s.flash_us / 1000.0) },
];
const RATES: [Line; 3] = [
    Line { name: "flash", colour: "#2a9d4a", value: |s| Some(s.flash_per_second) },
    Line { name: "guest", colour: "#1f6feb", value: |s| Some(s.guest_per_second) },
    Line { name: "destage", colour: "#c33", value: |s| Some(s.destage_per_second) },
];

/// A row of panels per pair of experiments.
pub fn svg(panels: &[(&str, &Outcome)]) -> String {
    let row = TOP + 2.0 * HEIGHT + BETWEEN + 40.0;
    let height = row * panels.len().div_ceil(2) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (n, (title, outcome)) in panels.iter().enumerate() {
        let x = LEFT + (n % 2) as f64 * (PANEL + GAP);
        let y = row * (n / 2) as f64 + TOP;
        let chart = |out: &mut String, y, lines: &[Line], unit, top| {
            Chart { x, y, top, unit, outcome }.draw(out, lines);
        };
        let _ =
            writeln!(out, "<text x=\"{x}\" y=\"{:.0}\" font-size=\"15\">{title}</text>", y - 32.0);
        chart(&mut out, y, &LATENCIES, "ms", 6.0);
        chart(&mut out, y + HEIGHT + BETWEEN, &RATES, "/s", 32_000.0);
    }
    out + "</svg>\n"
}

struct Chart<'a> {
    x: f64,
    y: f64,
    top: f64,
    unit: &'static str,
    outcome: &'a Outcome,
}

impl Chart<'_> {
    fn at(&self, seconds: f64, value: f64) -> (f64, f64) {
        let end = END.0 as f64 / 1e9;
        let height = value.min(self.top) / self.top;
        (self.x + PANEL * seconds / end, self.y + HEIGHT * (1.0 - height))
    }

    fn draw(&self, out: &mut String, lines: &[Line]) {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let (begin, _) = self.at(seconds(BURST.0.0), 0.0);
        let (end, bottom) = self.at(seconds(BURST.1.0), 0.0);
        let _ = writeln!(
            out,
            "<rect x=\"{begin:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{HEIGHT}\" fill=\"#f3f3f3\"/>",
            self.y,
            end - begin
        );
        for tick in 0..=4 {
            let value = self.top * f64::from(tick) / 4.0;
            let (x, y) = self.at(0.0, value);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value} {}</text>",
                x + PANEL,
                x - 6.0,
                y + 4.0,
                self.unit
            );
        }
        for tick in (0..=40).step_by(10) {
            let (x, _) = self.at(f64::from(tick), 0.0);
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick} s</text>",
                bottom + 16.0
            );
        }
        // A later line would go through the text of one before.
        lines.iter().for_each(|line| self.line(out, line));
        for (n, line) in lines.iter().enumerate() {
            self.mark_clipped(out, line);
            let x = self.x + 135.0 * n as f64;
            let y = self.y - 10.0;
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"2.5\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 4.0,
                x + 18.0,
                y - 4.0,
                line.colour,
                x + 23.0,
                line.name
            );
        }
    }

    /// Says how far a line goes that leaves the chart, where it does so first.
    fn mark_clipped(&self, out: &mut String, line: &Line) {
        let values = |slice: &Slice| (line.value)(slice).map(|value| (slice.seconds, value));
        let values = self.outcome.slices.iter().filter_map(values);
        let beyond: Vec<_> = values.filter(|(_, value)| *value > self.top).collect();
        let Some(&(first, _)) = beyond.first() else { return };
        let most = beyond.iter().fold(0.0, |most: f64, (_, value)| most.max(*value));
        let (x, y) = self.at(first, self.top);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\" stroke=\"#f3f3f3\" stroke-width=\"4\" paint-order=\"stroke\">↑ up to {most:.0} {}</text>",
            x + 4.0,
            y + 14.0,
            line.colour,
            self.unit
        );
    }

    /// Interrupted where there is no value.
    fn line(&self, out: &mut String, line: &Line) {
        let slices = &self.outcome.slices;
        for piece in slices.chunk_by(|_, next| (line.value)(next).is_some()) {
            let points = piece.iter().filter_map(|slice| {
                let (x, y) = self.at(slice.seconds, (line.value)(slice)?);
                Some(format!("{x:.1},{y:.1}"))
            });
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>",
                points.collect::<Vec<_>>().join(" "),
                line.colour
            );
        }
    }
}
