//! What the fence tells an operator.

use std::fmt::Write as _;
use std::path::Path;

use forebay_backends::Look;
use forebay_backends::size::rounded;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::fence::{Change, Doubt, Timestamp, Verdict};
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::ids::{Nanos, Uuid};

mod of_journal;
mod of_log;

pub(super) use of_journal::{journal, journal_of_another, journal_unusable, may_be_torn, torn};
pub(super) use of_log::{TORN_WITH_REST, TORN_WITHOUT_LOG, cut};

use super::names;
use super::sidecar::{Found, SidecarPlace};
use crate::date::utc;
use crate::events::Severity;
use crate::pool::{Dirty, Pool};
use crate::shell::quoted;

/// The disk must not be served until an administrator has decided; other disks can.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl Refused {
    /// Another process has the flash of a disk.
    pub fn in_use(why: String) -> Refused {
        Refused(why)
    }

    /// The pool has something that this disk, as it is configured, would pass by.
    pub fn other_disk(why: String) -> Refused {
        Refused(why)
    }

    /// Primary storage is an image of another format.
    pub fn not_raw(why: String) -> Refused {
        Refused(why)
    }

    /// Primary storage is torn, or may be.
    pub(super) fn torn(why: String) -> Refused {
        Refused(why)
    }

    /// The write log of a disk cannot be used.
    pub fn log(why: &anyhow::Error) -> Refused {
        Refused(format!("{why:#}"))
    }

    /// Reservations are stored for `what`, a disk called `disk`, and would be passed by.
    pub fn passed_by(what: &str, disk: &str, pool: &str, instead: &str) -> Refused {
        Refused(format!(
            "the flash {pool} holds persistent reservations of SCSI initiators for {what}: {instead}. When no initiator \
             relies on them any more: forebay disk resolve {disk} --pool {} --discard-reservations",
            quoted(pool)
        ))
    }

    /// The reservations of a disk cannot be read.
    pub fn reservations(disk: &str, pool: &str, why: &str) -> Refused {
        Refused(format!(
            "persistent reservations of SCSI initiators were stored for it, and cannot be read: {why}. Nobody knows who \
             may write to it. When no initiator relies on them any more: forebay disk resolve {disk} --pool {} \
             --discard-reservations",
            quoted(pool)
        ))
    }
}

/// What is worth telling of a verdict on which the disk is served.
pub(super) fn note(
    verdict: Verdict,
    is_dirty: bool,
    keeps_cache: bool,
) -> Option<(Severity, String)> {
    let cache = if keeps_cache {
        "cached data are used, since it is declared exclusive"
    } else {
        "cached data of the former run are not used"
    };
    match verdict {
        Verdict::New => None,
        Verdict::Strong => {
            let text = "primary storage is as it was noted last (strong evidence)";
            Some((Severity::Info, text.to_owned()))
        }
        Verdict::Weak(doubt) => {
            let severity = if is_dirty { Severity::Warning } else { Severity::Info };
            let log = if is_dirty { "the write log goes on; " } else { "" };
            let text = format!(
                "nothing proves that nobody else wrote to primary storage ({}): weak evidence; {log}{cache}",
                doubt_in_words(doubt)
            );
            Some((severity, text))
        }
        Verdict::Mismatch(change) => {
            let text = format!(
                "primary storage was changed by somebody else: {}; the write log was empty, {cache}",
                change_in_words(change)
            );
            Some((Severity::Warning, text))
        }
    }
}

/// A disk is new whose primary storage was served as another one before.
pub(super) fn former(disk: Uuid) -> (Severity, String) {
    let text = format!(
        "primary storage was served as disk {disk} before: iSCSI initiators see another logical unit than then, unless \
         unit-id = \"{disk}\" (--unit-id) says that it is the same"
    );
    (Severity::Info, text)
}

/// A verdict on which the disk is served, in few words.
pub(super) fn evidence(verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::New => None,
        Verdict::Strong => Some("strong".to_owned()),
        Verdict::Weak(doubt) => Some(format!("weak: {}", doubt_in_words(doubt))),
        Verdict::Mismatch(change) => {
            Some(format!("mismatch, with an empty log: {}", change_in_words(change)))
        }
    }
}

fn doubt_in_words(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Sidecar => "it has no sidecar, or one that cannot be read",
        Doubt::NoTime => "it does not tell when it was modified",
        Doubt::Unseen => {
            "the host or its memory was lost, so that nobody knows when the disk wrote last"
        }
        Doubt::Touched => "its metadata changed: its time of modification may have been set",
    }
}

