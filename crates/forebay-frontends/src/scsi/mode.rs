//! Mode pages: what initiators can see and change.
//!
//! ```text
//! 08 Caching                   WCE, changeable unless the disk is read-only
//! 0A Control                   D_SENSE, SWP, TAS, changeable
//! 1C Informational Exceptions  none are reported
//! ```
//! All nexuses share them; nothing is saved. Turning the write cache off is answered after a
//! flush. From then on every write is durable before it is acknowledged.

use super::export::Export;
use super::report::data;
use super::sense::{Code, Sense};
use super::task::Outcome;
use super::unit::{Answer, BLOCK, Call, LogicalUnit};

mod select;

pub(super) use select::{cache_is_off, select, take};

/// What is changeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// WCE.
    pub write_cache: bool,
    /// D_SENSE: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP.
    pub write_protect: bool,
    /// TAS: each task that another nexus aborts is answered, instead of its owner being told once.
    pub answers_aborted: bool,
}

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const PAGES: [u8; 3] = [CACHING, CONTROL, EXCEPTIONS];
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

const WCE: u8 = 1 << 2;
const D_SENSE: u8 = 1 << 2;
const SWP: u8 = 1 << 3;
const TAS: u8 = 1 << 6;

impl Settings {
    /// What they are at first.
    pub fn defaults(export: &Export) -> Settings {
        let write_cache = export.write_cache && !export.read_only;
        Settings {
            write_cache,
            descriptor_sense: false,
            write_protect: false,
            // Hosts share a disk. One whose tasks another host aborts tries again at once when each is answered. Without an
            // answer it waits for its own timeout, half a minute and more, and then it resets the disk for all others in turn.
            answers_aborted: true,
        }
    }

    /// After a reset. The write cache stays as it is.
    pub fn reset(&mut self, export: &Export) {
        *self = Settings { write_cache: self.write_cache, ..Settings::defaults(export) };
    }

    /// A page as it stands, with its two bytes of header.
    fn page(&self, code: u8) -> Option<Vec<u8>> {
        let (len, bytes) = match code {
            CACHING => (20, [u8::from(self.write_cache) * WCE, 0, 0, 0]),
            CONTROL => {
                // GLTSD: log parameters are not saved. Commands may be reordered.
                let bits = 0x02 | (u8::from(self.descriptor_sense) * D_SENSE);
                let (swp, tas) = (self.write_protect, self.answers_aborted);
                (12, [bits, 0x10, u8::from(swp) * SWP, u8::from(tas) * TAS])
            }
            // DEXCPT.
            EXCEPTIONS => (12, [0x08, 0, 0, 0]),
            _ => return None,
        };
        let mut page = vec![code, len - 2];
        page.extend_from_slice(&bytes);
        page.resize(len.into(), 0);
        Some(page)
    }
}

/// A page whose ones are the bits that can be changed.
fn changeable(export: &Export, code: u8) -> Option<Vec<u8>> {
    let mut page = Settings::defaults(export).page(code)?;
    page[2..].fill(0);
    match code {
        CACHING if !export.read_only => page[2] = WCE,
        CONTROL => (page[2], page[4], page[5]) = (D_SENSE, SWP, TAS),
        _ => {}
    }
    Some(page)
}

/// MODE SENSE, short and long.
pub(super) fn sense(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let (control, code, subpage) = (call.cdb.u8(2) >> 6, call.cdb.u8(2) & 0x3f, call.cdb.u8(3));
    let pages = if code == ALL_PAGES { PAGES.to_vec() } else { vec![code] };
    if subpage != 0 && subpage != ALL_SUBPAGES {
        return Err(Sense::cdb_field(3, 7).into());
    }
    let mut body = Vec::new();
    for code in pages {
        let page = match control {
            0 => unit.settings.page(code),
            1 => changeable(&unit.export, code),
            2 => Settings::defaults(&unit.export).page(code),
            _ => return Err(Sense::illegal(Code::SAVING_NOT_SUPPORTED).into()),
        };
        body.extend(page.ok_or(Sense::cdb_field(2, 5))?);
    }
    let is_long = call.cdb.opcode() == 0x5a;
    let descriptor = match (call.cdb.has(1, 3), is_long && call.cdb.has(1, 4)) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(unit),
        (false, true) => long_descriptor(unit),
    };
    // WP, DPOFUA.
    let device = u8::from(unit.is_write_protected()) << 7 | 0x10;
    let len = descriptor.len() + body.len();
    let (header, allocation) = if is_long {
        let [high, low] = (len as u16 + 6).to_be_bytes();
        let long = u8::from(descriptor.len() == 16);
        (vec![high, low, 0, device, long, 0, 0, descriptor.len() as u8], call.cdb.u16(7).into())
    } else {
        (vec![len as u8 + 3, 0, device, descriptor.len() as u8], call.cdb.u8(4).into())
    };
    Ok(Outcome::Done(data([header, descriptor, body].concat(), allocation)))
}

fn short_descriptor(unit: &LogicalUnit) -> Vec<u8> {
    let blocks = u32::try_from(unit.export.blocks()).unwrap_or(u32::MAX);
    [blocks.to_be_bytes(), (BLOCK as u32).to_be_bytes()].concat()
}

fn long_descriptor(unit: &LogicalUnit) -> Vec<u8> {
    [unit.export.blocks().to_be_bytes(), BLOCK.to_be_bytes()].concat()
}
