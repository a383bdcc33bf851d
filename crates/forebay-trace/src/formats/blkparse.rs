//! The text that blkparse prints of a trace of the Linux block layer.
//!
//! ```text
//! maj,min cpu seq seconds pid action rwbs sector + sectors [process]
//! 259,2    0    5  0.000005462  4020  D  RS 282624 + 8 [java]
//! ```
//! `pairing.rs` makes requests of the events. Lines of another shape, such as the totals at the end, are passed over, as is what
//! neither reads nor writes.

use super::devices::Devices;
use super::fields::{SECTOR, bytes, decimal_ns};
use super::lines::Parser;
use super::pairing::{Event, Pairing};
use super::{Item, Raw};
use crate::record::Op;

/// See the module.
#[derive(Debug)]
pub(super) struct Blkparse {
    pairing: Pairing,
    devices: Devices<String>,
}

/// The fields of an event with a place.
struct Line<'a> {
    device: &'a str,
    seconds: &'a str,
    event: Event,
    op: Op,
    sector: &'a str,
    sectors: &'a str,
}

impl<'a> Line<'a> {
    /// `None` for anything that is not an event of a read or a write.
    fn of(line: &'a str) -> Option<Line<'a>> {
        let mut fields = line.split_ascii_whitespace();
        let mut next = || fields.next();
        let (device, _cpu, _sequence, seconds, _pid) =
            (next()?, next()?, next()?, next()?, next()?);
        let (action, kind, sector, plus, sectors) = (next()?, next()?, next()?, next()?, next()?);
        let (major, minor) = device.split_once(',')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(major) || !is_number(minor) || plus != "+" {
            return None;
        }
        let event = match action {
            "Q" => Event::Queued,
            "D" => Event::Issued,
            "C" => Event::Completed,
            _ => return None,
        };
        let op = match kind {
            _ if kind.contains(['D', 'E']) => return None,
            _ if kind.contains('R') => Op::Read,
            _ if kind.contains('W') => Op::Write,
            _ => return None,
        };
        Some(Line { device, seconds, event, op, sector, sectors })
    }
}

/// True for an event of a read or a write.
pub(super) fn is_event(line: &str) -> bool {
    Line::of(line).is_some()
}

impl Blkparse {
    /// Finds in the first lines which events are the requests.
    pub(super) fn new(sample: &[u8]) -> Blkparse {
        let text = String::from_utf8_lossy(sample);
        let events = text.lines().filter_map(|line| Line::of(line).map(|line| line.event));
        Blkparse { pairing: Pairing::new(Event::of_requests(events)), devices: Devices::default() }
    }
}

impl Parser for Blkparse {
    fn parse(&mut self, text: &str) -> Result<Item, String> {
        let Some(line) = Line::of(text) else {
            return Ok(self.pairing.next().map_or(Item::PassedOver, Item::Request));
        };
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