/// How primary storage was changed.
fn change_in_words(change: Change) -> String {
    match change {
        Change::Size { was, is } => {
            format!("it has {} ({is} bytes) and had {} ({was})", rounded(is), rounded(was))
        }
        Change::Modified { was, is } => format!(
            "it was modified at {}, when nothing of this disk was written after {}",
            date(is),
            date(was)
        ),
        Change::RolledBack { was, is } => format!(
            "it was modified last at {}, and before at {}: an old copy was put back",
            date(is),
            date(was)
        ),
        Change::Content => "sampled ranges hold other bytes".to_owned(),
        Change::WhileServed => {
            "it was modified while the disk was served, and its cache was not dropped after that".to_owned()
        }
        Change::OtherDisk => "another disk was served from it, as its sidecar says".to_owned(),
        Change::Elsewhere => "its name leads to another image than it did, and no sidecar there says that this disk was \
             served from that one"
            .to_owned(),
        Change::FlashRolledBack { sidecar, pool } if sidecar <= pool => format!(
            "its sidecar says that session {} of the disk has ended, and the pool does not: an old copy of the flash was put back, or the flash could not be written in the end",
            sidecar.0
        ),
        Change::FlashRolledBack { sidecar, pool } => format!(
            "its sidecar is of generation {}, the pool knows none above {}: an old copy of the flash was put back, or the flash died and the disk went on without it",
            sidecar.0, pool.0
        ),
        Change::Detached => {
            "the disk was detached from it, or another one has taken its place, as this host remembers: its flash is of the past".to_owned()
        }
        Change::SidecarRolledBack { sidecar, pool } => format!(
            "its sidecar is of generation {}, the disk wrote {}: an old copy was put back with its sidecar",
            sidecar.0, pool.0
        ),
    }
}

/// A sidecar could not be written.
pub(super) fn no_sidecar(place: &SidecarPlace, error: &std::io::Error) -> String {
    if let SidecarPlace::Apart(path) = place {
        return format!(
            "no sidecar can be written at {} ({error}): a start with another pool or another name on the same primary \
             storage is not told that this disk's write log may hold newer data, nor is a start without flash told that \
             writes of a killed process may still be under way. Give it to the user that Forebay runs as, or give a folder that can be written: --state-dir",
            path.display()
        );
    }
    format!(
        "no sidecar can be written beside primary storage ({error}): whether somebody else changes it while the \
         disk is stopped will be told on weak evidence"
    )
}

/// There is no state folder.
pub(super) fn no_folder() -> String {
    "this user has no state folder (neither XDG_STATE_HOME nor HOME is set): nothing keeps another disk of this host from \
     using the same primary storage, and no start is told of a dirty write log of another pool or name, nor that writes of a \
     killed process may still be under way. Give a folder: --state-dir"
        .to_owned()
}

/// Nothing keeps another disk of this host from primary storage.
pub(super) fn no_lock(path: &std::path::Path, error: &anyhow::Error) -> String {
    format!(
        "{} cannot be locked ({error:#}): nothing keeps another disk of this host from using the same primary storage. \
         Give it to the user that Forebay runs as, or give a folder that can be written: --state-dir",
        path.display()
    )
}

/// Primary storage belongs to another disk, whose log may hold newer data.
pub(super) fn claimed(sidecar: &Sidecar, place: &SidecarPlace, state: Option<&Path>) -> Refused {
    let place = place.path().map_or(String::new(), |place| place.display().to_string());
    let pool = match names::pool_path(sidecar.pool, state) {
        Some(path) => format!("its pool was at {} last", path.display()),
        None => "this host does not know where its pool is".to_owned(),
    };
    let since = match sidecar.state {
        SidecarState::OpenWithLog => "opened",
        SidecarState::Dirty => "stopped with a dirty log",
        SidecarState::Open | SidecarState::Clean => "left",
    };
    Refused(format!(
        "its primary storage belongs to the disk '{}' of another pool or name, on host '{}', {since} {}: the write log \
         there may hold newer data ({pool}). Start that disk and detach it ('forebay disk detach {0}'). If its log is gone for \
         ever and what primary storage holds is to be used as it is: --take-over {} (disk {3} of pool {}, as {place} says)",
        sidecar.name,
        sidecar.host,
        utc(sidecar.date.saturating_mul(1000)),
        sidecar.disk,
        sidecar.pool,
    ))
}

