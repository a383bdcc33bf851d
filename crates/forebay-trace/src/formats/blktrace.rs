//! The binary trace of the Linux block layer, as blktrace writes it: one file, of one CPU or merged.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic 0x65617400 and version 7 |
//! | 4..8 | sequence number |
//! | 8..16 | time in ns |
//! | 16..24 | first sector of 512 bytes |
//! | 24..28 | length in bytes |
//! | 28..32 | action, and in the upper half what kind of request |
//! | 32..36 | process |
//! | 36..40 | device |
//! | 40..46 | CPU, error |
//! | 46..48 | length of what follows and is passed over |
//!
//! Little-endian. `pairing.rs` makes requests of the events.

use std::io::{self, BufRead};

use super::binary::{fill, u16_at, u32_at, u64_at};
use super::devices::Devices;
use super::fields::SECTOR;
use super::pairing::{Event, Pairing};
use super::{Failure, Item, Raw, Step};
use crate::record::Op;

/// Length of an event without what follows.
pub(super) const EVENT_LEN: usize = 48;
/// The magic number with the version.
const MAGIC: u32 = 0x6561_7407;
/// In the upper half of the action: writes, discards, commands of SCSI, messages of the tool.
const WRITE: u32 = 1 << 1;
const NO_REQUEST: u32 = 1 << 9 | 1 << 10 | 1 << 13;

/// See the module.
#[derive(Debug)]
pub(super) struct Blktrace {
    pairing: Pairing,
    devices: Devices<u32>,
    number: u64,
}

/// The meaning of an action's lower half.
fn event(action: u32) -> Option<Event> {
    match action & 0xFFFF {
        1 => Some(Event::Queued),
        6 => Some(Event::Requeued),
        7 => Some(Event::Issued),
        8 => Some(Event::Completed),
        _ => None,
    }
}

/// True when a file that starts so is of this format.
pub(super) fn is_of(sample: &[u8]) -> bool {
    sample.len() >= EVENT_LEN && u32_at(sample, 0) == MAGIC
}

impl Blktrace {
    /// Finds in the first events which are the requests.
    pub(super) fn new(sample: &[u8]) -> Blktrace {
        let mut rest = sample;
        let mut events = Vec::new();
        while rest.len() >= EVENT_LEN && u32_at(rest, 0) == MAGIC {
            events.extend(event(u32_at(rest, 28)));
            let follows = usize::from(u16_at(rest, 46));
            rest = rest.get(EVENT_LEN + follows..).unwrap_or_default();
        }
        let requests = Event::of_requests(events.into_iter());
        Blktrace { pairing: Pairing::new(requests), devices: Devices::default(), number: 0 }
    }

    /// Number of the last event, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn step(&mut self, input: &mut dyn BufRead) -> Option<Step> {
        let mut bytes = [0; EVENT_LEN];
        match fill(input, &mut bytes) {
            Ok(0) => return self.pairing.kept_back().map(|raw| Ok(Item::Request(raw))),
            Ok(len) => {
                self.number += 1;
                if len < EVENT_LEN {
                    let what = format!("the file ends after {len} of its {EVENT_LEN} bytes");
                    return Some(Err(Failure::Bad(what)));
                }
            }
            Err(error) => return Some(Err(Failure::Io(error))),
        }
        let decoded = self.decode(&bytes).map_err(Failure::Bad);
        let follows = u64::from(u16_at(&bytes, 46));
        Some(match io::copy(&mut io::Read::take(input, follows), &mut io::sink()) {
            Ok(skipped) if skipped < follows => {
                let what =
                    format!("the file ends after {skipped} of the {follows} bytes that follow it");
                Err(Failure::Bad(what))
            }
            Ok(_) => decoded,
            Err(error) => Err(Failure::Io(error)),
        })
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<Item, String> {
        let magic = u32_at(bytes, 0);
        if magic != MAGIC {
            return Err(format!("starts with {magic:#010x}, not {MAGIC:#010x}"));
        }
        let (sector, len, action) = (u64_at(bytes, 16), u32_at(bytes, 24), u32_at(bytes, 28));
        let kind = action >> 16;
        let event = event(action).filter(|_| len > 0 && kind & NO_REQUEST == 0);
        let counts = match event {
            None => false,
            Some(event) => {
                let offset = sector.checked_mul(SECTOR);
                let raw = Raw {
                    time_ns: u64_at(bytes, 8),
                    op: if kind & WRITE != 0 { Op::Write } else { Op::Read },
                    offset: offset.ok_or_else(|| format!("sector {sector} is beyond any disk"))?,
                    len: u64::from(len),
                    device: self.devices.number(u32_at(bytes, 36))?,
                    latency_ns: None,
                };
                self.pairing.add(event, raw)
            }
        };
        Ok(match self.pairing.next() {
            Some(raw) => Item::Request(raw),
            None if counts => Item::Nothing,
            None => Item::PassedOver,
        })
    }
}
