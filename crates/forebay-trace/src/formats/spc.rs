//! The Storage Performance Council's trace format, of the UMass repository: `ASU,LBA,size,opcode,time`, sectors of 512
//! bytes, size in bytes, `r` or `w`, seconds. Optional fields may follow. An application storage unit is a device.

use super::fields::{SECTOR, bytes, decimal_ns, exactly, number, op, shown};
use super::lines::Parser;
use super::{Item, Raw};

/// The columns, for errors.
const COLUMNS: &str = "ASU, LBA, size, r or w, seconds";

/// See the module.
#[derive(Debug)]
pub(super) struct Spc;

impl Parser for Spc {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        let [asu, sector, len, kind, seconds] = exactly(line.split(',').take(5), COLUMNS)?;
        let asu = number(asu, "ASU")?;
        Ok(Item::Request(Raw {
            time_ns: decimal_ns(seconds, 1_000_000_000, "time")?,
            op: op(kind).ok_or_else(|| format!("opcode \"{}\" is neither r nor w", shown(kind)))?,
            offset: bytes(sector, SECTOR, "LBA")?,
            len: number(len, "size")?,
            device: u32::try_from(asu).map_err(|_| format!("ASU {asu} is too large"))?,
            latency_ns: None,
        }))
    }
}
