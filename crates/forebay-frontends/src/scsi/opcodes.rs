//! The commands: one table, which dispatches them and which initiators can read.

use super::sense::{Code, Sense};
use super::task::Cdb;
use super::unit::{Answer, Call, LogicalUnit};
use super::{
    capacity, condition, inquiry, mode, persistent, provisioning, report, reserve, transfer,
};

/// What may hold a command up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing, not even a unit attention.
    Always,
    /// A unit attention, but no reservation.
    Inform,
    /// RESERVE of another nexus, but no persistent reservation.
    Query,
    /// Reservations that forbid reading.
    Read,
    /// Reservations that forbid writing.
    Control,
    /// Reservations that forbid writing, and write protection.
    Write,
}

/// Answers a command, or says what it needs.
type Run = fn(&mut LogicalUnit, &Call) -> Answer;
/// Takes the parameter list of a command.
type Take = fn(&mut LogicalUnit, &Call, &[u8]) -> Answer;

/// A command.
pub(super) struct Entry {
    /// Operation code.
    pub code: u8,
    /// Service action, where the operation code has such.
    pub action: Option<u8>,
    pub class: Class,
    /// The bits of the CDB that mean something, from the second byte to the one before CONTROL.
    usage: &'static [u8],
    pub run: Run,
    /// The function that takes the parameter list.
    pub list: Option<Take>,
}

/// NACA, in the last byte of a CDB.
const NACA: u8 = 1 << 2;
/// The service action, in the second byte.
const ACTION: u8 = 0x1f;

impl Entry {
    const fn new(code: u8, class: Class, usage: &'static [u8], run: Run) -> Entry {
        Entry { code, action: None, class, usage, run, list: None }
    }

    /// With a service action; `usage` leaves it out.
    const fn action(self, action: u8) -> Entry {
        Entry { action: Some(action), ..self }
    }

    /// With a parameter list.
    const fn list(self, take: Take) -> Entry {
        Entry { list: Some(take), ..self }
    }

    /// Refuses bits that mean nothing, and NACA.
    pub fn check_cdb(&self, cdb: &Cdb) -> Result<(), Sense> {
        let action = if self.action.is_some() { ACTION } else { 0 };
        for (at, usage) in (1..).zip(self.usage) {
            let usage = if at == 1 { usage | action } else { *usage };
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

    /// Bytes of the CDB.
    pub fn cdb_len(&self) -> usize {
        self.usage.len() + 2
    }

    /// CDB usage data.
    pub fn usage_data(&self) -> impl Iterator<Item = u8> {
        let action = self.action.unwrap_or(0);
        let second = self.usage[0] | action;
        [self.code, second].into_iter().chain(self.usage[1..].iter().copied()).chain([NACA])
    }
}

/// The entry of a command that `unit` knows.
pub(super) fn find(unit: &LogicalUnit, cdb: &Cdb) -> Result<&'static Entry, Sense> {
    let mut error = Sense::illegal(Code::INVALID_COMMAND_OPERATION_CODE);
    let start = usize::from(STARTS[usize::from(cdb.opcode())]);
    for entry in TABLE[start..].iter().take_while(|entry| entry.code == cdb.opcode()) {
        match entry.action {
            Some(action) if action != cdb.u8(1) & ACTION => error = Sense::cdb_field(1, 4),
            _ if !is_known(unit, entry) => {}
            _ => return Ok(entry),
        }
    }
    Err(error)
}

/// The commands that `unit` knows.
pub(super) fn all(unit: &LogicalUnit) -> impl Iterator<Item = &'static Entry> {
    TABLE.iter().filter(|entry| is_known(unit, entry))
}

fn is_known(unit: &LogicalUnit, entry: &Entry) -> bool {
    entry.code != WRITE_ATOMIC_16 || unit.export.atomic_write_max > 0
}

const WRITE_ATOMIC_16: u8 = 0x9c;

/// Where each operation code begins in the table.
static STARTS: [u8; 256] = {
    let mut starts = [TABLE.len() as u8; 256];
    let mut at = TABLE.len();
    while at > 0 {
        at -= 1;
        starts[TABLE[at].code as usize] = at as u8;
    }
    starts
};

