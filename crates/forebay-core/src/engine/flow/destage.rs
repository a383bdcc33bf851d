//! Destaging, beside the cache that reads and keeps what is destaged, and the index that has to know of it.

use crate::action::DestageFault;
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::geometry::ByteRange;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::destage::throttle::Aim;
use crate::write_back::{Beside, DestageIo, Drive, LateNote, WriteBack};

impl Parts {
    /// Does what can be done now; called whenever something has changed.
    pub(in crate::engine) fn destage(&mut self, cx: &mut Cx<'_>) {
        let drive = Drive {
            is_draining: self.is_draining(cx),
            is_ending: self.destages_at_end(),
            takes_writes: self.mode.logs() && !self.holds_writes(cx),
        };
        if let Some((write_back, mut beside)) = self.beside() {
            write_back.destage(drive, &mut beside, cx);
        }
    }

    /// The write-back part, and what it needs of the parts beside it.
    fn beside(&mut self) -> Option<(&mut WriteBack, Beside<'_>)> {
        let keeps_writes = self.mode.keeps_writes();
        let Parts { write_back, cache, cache_index, .. } = self;
        Some((write_back.as_mut()?, Beside { cache, index: cache_index, keeps_writes }))
    }

    /// An I/O of the destager ended.
    pub(in crate::engine) fn on_destage_io(
        &mut self,
        io: DestageIo,
        range: ByteRange,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        let Some((write_back, mut beside)) = self.beside() else { return };
        match io {
            DestageIo::Read { run, place, pages } => {
                let (status, event) =
                    write_back.check_destage_read((place, pages), status, checksums, cx);
                self.on_log_event(event, cx);
                self.on_destage_read(run, (DestageFault::LogRead, status), cx);
            }
            DestageIo::Below { run } => {
                self.on_destage_read(run, (DestageFault::PrimaryStorage, status), cx);
            }
            DestageIo::Write { run } => {
                write_back.on_destage_write((run, range), status, &mut beside, cx);
            }
            DestageIo::Zero { end, memory } => {
                write_back.on_destage_zero(end, memory, status, cx);
            }
            DestageIo::ZeroEdge { end, memory } => {
                write_back.on_destage_zero_edge((range, end), memory, status, cx);
            }
            DestageIo::Flush { session } => {
                let changes = beside.cache.changes();
                if write_back.on_destage_flushed(session, status, changes, cx) {
                    self.primary.note_destage_flushed();
                }
            }
            DestageIo::Note => self.on_destage_noted(status, cx),
            DestageIo::Piece { run } => write_back.on_piece(run, status, checksums, cx),
            DestageIo::Journal => write_back.on_journal_io(status, cx),
        }
    }

    fn on_destage_read(&mut self, run: Key, read: (DestageFault, IoStatus), cx: &mut Cx<'_>) {
        if let Some(write_back) = &mut self.write_back {
            write_back.on_destage_read(run, read, cx);
        }
    }

    /// Progress is noted, or not.
    fn on_destage_noted(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let Some(write_back) = &mut self.write_back else { return };
        let event = write_back.on_destage_noted(status, cx);
        self.on_log_event(event, cx);
        if let Some(write_back) = self.write_back.as_mut().filter(|_| !status.is_ok()) {
            write_back.ask_to_revoke(cx);
        }
    }

    /// The answer whether it is durably known that no later start may go on with the log.
    pub(in crate::engine) fn revoked(&mut self, known: bool, cx: &mut Cx<'_>) {
        let Some(write_back) = &mut self.write_back else { return };
        if write_back.on_revoked(known, cx) {
            self.run(cx);
        }
    }

    /// The answer whether it is durably known that the destage journal does not count.
    pub(in crate::engine) fn journal_revoked(&mut self, known: bool, cx: &mut Cx<'_>) {
        if let Some(write_back) = &mut self.write_back {
            write_back.on_journal_revoked(known, cx);
            self.run(cx);
        }
    }

    /// No later start believes what is on flash, although the log may still be written there: what it acknowledged from now
    /// on would be refused with it. False: the log is given up already, or there is none.
    pub(in crate::engine) fn on_flash_revoked(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(log) = &mut self.write_back else { return false };
        log.on_flash_revoked();
        let works = log.failed().is_none();
        if works {
            self.fail_log(IoStatus::IoError, cx);
        }
        works
    }

    /// A log I/O, a note, or the answer to a question takes too long.
    pub(in crate::engine) fn time_out_log(&mut self, cx: &mut Cx<'_>) {
        let Some(write_back) = &self.write_back else { return };
        let event = write_back.time_out(cx);
        self.on_log_event(event, cx);
    }

    pub(in crate::engine) fn time_out_note(&mut self, cx: &mut Cx<'_>) {
        let Some(write_back) = &self.write_back else { return };
        match write_back.late_note(cx.now) {
            None => {}
            Some(LateNote::Answer) => self.revoked(false, cx),
            Some(LateNote::Note) => {
                if write_back.failed().is_none() {
                    self.fail_log(IoStatus::TimedOut, cx);
                }
                let Some(write_back) = &mut self.write_back else { return };
                let event = write_back.on_late_note(cx);
                write_back.ask_to_revoke(cx);
                self.on_log_event(event, cx);
            }
        }
    }

    /// True when writes wait because the log is full, and not for a change of mode.
    pub(in crate::engine) fn waits_for_room(&self, shared: &Shared) -> bool {
        let is_full = self.write_back.as_ref().is_some_and(WriteBack::is_full);
        is_full && self.mode.logs() && !self.holds_writes(shared)
    }

    /// Tells how full the log is.
    pub(in crate::engine) fn note_fullness(&mut self, cx: &mut Cx<'_>) {
        let waits = self.waits_for_room(cx);
        if let Some(write_back) = &mut self.write_back {
            write_back.note_fullness(waits, cx);
        }
    }

    /// What the throttle aims at. To slow writers down for a drain that stands still would gain nothing.
    pub(in crate::engine) fn aim(&self, shared: &Shared) -> Aim {
        let drains = self.is_draining(shared)
            && self.write_back.as_ref().is_some_and(|log| log.makes_progress(shared.now));
        if drains { Aim::Empty } else { Aim::Room }
    }
}
