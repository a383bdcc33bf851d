//! MODE SELECT: a list of pages is checked whole before any of it counts.

use super::{CACHING, CONTROL, D_SENSE, SWP, Settings, TAS, WCE, changeable};
use crate::scsi::nexus::NexusId;
use crate::scsi::sense::{Code, Sense};
use crate::scsi::task::{Medium, Outcome, Response};
use crate::scsi::unit::{Answer, BLOCK, Call, LogicalUnit};

const TOO_SHORT: Sense = Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR);

/// Length of the parameter list.
fn list_len(call: &Call) -> u32 {
    if call.cdb.opcode() == 0x55 { call.cdb.u16(7).into() } else { call.cdb.u8(4).into() }
}

pub(in crate::scsi) fn select(_: &mut LogicalUnit, call: &Call) -> Answer {
    // SP: nothing is saved.
    if call.cdb.has(1, 0) {
        return Err(Sense::cdb_field(1, 0).into());
    }
    match list_len(call) {
        0 => Ok(Outcome::Done(Response::GOOD)),
        // PF: pages of the standard are all there are.
        _ if !call.cdb.has(1, 4) => Err(Sense::cdb_field(1, 4).into()),
        len => Ok(Outcome::DataOut(len)),
    }
}

pub(in crate::scsi) fn take(unit: &mut LogicalUnit, call: &Call, list: &[u8]) -> Answer {
    if list.len() < list_len(call) as usize {
        return Err(TOO_SHORT.into());
    }
    let (wanted, has_caching) = parse(unit, call.cdb.opcode() == 0x55, list)?;
    if !has_caching || wanted.write_cache {
        set(unit, call.nexus, wanted);
        return Ok(Outcome::Done(Response::GOOD));
    }
    // It is off when what was written before is durable, and until then nobody sees that it is. One that is off already is
    // flushed all the same.
    set(unit, call.nexus, Settings { write_cache: unit.settings.write_cache, ..wanted });
    Ok(Outcome::Medium(Medium::CacheOff))
}

/// What was written while the write cache was on is durable.
pub(in crate::scsi) fn cache_is_off(unit: &mut LogicalUnit, by: NexusId) {
    set(unit, by, Settings { write_cache: false, ..unit.settings });
}

fn set(unit: &mut LogicalUnit, by: NexusId, settings: Settings) {
    if settings != unit.settings {
        unit.settings = settings;
        unit.nexuses.tell_others(Some(by), Code::MODE_PARAMETERS_CHANGED);
    }
}

/// The settings that the list asks for, and whether the caching page is among its pages.
fn parse(unit: &LogicalUnit, is_long: bool, list: &[u8]) -> Result<(Settings, bool), Sense> {
    let header = if is_long { 8 } else { 4 };
    if list.len() < header {
        return Err(TOO_SHORT);
    }
    let (medium_at, len_at) = if is_long { (2, 7) } else { (1, 3) };
    if list[medium_at] != 0 {
        return Err(Sense::parameter(medium_at as u16));
    }
    let len = usize::from(list[len_at]) + if is_long { usize::from(list[6]) << 8 } else { 0 };
    let long_lba = is_long && list[4] & 1 != 0;
    if len != 0 && len != if long_lba { 16 } else { 8 } {
        return Err(Sense::parameter(len_at as u16));
    }
    let descriptor = list.get(header..header + len).ok_or(TOO_SHORT)?;
    if !descriptor.is_empty() && !is_same_medium(unit, descriptor) {
        return Err(Sense::parameter(header as u16));
    }
    let (mut settings, mut has_caching) = (unit.settings, false);
    let mut at = header + len;
    while at < list.len() {
        has_caching |= list[at] & 0x7f == CACHING;
        at += take_page(unit, &mut settings, at, &list[at..])?;
    }
    Ok((settings, has_caching))
}

/// True when a block descriptor says the size and the block length that the disk has; as a number of
/// blocks also 0 and all ones.
fn is_same_medium(unit: &LogicalUnit, descriptor: &[u8]) -> bool {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n: u64, byte| n << 8 | u64::from(*byte));
    let (blocks, block, all) = match descriptor.len() {
        8 => (number(&descriptor[..4]), number(&descriptor[5..]), u64::from(u32::MAX)),
        _ => (number(&descriptor[..8]), number(&descriptor[12..]), u64::MAX),
    };
    block == BLOCK && [0, all, unit.export.blocks()].contains(&blocks)
}

/// Takes the page that `rest` begins with, and says how long it is. `at`: where it stands in the list.
fn take_page(
    unit: &LogicalUnit,
    settings: &mut Settings,
    at: usize,
    rest: &[u8],
) -> Result<usize, Sense> {
    let [first, len, ..] = *rest else { return Err(TOO_SHORT) };
    let wrong = |offset: usize| Sense::parameter((at + offset) as u16);
    // PS has no meaning here; SPF would be a subpage, of which there are none.
    let code = first & 0x7f;
    let current = settings.page(code).ok_or(wrong(0))?;
    let mask = changeable(&unit.export, code).expect("a page that there is");
    if usize::from(len) + 2 != current.len() {
        return Err(wrong(1));
    }
    let page = rest.get(..current.len()).ok_or(TOO_SHORT)?;
    for offset in 2..page.len() {
        if (page[offset] ^ current[offset]) & !mask[offset] != 0 {
            return Err(wrong(offset));
        }
    }
    match code {
        CACHING => settings.write_cache = page[2] & WCE != 0,
        CONTROL => {
            settings.descriptor_sense = page[2] & D_SENSE != 0;
            settings.write_protect = page[4] & SWP != 0;
            settings.answers_aborted = page[5] & TAS != 0;
        }
        _ => {}
    }
    Ok(page.len())
}
