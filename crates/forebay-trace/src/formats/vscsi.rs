//! VMware's vscsiStats binary trace, as CloudPhysics kept it. Little-endian, no file header.
//!
//! | v1 | v2 | field |
//! |---|---|---|
//! | 0..4 | 4..8 | serial number |
//! | 4..8 | 8..12 | length in bytes |
//! | 8..12 | 12..16 | number of scatter-gather entries |
//! | 12..14 | 0..2 | SCSI opcode |
//! | 14..16 | 2..4 | version, in the upper byte |
//! | 16..24 | 16..24 | first sector of 512 bytes |
//! | 24..32 | 24..32 | time in µs since an unknown origin |
//! | – | 32..40 | response time in µs, 0: unknown |
//!
//! Commands that neither read nor write are passed over.

use std::io::BufRead;

use super::binary::{fill, u16_at, u32_at, u64_at};
use super::fields::SECTOR;
use super::{Failure, Item, Raw, Step};
use crate::record::Op;

/// Length of the longest record.
const RECORD_MAX: usize = 40;

/// The two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

impl Version {
    /// Length of a record.
    pub(super) fn record_len(self) -> usize {
        match self {
            Version::V1 => 32,
            Version::V2 => RECORD_MAX,
        }
    }

    /// The field with the version in it.
    pub(super) fn number(self) -> u16 {
        match self {
            Version::V1 => 1 << 8,
            Version::V2 => 2 << 8,
        }
    }

    /// True when the record says that it is of this version.
    pub(super) fn is_of(self, record: &[u8]) -> bool {
        match self {
            Version::V1 => record[15] == 1,
            Version::V2 => record[3] == 2,
        }
    }
}

/// The operation of a SCSI command's opcode: 6, 10, 12 and 16 bytes long each.
pub(super) fn op_of(opcode: u16) -> Option<Op> {
    match opcode {
        0x08 | 0x28 | 0x88 | 0xA8 => Some(Op::Read),
        0x0A | 0x2A | 0x8A | 0xAA => Some(Op::Write),
        _ => None,
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Vscsi {
    version: Version,
    number: u64,
}

impl Vscsi {
    pub(super) fn new(version: Version) -> Vscsi {
        Vscsi { version, number: 0 }
    }

    /// Number of the last record, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn step(&mut self, input: &mut dyn BufRead) -> Option<Step> {
        let mut record = [0; RECORD_MAX];
        let record = &mut record[..self.version.record_len()];
        match fill(input, record) {
            Ok(0) => None,
            Ok(len) => {
                self.number += 1;
                Some(self.decode(&record[..len]).map_err(Failure::Bad))
            }
            Err(error) => Some(Err(Failure::Io(error))),
        }
    }

    fn decode(&self, record: &[u8]) -> Result<Item, String> {
        let wanted = self.version.record_len();
        if record.len() < wanted {
            return Err(format!("the file ends after {} of its {wanted} bytes", record.len()));
        }
        if !self.version.is_of(record) {
            return Err(format!("not a record of version {:?}", self.version));
        }
        let (len, opcode) = match self.version {
            Version::V1 => (u32_at(record, 4), u16_at(record, 12)),
            Version::V2 => (u32_at(record, 8), u16_at(record, 0)),
        };
        let Some(op) = op_of(opcode) else { return Ok(Item::PassedOver) };
        let (sector, micros) = (u64_at(record, 16), u64_at(record, 24));
        let offset = sector.checked_mul(SECTOR);
        let offset = offset.ok_or_else(|| format!("sector {sector} is beyond any disk"))?;
        let time_ns = micros.checked_mul(1000);
        let time_ns = time_ns.ok_or_else(|| format!("time {micros} µs is too large"))?;
        let response = match self.version {
            Version::V1 => 0,
            Version::V2 => u64_at(record, 32),
        };
        let latency_ns = (response > 0).then(|| response.saturating_mul(1000));
        Ok(Item::Request(Raw { time_ns, op, offset, len: u64::from(len), device: 0, latency_ns }))
    }
}
