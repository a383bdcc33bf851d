//! How a disk has ended: where everything is that was acknowledged, whether it is safe there, and what its pool is told.
//!
//! | write log | primary storage | |
//! |---|---|---|
//! | clean, or none | last flush ended well | everything is on primary storage |
//! | dirty, durable | not asked | the rest is in the log, and the next start goes on |
//! | dirty, not durable, not to be read, or flash has failed to read it | | not safe |
//! | any | last flush failed, or a session was lost and no flush told the guest | not safe |

use forebay_backends::size::rounded;
use forebay_host::events::Severity;

use forebay_host::pool::EndOfSession;
use forebay_shard::{Drained, LogEnd};

/// Where everything is that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// There, flushed.
    OnPrimaryStorage,
    /// So many bytes are in the write log only, durable.
    InLog(u64),
    /// Some may be lost: what, and what to do.
    NotSafe(String),
}

/// Where a disk that has ended left everything.
pub(super) fn left(disk: &Drained) -> Left {
    let dirty = disk.log.filter(|log| !log.is_clean);
    match dirty {
        Some(LogEnd { is_lost: true, dirty_bytes, .. }) => Left::NotSafe(format!(
            "its write log cannot be read back, and up to {} that were acknowledged are not on primary storage. The log \
             is kept: copy the flash, then see, with no daemon on it, what can be done: forebay disk resolve {} --pool PATH",
            rounded(dirty_bytes),
            disk.name
        )),
        Some(LogEnd { is_revoked: true, dirty_bytes, .. }) => Left::NotSafe(format!(
            "its write log failed, and it is noted beside primary storage that the log is of the past: up to {} that were \
             acknowledged are not on primary storage. The log is kept: copy the flash, then see what can be done: forebay \
             disk resolve {}",
            rounded(dirty_bytes),
            disk.name
        )),
        Some(LogEnd { is_durable: false, dirty_bytes, .. }) => Left::NotSafe(format!(
            "its write log failed, and up to {} that were acknowledged are neither durable there nor on primary storage. \
             Start the disk again before this host is: the staging file in memory may have them",
            rounded(dirty_bytes)
        )),
        Some(LogEnd { reads_failed: true, dirty_bytes, .. }) => Left::NotSafe(format!(
            "flash failed to read its write log, and up to {} that were acknowledged are not on primary storage. The log is \
             kept: look at the flash device, copy it, and start the disk again; when the log cannot be read then either, see \
             what can be done: forebay disk resolve {} --pool PATH",
            rounded(dirty_bytes),
            disk.name
        )),
        Some(_) | None if !disk.status.is_ok() => Left::NotSafe(format!(
            "the last flush of primary storage failed ({}); writes since the flush before (up to {}) may be lost",
            disk.status,
            rounded(disk.unflushed_bytes)
        )),
        Some(_) | None if disk.has_unreported_loss => Left::NotSafe(format!(
            "primary storage may have lost acknowledged writes that were not flushed{}, and no flush of the guest has \
             reported that",
            match disk.unflushed_bytes {
                // They were another run's, or it flushed well since.
                0 => String::new(),
                bytes => format!(" (up to {})", rounded(bytes)),
            }
        )),
        Some(log) => Left::InLog(log.dirty_bytes),
        None => Left::OnPrimaryStorage,
    }
}

/// How a disk that has ended leaves its pool.
pub(super) fn end_of_session(disk: &Drained) -> EndOfSession {
    let is_safe = left(disk) == Left::OnPrimaryStorage;
    match disk.log {
        _ if disk.is_detaching && is_safe => EndOfSession::Detached,
        Some(log) if !log.is_clean && log.is_lost => EndOfSession::Lost,
        Some(log) if !log.is_clean && (!log.is_durable || log.is_revoked) => EndOfSession::Failed,
        Some(log) if !log.is_clean => EndOfSession::Dirty,
        Some(_) | None if disk.status.is_ok() => EndOfSession::Clean,
        Some(_) | None => EndOfSession::Failed,
    }
}

/// What the log of a disk that was not served has kept, by the disk's name.
pub(super) fn not_served((disk, kept): &(String, String)) -> String {
    format!("disk '{disk}' was not served, and its write log {kept}")
}

/// What becomes of the log of a disk that no configuration lists any more, which holds what primary storage does not have.
pub(super) fn not_listed(disk: &str) -> String {
    format!(
        "disk '{disk}' is not listed any more, and was not destaged: no start goes on with its write log before it is listed \
         again as it was"
    )
}

/// How to go on with a disk that has ended with what primary storage does not have in its log.
pub(super) fn to_go_on(is_listed: bool) -> &'static str {
    match is_listed {
        true => "start it again to go on",
        false => "it is not listed any more: list it again as it was, and start it, to go on",
    }
}