/// DPO, FUA; logical block address; group number; transfer length.
const RW_10: &[u8] = &[0x18, 255, 255, 255, 255, 0x1f, 255, 255];
const RW_12: &[u8] = &[0x18, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
const RW_16: &[u8] = &[0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
/// DPO, BYTCHK.
const VERIFY_10: &[u8] = &[0x16, 255, 255, 255, 255, 0x1f, 255, 255];
const VERIFY_12: &[u8] = &[0x16, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
const VERIFY_16: &[u8] = &[0x16, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
/// IMMED, and in SYNCHRONIZE CACHE also SYNC_NV.
const FETCH_10: &[u8] = &[0x02, 255, 255, 255, 255, 0x1f, 255, 255];
const FETCH_16: &[u8] = &[0x02, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
const SYNC_10: &[u8] = &[0x06, 255, 255, 255, 255, 0x1f, 255, 255];
const SYNC_16: &[u8] = &[0x06, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
/// ANCHOR, UNMAP, and in the longer one NDOB.
const SAME_10: &[u8] = &[0x18, 255, 255, 255, 255, 0x1f, 255, 255];
const SAME_16: &[u8] = &[0x19, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f];
/// DPO, FUA; one byte of length.
const COMPARE: &[u8] = &[0x18, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 255, 0x1f];
/// Allocation length.
const PR_IN: &[u8] = &[0, 0, 0, 0, 0, 0, 255, 255];
/// Scope and type; length of the parameter list.
const PR_OUT: &[u8] = &[0, 255, 0, 0, 255, 255, 255, 255];
/// Logical block address; allocation length; PMI.
const CAPACITY_16: &[u8] = &[0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
const STATUS_16: &[u8] = &[0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0];

/// In the order of operation codes.
static TABLE: &[Entry] = {
    use Class::{Always, Control, Inform, Query, Read, Write};
    &[
        Entry::new(0x00, Query, &[0, 0, 0, 0], condition::test_unit_ready),
        Entry::new(0x03, Always, &[1, 0, 0, 255], condition::request_sense),
        Entry::new(0x08, Read, &[0x1f, 255, 255, 255], transfer::read),
        Entry::new(0x0a, Write, &[0x1f, 255, 255, 255], transfer::write),
        Entry::new(0x12, Always, &[1, 255, 255, 255], inquiry::inquiry),
        Entry::new(0x15, Control, &[0x11, 0, 0, 255], mode::select).list(mode::take),
        Entry::new(0x16, Query, &[0, 0, 0, 0], reserve::reserve),
        Entry::new(0x17, Inform, &[0, 0, 0, 0], reserve::release),
        Entry::new(0x1a, Read, &[0x08, 255, 255, 255], mode::sense),
        Entry::new(0x1b, Inform, &[1, 0, 0x0f, 0xf7], condition::start_stop),
        Entry::new(0x1d, Control, &[0x14, 0, 255, 255], condition::send_diagnostic),
        Entry::new(0x1e, Inform, &[0, 0, 0, 3], condition::prevent_allow),
        Entry::new(0x25, Inform, &[0, 255, 255, 255, 255, 0, 0, 1], capacity::read_10),
        Entry::new(0x28, Read, RW_10, transfer::read),
        Entry::new(0x2a, Write, RW_10, transfer::write),
        Entry::new(0x2e, Write, VERIFY_10, transfer::write_and_verify),
        Entry::new(0x2f, Read, VERIFY_10, transfer::verify),
        Entry::new(0x34, Read, FETCH_10, transfer::prefetch),
        Entry::new(0x35, Control, SYNC_10, transfer::synchronize),
        Entry::new(0x37, Read, &[0, 0x1f, 0, 0, 0, 0, 255, 255], condition::defects_10),
        Entry::new(0x41, Write, SAME_10, provisioning::write_same),
        Entry::new(0x42, Write, &[1, 0, 0, 0, 0, 0x1f, 255, 255], provisioning::unmap)
            .list(provisioning::take_unmap),
        Entry::new(0x4d, Inform, &[3, 255, 255, 0, 255, 255, 255, 255], condition::log_sense),
        Entry::new(0x55, Control, &[0x11, 0, 0, 0, 0, 0, 255, 255], mode::select).list(mode::take),
        Entry::new(0x56, Query, &[0, 0, 0, 0, 0, 0, 0, 0], reserve::reserve),
        Entry::new(0x57, Inform, &[0, 0, 0, 0, 0, 0, 0, 0], reserve::release),
        Entry::new(0x5a, Read, &[0x18, 255, 255, 0, 0, 0, 255, 255], mode::sense),
        Entry::new(0x5e, Query, PR_IN, persistent::read_keys).action(0),
        Entry::new(0x5e, Query, PR_IN, persistent::read_reservation).action(1),
        Entry::new(0x5e, Query, PR_IN, persistent::report_capabilities).action(2),
        Entry::new(0x5e, Query, PR_IN, persistent::read_full_status).action(3),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(0).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(1).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(2).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(3).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(4).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(5).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(6).list(persistent::take),
        Entry::new(0x5f, Query, PR_OUT, persistent::out).action(7).list(persistent::take),
        Entry::new(0x88, Read, RW_16, transfer::read),
        Entry::new(0x89, Write, COMPARE, transfer::compare_and_write),
        Entry::new(0x8a, Write, RW_16, transfer::write),
        Entry::new(0x8b, Write, RW_16, transfer::or_write),
        Entry::new(0x8e, Write, VERIFY_16, transfer::write_and_verify),
        Entry::new(0x8f, Read, VERIFY_16, transfer::verify),
        Entry::new(0x90, Read, FETCH_16, transfer::prefetch),
        Entry::new(0x91, Control, SYNC_16, transfer::synchronize),
        Entry::new(0x93, Write, SAME_16, provisioning::write_same),
        Entry::new(WRITE_ATOMIC_16, Write, RW_16, transfer::write_atomic),
        Entry::new(0x9e, Inform, CAPACITY_16, capacity::read_16).action(0x10),
        Entry::new(0x9e, Read, STATUS_16, capacity::allocation).action(0x12),
        Entry::new(0xa0, Always, &[0, 255, 0, 0, 0, 255, 255, 255, 255, 0], report::luns),
        Entry::new(0xa3, Query, &[0xe0, 0, 0, 0, 0, 255, 255, 255, 255, 0], report::port_groups)
            .action(0x0a),
        Entry::new(0xa3, Read, &[0, 0x87, 255, 255, 255, 255, 255, 255, 255, 0], report::opcodes)
            .action(0x0c),
        Entry::new(0xa3, Read, &[0, 0x80, 0, 0, 0, 255, 255, 255, 255, 0], report::functions)
            .action(0x0d),
        Entry::new(0xa8, Read, RW_12, transfer::read),
        Entry::new(0xaa, Write, RW_12, transfer::write),
        Entry::new(0xae, Write, VERIFY_12, transfer::write_and_verify),
        Entry::new(0xaf, Read, VERIFY_12, transfer::verify),
        Entry::new(
            0xb7,
            Read,
            &[0x1f, 255, 255, 255, 255, 255, 255, 255, 255, 0],
            condition::defects_12,
        ),
    ]
};
