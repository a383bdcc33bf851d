//! Small commands about the state of the unit: TEST UNIT READY, REQUEST SENSE, START STOP UNIT,
//! PREVENT ALLOW MEDIUM REMOVAL, SEND DIAGNOSTIC, LOG SENSE, READ DEFECT DATA.
//!
//! The unit is always ready, cannot be ejected, tests itself well, and has no defects.

use super::opcodes::Class;
use super::report::data;
use super::sense::{Code, Key, Sense};
use super::task::{Medium, Outcome, Response};
use super::unit::{Answer, Call, LogicalUnit};

const GOOD: Outcome = Outcome::Done(Response::GOOD);

pub(super) fn test_unit_ready(_: &mut LogicalUnit, _: &Call) -> Answer {
    Ok(GOOD)
}

/// Tells a unit attention that waits, as data.
pub(super) fn request_sense(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let sense = match unit.nexuses.of_mut(call.nexus).attention() {
        Some(code) => Sense::new(Key::UnitAttention, code),
        None => Sense::new(Key::NoSense, Code::NONE),
    };
    let mut bytes = Vec::with_capacity(Sense::LEN_MAX);
    sense.in_format(call.cdb.has(1, 0)).write_to(&mut bytes);
    Ok(Outcome::Done(data(bytes, call.cdb.u8(4).into())))
}

/// A stop flushes; the unit goes on all the same.
pub(super) fn start_stop(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let (start, eject, no_flush) = (call.cdb.has(4, 0), call.cdb.has(4, 1), call.cdb.has(4, 2));
    let condition = call.cdb.u8(4) >> 4;
    if condition != 0 {
        return Err(Sense::cdb_field(4, 7).into());
    }
    if eject {
        return Err(Sense::cdb_field(4, 1).into());
    }
    if start {
        return Ok(GOOD);
    }
    unit.check_reservations(call.nexus, Class::Control)?;
    if no_flush { Ok(GOOD) } else { Ok(Outcome::Medium(Medium::Flush)) }
}

pub(super) fn prevent_allow(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if call.cdb.has(4, 1) {
        return Err(Sense::cdb_field(4, 1).into());
    }
    if call.cdb.has(4, 0) {
        unit.check_reservations(call.nexus, Class::Control)?;
    }
    Ok(GOOD)
}

/// The default self-test alone.
pub(super) fn send_diagnostic(_: &mut LogicalUnit, call: &Call) -> Answer {
    if call.cdb.u16(3) != 0 {
        return Err(Sense::cdb_field(3, 7).into());
    }
    if !call.cdb.has(1, 2) {
        return Err(Sense::cdb_field(1, 2).into());
    }
    Ok(GOOD)
}

/// Supported pages (00), Logical Block Provisioning (0C, without figures: primary storage does not
/// tell), Informational Exceptions (2F: none).
pub(super) fn log_sense(_: &mut LogicalUnit, call: &Call) -> Answer {
    let (page, subpage) = (call.cdb.u8(2) & 0x3f, call.cdb.u8(3));
    for bit in [0, 1] {
        // SP: nothing is saved. PPC: obsolete.
        if call.cdb.has(1, bit) {
            return Err(Sense::cdb_field(1, bit).into());
        }
    }
    let body: &[u8] = match (page, subpage) {
        (0x00, 0) => &[0x00, 0x0c, 0x2f],
        (0x0c, 0) => &[],
        (0x2f, 0) => &[0, 0, 0x03, 4, 0, 0, 0, 0],
        _ => return Err(Sense::cdb_field(2, 5).into()),
    };
    if call.cdb.u16(5) != 0 {
        return Err(Sense::cdb_field(5, 7).into());
    }
    let mut bytes = vec![page, subpage, 0, body.len() as u8];
    bytes.extend_from_slice(body);
    Ok(Outcome::Done(data(bytes, call.cdb.u16(7).into())))
}

pub(super) fn defects_10(_: &mut LogicalUnit, call: &Call) -> Answer {
    Ok(Outcome::Done(data(vec![0, call.cdb.u8(2), 0, 0], call.cdb.u16(7).into())))
}

pub(super) fn defects_12(_: &mut LogicalUnit, call: &Call) -> Answer {
    Ok(Outcome::Done(data(vec![0, call.cdb.u8(1), 0, 0, 0, 0, 0, 0], call.cdb.u32(6))))
}
