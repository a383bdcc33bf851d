//! The text that blkparse prints of a trace of the Linux block layer.
//!
//! ```text
//! maj,min cpu seq seconds pid action rwbs sector + sectors [process]
//! 259,2    0    5  0.000005462  4020  D  RS 282624 + 8 [java]
//! ```
//! `pairing.rs` makes requests of the events. The totals at the end are passed over, as is what neither reads nor writes. A
//! line that begins as an event and lacks a part of it is bad.

use super::devices::Devices;
use super::fields::{SECTOR, bytes, decimal_ns, shown};
use super::lines::Parser;
use super::pairing::{Event, Pairing};
use super::{Item, Raw};
use crate::record::Op;

/// See the module.
#[derive(Debug)]
pub(super) struct Blkparse {
    pairing: Pairing,
    devices: Devices<String>,
    /// The lines end with the process, or with the error of a completion, in brackets.
    has_ends: bool,
}

/// What a line of the output is.
enum Line<'a> {
    /// A read or a write that has a place.
    Event(EventFields<'a>),
    /// Another event, or none: a total at the end.
    Other,
}

/// The fields of an event with a place.
struct EventFields<'a> {
    device: &'a str,
    seconds: &'a str,
    event: Event,
    op: Op,
    sector: &'a str,
    sectors: &'a str,
}

impl<'a> Line<'a> {
    /// # Errors
    /// The line begins as an event and is none, or is neither an event nor a total: a part of it is missing.
    fn of(line: &'a str) -> Result<Line<'a>, String> {
        if !line.starts_with(|first: char| first.is_ascii_digit()) {
            let is_total = line.contains(':') || line.starts_with("Input file ");
            return if is_total { Ok(Line::Other) } else { Err("no event of blkparse".to_owned()) };
        }
        let mut fields = line.split_ascii_whitespace();
        let mut next = || fields.next().ok_or("the line of an event is cut");
        let [device, cpu, sequence, seconds, pid] = [next()?, next()?, next()?, next()?, next()?];
        let (action, kind) = (next()?, next()?);
        let (major, minor) = device.split_once(',').unwrap_or_default();
        let (whole, parts) = seconds.split_once('.').unwrap_or_default();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if ![major, minor, cpu, sequence, whole, parts, pid].into_iter().all(is_number) {
            return Err("does not begin as an event of blkparse".to_owned());
        }
        let event = match action {
            "Q" => Event::Queued,
            "R" => Event::Requeued,
            "D" => Event::Issued,
            "C" => Event::Completed,
            _ => return Ok(Line::Other),
        };
        let op = match kind {
            _ if !kind.bytes().all(|b| b.is_ascii_uppercase()) => {
                return Err(format!("\"{}\" is no kind of request", shown(kind)));
            }
            _ if kind.contains(['D', 'E']) => return Ok(Line::Other),
            _ if kind.contains('R') => Op::Read,
            _ if kind.contains('W') => Op::Write,
            _ => return Ok(Line::Other),
        };
        // Flushes and commands have no place, or one without a length.
        let has_no_length = |field: &str| field.starts_with(['[', '(']);
        let sector = next()?;
        if has_no_length(sector) {
            return Ok(Line::Other);
        }
        let sectors = match next()? {
            "+" => next()?,
            field if has_no_length(field) => return Ok(Line::Other),
            field => return Err(format!("\"{}\" where \"+\" should be", shown(field))),
        };
        Ok(Line::Event(EventFields { device, seconds, event, op, sector, sectors }))
    }
}

/// True for an event of a read or a write.
pub(super) fn is_event(line: &str) -> bool {
    matches!(Line::of(line), Ok(Line::Event(_)))
}

impl Blkparse {
    /// Finds in the first lines which events are the requests, and whether lines have an end.
    pub(super) fn new(sample: &[u8]) -> Blkparse {
        let text = String::from_utf8_lossy(sample);
        let places = text.lines().filter_map(|line| match Line::of(line.trim()) {
            Ok(Line::Event(place)) => Some((place.event, line.trim().ends_with(']'))),
            Ok(Line::Other) | Err(_) => None,
        });
        let places: Vec<(Event, bool)> = places.collect();
        Blkparse {
            pairing: Pairing::new(Event::of_requests(places.iter().map(|(event, _)| *event))),
            devices: Devices::default(),
            has_ends: places.iter().any(|(_, has_end)| *has_end),
        }
    }
}

impl Parser for Blkparse {
    fn parse(&mut self, text: &str) -> Result<Item, String> {
        let Line::Event(line) = Line::of(text)? else {
            return Ok(self.pairing.next().map_or(Item::PassedOver, Item::Request));
        };
        if self.has_ends && !text.ends_with(']') {
            return Err("the line of an event is cut: it does not end with \"]\"".to_owned());
        }
        let raw = Raw {
            time_ns: decimal_ns(line.seconds, 1_000_000_000, "time")?,
            op: line.op,
            offset: bytes(line.sector, SECTOR, "sector")?,
            len: bytes(line.sectors, SECTOR, "sectors")?,
            device: self.devices.number(line.device.to_owned())?,
            latency_ns: None,
        };
        let counts = self.pairing.add(line.event, raw);
        Ok(match self.pairing.next() {
            Some(raw) => Item::Request(raw),
            None if counts => Item::Nothing,
            None => Item::PassedOver,
        })
    }

    fn kept_back(&mut self) -> Option<Raw> {
        self.pairing.kept_back()
    }
}
