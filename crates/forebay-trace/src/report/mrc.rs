//! The page of miss-ratio curves.

use forebay_backends::size::rounded;
use maud::{Markup, html};

use super::chart::{Axis, Line, Scale, lines};
use super::{page, table, tables};
use crate::mrc::{Curve, Method};

/// Curves in one table of figures.
const COLUMNS: usize = 8;

/// The page of the curves of a trace.
pub fn mrc(trace: &str, curves: &[Curve]) -> String {
    let lead = html! {
        p.lead { "The share of uses of 4 KiB pieces that a cache of each size would miss." }
    };
    let sections = html! {
        h2 { "Miss ratio by cache size" }
        (chart("Miss ratio", curves, |point| point.miss_ratio))
        (chart("Read hit ratio", curves, |point| point.read_hit_ratio))
        h2 { "How the curves were found" }
        (about(curves))
        h2 { "Miss ratios" }
        @if curves.iter().flat_map(|curve| &curve.points).any(|point| point.bound.is_some()) {
            p.quiet { "±: the exact miss ratio is within this, in 95 of 100 points." }
        }
        (figures(curves))
    };
    page(&format!("Miss ratios of {trace}"), &lead, &sections)
}

fn name(curve: &Curve) -> String {
    format!("{}, {} blocks", curve.policy, rounded(curve.block_size))
}

fn chart(title: &'static str, curves: &[Curve], of: fn(&crate::mrc::Point) -> f64) -> Markup {
    let line = |curve: &Curve| {
        Line::new(
            name(curve),
            curve.points.iter().map(|point| (point.cache_size.max(1) as f64, Some(of(point)))),
        )
    };
    let all: Vec<Line> = curves.iter().map(line).collect();
    let size =
        Axis::new("Cache size", Scale::Log2, |bytes| rounded(bytes.round() as u64).to_string());
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let share = Axis { reaches: Some(1.0), ..Axis::new(title, Scale::Linear, percent) };
    lines(title, size, share, &all)
}

fn about(curves: &[Curve]) -> Markup {
    let rows = curves.iter().map(|curve| {
        let how = match curve.method {
            Method::Exact => "every reuse distance",
            Method::Shards => "reuse distances of a sample",
            Method::Simulation => "caches of the whole size",
            Method::Miniature => "small caches for a sample",
        };
        let share = format!("{:.2} %", curve.share * 100.0);
        let grid = match curve.grid_moved {
            Some(moved) => format!("{} above {}", moved.grid_offset, rounded(moved.above)),
            None => curve.grid_offset.to_string(),
        };
        vec![
            name(curve),
            how.to_owned(),
            share,
            rounded(curve.touched).to_string(),
            rounded(curve.footprint).to_string(),
            grid,
        ]
    });
    let head = [
        "curve",
        "how",
        "blocks looked at",
        "touched",
        "with the rest of its blocks",
        "grid offset",
    ];
    table(&head, &rows.collect::<Vec<_>>())
}

fn figures(curves: &[Curve]) -> Markup {
    let head: Vec<String> = curves.iter().map(name).collect();
    let sizes = curves.first().map_or(&[][..], |curve| &curve.points);
    let rows = sizes.iter().enumerate().map(|(at, point)| {
        let ratio = |curve: &Curve| {
            curve.points.get(at).map_or("-".to_owned(), |point| match point.bound {
                None => format!("{:.2} %", point.miss_ratio * 100.0),
                Some(bound) => {
                    format!("{:.1} ±{:.1} %", point.miss_ratio * 100.0, bound * 100.0)
                }
            })
        };
        (rounded(point.cache_size).to_string(), curves.iter().map(ratio).collect())
    });
    tables("cache size", &head, &rows.collect::<Vec<_>>(), COLUMNS)
}
