//! Windows of several epochs: whole in a journal beside primary storage first, then in place.
//!
//! ```text
//!             ┌──────────────── Ahead ─────────────────┐
//!  records ─► │ payload ─► noted ─► header ─► (flush)  │─► the batch, in place ─► flushed ─► retired, before anything
//!             └────────────────────────────────────────┘                                     is written past the journal
//! ```
//! While one window is put in place, the next one is written into the journal. It goes in place when the one before is
//! complete. So primary storage with its journal is a crash-consistent image at every instant (`crate::journal`).
//!
//! **What a journal is worth.** Strict order carries one epoch per round trip. A window costs its bytes twice. So it is used
//! where epochs are small ([`JournalConfig::epoch_pages`]) and strict order is what limits: as much waits as a window has, or some of it
//! longer than is patiently waited ([`JournalConfig::patience`]). Then it is used until hardly anything waits. Otherwise
//! epochs go in place one after the other.
//!
//! **Nothing is written past a record.** Before an epoch goes in place without the journal, or the disk leaves its log, all
//! records are retired: what they have is in place and flushed, the superblock says so, and that is flushed. And before
//! the log forgets what a window has, its record is durable: an older one must not be the last that counts.
//!
//! **Notes.** A record that may be whole may be put in place by whoever finds it. So its window is noted as *through* before
//! its header is written.
//!
//! **Failure.** A window whose record cannot be written is given up: nothing of it is in place. After [`FAILURES_MAX`] in a
//! row the journal is revoked: it is known beside primary storage that it does not count, then strict order goes on. After
//! as many that the log could not be read for, what they had goes in place in strict order, unless it is written again.

use super::batch::Batch;
use super::{Beside, Destager, Drive};
use crate::action::{DestageFault, Span};
use crate::cx::Cx;
use crate::geometry::PAGE;
use crate::ids::{Nanos, Sequence};
use crate::journal::JournalConfig;
use crate::journal::record::Contents;
use crate::stats::JournalStatistics;
use crate::status::IoStatus;
use crate::write_back::WriteBack;
use crate::write_back::log::segments::Position;

mod ahead;
mod retire;

/// Pages of a piece of payload: long enough for a disk, short enough for a read that waits behind it.
const PIECE_PAGES: u32 = 64;
/// Pieces under way at most.
const PIECES_MAX: u32 = 4;
/// Failures in a row before a journal is revoked.
const FAILURES_MAX: u32 = 4;

/// How records get to primary storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In place, epoch by epoch.
    Direct,
    /// As a window, through the journal.
    Journal,
    /// Not at all for a while: something has to be retired first, or the journal is being revoked.
    Nowhere,
}

/// See the module.
#[derive(Debug)]
pub(in crate::write_back) struct Journal {
    config: JournalConfig,
    ahead: Ahead,
    reached: Reached,
    /// The last batch has a record: nothing went in place without one since.
    is_recorded: bool,
    /// What is done in the journal beside payload.
    doing: Option<Doing>,
    /// A flush of it failed, or its session was lost: what was not durable may be gone, and no later flush tells.
    is_suspect: bool,
    /// The same of what is being done.
    is_in_vain: bool,
    failures: u32,
    unread: Unread,
    /// Until this one is flushed, what is written again does not fit into a slot.
    too_much_until: Sequence,
    trust: Trust,
    /// What is to be written next.
    prepared: Vec<u8>,
}

/// What the log could not give.
#[derive(Debug)]
struct Unread {
    /// Windows in a row that could not be read from it.
    windows: u32,
    /// Until this one is flushed, what comes next cannot be read all at once.
    until: Sequence,
}

/// How far windows are.
#[derive(Debug)]
struct Reached {
    /// The newest one that went in place.
    placed: u64,
    /// The newest one whose header was written, or may have been.
    issued: u64,
    /// The newest one whose record is durable.
    durable: u64,
    /// The newest one that the superblock may call retired.
    perhaps_retired: u64,
}

