//! PERSISTENT RESERVE OUT: reads the command and its parameter list, and lets the state change.
//!
//! ```text
//! parameter list                         … of REGISTER AND MOVE
//!  0  8  reservation key                  0  8  reservation key
//!  8  8  service action reservation key   8  8  service action reservation key
//! 20  1  SPEC_I_PT, ALL_TG_PT, APTPL     17  1  UNREG, APTPL
//! 24  4  bytes of TransportIDs           18  2  relative target port identifier
//! 28  …  with SPEC_I_PT: TransportIDs    20  4  bytes of the TransportID
//!                                        24  …  TransportID
//! ```

use super::register::{Move, Register};
use super::{Kind, transport_id};
use crate::scsi::nexus::{Initiator, Nexus};
use crate::scsi::sense::{Code, Sense};
use crate::scsi::task::Outcome;
use crate::scsi::unit::{Answer, Call, LogicalUnit, Refusal};

/// Where a parameter list has what may be refused.
pub(super) const NEW_KEY_AT: u16 = 8;
pub(super) const FLAGS_AT: u16 = 20;
const MOVE_FLAGS_AT: u16 = 17;
const MOVE_PORT_AT: u16 = 18;
const MOVE_ID_AT: u16 = 24;
const IDS_AT: u16 = 28;

/// A parameter list without TransportIDs.
const LIST_LEN: usize = 24;
/// The longest that is taken.
const LIST_MAX: u32 = 8192;

const LENGTH_ERROR: Sense = Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR);

const SPEC_I_PT: u8 = 1 << 3;
const ALL_TG_PT: u8 = 1 << 2;
const UNREG: u8 = 1 << 1;
const APTPL: u8 = 1 << 0;

pub(in crate::scsi) fn out(unit: &mut LogicalUnit, call: &Call) -> Answer {
    check_state(unit)?;
    let len = call.cdb.u32(5);
    if len < LIST_LEN as u32 || len > LIST_MAX {
        return Err(LENGTH_ERROR.into());
    }
    Ok(Outcome::DataOut(len))
}

/// Refuses the command while RESERVE is held, and while another change is being stored.
fn check_state(unit: &LogicalUnit) -> Result<(), Refusal> {
    if unit.reserved.is_some() { Err(Refusal::Conflict) } else { unit.check_pending() }
}

pub(in crate::scsi) fn take(unit: &mut LogicalUnit, call: &Call, list: &[u8]) -> Answer {
    check_state(unit)?;
    let len = call.cdb.u32(5) as usize;
    let list = list.get(..len).filter(|list| list.len() >= LIST_LEN).ok_or(LENGTH_ERROR)?;
    let action = call.cdb.u8(1) & 0x1f;
    let takes_ids = action == 7 || (action == 0 && list[20] & SPEC_I_PT != 0);
    if !takes_ids && list.len() != LIST_LEN {
        return Err(LENGTH_ERROR.into());
    }
    let nexus = unit.nexuses.of(call.nexus).nexus.clone();
    let (key, new_key) = (u64_at(list, 0), u64_at(list, 8));
    let kind = || kind_of(call).ok_or(Sense::cdb_field(2, 7));
    let mut next = unit.persistent.clone();
    let effects = match action {
        0 | 6 => {
            let register = parse_register(unit, &nexus, list, action == 6)?;
            next.register(&nexus, &register)?
        }
        1 => next.reserve(&nexus, key, kind()?)?,
        2 => next.release(&nexus, key, kind()?)?,
        3 => next.clear(&nexus, key)?,
        4 | 5 => {
            let mut effects = next.preempt(&nexus, key, new_key, kind_of(call))?;
            if action == 4 {
                effects.aborted.clear();
            }
            effects
        }
        _ => next.register_and_move(&nexus, &parse_move(unit, &nexus, list)?)?,
    };
    unit.change(call.nexus, next, effects)
}

