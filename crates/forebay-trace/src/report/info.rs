//! The page of what a trace is.

use forebay_backends::size::rounded;
use maud::{Markup, html};

use super::chart::{Axis, Hue, Line, Scale, columns, lines};
use super::figures::{bytes_at_axis, count, moment, number, of, percent, place, time};
use super::heat::{Heat, heat};
use super::{TIME, capitalised, facts, page, table};
use crate::info::{Cell, Info, Map, Window, alignments};

/// Devices that are shown, those with most requests.
const DEVICES_MAX: usize = 32;
/// Devices whose maps are shown, those with most requests.
const MAPS_MAX: usize = 4;

/// The page of a trace.
pub fn info(trace: &str, info: &Info) -> String {
    let summary = &info.summary;
    let requests = summary.reads + summary.writes;
    let lead = html! {
        p.lead {
            (of(requests, "request")) " in " (time(summary.duration_ns)) ", " (percent(summary.reads, requests)) " of them reads, up to byte "
            (rounded(summary.span_bytes)) "; they touch " (rounded(info.reuse.footprint)) "."
        }
    };
    let sections = html! {
        h2 { "Requests" }
        (facts(&[
            ("read", rounded(summary.read_bytes).to_string()),
            ("written", rounded(summary.written_bytes).to_string()),
            ("length", format!("{} to {}, mean {}, half up to {}, 99 % up to {}", rounded(info.lengths.min.into()), rounded(info.lengths.max.into()),
                rounded(info.lengths.mean as u64), rounded(info.lengths.p50.into()), rounded(info.lengths.p99.into()))),
        ]))
        (devices(info))
        h2 { "Over time" }
        (rates(info))
        h2 { "Lengths and reuse" }
        div.two { (lengths(info)) (reuse(info)) }
        p.quiet {
            "Reuse: other bytes used between two uses of a 4 KiB page, of all uses; a cache under LRU that is larger has the page. "
            (format!("{:.1} %", info.reuse.first * 100.0)) " of the uses are the first of their page; "
            (format!("{:.2} %", info.reuse.sample * 100.0)) " of the pages were looked at."
        }
        h2 { "Where and when" }
        (maps(info))
        h2 { "Hottest regions of " (rounded(info.region_bytes)) }
        (hottest(info))
    };
    page(&format!("What {trace} is"), &lead, &sections)
}

fn devices(info: &Info) -> Markup {
    let mut shown: Vec<_> = info.devices.iter().collect();
    shown.sort_by_key(|of| std::cmp::Reverse(of.summary.reads + of.summary.writes));
    shown.truncate(DEVICES_MAX);
    shown.sort_by_key(|of| of.device);
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let rows = shown.iter().map(|of| {
        let requests = of.summary.reads + of.summary.writes;
        let grid = match of.alignment.grid_offset {
            Some(offset) => offset.to_string(),
            None => "none found".to_owned(),
        };
        vec![
            of.device.to_string(),
            count(requests),
            percent(of.summary.reads, requests),
            rounded(of.summary.span_bytes).to_string(),
            share(of.sequential),
            share(of.sequential_of_16),
            grid,
        ]
    });
    let head =
        ["device", "requests", "reads", "up to byte", "sequential", "to one of 16", "grid offset"];
    html! {
        (table(&head, &rows.collect::<Vec<_>>()))
        @for line in alignments(&shown) { p { (capitalised(&line)) "." } }
        @if info.devices.len() > DEVICES_MAX { p.quiet { (info.devices.len() - DEVICES_MAX) " devices with fewer requests are not shown." } }
    }
}

