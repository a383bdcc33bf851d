//! The logical unit of one disk, and the way of a command.
//!
//! ```text
//! command ── unit attention? ── known? ── reservation? ── CDB in order? ── read-only? ── answer
//! parameters ─────────────────────────────┘ once more: it may have come in between
//! ```
//! The order is SAM-5's: a unit attention comes before a reservation conflict, which comes before
//! what is wrong with the command itself.

use forebay_core::geometry::SECTOR;
use forebay_core::status::IoStatus;

use crate::client::Permission;

use super::export::Export;
use super::identity::Identity;
use super::lun::Lun;
use super::mode::{self, Settings};
use super::nexus::{Nexus, NexusId, Nexuses};
use super::opcodes::{self, Class};
use super::persistent::{InvalidState, Pending, Persistent};
use super::sense::{Code, Key, Sense};
use super::task::{Cdb, Command, Done, Medium, Outcome, Response, Status};
use super::{capacity, report};

/// Bytes of a logical block.
pub(super) const BLOCK: u64 = SECTOR;

/// The logical unit of one disk.
#[derive(Debug)]
pub struct LogicalUnit {
    pub(super) export: Export,
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    pub(super) nexuses: Nexuses,
    /// Who holds RESERVE.
    pub(super) reserved: Option<NexusId>,
    pub(super) persistent: Persistent,
    /// The follow-up when it is stored.
    pub(super) pending: Option<Pending>,
}

/// A command at work: what the functions of the table get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub nexus: NexusId,
    pub cdb: Cdb,
    pub data_out: u32,
    pub luns: &'a [Lun],
}

/// Why a command is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
    /// BUSY.
    Busy,
}

/// The answer of the table's functions.
pub(super) type Answer = Result<Outcome, Refusal>;

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Check(sense)
    }
}

impl LogicalUnit {
    /// The logical unit of `export`.
    ///
    /// Panics when the export breaks what its fields promise.
    pub fn new(export: Export) -> LogicalUnit {
        export.assert_valid();
        LogicalUnit {
            identity: Identity::of(&export),
            settings: Settings::defaults(&export),
            export,
            nexuses: Nexuses::default(),
            reserved: None,
            persistent: Persistent::default(),
            pending: None,
        }
    }

    /// What it was made of, with the present size.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// A session begins. Its first command gets the unit attention of the power on.
    pub fn attach(&mut self, nexus: Nexus) -> NexusId {
        let standing = self.persistent.standing(&nexus);
        self.nexuses.attach(nexus, standing)
    }

    /// The session ended, or is replaced by a newer one of the same nexus: an I_T nexus loss. RESERVE
    /// ends with it, registrations do not.
    ///
    /// Panics when the nexus is not attached.
    pub fn detach(&mut self, id: NexusId) {
        self.nexuses.detach(id);
        if self.reserved == Some(id) {
            self.reserved = None;
        }
    }

    /// What to do for a command.
    ///
    /// Panics when the nexus is not attached.
    pub fn command(&mut self, nexus: NexusId, command: &Command) -> Outcome {
        let answer = self.begin(&Call::of(nexus, command));
        self.outcome(answer)
    }

    /// What to do for a command whose parameter list `command` had asked for with
    /// [`Outcome::DataOut`]. The list is what the initiator sent of it.
    ///
    /// Panics when the nexus is not attached, or the command takes no parameter list.
    pub fn parameters(&mut self, nexus: NexusId, command: &Command, list: &[u8]) -> Outcome {
        self.nexuses.assert_attached(nexus);
        let call = Call::of(nexus, command);
        let entry = opcodes::find(self, &call.cdb).expect("it was asked for its parameter list");
        let take = entry.list.expect("it asked for a parameter list");
        let answer =
            self.check_reservations(nexus, entry.class).and_then(|()| take(self, &call, list));
        self.outcome(answer)
    }

