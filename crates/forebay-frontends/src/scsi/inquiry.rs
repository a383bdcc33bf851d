//! INQUIRY: the standard data, and what a target answers where there is no logical unit.

use super::identity::{PRODUCT, REVISION, VENDOR};
use super::report::{self, data};
use super::sense::{Code, Sense};
use super::task::{Command, Outcome, Response};
use super::unit::{Answer, Call, LogicalUnit};
use super::vpd;

/// SPC-4.
const VERSION: u8 = 6;
/// No device type, not capable of having one here.
const ABSENT: u8 = 0x7f;
/// SAM-5, SPC-4, SBC-3, iSCSI, without a version of the document.
const STANDARDS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];
const LEN: usize = 96;

pub(super) fn inquiry(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let page = call.cdb.u8(2);
    let bytes = match call.cdb.has(1, 0) {
        true => vpd::page(unit, call.nexus, page).ok_or(Sense::cdb_field(2, 7))?,
        false if page != 0 => return Err(Sense::cdb_field(2, 7).into()),
        false => standard(0, unit.export.ports.len() > 1),
    };
    Ok(Outcome::Done(data(bytes, call.cdb.u16(3).into())))
}

/// `peripheral`: qualifier and device type.
fn standard(peripheral: u8, many_ports: bool) -> Vec<u8> {
    // HISUP, format 2; TPGS: implicit; MULTIP; CMDQUE.
    let multip = u8::from(many_ports) << 4;
    let mut bytes = vec![peripheral, 0, VERSION, 0x12, LEN as u8 - 5, 0x10, multip, 0x02];
    bytes.extend_from_slice(VENDOR);
    bytes.extend_from_slice(PRODUCT);
    bytes.extend_from_slice(REVISION);
    bytes.resize(58, 0);
    for standard in STANDARDS {
        bytes.extend_from_slice(&standard.to_be_bytes());
    }
    bytes.resize(LEN, 0);
    bytes
}

/// A target's answers where there is no logical unit: INQUIRY, REPORT LUNS and REQUEST SENSE
/// work.
pub fn absent(command: &Command) -> Response {
    let missing = Sense::illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED);
    let cdb = &command.cdb;
    match cdb.opcode() {
        0x03 => {
            let mut bytes = Vec::with_capacity(Sense::LEN_MAX);
            missing.in_format(cdb.has(1, 0)).write_to(&mut bytes);
            data(bytes, cdb.u8(4).into())
        }
        0x12 if cdb.u8(1) == 0 && cdb.u8(2) == 0 => {
            data(standard(ABSENT, false), cdb.u16(3).into())
        }
        0x12 => Response::check(Sense::cdb_field(1, 0)),
        0xa0 => report::list(cdb, command.luns).unwrap_or_else(Response::check),
        _ => Response::check(missing),
    }
}
