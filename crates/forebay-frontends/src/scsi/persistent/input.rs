//! PERSISTENT RESERVE IN: what is registered and reserved.

use super::{Kind, Persistent, Registration, transport_id};
use crate::scsi::report::data;
use crate::scsi::task::Outcome;
use crate::scsi::unit::{Answer, Call, LogicalUnit, Refusal};

/// Generation, length and `body`; a conflict while RESERVE is held.
fn answer(unit: &LogicalUnit, call: &Call, body: &[u8]) -> Answer {
    if unit.reserved.is_some() {
        return Err(Refusal::Conflict);
    }
    let mut bytes = unit.persistent.generation.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    Ok(Outcome::Done(data(bytes, call.cdb.u16(7).into())))
}

pub(in crate::scsi) fn read_keys(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let keys = unit.persistent.registrations.iter().flat_map(|it| it.key.to_be_bytes());
    let body: Vec<u8> = keys.collect();
    answer(unit, call, &body)
}

pub(in crate::scsi) fn read_reservation(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let mut body = Vec::new();
    if let Some(reservation) = &unit.persistent.reservation {
        let holder = reservation.holder.as_ref();
        let key = holder.and_then(|holder| unit.persistent.key_of(holder)).unwrap_or(0);
        body.extend_from_slice(&key.to_be_bytes());
        body.extend_from_slice(&[0, 0, 0, 0, 0, reservation.kind as u8, 0, 0]);
    }
    answer(unit, call, &body)
}

/// CRH, SIP_C, ATP_C, PTPL_C; TMV, PTPL_A; the types.
pub(in crate::scsi) fn report_capabilities(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if unit.reserved.is_some() {
        return Err(Refusal::Conflict);
    }
    let can = 0x1c | u8::from(unit.export.store_max > 0);
    let is = 0x80 | u8::from(unit.persistent.outlives_restart);
    // A bit for each type; the first byte is the low one.
    let [high, low] =
        Kind::ALL.iter().fold(0_u16, |mask, kind| mask | 1 << *kind as u8).to_be_bytes();
    Ok(Outcome::Done(data(vec![0, 8, can, is, low, high, 0, 0], call.cdb.u16(7).into())))
}

pub(in crate::scsi) fn read_full_status(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let mut body = Vec::new();
    for registration in &unit.persistent.registrations {
        write_status(&unit.persistent, registration, &mut body);
    }
    answer(unit, call, &body)
}

fn write_status(persistent: &Persistent, registration: &Registration, out: &mut Vec<u8>) {
    let Registration { nexus, key } = registration;
    let held = persistent.reservation.as_ref().filter(|it| it.is_held_by(nexus));
    let (holds, kind) = held.map_or((0, 0), |reservation| (1, reservation.kind as u8));
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, holds, kind, 0, 0, 0, 0]);
    out.extend_from_slice(&nexus.port.to_be_bytes());
    let mut id = Vec::new();
    transport_id::write(&nexus.initiator, &mut id);
    out.extend_from_slice(&(id.len() as u32).to_be_bytes());
    out.extend_from_slice(&id);
}
