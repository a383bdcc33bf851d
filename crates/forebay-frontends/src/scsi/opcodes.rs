//! The commands: one table, which dispatches them and which initiators can read.

use forebay_core::geometry::ByteRange;

use super::lun::Lun;
use super::sense::{Code, Sense};
use super::task::{Cdb, Command, Medium, Outcome, Response};
use super::unit::{Answer, BLOCK, Call, LogicalUnit};

/// What may hold a command up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing, not even a unit attention.
    Always,
    /// A unit attention, but no reservation.
    Inform,
    /// Reservations that forbid reading.
    Read,
    /// Reservations that forbid writing, and a read-only medium.
    Write,
    /// Reservations that forbid writing.
    Control,
}

/// Answers a command, or says what it needs.
type Run = fn(&mut LogicalUnit, &Call) -> Answer;
/// Takes the parameter list of a command.
type Take = fn(&mut LogicalUnit, &Call, &[u8]) -> Answer;

/// A command.
pub(super) struct Entry {
    /// Operation code.
    code: u8,
    /// Service action, where the operation code has such.
    action: Option<u8>,
    pub class: Class,
    /// The bits of the CDB that mean something, from the second byte to the one before CONTROL.
    usage: &'static [u8],
    pub run: Run,
    /// What takes the parameter list.
    pub list: Option<Take>,
}

/// NACA, in the last byte of a CDB.
const NACA: u8 = 1 << 2;

impl Entry {
    const fn new(code: u8, class: Class, usage: &'static [u8], run: Run) -> Entry {
        Entry { code, action: None, class, usage, run, list: None }
    }

    /// Refuses bits that mean nothing, and NACA.
    pub fn check_reserved(&self, cdb: &Cdb) -> Result<(), Sense> {
        for (at, usage) in (1..).zip(self.usage) {
            let wrong = cdb.u8(at) & !usage;
            if wrong != 0 {
                return Err(Sense::cdb_field(at as u16, 7 - wrong.leading_zeros() as u8));
            }
        }
        let control = self.usage.len() + 1;
        if cdb.u8(control) & NACA != 0 {
            return Err(Sense::cdb_field(control as u16, 2));
        }
        Ok(())
    }
}

/// The entry of a command.
pub(super) fn find(cdb: &Cdb) -> Result<&'static Entry, Sense> {
    let mut error = Sense::illegal(Code::INVALID_COMMAND_OPERATION_CODE);
    for entry in TABLE.iter().filter(|entry| entry.code == cdb.opcode()) {
        match entry.action {
            Some(action) if action != cdb.u8(1) & 0x1f => error = Sense::cdb_field(1, 4),
            _ => return Ok(entry),
        }
    }
    Err(error)
}

static TABLE: &[Entry] = &[
    Entry::new(0x00, Class::Inform, &[0, 0, 0, 0], test_unit_ready),
    Entry::new(0x12, Class::Always, &[1, 0xff, 0xff, 0xff], inquiry),
    Entry::new(0x25, Class::Inform, &[0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0], read_capacity),
    Entry::new(0x28, Class::Read, &[0x18, 255, 255, 255, 255, 0x1f, 255, 255], read),
    Entry::new(0x2a, Class::Write, &[0x18, 255, 255, 255, 255, 0x1f, 255, 255], write),
    Entry::new(0x35, Class::Control, &[2, 255, 255, 255, 255, 0x1f, 255, 255], flush),
    Entry::new(0xa0, Class::Always, &[0, 255, 0, 0, 0, 255, 255, 255, 255, 0], report_luns),
];

fn test_unit_ready(_: &mut LogicalUnit, _: &Call) -> Answer {
    Ok(Outcome::Done(Response::GOOD))
}

fn data(mut bytes: Vec<u8>, allocation: u32) -> Answer {
    bytes.truncate(allocation as usize);
    Ok(Outcome::Done(Response::data(bytes)))
}

fn inquiry(_: &mut LogicalUnit, call: &Call) -> Answer {
    data(standard_inquiry(0), call.cdb.u16(3).into())
}

fn standard_inquiry(peripheral: u8) -> Vec<u8> {
    let mut bytes = vec![peripheral, 0, 6, 0x12, 31, 0, 0, 2];
    bytes.extend_from_slice(b"FOREBAY Virtual disk    0001");
    bytes
}

fn read_capacity(unit: &mut LogicalUnit, _: &Call) -> Answer {
    let last = (unit.export.size / BLOCK).saturating_sub(1).min(u64::from(u32::MAX)) as u32;
    let mut bytes = last.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(BLOCK as u32).to_be_bytes());
    data(bytes, u32::MAX)
}

fn range(unit: &LogicalUnit, lba: u64, blocks: u64) -> Result<ByteRange, Sense> {
    let disk = unit.export.size / BLOCK;
    match lba.checked_add(blocks) {
        Some(end) if end <= disk => Ok(ByteRange::new(lba * BLOCK, end * BLOCK)),
        _ => Err(Sense::illegal(Code::LBA_OUT_OF_RANGE)),
    }
}

fn read(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let range = range(unit, call.cdb.u32(2).into(), call.cdb.u16(7).into())?;
    Ok(Outcome::Medium(Medium::Read { range, no_admit: call.cdb.has(1, 4) }))
}

fn write(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let blocks = u64::from(call.cdb.u16(7)).min(u64::from(call.data_out) / BLOCK);
    let range = range(unit, call.cdb.u32(2).into(), blocks)?;
    let fua = call.cdb.has(1, 3) || !unit.write_cache;
    Ok(Outcome::Medium(Medium::Write { range, fua }))
}

fn flush(_: &mut LogicalUnit, _: &Call) -> Answer {
    Ok(Outcome::Medium(Medium::Flush))
}

fn report_luns(_: &mut LogicalUnit, call: &Call) -> Answer {
    data(lun_list(call.luns), call.cdb.u32(6))
}

fn lun_list(luns: &[Lun]) -> Vec<u8> {
    let mut bytes = (8 * luns.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    for lun in luns {
        bytes.extend_from_slice(&lun.encode());
    }
    bytes
}

/// What a target answers where there is no logical unit.
pub(super) fn absent(command: &Command) -> Response {
    let (mut bytes, allocation) = match command.cdb.opcode() {
        0x12 => (standard_inquiry(0x7f), command.cdb.u16(3).into()),
        0xa0 => (lun_list(command.luns), command.cdb.u32(6)),
        _ => return Response::check(Sense::illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED)),
    };
    bytes.truncate(allocation as usize);
    Response::data(bytes)
}