/// The type, when the scope is the logical unit.
fn kind_of(call: &Call) -> Option<Kind> {
    let byte = call.cdb.u8(2);
    if byte >> 4 == 0 { Kind::from_wire(byte & 0xf) } else { None }
}

fn parse_register(
    unit: &LogicalUnit,
    nexus: &Nexus,
    list: &[u8],
    ignores_key: bool,
) -> Result<Register, Refusal> {
    let flags = list[FLAGS_AT as usize];
    let has_ids = flags & SPEC_I_PT != 0;
    let outlives_restart = flags & APTPL != 0;
    if (has_ids && ignores_key) || (outlives_restart && unit.export.store_max == 0) {
        return Err(Sense::parameter(FLAGS_AT).into());
    }
    let ports: Vec<u16> = if flags & ALL_TG_PT != 0 {
        unit.export.ports.iter().map(|port| port.relative).collect()
    } else {
        vec![nexus.port]
    };
    let through = |initiator: &Initiator| {
        let nexus = |port: &u16| Nexus { initiator: initiator.clone(), port: *port };
        ports.iter().map(nexus).collect::<Vec<_>>()
    };
    let initiators = if has_ids { parse_ids(list)? } else { Vec::new() };
    let mut others: Vec<Nexus> = initiators.iter().flat_map(through).collect();
    let mut nexuses = through(&nexus.initiator);
    if !nexuses.contains(nexus) {
        nexuses.push(nexus.clone());
    }
    others.retain(|other| !nexuses.contains(other));
    let key = if ignores_key { None } else { Some(u64_at(list, 0)) };
    let new_key = u64_at(list, NEW_KEY_AT.into());
    Ok(Register { key, new_key, nexuses, others, outlives_restart })
}

/// The initiators of a list with SPEC_I_PT.
fn parse_ids(list: &[u8]) -> Result<Vec<Initiator>, Refusal> {
    let Some((len, mut rest)) = list[LIST_LEN..].split_first_chunk() else {
        return Err(LENGTH_ERROR.into());
    };
    if u32::from_be_bytes(*len) as usize != rest.len() {
        return Err(LENGTH_ERROR.into());
    }
    let mut initiators = Vec::new();
    while !rest.is_empty() {
        let (initiator, len) = transport_id::read(rest).ok_or(Sense::parameter(IDS_AT))?;
        initiators.push(initiator);
        rest = &rest[len..];
    }
    Ok(initiators)
}

/// REGISTER AND MOVE.
fn parse_move(unit: &LogicalUnit, nexus: &Nexus, list: &[u8]) -> Result<Move, Refusal> {
    let flags = list[MOVE_FLAGS_AT as usize];
    let outlives_restart = flags & APTPL != 0;
    if outlives_restart && unit.export.store_max == 0 {
        return Err(Sense::parameter(MOVE_FLAGS_AT).into());
    }
    let new_key = u64_at(list, NEW_KEY_AT.into());
    if new_key == 0 {
        return Err(Sense::parameter(NEW_KEY_AT).into());
    }
    let port = u16::from_be_bytes([list[18], list[19]]);
    if !unit.export.ports.iter().any(|it| it.relative == port) {
        return Err(Sense::parameter(MOVE_PORT_AT).into());
    }
    let id = &list[MOVE_ID_AT.into()..];
    if u32::from_be_bytes([list[20], list[21], list[22], list[23]]) as usize != id.len() {
        return Err(LENGTH_ERROR.into());
    }
    let (initiator, len) = transport_id::read(id).ok_or(Sense::parameter(MOVE_ID_AT))?;
    let to = Nexus { initiator, port };
    if len != id.len() || to == *nexus {
        return Err(Sense::parameter(MOVE_ID_AT).into());
    }
    let (key, unregister) = (u64_at(list, 0), flags & UNREG != 0);
    Ok(Move { key, to, new_key, unregister, outlives_restart })
}

fn u64_at(list: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(list[at..at + 8].try_into().expect("eight bytes"))
}