/// The next window, on its way into the journal.
#[derive(Debug)]
struct Ahead {
    stage: Stage,
    batch: Batch,
    /// Its number.
    window: u64,
    /// Where it began in the log.
    from: Position,
    /// It is what has to be written again, all of it.
    again: bool,
    contents: Contents,
    /// Pieces under way.
    pieces: u32,
    /// It is given up as soon as nothing of it is under way.
    failed: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    None,
    /// Its payload is written.
    Payload,
    /// It is being noted, then its header is written.
    Header,
    /// The journal is flushed, where that is asked for.
    Flush,
    /// Its record is whole.
    Whole,
}

/// An I/O of the journal, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Writes the header, from this memory.
    Header { memory: (u32, u32) },
    /// Makes records up to this window durable.
    Flush { window: u64 },
    /// Says that records up to this window are retired.
    Retire { window: u64, memory: (u32, u32) },
    /// Makes that durable.
    RetireFlush { window: u64 },
}

/// Whether the journal is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Used,
    /// It is being noted that it does not count; `again`: nobody could, the last time.
    Asked {
        again: bool,
    },
    /// Nobody knows whether it counts.
    Unknown,
    Revoked,
}

impl Journal {
    pub(super) fn new(config: JournalConfig, places: u32) -> Journal {
        let retired = config.retired;
        Journal {
            config,
            ahead: Ahead {
                stage: Stage::None,
                batch: Batch::journaled(places),
                window: 0,
                from: Position::default(),
                again: false,
                contents: Contents::default(),
                pieces: 0,
                failed: false,
            },
            reached: Reached {
                placed: retired,
                issued: retired,
                durable: retired,
                perhaps_retired: retired,
            },
            is_recorded: false,
            doing: None,
            is_suspect: false,
            is_in_vain: false,
            failures: 0,
            unread: Unread { windows: 0, until: Sequence(0) },
            too_much_until: Sequence(0),
            trust: Trust::Used,
            prepared: Vec::new(),
        }
    }

    /// The batch that is collected next.
    pub(super) fn ahead(&mut self) -> &mut Batch {
        &mut self.ahead.batch
    }

    /// The same, to look at.
    pub(super) fn next_batch(&self) -> &Batch {
        &self.ahead.batch
    }

    /// So many pages up to this record are to be written again that an earlier run may have sent. One without a journal, or with a
    /// larger one, may have sent more than fits into a slot.
    pub(super) fn expect_again(&mut self, pages: u64, through: Sequence) {
        if pages > u64::from(self.config.shape.capacity()) {
            self.too_much_until = through;
        }
    }

    /// What is to be written to the journal.
    pub(in crate::write_back) fn bytes(&self) -> &[u8] {
        &self.prepared
    }

    /// The number of the next window.
    fn window(&self) -> u64 {
        // A record that may count as retired would be put in place by nobody.
        self.reached.placed.max(self.reached.perhaps_retired) + 1
    }

    /// What went in place may not be durable in the journal, nor ever will be.
    fn hurries(&self) -> bool {
        self.is_suspect && self.reached.placed > self.reached.durable
    }

    fn is_retiring(&self) -> bool {
        matches!(self.doing, Some(Doing::Retire { .. } | Doing::RetireFlush { .. }))
    }

    pub(super) fn is_retired(&self) -> bool {
        self.trust == Trust::Revoked || self.config.retired >= self.reached.issued
    }

    /// Nothing of the next window is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.doing.is_none() && self.ahead.pieces == 0
    }

    /// Where in the log it began, and whether it is still to be written again.
    fn give_ahead_up(&mut self) -> (Position, bool) {
        let ahead = &mut self.ahead;
        ahead.batch.end_it();
        (ahead.stage, ahead.failed) = (Stage::None, false);
        (ahead.from, ahead.again)
    }
}

