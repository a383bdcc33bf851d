use forebay_core::config::Mode;
use forebay_core::stats::{LogState, LogStatistics};
use forebay_core::status::IoStatus;
use forebay_host::pool::report::SessionState;

use super::*;

#[test]
fn a_served_disk_is_told_with_what_its_shard_knows() {
    let recorded = DiskReport {
        name: "served".to_owned(),
        uuid: String::new(),
        backend: "file:/a".to_owned(),
        size: 1 << 20,
        mode: "write-through".to_owned(),
        session: SessionState::Running,
        opened: 0,
        closed: 0,
        generation: 1,
        generation_pending: 2,
        flushes_deferred: false,
        evidence: None,
        log_segments: 0,
        dirty_records: 0,
        dirty_bytes: 0,
        staged_records: 0,
        staging_fault: None,
        error: None,
        faults: Vec::new(),
        ring: None,
    };
    let log = LogStatistics {
        dirty_bytes: 8192,
        last_sequence: 9,
        durable_sequence: 8,
        destaged_sequence: 7,
        ..LogStatistics::default()
    };
    let mut now = Statistics { log: Some(log), mode: Mode::WriteBack, ..Default::default() };
    let shown = with_shard(recorded.clone(), &now);
    assert_eq!((shown.dirty_bytes, shown.dirty_records, shown.staged_records), (8192, 2, 1));
    assert!(shown.faults.is_empty() && shown.error.is_none() && shown.mode == "write-back");
    // What has failed since the start.
    let log = now.log.as_mut().unwrap();
    (log.state, log.failure) = (LogState::Failed, Some(IoStatus::IoError));
    now.counters.log_errors = 3;
    (now.flash.state, now.flash.failure) = (TierState::Failed, Some(IoStatus::IoError));
    let shown = with_shard(recorded, &now);
    assert_eq!(shown.faults.len(), 3, "{shown:?}");
    assert!(shown.error.is_some());
}
