//! The figure as SVG.

use std::fmt::Write;

use super::Sweep;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// Mean latency by block size, with the latency without cache as a line across.
pub fn svg(sweep: &Sweep) -> String {
    let highest = sweep.points.iter().map(|p| p.mean_us).fold(sweep.uncached.mean_us, f64::max);
    let top_us = (highest * 1.1 / 1000.0).ceil() * 1000.0;
    let step = (WIDTH - LEFT - RIGHT) / sweep.points.len() as f64;
    let x = |i: usize| LEFT + step * (i as f64 + 0.5);
    let y = |us: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - us / top_us);
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">"#
    ));
    line(format!(r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#));
    line(r#"<text x="20" y="24" font-size="16">Mean latency by cache block size: 4 KiB requests, 256 MiB of flash, modelled SAN</text>"#.into());
    for tick in 0..=4 {
        let us = top_us * f64::from(tick) / 4.0;
        let at = y(us);
        line(format!(
            r##"<line x1="{LEFT}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{:.2} ms</text>"##,
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            us / 1000.0
        ));
    }
    let mut path = String::new();
    for (i, point) in sweep.points.iter().enumerate() {
        let (px, py) = (x(i), y(point.mean_us));
        write!(path, "{px:.1},{py:.1} ").expect("a string takes everything");
        // Under the curve, out of the way of the line across, with a halo over the grid.
        line(format!(
            r##"<circle cx="{px:.1}" cy="{py:.1}" r="4" fill="#1f6feb"/><text x="{:.1}" y="{:.1}" text-anchor="middle" stroke="white" stroke-width="5" paint-order="stroke">{:.2}</text>"##,
            px + 10.0,
            py + 22.0,
            point.mean_us / 1000.0
        ));
        line(format!(
            r##"<text x="{px:.1}" y="{:.1}" text-anchor="middle">{} KiB</text><text x="{px:.1}" y="{:.1}" text-anchor="middle" fill="#666">hit {:.0} %</text>"##,
            HEIGHT - BOTTOM + 20.0,
            point.block_size >> 10,
            HEIGHT - BOTTOM + 38.0,
            point.hit_percent
        ));
    }
    line(format!(r##"<polyline points="{path}" fill="none" stroke="#1f6feb" stroke-width="2"/>"##));
    let uncached = y(sweep.uncached.mean_us);
    line(format!(
        r##"<line x1="{LEFT}" y1="{uncached:.1}" x2="{:.1}" y2="{uncached:.1}" stroke="#c33" stroke-dasharray="6 4"/><text x="{:.1}" y="{:.1}" fill="#c33">without cache: {:.2} ms</text>"##,
        WIDTH - RIGHT,
        LEFT + 6.0,
        uncached - 8.0,
        sweep.uncached.mean_us / 1000.0
    ));
    line("</svg>".into());
    out
}
