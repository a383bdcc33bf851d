//! Random logs, random damage: recovery never panics, and makes up no record.

use proptest::prelude::*;

use super::world::{GROUPS_END, PAGES, World, more, write, zero};
use crate::sealed::{PAGE_LEN, seal};
use crate::write_back::format::recover::RecoveredLog;

#[derive(Clone, Debug)]
enum Step {
    Group { entries: Vec<(u64, u64, u8)>, durable_back: u64 },
    Open,
    Restart,
    Flushed(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let entry = (0..1_u64 << 20, 1..40_u64, 0..8_u8);
    prop_oneof![
        8 => (prop::collection::vec(entry, 1..12), 0..5_u64)
            .prop_map(|(entries, durable_back)| Step::Group { entries, durable_back }),
        1 => Just(Step::Open),
        1 => Just(Step::Restart),
        1 => (0..5_u64).prop_map(Step::Flushed),
    ]
}

fn run(steps: &[Step]) -> World {
    let mut world = World::new();
    world.open();
    for step in steps {
        match step {
            Step::Open => {
                world.summarize();
                world.open();
            }
            Step::Restart => drop(world.restart()),
            Step::Flushed(more) => {
                world.flushed = (world.flushed + more).min(world.next_sequence() - 1);
            }
            Step::Group { entries, durable_back } => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(start, sectors, kind)| match kind {
                        0 => zero(start * 512, sectors * 512),
                        1 => more(write(start * 512, sectors * 512)),
                        _ => write(start * 512, sectors * 512),
                    })
                    .collect();
                let pages: u64 = entries.iter().map(|entry| entry.data_pages(0)).sum();
                if world.tail().1 + 1 + pages as u32 > GROUPS_END {
                    world.summarize();
                    world.open();
                }
                let durable = (world.next_sequence() - 1).saturating_sub(*durable_back);
                world.group(&entries, durable.max(world.header_durable));
            }
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_whole_log_is_found_whole(steps in prop::collection::vec(step(), 1..30)) {
        let mut world = run(&steps);
        let log = world.recover().unwrap();
        world.check_records(&log);
        world.walk_all = true;
        let walked = RecoveredLog { report: log.report.clone(), ..world.recover().unwrap() };
        prop_assert_eq!(&log, &walked, "a summary says what a walk finds");
        let end = log.records.last().map_or(world.flushed, |record| record.sequence.0);
        let dropped = log.report.records_dropped;
        prop_assert_eq!(end.max(world.flushed) + dropped, world.next_sequence() - 1);
    }

    #[test]
    fn damage_never_brings_a_record_that_was_not_written(
        steps in prop::collection::vec(step(), 1..20),
        damage in prop::collection::vec(
            (any::<u32>(), prop_oneof![0..40_u32, GROUPS_END..PAGES], 0..PAGE_LEN, any::<u8>(), any::<bool>()), 1..6),
    ) {
        let mut world = run(&steps);
        let count = world.leased.len() as u32;
        let whole = world.recover().unwrap();
        for (segment, page, at, byte, _) in &damage {
            world.page(segment % count, *page)[*at] ^= byte;
        }
        if let Ok(log) = world.recover() {
            // A prefix of what was there: data that were durable may have rotted, and are
            // checked when they are read.
            prop_assert!(log.records.len() <= whole.records.len());
            for (found, there) in log.records.iter().zip(&whole.records) {
                prop_assert_eq!((found.sequence, found.range, found.kind, found.epoch, found.place),
                    (there.sequence, there.range, there.kind, there.epoch, there.place));
            }
        }
        // Under a right checksum the bytes may say anything, but nothing may break.
        for (segment, page, _, _, reseal) in &damage {
            if *reseal {
                seal(world.page(segment % count, *page));
            }
        }
        let _ = world.recover();
    }

    #[test]
    fn random_segments_never_break_it(
        bytes in prop::collection::vec(any::<u8>(), 4096),
        places in prop::collection::vec((0..3_u32, 0..8_u32), 0..8),
    ) {
        let mut world = World::new();
        for _ in 0..3 { world.open(); }
        for (segment, page) in places {
            world.page(segment, page).copy_from_slice(&bytes);
        }
        let log = world.recover().unwrap();
        prop_assert!(log.records.is_empty());
    }
}