fn rates(info: &Info) -> Markup {
    let seconds = info.window_ns.max(1) as f64 / 1e9;
    let line = |name: &str, of: &dyn Fn(&Window) -> f64| {
        let middle = info.window_ns as f64 / 2.0;
        // The last window is not whole.
        let whole = match &info.windows[..] {
            [all @ .., _] if !all.is_empty() => all,
            all => all,
        };
        Line::new(
            name,
            whole.iter().map(|window| (window.start_ns as f64 + middle, Some(of(window)))),
        )
    };
    let requests = [
        line("reads", &|window| window.reads as f64 / seconds),
        line("writes", &|window| window.writes as f64 / seconds),
    ];
    let set = [line("working set", &|window| window.working_set as f64)];
    let x = || Axis::new(TIME, Scale::Moments, moment);
    let size = Axis::new("Working set", Scale::Bytes, bytes_at_axis);
    html! {
        (lines("Requests per second", x(), Axis::new("Requests per second (1/s)", Scale::Linear, number), &requests))
        (lines(&format!("Working set of windows of {}", time(info.window_ns)), x(), size, &set))
    }
}

fn lengths(info: &Info) -> Markup {
    let requests = (info.summary.reads + info.summary.writes).max(1) as f64;
    let mut common = info.lengths.common.clone();
    common.sort_unstable();
    let labels: Vec<String> =
        common.iter().map(|(len, _)| rounded((*len).into()).to_string()).collect();
    let shares = common.iter().map(|(_, count)| *count as f64 / requests).collect();
    columns("Most common lengths", ["Length", "Share of requests"], &labels, &[("all", shares)])
}

fn reuse(info: &Info) -> Markup {
    let labels: Vec<String> =
        info.reuse.distances.iter().map(|(bytes, _)| format!("≤ {}", rounded(*bytes))).collect();
    let shares = info.reuse.distances.iter().map(|(_, share)| share.max(0.0)).collect();
    columns("Reuse distances", ["Reuse distance", "Share of uses"], &labels, &[("uses", shares)])
}

/// The maps of the devices with most requests: reads and writes each for themselves.
fn maps(info: &Info) -> Markup {
    let requests = |map: &Map| map.cells.iter().map(|of| of.reads + of.writes).sum::<u64>();
    let mut shown: Vec<&Map> = info.maps.iter().collect();
    shown.sort_by_key(|map| std::cmp::Reverse(requests(map)));
    shown.truncate(MAPS_MAX);
    shown.sort_by_key(|map| map.device);
    html! {
        @for map in &shown {
            (map_of(map, "Reads", Hue::Blue, |of| of.reads))
            (map_of(map, "Writes", Hue::Red, |of| of.writes))
        }
        p.quiet {
            "Where requests begin (from the bottom: byte 0 of the device) over time; the stronger the colour, the more of them begin in a cell."
            @if info.devices.len() > shown.len() { " Other devices are not shown." }
        }
    }
}

/// Nothing where there are none.
fn map_of(map: &Map, what: &str, hue: Hue, of: fn(&Cell) -> u64) -> Markup {
    let cells: Vec<_> = map.cells.iter().map(|cell| (cell.column, cell.row, of(cell))).collect();
    if cells.iter().all(|(_, _, number)| *number == 0) {
        return html! {};
    }
    let most = |of: fn(&Cell) -> usize| map.cells.iter().map(of).max().unwrap_or(0) + 1;
    let cell = format!("{} and {}", rounded(map.row_bytes), time(map.column_ns));
    let of_cells = Heat {
        title: &format!("{what} of device {}, by cells of {cell}", map.device),
        unit: "requests",
        hue,
        cell: (map.column_ns as f64, map.row_bytes as f64),
        cells: &cells,
        shown: (most(|cell| cell.column), most(|cell| cell.row)),
    };
    let bytes = Axis::new("Byte of the device", Scale::Bytes, bytes_at_axis);
    heat(&of_cells, Axis::new(TIME, Scale::Moments, moment), bytes)
}

fn hottest(info: &Info) -> Markup {
    let requests = info.summary.reads + info.summary.writes;
    let rows = info.hottest.iter().map(|region| {
        let all = region.reads + region.writes;
        vec![
            region.device.to_string(),
            place(region.start),
            count(region.reads),
            count(region.writes),
            percent(all, requests),
        ]
    });
    table(&["device", "from byte", "reads", "writes", "of all"], &rows.collect::<Vec<_>>())
}
