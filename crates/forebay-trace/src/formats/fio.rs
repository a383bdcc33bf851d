//! The I/O log of fio (`--write_iolog`), versions 2 and 3.
//!
//! ```text
//! fio version 2 iolog              fio version 3 iolog
//! disk add                         38 disk add
//! disk open                        178 disk open
//! disk wait 1000 0                 1186 disk read 61440 4096
//! disk read 61440 4096             1208 disk write 774144 4096
//! ```
//! Version 3 has a time in µs before each line. In version 2 a `wait` lets so many µs pass. A
//! file is a device, numbered in order of appearance. Lines that neither read nor write are
//! passed over.

use super::devices::Devices;
use super::fields::{bytes, number};
use super::lines::Parser;
use super::{Item, Raw};
use crate::record::Op;

/// First line of a log of version 2 and of version 3.
pub(super) const TITLES: [&str; 2] = ["fio version 2 iolog", "fio version 3 iolog"];

/// See the module.
#[derive(Debug)]
pub(super) struct Fio {
    has_times: bool,
    now_ns: u64,
    devices: Devices<String>,
}

impl Fio {
    /// Of version 3, or of version 2, which has no times.
    pub(super) fn new(has_times: bool) -> Fio {
        Fio { has_times, now_ns: 0, devices: Devices::default() }
    }
}

impl Parser for Fio {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        if TITLES.contains(&line) {
            return Ok(Item::PassedOver);
        }
        let mut fields = line.split_ascii_whitespace();
        if self.has_times {
            self.now_ns = bytes(fields.next().unwrap_or_default(), 1000, "time")?;
        }
        let fields: Vec<&str> = fields.collect();
        let op = match fields[..] {
            [_, "add" | "open" | "close"] => return Ok(Item::PassedOver),
            [_, "sync" | "datasync" | "trim", _, _] => return Ok(Item::PassedOver),
            [_, "wait", micros, _] => {
                let pause = bytes(micros, 1000, "wait")?;
                self.now_ns = self.now_ns.checked_add(pause).ok_or("the waits are too long")?;
                return Ok(Item::PassedOver);
            }
            [_, "read", _, _] => Op::Read,
            [_, "write", _, _] => Op::Write,
            _ => return Err("no line of an iolog".to_owned()),
        };
        Ok(Item::Request(Raw {
            time_ns: self.now_ns,
            op,
            offset: number(fields[2], "offset")?,
            len: number(fields[3], "length")?,
            device: self.devices.number(fields[0].to_owned())?,
            latency_ns: None,
        }))
    }
}