impl Destager {
    /// True while a window is written into the journal, or waits there.
    pub(super) fn has_ahead(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.ahead.stage != Stage::None)
    }

    /// True while that window is what primary storage may have lost: nothing of it is in place again.
    pub(super) fn is_redone_ahead(&self) -> bool {
        self.has_ahead() && self.journal.as_ref().is_some_and(|journal| journal.ahead.again)
    }

    /// True while the journal is written, or flushed, and nothing of primary storage is under way.
    pub(in crate::write_back) fn waits_for_journal_alone(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| !journal.is_at_rest())
            && self.running.outstanding == 0
            && self.flushes.flushing.is_none()
    }

    /// True when no record of a journal is left that somebody would put in place.
    pub(in crate::write_back) fn is_retired(&self) -> bool {
        self.journal.as_ref().is_none_or(Journal::is_retired)
    }

    /// How the journal is.
    pub(in crate::write_back) fn journal_statistics(&self) -> Option<JournalStatistics> {
        let journal = self.journal.as_ref()?;
        Some(JournalStatistics {
            is_used: journal.trust == Trust::Used,
            is_needed: !journal.is_retired(),
            size_bytes: journal.config.shape.size(),
        })
    }

    /// All that is in place is flushed, and nothing is on its way there. What may not be durable in the journal must not be
    /// waited for: it is to be retired, or the log could never forget it.
    pub(super) fn may_retire(&self) -> bool {
        let hurries = self.journal.as_ref().is_some_and(Journal::hurries);
        // While nobody knows whether the journal counts, it is not written.
        let is_used = self.journal.as_ref().is_none_or(|journal| journal.trust == Trust::Used);
        is_used
            && !self.batch.is_active()
            && !self.has_ahead()
            && self.is_at_rest()
            && !self.flushes.redo
            && (hurries || self.reached.flushed == self.reached.done)
    }

    /// Memory of the destager.
    fn memory(&self, (first, pages): (u32, u32)) -> Span {
        let offset = self.running.base + u64::from(first) * PAGE;
        Span { offset, len: pages * PAGE as u32 }
    }

    /// An I/O of the journal failed: the window on its way is given up, what is in place stays.
    fn fail_journal(&mut self, fault: DestageFault, status: IoStatus, cx: &mut Cx<'_>) {
        cx.counters.destage_errors += 1;
        self.note_fault(fault, status, cx);
        self.pause(cx.now);
        let Some(journal) = &mut self.journal else { return };
        // What is to be written again has no other way.
        let is_new = !journal.ahead.failed && !journal.ahead.again;
        if fault == DestageFault::LogRead && is_new {
            journal.unread.windows += 1;
            if journal.unread.windows >= FAILURES_MAX {
                // What can be read goes in place epoch by epoch.
                journal.unread = Unread { windows: 0, until: journal.ahead.batch.limit() };
            }
        }
        journal.ahead.failed |= journal.ahead.stage != Stage::None;
        journal.failures += u32::from(fault == DestageFault::Journal);
    }
}

impl WriteBack {
    /// How what comes next gets to primary storage.
    pub(super) fn way(&self, now: Nanos) -> Way {
        let destager = &self.destager;
        let Some(journal) = &destager.journal else { return Way::Direct };
        let again = destager.flushes.redo;
        let is_wanted = match journal.trust {
            Trust::Asked { .. } | Trust::Unknown => return Way::Nowhere,
            Trust::Revoked => return Way::Direct,
            Trust::Used if journal.ahead.stage != Stage::None => true,
            Trust::Used if journal.failures >= FAILURES_MAX => return Way::Nowhere,
            Trust::Used if again => {
                self.zeroes_fit(journal) && destager.reached.flushed >= journal.too_much_until
            }
            Trust::Used if destager.reached.flushed < journal.unread.until => false,
            // A record that may count as retired, and may not, must be neither before the next one, which may go less far.
            Trust::Used if journal.reached.perhaps_retired > journal.config.retired => false,
            Trust::Used => {
                !journal.is_suspect && self.zeroes_fit(journal) && self.pays(journal, now)
            }
        };
        match is_wanted {
            true => Way::Journal,
            false if journal.is_retired() && journal.doing.is_none() => Way::Direct,
            false => Way::Nowhere,
        }
    }

