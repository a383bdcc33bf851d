//! States in words, for people: the one place where a state becomes a sentence.
//!
//! What decides matches the types; programs read their codes in JSON.

pub mod reference;

use forebay_core::stats::{
    DestageLimit, IndexState, LogState, LogStatistics, RequestOp, Statistics, TierState,
    TierStatistics,
};
use forebay_frontends::iscsi::login::Refusal;
use forebay_host::pool::report::SessionState;

use crate::daemon::api::{DiskStats, PrimaryState};

/// A tier of the cache.
pub fn tier(tier: &TierStatistics) -> String {
    match (tier.state, tier.failure) {
        (TierState::None, _) => "none".to_owned(),
        (TierState::Active, _) => "active".to_owned(),
        (TierState::Failed, None) => "failed".to_owned(),
        (TierState::Failed, Some(why)) => format!("failed: {why}"),
    }
}

/// What is not as it should be with the cache on flash, in the capitals of a list.
pub fn flash_trouble(engine: &Statistics) -> Option<&'static str> {
    let index = engine.ring.as_ref().map(|ring| ring.state);
    match (engine.flash.state, index) {
        (TierState::Failed, _) => Some("NO FLASH"),
        (_, Some(IndexState::GivenUp)) => Some("NO INDEX"),
        _ => None,
    }
}

/// Why an initiator may not log in.
pub fn refused_login(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Malformed => "what it sent makes no sense in a login",
        Refusal::Authentication => {
            "it did not prove who it is: compare CHAP users and secrets on both sides"
        }
        Refusal::Forbidden => "the target is not for it: 'initiators' lists others",
        Refusal::NotFound => "there is no target of the name that it asked for",
        Refusal::Version => "it speaks another version of iSCSI",
        Refusal::MissingKey => "it named no initiator or no target",
        Refusal::SessionType => "it asked for a session of a kind that does not exist",
        Refusal::NoSuchSession => "it wants to add a connection to a session, which has one",
        Refusal::Unavailable => "no disk of the target is served yet",
        Refusal::OutOfResources => "there is no room for another session",
    }
}

/// A write log.
pub fn log(log: &LogStatistics) -> String {
    match log.state {
        LogState::Unused => "unused".to_owned(),
        LogState::Active => "active".to_owned(),
        LogState::Paused => "paused".to_owned(),
        LogState::Draining => "draining".to_owned(),
        LogState::WaitsForFlush => "waiting: primary storage fails its flushes".to_owned(),
        LogState::Full => format!("full: writers wait, {}", limit(log.limited_by)),
        LogState::Failed => match log.failure {
            Some(why) => format!("failed: {why}"),
            None => "failed".to_owned(),
        },
        LogState::Lost => "lost: dirty data cannot be read, or not noted as destaged".to_owned(),
    }
}

/// What limits destaging.
pub fn limit(limit: DestageLimit) -> &'static str {
    match limit {
        DestageLimit::Nothing => "nothing to destage",
        DestageLimit::LogLost => "the log is lost",
        DestageLimit::Paused => "paused",
        DestageLimit::Held => "held by 'disk quiesce'",
        DestageLimit::PrimaryLost => "primary storage is lost",
        DestageLimit::PrimaryErrors => "errors of primary storage",
        DestageLimit::LogReadErrors => "the log cannot be read",
        DestageLimit::NoteErrors => "progress cannot be noted on flash",
        DestageLimit::JournalErrors => "the destage journal cannot be written",
        DestageLimit::Journal => "the destage journal",
        DestageLimit::RetryPause => "errors a moment ago",
        DestageLimit::PrimaryFlush => "a flush of primary storage",
        DestageLimit::PrimaryStorage => "primary storage",
        DestageLimit::LogCommit => "a commit of the log",
        DestageLimit::OpenEpoch => "the epoch under way, left alone for a moment",
        DestageLimit::EpochOrder => "epoch-bound",
        DestageLimit::GuestReads => "guest reads",
        DestageLimit::RateLimit => "max-destage-rate",
    }
}

/// What keeps the cache on flash over a restart.
pub fn index(state: IndexState) -> &'static str {
    match state {
        IndexState::Recorded => "recorded",
        IndexState::GivenUp => "given up",
        IndexState::Closed => "closed",
    }
}

/// Primary storage of a disk.
pub fn primary_storage(stats: &DiskStats) -> String {
    let why = stats.primary_trouble.as_deref().unwrap_or("no reason is known");
    match stats.primary_storage {
        PrimaryState::Connected => "connected".to_owned(),
        PrimaryState::HoldsWrites => {
            "connected; writes to it wait until what a former run sent can land no more".to_owned()
        }
        PrimaryState::Fails => {
            let errors = stats.engine.primary_errors.iter().map(|it| {
                format!(
                    "{}: {} ({} failed, the last at byte {})",
                    it.operation, it.status, it.failed, it.last_offset
                )
            });
            format!("fails {}", errors.collect::<Vec<_>>().join("; "))
        }
        PrimaryState::Lost => format!("lost: {why}; I/O waits"),
    }
}

/// What a request asked for.
pub fn request(op: RequestOp) -> &'static str {
    match op {
        RequestOp::Read => "read",
        RequestOp::Write => "write",
        RequestOp::Zero => "discard or write of zeroes",
        RequestOp::Flush => "flush",
        RequestOp::Allocation => "query for allocation",
    }
}

/// How a disk was left, as its pool says.
pub fn session(state: SessionState) -> &'static str {
    match state {
        SessionState::Closed => "closed",
        SessionState::Running => "running",
        SessionState::RunningOrCrashed => "running or crashed",
    }
}
