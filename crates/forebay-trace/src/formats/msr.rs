//! MSR Cambridge CSV: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; time stamp and
//! response time in units of 100 ns, offset and size in bytes. A host's disk is one device; devices
//! are numbered in order of appearance.

use super::devices::Devices;
use super::fields::{bytes, exactly, number, shown};
use super::lines::Parser;
use super::{Item, Raw};
use crate::record::Op;

/// The columns, for errors.
const COLUMNS: &str = "timestamp, hostname, disk, type, offset, size, response time";
/// Nanoseconds of a tick.
pub(super) const TICK_NS: u64 = 100;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Msr {
    devices: Devices<(String, u64)>,
}

/// True for the line that names the columns.
pub(super) fn is_header(line: &str) -> bool {
    line.starts_with("Timestamp,")
}

impl Parser for Msr {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        if is_header(line) {
            return Ok(Item::PassedOver);
        }
        let [ticks, host, disk, kind, offset, len, response] = exactly(line.split(','), COLUMNS)?;
        let op = match kind {
            _ if kind.eq_ignore_ascii_case("read") => Op::Read,
            _ if kind.eq_ignore_ascii_case("write") => Op::Write,
            _ => return Err(format!("type \"{}\" is neither Read nor Write", shown(kind))),
        };
        Ok(Item::Request(Raw {
            time_ns: bytes(ticks, TICK_NS, "timestamp")?,
            op,
            offset: number(offset, "offset")?,
            len: number(len, "size")?,
            device: self.devices.number((host.to_owned(), number(disk, "disk")?))?,
            // A request takes some time: 0 stands for unknown.
            latency_ns: Some(bytes(response, TICK_NS, "response time")?).filter(|&ns| ns > 0),
        }))
    }
}