    /// True when all zero records of the log fit into a header, should all be written again.
    fn zeroes_fit(&self, journal: &Journal) -> bool {
        self.log.index.zeroes().count() <= journal.zeroes_max()
    }

    /// True when what comes next is several epochs, small ones, and strict order does not keep up with them. As far as
    /// can be seen without looking at all of it.
    fn pays(&self, journal: &Journal, now: Nanos) -> bool {
        let (destager, log) = (&self.destager, &self.log);
        let after = destager.taken().0;
        let from = destager.reached.cursor.max(log.segments.oldest());
        let Some(first) = log.first_epoch_after(from, after) else { return false };
        let pages = log.end().0.saturating_sub(from.0).min(destager.batch.pages_max());
        let appended = log.told.ages.of(after.plus(1)).unwrap_or(now);
        let is_patient = !journal.is_recorded && now.since(appended) < journal.config.patience;
        if is_patient && pages < destager.batch.pages_max() {
            return false;
        }
        let last = (0..pages.min(u64::from(PIECE_PAGES)))
            .find_map(|back| {
                let place = log.segments.place(from.plus((pages - 1 - back) as u32));
                log.index.entry(place).filter(|entry| entry.sequence > after)
            })
            .map_or(log.epoch(), |entry| entry.epoch);
        let epochs = last.0.saturating_sub(first.0) + 1;
        epochs > 1 && pages < epochs * journal.config.epoch_pages
    }

    /// Goes on with the next window, and with retiring those before; called whenever something has changed.
    pub(super) fn advance_journal(
        &mut self,
        drive: Drive,
        beside: &mut Beside<'_>,
        cx: &mut Cx<'_>,
    ) {
        if self.destager.journal.is_none() {
            return;
        }
        loop {
            let destager = &mut self.destager;
            let goes_on = destager.may_start(cx.now);
            // What is written again has all that it has.
            let is_in_vain = destager.flushes.redo || !destager.goes_on();
            let Some(journal) = &mut destager.journal else { return };
            journal.ahead.failed |= is_in_vain && journal.ahead.stage != Stage::None;
            if journal.ahead.failed {
                if !journal.is_at_rest() {
                    return;
                }
                let (from, again) = journal.give_ahead_up();
                destager.reached.cursor = from;
                destager.flushes.redo |= again;
            }
            let moved = match self.stage() {
                Stage::None => goes_on && self.begin_window(drive, cx),
                Stage::Payload => goes_on && self.write_payload(beside, cx),
                Stage::Header => goes_on && self.write_header(beside, cx),
                Stage::Flush => self.flush_ahead(cx),
                Stage::Whole => false,
            };
            if !moved {
                break;
            }
        }
        self.retire(cx);
        self.revoke_journal(cx);
    }

    /// True when a record would find what comes before it in place, or in a record.
    fn may_be_recorded(&self) -> bool {
        let destager = &self.destager;
        let is_recorded = destager.journal.as_ref().is_some_and(|journal| journal.is_recorded);
        let is_flushed = destager.reached.flushed >= destager.reached.done;
        let is_there = is_flushed || !self.log.config.barrier || destager.flushes.redo;
        is_recorded || !destager.batch.is_active() && is_there
    }

    /// A batch goes in place without a record.
    pub(super) fn note_direct(&mut self) {
        if let Some(journal) = &mut self.destager.journal {
            journal.is_recorded = false;
        }
    }

    /// What is to be written to the journal.
    pub(crate) fn journal_bytes(&self) -> &[u8] {
        self.destager.journal.as_ref().map_or(&[], Journal::bytes)
    }
}

impl Journal {
    fn zeroes_max(&self) -> usize {
        self.config.shape.entries_max() - self.config.shape.capacity() as usize
    }
}