/// The flash is an old copy, which has no log of the disk. The newer one may have.
pub(super) fn old_flash(sidecar: &Sidecar, pool: &Path) -> Refused {
    Refused(format!(
        "its flash {} is an old copy, or could not be written in the end: session {} of the disk '{}', of {} on host '{}', \
         is not known there, and its write log may hold newer data. Put the newer flash back. If there is none, as where an old image \
         was put back with its sidecar, or it is gone for ever and what primary storage holds is to be used as it is: \
         --take-over {}",
        pool.display(),
        sidecar.generation.0,
        sidecar.name,
        utc(sidecar.date.saturating_mul(1000)),
        sidecar.host,
        sidecar.disk,
    ))
}

/// The state folder does not say that another disk has lost its place.
pub(super) fn not_superseded(error: &std::io::Error) -> String {
    format!(
        "the state folder cannot be written ({error}) and does not say that this disk has taken the place of another one: should \
         the flash of that one come back, its log may count as this one's. Give it to the user that Forebay runs as, or give a folder that can be written: --state-dir"
    )
}

/// The sidecar of primary storage cannot be read.
pub(super) fn unreadable(place: &SidecarPlace, why: &str) -> Refused {
    let place = place.path().map_or(String::new(), |place| place.display().to_string());
    Refused(format!(
        "its primary storage has a sidecar that cannot be read ({why}), and may belong to another disk, whose write log may hold \
         newer data. Make {place} readable for this user. Remove it only if no disk of any host has data for this storage"
    ))
}

/// The sidecar says that nothing is dirty, and cannot be replaced.
pub(super) fn not_replaced(place: &SidecarPlace, error: &std::io::Error) -> Refused {
    let place = place.path().map_or(String::new(), |place| place.display().to_string());
    Refused(format!(
        "its sidecar {place} cannot be written ({error}), and says that primary storage has everything: another host or pool \
         would believe that while the write log holds newer data. Make room and write access in that folder"
    ))
}

/// The image had the name `before`, beside which a disk has left its sidecar.
pub(super) fn left_behind(before: &Path, sidecar: &Sidecar, state: Option<&Path>) -> Refused {
    let before = before.display();
    let pool = match names::pool_path(sidecar.pool, state) {
        Some(path) => format!("its pool was at {} last", path.display()),
        None => "this host does not know where its pool is".to_owned(),
    };
    Refused(format!(
        "its primary storage was served under another name, {before}, as the disk '{}', and was renamed since: the write log of \
         that disk may hold newer data ({pool}). Give the image its name back, start that disk and detach it ('forebay disk \
         detach {0}'); then rename it. If that log is gone for ever and what primary storage holds is to be used as it is: \
         --take-over {} (disk {1} of pool {}, as {before}.forebay says)",
        sidecar.name, sidecar.disk, sidecar.pool,
    ))
}

/// The state folder still says that a disk was detached which is served again.
pub(super) fn detach_not_forgotten(error: &std::io::Error) -> String {
    format!(
        "the state folder cannot be written ({error}) and goes on to say that this disk was detached: the next start takes its \
         pool for an old copy, drops its cache and refuses a dirty log. Give it to the user that Forebay runs as, or give a folder that can be written: --state-dir"
    )
}

/// A disk has ended in order, and its sidecar could not say so; `was_written`: it says that the disk is served.
pub(super) fn sidecar_left(was_written: bool, error: &std::io::Error) -> String {
    let what = match was_written {
        true => {
            "it goes on to say that the disk is served. The next start with this pool goes on as usual; one with another pool or \
             without flash may be refused until then"
        }
        false => "the next start has weak evidence, and may drop clean cached data",
    };
    format!("its sidecar cannot be written ({error}): nothing acknowledged depends on it; {what}")
}

/// A disk is to write or remove its sidecar at `path`, which is another one by now.
pub(super) fn not_ours(path: &Path, own: &Sidecar, there: &Sidecar) -> String {
    format!(
        "{} has the {} by now, which disk '{}' ({}) of pool {} did not write under its generation {}: primary storage was \
         replaced, or another disk uses it. That sidecar was left as it is, and says nothing of disk '{}'. Find out to which \
         disk the primary storage there belongs before one of them is started again",
        path.display(),
        sidecar(&Found::There(there.clone())),
        own.name,
        own.disk,
        own.pool,
        own.generation.0,
        own.name
    )
}

