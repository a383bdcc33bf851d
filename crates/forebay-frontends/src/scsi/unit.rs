//! The logical unit of one disk: its nexuses, and the way of a command.
//!
//! ```text
//! command ── unit attention? ── known opcode? ── reservation? ── reserved bits? ── read-only? ── run
//! ```
//! The order is SAM-5's: a unit attention comes before a reservation conflict, which comes before
//! what is wrong with the command itself.

use std::collections::VecDeque;

use forebay_core::geometry::SECTOR;
use slab::Slab;

use super::lun::Lun;
use super::opcodes::{self, Class, Entry};
use super::sense::{Code, Key, Sense};
use super::task::{Cdb, Command, Done, Medium, Outcome, Response};

/// Bytes of a logical block.
pub(super) const BLOCK: u64 = SECTOR;
/// Unit attentions that wait for one nexus; more of them are one POWER ON.
const ATTENTIONS_MAX: usize = 8;

/// A disk as initiators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The disk's name.
    pub name: String,
    /// Of the disk, where it has one: what the world-wide name is made of. Without one it is made of the name.
    pub uuid: Option<[u8; 16]>,
    /// Bytes; a multiple of 512.
    pub size: u64,
    /// Bytes of a physical block, a power of two from 512.
    pub physical_block: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// True: a volatile write cache, which initiators flush; they can change it.
    pub write_cache: bool,
    /// The target ports that expose the disk.
    pub ports: Vec<Port>,
}

/// A target port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Relative target port identifier: not 0, and no other port of the disk has it.
    pub relative: u16,
    /// Target port group, not 0.
    pub group: u16,
    /// Name of the iSCSI target.
    pub target: String,
    /// iSCSI portal group tag.
    pub portal_group: u16,
}

/// An initiator port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Initiator {
    /// iSCSI name.
    pub name: String,
    /// Its part of the session identifier.
    pub isid: [u8; 6],
}

/// An initiator port and the target port through which it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nexus {
    /// Who.
    pub initiator: Initiator,
    /// Relative target port identifier, one of [`Export::ports`].
    pub port: u16,
}

/// An attached nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NexusId {
    slot: u32,
    /// Counts reuse of the slot.
    serial: u32,
}

#[derive(Debug)]
struct Attached {
    serial: u32,
    #[expect(dead_code, reason = "persistent reservations")]
    nexus: Nexus,
    attentions: VecDeque<Code>,
}

/// The logical unit of one disk.
#[derive(Debug)]
pub struct LogicalUnit {
    pub(super) export: Export,
    pub(super) write_cache: bool,
    nexuses: Slab<Attached>,
    serial: u32,
}

/// Stored persistent reservations that cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored persistent reservations: {0}")]
pub struct InvalidState(&'static str);

/// A command at work: what the functions of the table get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub cdb: Cdb,
    pub data_out: u32,
    pub luns: &'a [Lun],
}

/// What they answer; the sense data when they refuse.
pub(super) type Answer = Result<Outcome, Sense>;

impl LogicalUnit {
    /// The logical unit of `export`.
    ///
    /// Panics when the export breaks what its fields promise.
    pub fn new(export: Export) -> LogicalUnit {
        assert!(export.size.is_multiple_of(BLOCK), "a disk has whole logical blocks");
        let physical = u64::from(export.physical_block);
        assert!(physical.is_power_of_two() && physical >= BLOCK);
        let write_cache = export.write_cache && !export.read_only;
        LogicalUnit { export, write_cache, nexuses: Slab::new(), serial: 0 }
    }

    /// What it was made of, with the present size.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// A session begins. Its first command is told of the power on.
    pub fn attach(&mut self, nexus: Nexus) -> NexusId {
        self.serial = self.serial.wrapping_add(1);
        let attentions = VecDeque::from([Code::POWER_ON]);
        let slot = self.nexuses.insert(Attached { serial: self.serial, nexus, attentions });
        NexusId { slot: slot as u32, serial: self.serial }
    }

    /// The session ended, or is replaced by a newer one of the same nexus. RESERVE ends with it,
    /// registrations do not.
    ///
    /// Panics when the nexus is not attached.
    pub fn detach(&mut self, id: NexusId) {
        self.attached(id);
        self.nexuses.remove(id.slot as usize);
    }

    /// What to do for a command.
    ///
    /// Panics when the nexus is not attached.
    pub fn command(&mut self, nexus: NexusId, command: &Command) -> Outcome {
        let outcome = self.begin(nexus, command);
        outcome.unwrap_or_else(|sense| Outcome::Done(self.check(sense)))
    }

