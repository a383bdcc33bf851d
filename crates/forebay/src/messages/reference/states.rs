//! `docs/reference/states.md`, made from the types.

use std::fmt::Write as _;

use forebay_core::stats::{DestageLimit, IndexState, LogState, LogStatistics, TierState};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::daemon::api::PrimaryState;
use crate::messages;

const LOG: [(LogState, &str); 8] = [
    (LogState::Unused, "The disk's mode does not write to the log."),
    (LogState::Active, "Writes go to the log. Forebay destages them."),
    (
        LogState::Paused,
        "An administrator paused destaging. The log fills. `disk resume` ends the pause.",
    ),
    (LogState::Draining, "Forebay empties the log, because a mode without log was asked for."),
    (
        LogState::WaitsForFlush,
        "Primary storage fails its flushes, so the log cannot be used yet. **Alarm.**",
    ),
    (
        LogState::Full,
        "Writes wait until something is destaged. `limited_by` says what destaging waits for. **Alarm.**",
    ),
    (
        LogState::Failed,
        "The flash of the log failed. Forebay destages what the log has, and writes no more to it. `failure` has the error. **Alarm.**",
    ),
    (
        LogState::Lost,
        "Dirty data cannot be read, or progress cannot be noted. The disk answers every request with an error. **Alarm.**",
    ),
];

const LIMIT: [(DestageLimit, &str); 18] = [
    (DestageLimit::Nothing, "Primary storage has everything."),
    (DestageLimit::LogLost, "The log is lost."),
    (DestageLimit::Paused, "An administrator paused destaging."),
    (DestageLimit::Held, "`disk quiesce` holds destaging for a moment, or a disk becomes longer."),
    (DestageLimit::PrimaryLost, "Primary storage is not there."),
    (DestageLimit::PrimaryErrors, "Primary storage answers with errors. Forebay tries again."),
    (DestageLimit::LogReadErrors, "The log cannot be read. Forebay tries again."),
    (DestageLimit::NoteErrors, "Progress cannot be noted on flash. Forebay tries again."),
    (
        DestageLimit::JournalErrors,
        "The destage journal cannot be written. Forebay tries again, then goes on without it.",
    ),
    (DestageLimit::Journal, "The destage journal is being written, or flushed."),
    (DestageLimit::RetryPause, "An I/O failed a moment ago. Forebay tries again after a pause."),
    (DestageLimit::PrimaryFlush, "A flush of primary storage is under way."),
    (DestageLimit::PrimaryStorage, "Primary storage takes no more at a time."),
    (DestageLimit::LogCommit, "The next records are not durable in the log yet."),
    (
        DestageLimit::OpenEpoch,
        "The guest has not ended the epoch. Forebay waits a moment, because the guest may write the same pages again.",
    ),
    (
        DestageLimit::EpochOrder,
        "Each epoch waits for the one before it. A destage journal lifts that: image files have one, others with `--destage-journal`.",
    ),
    (DestageLimit::GuestReads, "Reads of the guest come first."),
    (DestageLimit::RateLimit, "`--max-destage-rate` is reached."),
];

const TIER: [(TierState, &str); 3] = [
    (TierState::None, "The disk has no such tier."),
    (TierState::Active, "The tier caches."),
    (
        TierState::Failed,
        "The tier was given up after errors of its device. The disk goes on without it. `failure` has the error. **Alarm.**",
    ),
];

const INDEX: [(IndexState, &str); 3] = [
    (IndexState::Recorded, "The index is written as the cache changes."),
    (
        IndexState::GivenUp,
        "The index could not be written. The next start begins with an empty cache. **Alarm.**",
    ),
    (IndexState::Closed, "The index was written for the last time. The disk has ended."),
];

const PRIMARY: [(PrimaryState, &str); 4] = [
    (PrimaryState::Connected, "Primary storage serves."),
    (
        PrimaryState::HoldsWrites,
        "Primary storage serves reads. Writes wait until what a killed run sent can land no more.",
    ),
    (
        PrimaryState::Fails,
        "Primary storage answers some I/Os with errors. `primary_errors` has them. **Alarm.**",
    ),
    (
        PrimaryState::Lost,
        "Primary storage is not there, or the disk cannot be opened again, and I/O waits. `primary_trouble` says why. **Alarm.**",
    ),
];

pub(super) fn page() -> String {
    let mut page = String::from(
        "# States\n\n\
         `forebay stats DISK --json` gives each state as a code. A code keeps its meaning from version to\n\
         version. The commands print words instead, which may change.\n",
    );
    let log = |state| messages::log(&LogStatistics { state, ..LogStatistics::default() });
    section(&mut page, "Write log: `log.state`", &LOG, log);
    section(&mut page, "Destaging: `log.limited_by`", &LIMIT, |it| messages::limit(it).to_owned());
    let tier = |state| {
        messages::tier(&forebay_core::stats::TierStatistics { state, ..Default::default() })
    };
    section(&mut page, "Cache: `ram.state`, `flash.state`", &TIER, tier);
    section(&mut page, "Index of the cache: `ring.state`", &INDEX, |it| {
        messages::index(it).to_owned()
    });
    let primary = |primary_storage| {
        messages::primary_storage(&crate::daemon::api::DiskStats {
            primary_storage,
            ..Default::default()
        })
    };
    section(&mut page, "Primary storage: `primary_storage`", &PRIMARY, primary);
    page
}

fn section<T: Copy + Serialize + JsonSchema>(
    page: &mut String,
    title: &str,
    states: &[(T, &str)],
    words: impl Fn(T) -> String,
) {
    let _ = write!(page, "\n## {title}\n\n| code | shown as | meaning |\n|---|---|---|\n");
    let all = schemars::schema_for!(T);
    let all = all.get("oneOf").and_then(Value::as_array).map(Vec::len);
    assert_eq!(all, Some(states.len()), "{title}: every state has its row");
    for (state, meaning) in states {
        let code = serde_json::to_value(state).expect("a state is a word");
        let code = code.as_str().expect("a state is a word");
        let _ = writeln!(page, "| `{code}` | {} | {meaning} |", words(*state).trim_end());
    }
}