/// The disk is refused: both sides, and what resolves it.
pub(super) fn refused(
    pool: &Pool,
    number: DiskNumber,
    verdict: Verdict,
    look: &Look,
    found: &Found,
) -> Refused {
    let record = pool.record(number);
    // As the decision reads it: up to its damage.
    let undecided = pool.undecided(number);
    let dirty = &undecided.dirty;
    let mut text = match verdict {
        Verdict::Mismatch(change) => format!(
            "primary storage was changed by somebody else while the write log holds data that it does not have: {}.\n",
            change_in_words(change)
        ),
        Verdict::New | Verdict::Strong | Verdict::Weak(_) => {
            "the write log was lost, or primary storage was changed by somebody else while the log held data that it does not \
             have: that was found earlier, and nobody has resolved it.\n"
                .to_owned()
        }
    };
    text += &sides(pool.path(), &record, dirty, look, found);
    if let Some(why) = &undecided.cut {
        let _ = writeln!(text, "  {}", cut(why, undecided.missing, undecided.is_unreadable));
    }
    let _ = writeln!(text, "Nothing was changed. Copy both, then decide:");
    let discard = format!("--discard-log {}", super::resolve::amount(dirty));
    let width = discard.len();
    let command = format!("  forebay disk resolve {} --pool {}", record.name, quoted(pool.path()));
    if dirty.error.is_none() && !undecided.leaves_nothing() {
        let use_log = "--use-log";
        let _ =
            writeln!(text, "{command} {use_log:<width$}  writes the log over what is there now");
    }
    let _ = write!(text, "{command} {discard}  keeps what is there, and loses the log");
    Refused(text)
}

/// Both sides of a disk, a line each.
pub(super) fn sides(
    pool: &Path,
    record: &DiskRecord,
    dirty: &Dirty,
    look: &Look,
    found: &Found,
) -> String {
    let closed = match record.closed {
        0 => "not closed since".to_owned(),
        closed => format!("closed {}", utc(closed.saturating_mul(1000))),
    };
    let modified = look
        .modified
        .map_or("time of modification unknown".to_owned(), |at| format!("modified {}", date(at)));
    format!(
        "  pool {}: {} ({} bytes) dirty in {}, opened {}, {closed}, generation {}, last known modification of \
         primary storage {}\n  primary storage {}: {} ({} bytes), {modified}; {}\n",
        pool.display(),
        rounded(dirty.bytes),
        dirty.bytes,
        writes(dirty.records),
        utc(record.opened.saturating_mul(1000)),
        record.committed.0,
        record.evidence.modified.map_or("unknown".to_owned(), date),
        record.uri,
        rounded(look.size),
        look.size,
        sidecar(found),
    )
}

/// A sidecar in words.
pub(super) fn sidecar(found: &Found) -> String {
    match found {
        Found::NoPlace => "no place for a sidecar".to_owned(),
        Found::Missing => "no sidecar".to_owned(),
        Found::Unreadable(why) => format!("a sidecar that cannot be read: {why}"),
        Found::There(sidecar) => format!(
            "sidecar of disk '{}' ({}) of pool {}, host '{}', generation {}, {}, {}",
            sidecar.name,
            sidecar.disk,
            sidecar.pool,
            sidecar.host,
            sidecar.generation.0,
            sidecar.state.name(),
            utc(sidecar.date.saturating_mul(1000))
        ),
    }
}

fn date((seconds, nanos): Timestamp) -> String {
    match u64::try_from(seconds) {
        Ok(seconds) => {
            utc(seconds.saturating_mul(1000).saturating_add(u64::from(nanos) / 1_000_000))
        }
        Err(_) => format!("{seconds} seconds after 1970"),
    }
}

/// A former run knew of a loss that no guest was told of.
pub fn unreported_loss() -> (Severity, String) {
    let text = "a former run ended before it could tell that primary storage may have lost writes that were acknowledged and \
                not flushed: the next flush fails, so that whoever relies on them is told";
    (Severity::Error, text.to_owned())
}

/// The same, and this run only reads.
pub fn unreported_loss_later() -> (Severity, String) {
    let text = "a former run ended before it could tell that primary storage may have lost writes that were acknowledged and \
                not flushed: this run is read-only, and the first flush of the next one that writes fails for it";
    (Severity::Warning, text.to_owned())
}

/// A loss could not be noted.
pub fn not_noted(obstacle: &Path) -> (Severity, String) {
    let text = format!(
        "{} is not a file of this user and cannot be removed: until it is gone, a loss of acknowledged writes that no \
         guest was told of is forgotten when this process ends",
        obstacle.display()
    );
    (Severity::Warning, text)
}

/// So many writes.
pub(super) fn writes(number: u64) -> String {
    format!("{number} write{}", if number == 1 { "" } else { "s" })
}

/// A former run did not see the end of all that it sent.
pub fn held(time: Nanos) -> String {
    format!(
        "a former run ended without an answer to everything that it sent to primary storage, which may still carry it \
         out: writes to primary storage wait for {} (fence= in its URI; 0s for a server that ends its I/O with the \
         connection)",
        forebay_backends::duration::exact(time)
    )
}
