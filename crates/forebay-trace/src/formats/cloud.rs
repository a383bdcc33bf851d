//! Two clouds' block traces.
//!
//! - **Alibaba**: `device,R|W,offset,length,time`, bytes and µs.
//! - **Tencent** (CBS): `seconds,offset,size,0|1,volume`, sectors of 512 bytes, 0 reads.

use super::fields::{SECTOR, bytes, exactly, number, op, shown};
use super::lines::Parser;
use super::{Item, Raw};
use crate::record::Op;

/// See the module.
#[derive(Debug)]
pub(super) struct Alibaba;

impl Parser for Alibaba {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        let columns = "device, R or W, offset, length, time in µs";
        let [device, kind, offset, len, micros] = exactly(line.split(','), columns)?;
        Ok(Item::Request(Raw {
            time_ns: bytes(micros, 1000, "time")?,
            op: op(kind).ok_or_else(|| format!("opcode \"{}\" is neither R nor W", shown(kind)))?,
            offset: number(offset, "offset")?,
            len: number(len, "length")?,
            device: device_number(device, "device")?,
            latency_ns: None,
        }))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tencent;

impl Parser for Tencent {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        let columns = "seconds, offset, size, 0 or 1, volume";
        let [seconds, sector, len, kind, volume] = exactly(line.split(','), columns)?;
        Ok(Item::Request(Raw {
            time_ns: bytes(seconds, 1_000_000_000, "time")?,
            op: match kind {
                "0" => Op::Read,
                "1" => Op::Write,
                _ => return Err(format!("type \"{}\" is neither 0 nor 1", shown(kind))),
            },
            offset: bytes(sector, SECTOR, "offset")?,
            len: bytes(len, SECTOR, "size")?,
            device: device_number(volume, "volume")?,
            latency_ns: None,
        }))
    }
}

fn device_number(field: &str, column: &str) -> Result<u32, String> {
    let device = number(field, column)?;
    u32::try_from(device).map_err(|_| format!("{column} {device} is too large"))
}