    /// What to do for a command whose parameter list `command` had asked for with [`Outcome::DataOut`]. The
    /// list is what the initiator sent of it.
    ///
    /// Panics when the nexus is not attached, or the command takes no parameter list.
    pub fn parameters(&mut self, nexus: NexusId, command: &Command, list: &[u8]) -> Outcome {
        self.attached(nexus);
        let entry = opcodes::find(&command.cdb).expect("it was asked for its parameter list");
        let take = entry.list.expect("it asked for a parameter list");
        let outcome = take(self, &Call::of(command), list);
        outcome.unwrap_or_else(|sense| Outcome::Done(self.check(sense)))
    }

    /// The answer to a command, after its work on the medium.
    pub fn medium_done(&mut self, nexus: NexusId, medium: &Medium, done: Done) -> Response {
        self.attached(nexus);
        let writes = !matches!(medium, Medium::Read { .. } | Medium::Verify { .. });
        let response = match done {
            Done::Status(status) => Response::from_status(status, writes),
            Done::Miscompare(offset) => Response::check(
                Sense::new(Key::Miscompare, Code::MISCOMPARE_DURING_VERIFY)
                    .with_information(offset),
            ),
            Done::Extents(_) => Response::GOOD,
        };
        match response.sense {
            Some(sense) => self.check(sense),
            None => response,
        }
    }

    /// What is to be stored durably, to be given to [`LogicalUnit::restore`] at the next start; empty
    /// when nothing is.
    pub fn persistent(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes what [`LogicalUnit::persistent`] said before a restart; before any nexus is attached.
    ///
    /// # Errors
    /// The bytes are not what it said; nothing was taken.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), InvalidState> {
        if state.is_empty() { Ok(()) } else { Err(InvalidState("no such version")) }
    }

    /// The answer to a command when what it wanted stored could not be.
    pub fn not_stored(&self) -> Response {
        self.check(Sense::new(Key::HardwareError, Code::INTERNAL_TARGET_FAILURE))
    }

    /// The disk has another size; initiators are told.
    pub fn resize(&mut self, size: u64) {
        assert!(size.is_multiple_of(BLOCK), "a disk has whole logical blocks");
        if self.export.size != size {
            self.export.size = size;
            self.tell_all(Code::CAPACITY_CHANGED);
        }
    }

    /// LOGICAL UNIT RESET or a reset of the target: all tasks were aborted by the caller.
    pub fn reset(&mut self) {
        self.tell_all(Code::BUS_DEVICE_RESET);
    }

    /// The tasks of `nexus` were aborted on behalf of another (CLEAR TASK SET).
    pub fn cleared(&mut self, nexus: NexusId) {
        self.tell(nexus, Code::COMMANDS_CLEARED);
    }

    /// The target of `nexus` has other logical units than before.
    pub fn luns_changed(&mut self, nexus: NexusId) {
        self.tell(nexus, Code::LUNS_CHANGED);
    }

    /// Whether access to the disk is allowed that does not come through here: no reservation is against it.
    pub fn allows_foreign(&self, write: bool) -> bool {
        let _ = write;
        true
    }

    fn begin(&mut self, nexus: NexusId, command: &Command) -> Answer {
        let entry = opcodes::find(&command.cdb);
        let is_exempt = entry.is_ok_and(|entry| entry.class == Class::Always);
        let attentions = &mut self.attached(nexus).attentions;
        if !is_exempt && let Some(code) = attentions.pop_front() {
            return Err(Sense::new(Key::UnitAttention, code));
        }
        let entry: &Entry = entry?;
        entry.check_reserved(&command.cdb)?;
        if entry.class == Class::Write && self.export.read_only {
            return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
        }
        (entry.run)(self, &Call::of(command))
    }

    /// CHECK CONDITION in the format that initiators chose.
    fn check(&self, sense: Sense) -> Response {
        Response::check(sense)
    }

    fn attached(&mut self, id: NexusId) -> &mut Attached {
        let attached = self.nexuses.get_mut(id.slot as usize);
        attached.filter(|nexus| nexus.serial == id.serial).expect("the nexus is attached")
    }

    fn tell(&mut self, nexus: NexusId, code: Code) {
        self.attached(nexus).tell(code);
    }

    fn tell_all(&mut self, code: Code) {
        for (_, nexus) in &mut self.nexuses {
            nexus.tell(code);
        }
    }
}

impl Attached {
    fn tell(&mut self, code: Code) {
        if self.attentions.contains(&code) {
            return;
        }
        if self.attentions.len() == ATTENTIONS_MAX {
            self.attentions.clear();
            self.attentions.push_back(Code::POWER_ON);
        }
        self.attentions.push_back(code);
    }
}

impl<'a> Call<'a> {
    fn of(command: &Command<'a>) -> Call<'a> {
        Call { cdb: command.cdb, data_out: command.data_out, luns: command.luns }
    }
}

/// What a target answers where there is no logical unit: INQUIRY and REPORT LUNS work.
pub fn absent(command: &Command) -> Response {
    opcodes::absent(command)
}
