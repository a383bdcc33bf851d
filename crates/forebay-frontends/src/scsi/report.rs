//! Lists of logical units, commands, task management functions, target port groups.

use super::lun::Lun;
use super::opcodes::{self, Entry};
use super::sense::Sense;
use super::task::{Cdb, Outcome, Response};
use super::unit::{Answer, Call, LogicalUnit};

/// GOOD with as much of `bytes` as the initiator made room for.
pub(super) fn data(mut bytes: Vec<u8>, allocation: u32) -> Response {
    bytes.truncate(allocation as usize);
    Response::data(bytes)
}

pub(super) fn luns(_: &mut LogicalUnit, call: &Call) -> Answer {
    Ok(Outcome::Done(list(&call.cdb, call.luns)?))
}

/// What REPORT LUNS answers.
pub(super) fn list(cdb: &Cdb, luns: &[Lun]) -> Result<Response, Sense> {
    let luns = match cdb.u8(2) {
        0 | 2 => luns,
        // Well-known logical units: none.
        1 => &[],
        _ => return Err(Sense::cdb_field(2, 7)),
    };
    let mut bytes = (8 * luns.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend(luns.iter().flat_map(|lun| lun.encode()));
    Ok(data(bytes, cdb.u32(6)))
}

/// REPORT SUPPORTED OPERATION CODES.
pub(super) fn opcodes(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let timeouts = call.cdb.has(2, 7);
    let (code, action) = (call.cdb.u8(3), call.cdb.u16(4));
    let mut candidates = opcodes::all(unit).filter(|entry| entry.code == code).peekable();
    let has_actions = candidates.peek().map(|entry| entry.action.is_some());
    let bytes = match (call.cdb.u8(2) & 7, has_actions) {
        (0, _) => all_opcodes(unit, timeouts),
        (1, Some(true)) => return Err(Sense::cdb_field(2, 2).into()),
        (2, Some(false)) => return Err(Sense::cdb_field(2, 2).into()),
        (1, _) => one_opcode(candidates.next(), timeouts),
        (2 | 3, _) => {
            let is_it = |entry: &&Entry| u16::from(entry.action.unwrap_or(0)) == action;
            one_opcode(candidates.find(is_it), timeouts)
        }
        _ => return Err(Sense::cdb_field(2, 2).into()),
    };
    Ok(Outcome::Done(data(bytes, call.cdb.u32(6))))
}

fn all_opcodes(unit: &LogicalUnit, timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for entry in opcodes::all(unit) {
        let action = entry.action.unwrap_or(0);
        let flags = u8::from(timeouts) << 1 | u8::from(entry.action.is_some());
        bytes.extend_from_slice(&[entry.code, 0, 0, action, 0, flags, 0, entry.cdb_len() as u8]);
        add_timeouts(timeouts, &mut bytes);
    }
    let len = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

fn one_opcode(entry: Option<&Entry>, timeouts: bool) -> Vec<u8> {
    let Some(entry) = entry else { return vec![0, 1, 0, 0] };
    let mut bytes = vec![0, u8::from(timeouts) << 7 | 3, 0, entry.cdb_len() as u8];
    bytes.extend(entry.usage_data());
    add_timeouts(timeouts, &mut bytes);
    bytes
}

/// A command timeouts descriptor: how long a command takes is not told.
fn add_timeouts(timeouts: bool, bytes: &mut Vec<u8>) {
    if timeouts {
        bytes.extend_from_slice(&[0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: abort task and task set, clear task set, reset of the
/// logical unit and of the target.
pub(super) fn functions(_: &mut LogicalUnit, call: &Call) -> Answer {
    let mut bytes = vec![0xda, 0, 0, 0];
    if call.cdb.has(2, 7) {
        bytes[3] = 12;
        bytes.resize(16, 0);
    }
    Ok(Outcome::Done(data(bytes, call.cdb.u32(6))))
}

/// REPORT TARGET PORT GROUPS: all of them active, all ports as good as each other.
pub(super) fn port_groups(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let mut bytes = match call.cdb.u8(1) >> 5 {
        0 => vec![0; 4],
        1 => vec![0, 0, 0, 0, 0x10, 0, 0, 0],
        _ => return Err(Sense::cdb_field(1, 7).into()),
    };
    let ports = &unit.export.ports;
    let mut groups: Vec<u16> = ports.iter().map(|port| port.group).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let members = ports.iter().filter(|port| port.group == group);
        let [high, low] = group.to_be_bytes();
        // Active/optimized, the only state that is supported.
        bytes.extend_from_slice(&[0, 0x01, high, low, 0, 0, 0, members.clone().count() as u8]);
        for port in members {
            let [high, low] = port.relative.to_be_bytes();
            bytes.extend_from_slice(&[0, 0, high, low]);
        }
    }
    let len = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    Ok(Outcome::Done(data(bytes, call.cdb.u32(6))))
}
