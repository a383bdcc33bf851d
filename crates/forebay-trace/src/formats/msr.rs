//! MSR Cambridge CSV: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; time stamp and
//! response time in units of 100 ns, offset and size in bytes. A host's disk is one device; devices
//! are numbered in order of appearance.

use std::collections::HashMap;

use super::Raw;
use super::fields::{bytes, exactly, number, shown};
use super::lines::Parser;
use crate::record::Op;

/// The columns, for errors.
const COLUMNS: &str = "timestamp, hostname, disk, type, offset, size, response time";
/// Devices that are told apart; more are no trace.
const DEVICES_MAX: usize = 1 << 16;
/// Nanoseconds of a tick.
const TICK_NS: u64 = 100;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Msr {
    devices: HashMap<(String, u64), u32>,
}

/// True for the line that names the columns.
pub(super) fn is_header(line: &str) -> bool {
    line.starts_with("Timestamp,")
}

impl Parser for Msr {
    fn parse(&mut self, line: &str) -> Result<Option<Raw>, String> {
        if is_header(line) {
            return Ok(None);
        }
        let [ticks, host, disk, kind, offset, len, _response] = exactly(line.split(','), COLUMNS)?;
        let op = match kind {
            _ if kind.eq_ignore_ascii_case("read") => Op::Read,
            _ if kind.eq_ignore_ascii_case("write") => Op::Write,
            _ => return Err(format!("type \"{}\" is neither Read nor Write", shown(kind))),
        };
        Ok(Some(Raw {
            time_ns: bytes(ticks, TICK_NS, "timestamp")?,
            op,
            offset: number(offset, "offset")?,
            len: number(len, "size")?,
            device: self.device(host, number(disk, "disk")?)?,
        }))
    }
}

impl Msr {
    fn device(&mut self, host: &str, disk: u64) -> Result<u32, String> {
        let known = self.devices.len();
        let key = (host.to_owned(), disk);
        if known == DEVICES_MAX && !self.devices.contains_key(&key) {
            return Err(format!("more than {DEVICES_MAX} disks"));
        }
        Ok(*self.devices.entry(key).or_insert(known as u32))
    }
}