    /// True when somebody has reserved it.
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.reserved.is_some() || self.persistent.is_reserved()
    }

    /// True when a reservation came meanwhile that forbids work on the medium, or its next piece.
    ///
    /// Panics when the nexus is not attached.
    pub fn forbids(&self, nexus: NexusId, medium: &Medium) -> bool {
        self.check_reservations(nexus, medium.class()).is_err()
    }

    /// The answer to a command, after its work on the medium.
    pub fn medium_done(&mut self, nexus: NexusId, medium: &Medium, done: Done) -> Response {
        self.nexuses.assert_attached(nexus);
        if (medium, done) == (&Medium::CacheOff, Done::Status(IoStatus::Ok)) {
            mode::cache_is_off(self, nexus);
        }
        let sense = match (medium, done) {
            (&Medium::Allocation { range, allocation, .. }, Done::Extents(extents)) => {
                return report::data(capacity::lba_status(range, extents), allocation);
            }
            // It may have been written. BUSY lets the host try again, find its own bytes, and take them for another one's.
            (Medium::CompareAndWrite { .. }, Done::Status(IoStatus::TimedOut)) => {
                Sense::new(Key::MediumError, Code::WRITE_ERROR)
            }
            (_, Done::Status(status)) => {
                let response = Response::from_status(status, medium.writes());
                let Some(sense) = response.sense else { return response };
                sense
            }
            (_, Done::Miscompare(offset)) => {
                Sense::new(Key::Miscompare, Code::MISCOMPARE_DURING_VERIFY).with_information(offset)
            }
            (_, Done::Extents(_)) => {
                debug_assert!(false, "only GET LBA STATUS is told of extents");
                Sense::new(Key::HardwareError, Code::INTERNAL_TARGET_FAILURE)
            }
        };
        self.check(sense)
    }

    /// Takes what [`Outcome::Store`] had stored last before a restart; before any nexus is attached.
    ///
    /// # Errors
    /// The bytes are not what it said; nothing was taken.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), InvalidState> {
        assert!(self.nexuses.iter().next().is_none(), "before any nexus is attached");
        self.persistent = Persistent::decode(state)?;
        Ok(())
    }

    /// The disk has another size; initiators get a unit attention.
    pub fn resize(&mut self, size: u64) {
        if self.export.size != size {
            self.export.size = size;
            self.export.assert_valid();
            self.nexuses.tell_others(None, Code::CAPACITY_CHANGED);
        }
    }

    /// LOGICAL UNIT RESET, or a reset of the target; all tasks were aborted by the caller. RESERVE ends,
    /// settings are what they were at first (but for the write cache: a change back would have to
    /// flush), registrations stay.
    pub fn reset(&mut self) {
        self.reserved = None;
        self.settings.reset(&self.export);
        // Of the codes that SAM-5 allows the one that initiators retry without a word: who asked for it is told, too.
        self.nexuses.tell_others(None, Code::POWER_ON);
    }

    /// The tasks of `nexus` were aborted on behalf of another (CLEAR TASK SET).
    pub fn cleared(&mut self, nexus: NexusId) {
        self.nexuses.of_mut(nexus).tell(Code::COMMANDS_CLEARED);
    }

    /// Whether tasks that another nexus aborts are to be answered with TASK ABORTED (TAS).
    pub fn answers_aborted(&self) -> bool {
        self.settings.answers_aborted
    }

    /// The target of `nexus` has other logical units than before.
    pub fn luns_changed(&mut self, nexus: NexusId) {
        self.nexuses.of_mut(nexus).tell(Code::LUNS_CHANGED);
    }

    /// The initiator of `nexus` may know another disk in the place of this one.
    pub fn identity_changed(&mut self, nexus: NexusId) {
        self.nexuses.of_mut(nexus).tell(Code::INQUIRY_DATA_CHANGED);
    }

    /// True when initiators take it for the same disk as `other`.
    pub fn is_same_disk(&self, other: &LogicalUnit) -> bool {
        self.identity == other.identity && self.export.uuid.is_some()
    }

    /// What reservations leave to whoever does not come through here.
    pub fn access_of_others(&self) -> Permission {
        let writes = self.reserved.is_none() && !self.persistent.forbids_strangers(true);
        let reads = self.reserved.is_none() && !self.persistent.forbids_strangers(false);
        match (reads, writes) {
            (true, true) => Permission::All,
            (true, false) => Permission::Reads,
            (false, _) => Permission::Nothing,
        }
    }

    fn begin(&mut self, call: &Call) -> Answer {
        let entry = opcodes::find(self, &call.cdb);
        let is_exempt = entry.is_ok_and(|entry| entry.class == Class::Always);
        let nexus = self.nexuses.of_mut(call.nexus);
        if !is_exempt && let Some(code) = nexus.attention() {
            return Err(Sense::new(Key::UnitAttention, code).into());
        }
        let entry = entry?;
        self.check_reservations(call.nexus, entry.class)?;
        entry.check_cdb(&call.cdb)?;
        if entry.class == Class::Write && self.is_write_protected() {
            return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED).into());
        }
        (entry.run)(self, call)
    }

    fn outcome(&self, answer: Answer) -> Outcome {
        match answer {
            Ok(outcome) => outcome,
            Err(Refusal::Check(sense)) => Outcome::Done(self.check(sense)),
            Err(Refusal::Conflict) => Outcome::Done(Response::CONFLICT),
            Err(Refusal::Busy) => Outcome::Done(Response::of(Status::Busy)),
        }
    }

    /// CHECK CONDITION in the format that initiators chose.
    pub(super) fn check(&self, sense: Sense) -> Response {
        Response::check(sense.in_format(self.settings.descriptor_sense))
    }

    pub(super) fn is_write_protected(&self) -> bool {
        self.export.read_only || self.settings.write_protect
    }
}

impl<'a> Call<'a> {
    fn of(nexus: NexusId, command: &Command<'a>) -> Call<'a> {
        let Command { cdb, data_out, luns } = *command;
        Call { nexus, cdb, data_out, luns }
    }
}
