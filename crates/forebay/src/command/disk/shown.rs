//! How a disk is, for people.

use std::fmt::Write as _;

use forebay_backends::size::rounded;
use forebay_core::config::DestageOrder;
use forebay_core::stats::{
    Counters, DestageLimit, JournalStatistics, LogStatistics, RecorderStatistics, Statistics,
    TierState,
};

use crate::command::observed;
use crate::command::table::{count, of, percent, time};
use crate::daemon::api::{Curves, DiskStats, VhostUserInfo};
use crate::messages;

/// All of it.
pub(super) fn describe(stats: &DiskStats, expectations: Option<&Curves>) -> String {
    let engine = &stats.engine;
    let mut text = format!("disk {}: {}", stats.name, engine.mode_actual);
    if engine.mode != engine.mode_actual {
        let _ = write!(text, " ({} was asked for)", engine.mode);
    }
    let _ = writeln!(text, ", {}", rounded(engine.disk_size));
    if stats.is_detaching {
        let _ = writeln!(
            text,
            "  DETACHING         no client may attach, and it ends when everything is destaged; 'forebay disk resume {}' \
             cancels that",
            stats.name
        );
    }
    let _ = writeln!(text, "  primary storage   {}", messages::primary_storage(stats));
    if let Some(last) = &engine.last_failed_request {
        let _ = writeln!(
            text,
            "  requests failed   {}; the last one: {} at byte {}, {} bytes: {}",
            count(engine.counters.requests_failed),
            messages::request(last.operation),
            last.offset,
            last.length,
            last.status
        );
    }
    if let Some(evidence) = &stats.evidence {
        let _ = writeln!(text, "  evidence at start {evidence}");
    }
    if let Some(what) = &stats.storage_changed {
        let _ = writeln!(text, "  PRIMARY STORAGE   {what}");
    }
    if let Some(why) = &stats.unguarded {
        let _ = writeln!(text, "  NOT LOCKED        {why}");
    }
    text += &of_flash(engine);
    if let Some(device) = &stats.vhost_user {
        describe_device(device, &mut text);
    }
    if let Some(known) = expectations {
        let unless = match engine.mode_actual.caches() && !engine.mode_actual.keeps_reads() {
            true => format!("; {} keeps no reads", engine.mode_actual),
            false => String::new(),
        };
        let _ = writeln!(text, "  reads would hit   {} (LRU{unless})", observed::expected(known));
    }
    if let Some(recorder) = &engine.recorder {
        let _ = writeln!(text, "  flight recorder   {}", recorded(recorder));
    }
    let Some(log) = &engine.log else {
        let _ = writeln!(text, "  write log         none");
        return text;
    };
    let _ = writeln!(text, "  write log         {}", messages::log(log));
    if log.deferred_ns > 0 {
        let _ = writeln!(
            text,
            "  DEFERRED FLUSHES  a loss of power loses up to {} of flushed writes; agreed to when it was started",
            time(log.deferred_ns)
        );
    }
    let _ = writeln!(
        text,
        "  dirty             {}; primary storage is {}{} behind, order {}",
        rounded(log.dirty_bytes),
        if log.primary_age_is_at_least { "at least " } else { "" },
        time(log.primary_age_ns),
        log.order
    );
    if let Some(journal) = &log.journal {
        let _ =
            writeln!(text, "  destage journal   {}", of_journal(log, journal, &engine.counters));
    }
    let has_journal = log.journal.is_some_and(|journal| journal.is_needed);
    if !log.primary_is_consistent && !has_journal {
        let _ = writeln!(
            text,
            "  NOT CONSISTENT    primary storage alone cannot be mounted safely now: a part of what several flushes divide is on it"
        );
    }
    let _ = writeln!(
        text,
        "  occupancy         {} of {} ({} leased)",
        percent(log.occupied_bytes, log.capacity_bytes),
        rounded(log.capacity_bytes),
        rounded(log.leased_bytes)
    );
    let _ = writeln!(
        text,
        "  destaging         {}, {} a write; {} of {} writes outstanding",
        match log.destage_bytes_per_second {
            0 => "nothing lately".to_owned(),
            rate => format!("{}/s", rounded(rate)),
        },
        time(log.destage_latency_ns),
        log.outstanding,
        log.outstanding_limit
    );
    let _ = writeln!(text, "  limited by        {}", limit(log));
    let _ = writeln!(
        text,
        "  injected latency  {} now; waiting for room: {}",
        time(log.injected_latency_ns),
        of(log.writes_waiting, "write")
    );
    let c = &engine.counters;
    let _ = writeln!(
        text,
        "  since the start   {} destaged in {}, {}; the log was flushed {}",
        rounded(c.destage_write_bytes),
        of(c.destage_writes, "write"),
        of(c.destage_errors, "error"),
        of(c.log_flushes, "time")
    );
    text
}