/// What is said at the end of a daemon that ended in order; `dirty`: whose log holds what is not on primary storage; those of
/// them that are `unlisted` by now; and what logs of disks that were not served have `kept`.
pub(super) fn in_order(
    dirty: &[String],
    unlisted: &[String],
    kept: &[(String, String)],
) -> (Severity, String) {
    let mut text = match kept {
        [] => "ended: everything acknowledged is on primary storage",
        _ => "ended: everything acknowledged of the disks that were served is on primary storage",
    }
    .to_owned();
    let in_logs = [dirty, unlisted].concat();
    if !in_logs.is_empty() {
        text += &format!(" or, durable, in the write log of {}", in_logs.join(", "));
    }
    if !dirty.is_empty() {
        text += "; start again to go on";
    }
    let more = unlisted.iter().map(|disk| not_listed(disk)).chain(kept.iter().map(not_served));
    for more in more {
        text += &format!("; {more}");
    }
    let is_all_well = unlisted.is_empty() && kept.is_empty();
    (if is_all_well { Severity::Info } else { Severity::Warning }, text)
}

#[cfg(test)]
mod tests {
    use forebay_core::status::IoStatus;
    use forebay_frontends::client::DiskId;

    use super::*;

    const CLEAN: LogEnd = LogEnd {
        is_durable: true,
        is_clean: true,
        is_lost: false,
        is_revoked: false,
        reads_failed: false,
        dirty_bytes: 0,
    };
    const DIRTY: LogEnd = LogEnd { is_clean: false, dirty_bytes: 1 << 20, ..CLEAN };

    fn disk(log: Option<LogEnd>) -> Drained {
        Drained {
            id: DiskId(0),
            name: "db".to_owned(),
            status: IoStatus::Ok,
            unflushed_bytes: 8192,
            has_unreported_loss: false,
            log_end: None,
            log,
            is_detaching: false,
            is_quiet: true,
        }
    }

    #[test]
    fn what_is_left_is_told_as_it_is() {
        let check = |disk: Drained, expect: Result<Left, &str>, end, end_of_detach| {
            let found = left(&disk);
            match (expect, &found) {
                (Ok(expect), _) => assert_eq!(found, expect, "{disk:?}"),
                (Err(words), Left::NotSafe(text)) => assert!(text.contains(words), "{text}"),
                (Err(_), _) => panic!("{disk:?} is {found:?}"),
            }
            assert_eq!(end_of_session(&disk), end, "{disk:?}");
            let detaching = Drained { is_detaching: true, ..disk };
            assert_eq!(end_of_session(&detaching), end_of_detach, "{detaching:?}");
        };
        use EndOfSession::{Clean, Detached, Dirty, Failed, Lost};
        check(disk(None), Ok(Left::OnPrimaryStorage), Clean, Detached);
        check(disk(Some(CLEAN)), Ok(Left::OnPrimaryStorage), Clean, Detached);
        check(disk(Some(DIRTY)), Ok(Left::InLog(1 << 20)), Dirty, Dirty);
        let lost = LogEnd { is_lost: true, ..DIRTY };
        check(disk(Some(lost)), Err("up to 1 MiB that were acknowledged"), Lost, Lost);
        let revoked = LogEnd { is_durable: false, is_revoked: true, ..DIRTY };
        check(disk(Some(revoked)), Err("forebay disk resolve db"), Failed, Failed);
        let failed = LogEnd { is_durable: false, ..DIRTY };
        check(disk(Some(failed)), Err("up to 1 MiB that were acknowledged"), Failed, Failed);
        // What was durable there may be there again.
        let unread = LogEnd { reads_failed: true, ..DIRTY };
        check(
            disk(Some(unread)),
            Err("failed to read its write log, and up to 1 MiB"),
            Dirty,
            Dirty,
        );
        // A log that failed and was destaged from memory.
        let drained = LogEnd { is_durable: false, ..CLEAN };
        check(disk(Some(drained)), Ok(Left::OnPrimaryStorage), Clean, Detached);
        for log in [None, Some(CLEAN)] {
            let unflushed = Drained { status: IoStatus::IoError, ..disk(log) };
            check(
                unflushed.clone(),
                Err("last flush of primary storage failed (I/O error)"),
                Failed,
                Failed,
            );
            let both = Drained { has_unreported_loss: true, ..unflushed };
            check(both, Err("last flush of primary storage failed (I/O error)"), Failed, Failed);
            let unreported_loss = Drained { has_unreported_loss: true, ..disk(log) };
            check(unreported_loss, Err("not flushed (up to 8 KiB)"), Clean, Clean);
        }
        let former = Drained { has_unreported_loss: true, unflushed_bytes: 0, ..disk(None) };
        check(former, Err("writes that were not flushed, and no flush"), Clean, Clean);
        let unreported_loss = Drained { has_unreported_loss: true, ..disk(Some(DIRTY)) };
        check(unreported_loss, Err("no flush of the guest has reported"), Dirty, Dirty);
    }

    #[test]
    fn the_end_promises_no_start_to_a_disk_that_is_not_listed() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let check = |dirty: &[&str], unlisted: &[&str], severity, end: &str| {
            let (is, text) = in_order(&of(dirty), &of(unlisted), &[]);
            assert!(is == severity && text.ends_with(end), "{is:?}: {text}");
            assert_eq!(text.contains("start again"), !dirty.is_empty());
        };
        check(&[], &[], Severity::Info, "is on primary storage");
        check(&["a"], &[], Severity::Info, "in the write log of a; start again to go on");
        let listed_again = "before it is listed again as it was";
        check(&[], &["b"], Severity::Warning, listed_again);
        check(&["a"], &["b"], Severity::Warning, listed_again);
    }
}
