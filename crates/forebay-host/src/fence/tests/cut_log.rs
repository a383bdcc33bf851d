//! A log that can be used up to its damage only, and what an administrator is told of that.

use std::sync::{Arc, Mutex};

use forebay_core::ids::GroupNumber;

use super::*;
use crate::fence::resolve::{Decision, Sides, decide};
use crate::pool::testing::note_progress;

/// A session that was killed with three writes in its log. Primary storage has them up to `flushed`, and may have them up to
/// `through`. The second one is not there any more.
fn cut(bed: &Bed, (flushed, through): (u64, u64)) -> Served {
    let mut served = bed.serve();
    let (tail, group) = (served.log.tail, served.log.found.next_group);
    for at in 0..3 {
        let place = (tail.segment, tail.page + 2 * at);
        let of = (GroupNumber(group.0 + u64::from(at)), Sequence(u64::from(at) + 1));
        testing::append(&served.pool, &served.log, place, of).unwrap();
    }
    let (number, progress) = (served.number, (Sequence(flushed), Sequence(through)));
    note_progress(&mut served.pool, number, progress).unwrap();
    let flash = File::options().write(true).open(bed.path("pool")).unwrap();
    let second = crate::pool::page_offset(served.pool.geometry(), tail.segment, tail.page + 2);
    flash.write_all_at(&[0; 4096], second).unwrap();
    served
}

fn decided(bed: &Bed, decision: &Decision) -> Result<Vec<String>> {
    decide(Arc::new(Mutex::new(bed.pool())), "db", None, decision)
}

#[test]
fn the_refusal_of_a_cut_log_names_what_can_be_decided() {
    for decision in [Decision::UseLog, Decision::DiscardLog("4KiB".into())] {
        let bed = Bed::new();
        let mut served = cut(&bed, (0, 0));
        let number = served.number;
        served.pool.close(number, EndOfSession::Lost, true, None).unwrap();
        drop(served);
        let refused = bed.examine(&mut bed.pool()).err().expect("it was lost").to_string();
        let (use_log, discard) = ("--use-log", "--discard-log 4KiB ");
        assert!(refused.contains(use_log) && refused.contains(discard), "{refused}");
        assert!(refused.contains("at least 1 writes that were durable"), "{refused}");
        decided(&bed, &decision).unwrap();
        bed.examine(&mut bed.pool()).unwrap();
    }
}

#[test]
fn whoever_uses_a_log_that_was_destaged_behind_its_damage_is_told_that_the_image_may_be_torn() {
    // The first write is left, and the second one is lost.
    for (through, is_torn) in [(0, false), (1, false), (2, true), (3, true)] {
        let bed = Bed::new();
        drop(cut(&bed, (0, through)));
        let sides = Sides::open(Arc::new(Mutex::new(bed.pool())), "db", None).unwrap();
        let said = sides.describe();
        let shown = serde_json::to_value(sides.shown()).unwrap();
        assert_eq!(shown["image_may_be_torn_with_log"], is_torn);
        drop(sides);
        let warned = decided(&bed, &Decision::UseLog).unwrap().join("; ");
        for text in [said, warned] {
            assert_eq!(text.contains("torn also with what is left"), is_torn, "{through}: {text}");
        }
    }
}
