//! A second, simple reader of the formats that real traces have: the whole file at once, nothing checked.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_trace::formats::TimeUnit;

use super::{Devices, Request};

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// vscsiStats, 32 bytes each.
    Vscsi,
    /// `time device sector sectors type`, the time in so many nanoseconds.
    Columns(i64),
    /// `.lis` of the ARC paper.
    Arc,
    /// blktrace.
    Blktrace,
}

/// A file of the folder.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub name: &'static str,
    pub format: Format,
}

const fn named(name: &'static str, format: Format) -> Named {
    Named { name, format }
}

pub const ALL: [Named; 14] = [
    named("cloudPhysicsIO.vscsi.zst", Format::Vscsi),
    named("msprod-DTRS1K.ssdsim.zst", Format::Columns(1000)),
    named("msr-prxy_0-reads-13h.mqsim.zst", Format::Columns(1_000_000)),
    named("financial1-first10k.ssdsim.zst", Format::Columns(1)),
    named("financial1-50k-pages.disksim.zst", Format::Columns(1_000_000)),
    named("tpcc-small.mqsim.zst", Format::Columns(1)),
    named("P3.lis.zst", Format::Arc),
    named("OLTP.lis.zst", Format::Arc),
    named("netsys-150521203555-0.blktrace.zst", Format::Blktrace),
    named("netsys-150521203555-1.blktrace.zst", Format::Blktrace),
    named("netsys-150521203555-2.blktrace.zst", Format::Blktrace),
    named("netsys-150521203555-3.blktrace.zst", Format::Blktrace),
    named("netsys-150521203555-4.blktrace.zst", Format::Blktrace),
    named("netsys-150521203555-5.blktrace.zst", Format::Blktrace),
];

impl Named {
    /// What Forebay is told of the time column.
    pub fn time_unit(&self) -> Option<TimeUnit> {
        match self.format {
            Format::Columns(1) => Some(TimeUnit::Nanoseconds),
            Format::Columns(1000) => Some(TimeUnit::Microseconds),
            Format::Columns(_) => Some(TimeUnit::Milliseconds),
            Format::Vscsi | Format::Arc | Format::Blktrace => None,
        }
    }
}

/// All requests of a file.
pub fn read(path: &Path, format: Format) -> Devices {
    let bytes = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    match format {
        Format::Vscsi => vscsi(&bytes),
        Format::Columns(unit_ns) => columns(&String::from_utf8(bytes).unwrap(), unit_ns),
        Format::Arc => arc(&String::from_utf8(bytes).unwrap()),
        Format::Blktrace => blktrace(&bytes),
    }
}

/// A little-endian number of `len` bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> i64 {
    bytes[at..at + len].iter().rev().fold(0, |number, &byte| number << 8 | i64::from(byte))
}

fn vscsi(bytes: &[u8]) -> Devices {
    let request = |of: &[u8]| {
        let (len, command) = (number(of, 4, 4), number(of, 12, 2));
        let is_read = [0x08, 0x28, 0x88, 0xA8].contains(&command);
        let is_write = [0x0A, 0x2A, 0x8A, 0xAA].contains(&command);
        let (start, time_ns) = (number(of, 16, 8) * 512, number(of, 24, 8) * 1000);
        let is_one = (is_read || is_write) && len > 0;
        is_one.then_some(Request { time_ns, is_read, start, len, latency_ns: None })
    };
    BTreeMap::from([(0, bytes.chunks_exact(32).filter_map(request).collect())])
}

fn columns(text: &str, unit_ns: i64) -> Devices {
    let mut devices = Devices::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[time, device, sector, sectors, kind] = &fields[..] else { continue };
        let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
        // Six digits behind the point of a millisecond are nanoseconds.
        let fraction: i64 = format!("{fraction:0<6}")[..6].parse().unwrap();
        let [start, len] = [sector, sectors].map(|number| number.parse::<i64>().unwrap() * 512);
        if len > 0 {
            devices.entry(device.parse().unwrap()).or_default().push(Request {
                time_ns: whole.parse::<i64>().unwrap() * unit_ns + fraction * unit_ns / 1_000_000,
                is_read: kind == "1",
                start,
                len,
                latency_ns: None,
            });
        }
    }
    devices
}

fn arc(text: &str) -> Devices {
    let request = |line: &str| {
        let fields: Vec<i64> =
            line.split_whitespace().map(|field| field.parse().unwrap()).collect();
        let (start, len) = (fields[0] * 512, fields[1] * 512);
        Request { time_ns: 0, is_read: true, start, len, latency_ns: None }
    };
    BTreeMap::from([(0, text.lines().map(request).collect())])
}

/// Of one device: its issues, each with the first completion behind it of the same place.
fn blktrace(bytes: &[u8]) -> Devices {
    let mut requests: Vec<Request> = Vec::new();
    // By what an issue and its completion have in common: issues that are not complete.
    let mut open: BTreeMap<(i64, bool), Vec<usize>> = BTreeMap::new();
    let mut at = 0;
    while at + 48 <= bytes.len() {
        let event = &bytes[at..];
        at += 48 + number(event, 46, 2) as usize;
        let (time_ns, sector, len) =
            (number(event, 8, 8), number(event, 16, 8), number(event, 24, 4));
        let (action, kind) = (number(event, 28, 2), number(event, 30, 2));
        let is_message_or_discard = kind & (1 << 9 | 1 << 10 | 1 << 13) != 0;
        if len == 0 || is_message_or_discard {
            continue;
        }
        let is_read = kind & 2 == 0;
        let waiting = open.entry((sector, is_read)).or_default();
        match action {
            7 => {
                waiting.push(requests.len());
                let start = sector * 512;
                requests.push(Request { time_ns, is_read, start, len, latency_ns: None });
            }
            8 if !waiting.is_empty() => {
                let issued = &mut requests[waiting.remove(0)];
                issued.latency_ns = Some(time_ns - issued.time_ns).filter(|&ns| ns > 0);
            }
            _ => {}
        }
    }
    BTreeMap::from([(0, requests)])
}
