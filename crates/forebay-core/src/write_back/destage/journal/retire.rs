//! Records become durable, are retired, or the journal is revoked.

use super::{Doing, FAILURES_MAX, Stage, Trust, Way};
use crate::action::{Action, DestageFault, Event, IoOp, Target};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::ByteRange;
use crate::journal::{JournalConfig, Superblock};
use crate::sealed::PAGE_LEN;
use crate::status::IoStatus;
use crate::write_back::destage::Course;
use crate::write_back::{DestageIo, WriteBack};

impl WriteBack {
    pub(super) fn start_journal_flush(&mut self, doing: Doing, cx: &mut Cx<'_>) {
        if let Some(journal) = &mut self.destager.journal {
            journal.doing = Some(doing);
            let kind = IoKind::Destager(DestageIo::Journal);
            cx.start(Target::Journal, ByteRange::default(), IoOp::Flush, kind);
        }
    }

    /// Flushes the records of what is in place; true when that is not done yet.
    pub(in crate::write_back::destage) fn flush_records(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(journal) = &self.destager.journal else { return false };
        let window = journal.reached.placed;
        if journal.trust == Trust::Revoked
            || journal.reached.durable >= window
            || journal.is_retired()
        {
            return false;
        }
        if journal.doing.is_none() && journal.trust == Trust::Used && !journal.is_suspect {
            self.start_journal_flush(Doing::Flush { window }, cx);
        }
        true
    }

    /// Retires all records when nothing more is to go through the journal for now.
    pub(super) fn retire(&mut self, cx: &mut Cx<'_>) {
        let goes_on = self.destager.goes_on() && !self.destager.is_held(cx.now);
        let is_last = self.way(cx.now) != Way::Journal || !goes_on;
        let destager = &mut self.destager;
        let may = destager.may_retire() && destager.may_settle(cx.now);
        let Some(journal) = &mut destager.journal else { return };
        let is_wanted = !journal.is_retired() && journal.trust == Trust::Used;
        if !(is_wanted && is_last && may && journal.doing.is_none()) {
            return;
        }
        let Some(first) = destager.running.memory.take(1) else { return };
        let JournalConfig { owner, shape, version, .. } = journal.config;
        let window = journal.reached.issued;
        journal.reached.perhaps_retired = window;
        let superblock = Superblock { owner, shape, version: version + 1, retired: window };
        journal.prepared.resize(PAGE_LEN, 0);
        superblock.encode(journal.prepared.first_chunk_mut().expect("a page"));
        journal.doing = Some(Doing::Retire { window, memory: (first, 1) });
        self.write_prepared((first, 1), Superblock::place(version + 1), cx);
    }

    /// Asks to revoke a journal that cannot be written, when all that is in place is there for good.
    pub(super) fn revoke_journal(&mut self, cx: &mut Cx<'_>) {
        let destager = &mut self.destager;
        let is_flushed = destager.reached.flushed == destager.reached.done;
        // What is to be written again is not there for good, and would never be.
        let is_safe = is_flushed || !self.log.config.barrier || destager.flushes.redo;
        let is_quiet = !destager.batch.is_active() && !destager.has_ahead();
        let may = is_safe && is_quiet && destager.is_at_rest();
        let may = may && destager.course == Course::Destages;
        let Some(journal) = &mut destager.journal else { return };
        let again = journal.trust == Trust::Unknown;
        let is_due = match journal.trust {
            Trust::Used => journal.failures >= FAILURES_MAX,
            Trust::Unknown => cx.now >= destager.trouble.retry_at,
            Trust::Asked { .. } | Trust::Revoked => false,
        };
        if is_due && may && journal.doing.is_none() {
            journal.trust = Trust::Asked { again };
            cx.push(Action::RevokeJournal);
        }
    }

    /// The answer to [`Action::RevokeJournal`]: whether it is durably known that the journal does not count. If not, nobody
    /// knows whether it counts: nothing goes in place, with it or without, until that is known.
    pub(crate) fn on_journal_revoked(&mut self, known: bool, cx: &mut Cx<'_>) {
        let destager = &mut self.destager;
        let Some(journal) = &mut destager.journal else { return };
        let Trust::Asked { again } = journal.trust else { return };
        if known {
            (journal.failures, journal.trust) = (0, Trust::Revoked);
            destager.trouble.fault.take_if(|fault| *fault == DestageFault::Journal);
            destager.trouble.retry_at = cx.now;
            return cx.event(Event::JournalRevoked);
        }
        journal.trust = Trust::Unknown;
        destager.pause(cx.now);
        if !again {
            cx.event(Event::JournalNotRevoked);
        }
    }

    /// A header, a flush or a superblock of the journal is done, or not.
    pub(crate) fn on_journal_io(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let destager = &mut self.destager;
        let Some(journal) = &mut destager.journal else { return };
        let doing = journal.doing.take().expect("its own I/O");
        let is_in_vain = std::mem::take(&mut journal.is_in_vain);
        let status = if is_in_vain && status.is_ok() { IoStatus::IoError } else { status };
        if let Doing::Header { memory } | Doing::Retire { memory, .. } = doing {
            destager.running.memory.give(memory.0, memory.1);
        }
        if !status.is_ok() {
            // The same page again: the other copy is the one that counts for sure.
            let is_perhaps_there = matches!(doing, Doing::RetireFlush { .. });
            journal.config.version -= u64::from(is_perhaps_there);
            journal.is_suspect |= matches!(doing, Doing::Flush { .. });
            return destager.fail_journal(DestageFault::Journal, status, cx);
        }
        // What is written and cannot be flushed is no success.
        let is_flushed_next = match doing {
            Doing::Retire { .. } => true,
            Doing::Header { .. } => self.log.config.barrier || !journal.config.is_beside,
            Doing::Flush { .. } | Doing::RetireFlush { .. } => false,
        };
        if !is_flushed_next {
            journal.failures = 0;
            destager.trouble.fault.take_if(|fault| *fault == DestageFault::Journal);
        }
        match doing {
            Doing::Header { .. } if journal.ahead.stage == Stage::Header => {
                journal.ahead.stage = Stage::Flush;
            }
            Doing::Header { .. } => {}
            Doing::Flush { window } => {
                journal.reached.durable = journal.reached.durable.max(window)
            }
            Doing::Retire { window, .. } => {
                journal.config.version += 1;
                self.start_journal_flush(Doing::RetireFlush { window }, cx);
            }
            Doing::RetireFlush { window } => {
                (journal.config.retired, journal.reached.durable) = (window, window);
                journal.is_suspect = false;
            }
        }
    }

    /// The session of the journal ended: what was not flushed may be gone, and a flush that ends well now says nothing of it.
    pub(crate) fn on_journal_session_lost(&mut self) {
        let Some(journal) = &mut self.destager.journal else { return };
        journal.ahead.failed |= journal.ahead.stage != Stage::None;
        journal.is_in_vain |= journal.doing.is_some();
        journal.is_suspect |= !journal.is_retired();
    }
}
