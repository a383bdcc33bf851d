//! When windows go through the journal, and when strict order is enough.

use super::*;

/// With the patience of a disk that nobody configured.
fn patient() -> Config {
    let mut config = journaled(false);
    let log = config.write_log.as_mut().expect("a log");
    let superblock = Superblock::first(OWNER, shape());
    log.journal = Some(JournalConfig::new(superblock, Generation(1)));
    config
}

#[test]
fn epochs_that_strict_order_keeps_up_with_go_in_place_without_the_journal() {
    let mut rig = with_epochs(patient(), 3);
    for n in 0..3 {
        assert_eq!(rig.drawn(), [format!("W {}+4096", n * PIECE)]);
        rig.tick(450);
        rig.end_one(Target::Backend, IoStatus::Ok);
    }
    rig.settle_log();
    assert_eq!((rig.counters().journal_windows, rig.counters().journal_bytes), (0, 0));
}

#[test]
fn epochs_that_wait_for_more_than_a_second_go_through_the_journal() {
    let mut rig = with_epochs(patient(), 3);
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    rig.tick(1_000);
    rig.end_one(Target::Backend, IoStatus::Ok);
    assert_eq!(rig.drawn(), [payload(1, 2)]);
    rig.settle_log();
    assert_eq!(rig.places(), [101, 102, 103]);
    assert_eq!(rig.counters().journal_windows, 1);
}

#[test]
fn epochs_of_a_whole_window_go_through_the_journal_at_once() {
    let rig = with_epochs(patient(), 8);
    assert_eq!(rig.drawn(), [payload(1, 8)]);
}