/// What is out of the ordinary with the cache on flash.
fn of_flash(engine: &Statistics) -> String {
    let Some(trouble) = messages::flash_trouble(engine) else { return String::new() };
    let why = match engine.flash.state {
        TierState::Failed => messages::tier(&engine.flash),
        TierState::None | TierState::Active => {
            "what flash caches cannot be recorded: the next start begins with an empty cache"
                .to_owned()
        }
    };
    format!("  {trouble:<18}{why}\n")
}

/// What the destage journal does, and is worth now.
fn of_journal(log: &LogStatistics, journal: &JournalStatistics, counters: &Counters) -> String {
    if !journal.is_used {
        return "not used any more: it could not be written".to_owned();
    }
    let state = match journal.is_needed {
        true => "primary storage needs it now",
        false if log.primary_is_consistent => "empty: primary storage alone is an image",
        false => "empty",
    };
    format!(
        "{state}; {} since the start, {} written; {} at most",
        of(counters.journal_windows, "window"),
        rounded(counters.journal_bytes),
        rounded(journal.size_bytes)
    )
}

fn recorded(recorder: &RecorderStatistics) -> String {
    let memory = rounded(recorder.bytes);
    match recorder.requests {
        0 => format!("no request yet; {memory}"),
        requests => format!(
            "the last {}, which came in {}, the last of them {} ago; {memory}",
            of(requests, "request"),
            time(recorder.span_ns),
            time(recorder.idle_ns)
        ),
    }
}

fn describe_device(device: &VhostUserInfo, text: &mut String) {
    let is_there = if device.is_connected { "attached" } else { "not attached" };
    let _ = writeln!(
        text,
        "  vhost-user        {is_there}, {}; {}, {} so far",
        device.socket,
        of(device.queues.into(), "queue"),
        of(device.sessions, "hypervisor")
    );
    let _ = writeln!(
        text,
        "                    {} requests ({} replayed after a kill), {} kicks, {} calls",
        count(device.requests),
        count(device.replayed),
        count(device.kicks),
        count(device.calls)
    );
    if device.broken > 0 {
        let _ = writeln!(text, "  BROKEN RINGS      {} stopped", of(device.broken, "queue"));
    }
}

/// What limits destaging, with what could be done.
fn limit(log: &LogStatistics) -> String {
    let words = messages::limit(log.limited_by);
    if (log.limited_by, log.order) != (DestageLimit::EpochOrder, DestageOrder::Strict) {
        return words.to_owned();
    }
    let gain = match (log.without_order_writes_per_second, log.without_order_is_at_least) {
        (0, true) => {
            "what --destage-journal would gain is not known: primary storage never had more at a time".to_owned()
        }
        (0, false) => "--destage-journal would gain little".to_owned(),
        (writes, at_least) => {
            let at_least = if at_least { "at least " } else { "" };
            format!("--destage-journal would destage {at_least}{writes} writes/s")
        }
    };
    format!("{words}: {} epochs/s at {}; {gain}", log.epochs_per_second, time(log.epoch_ns))
}

#[cfg(test)]
mod tests {
    use forebay_core::stats::{IndexState, RingStatistics};

    use super::*;

    #[test]
    fn an_index_that_was_given_up_is_shown_until_all_of_flash_is() {
        let index = |state| RingStatistics { state, ..Default::default() };
        let mut engine =
            Statistics { ring: Some(index(IndexState::Recorded)), ..Default::default() };
        assert_eq!(of_flash(&engine), "");
        engine.ring = Some(index(IndexState::GivenUp));
        assert!(of_flash(&engine).starts_with("  NO INDEX          what flash caches"));
        engine.flash.state = TierState::Failed;
        assert_eq!(of_flash(&engine), "  NO FLASH          failed\n");
    }

    #[test]
    fn a_recorder_without_requests_says_so() {
        let mut recorder = RecorderStatistics { bytes: 8 << 20, ..Default::default() };
        assert_eq!(recorded(&recorder), "no request yet; 8 MiB");
        recorder.requests = 1;
        assert!(recorded(&recorder).starts_with("the last 1 request, which"));
    }
}
