//! What a day writes to flash.

use super::*;

#[test]
fn the_flash_of_a_warm_cache_is_worn_by_what_it_is_written_then() {
    let day = 86_400.0;
    let wear = |writes: &dyn Fn(u64) -> bool, interval_ns: u64| {
        let record = |number: u64| Record {
            time_ns: number * interval_ns,
            op: if writes(number) { Op::Write } else { Op::Read },
            offset: number % 100 * PAGE,
            len: PAGE as u32,
            device: 0,
            latency_ns: None,
        };
        let records: Vec<Record> = (0..2_000).map(record).collect();
        let survey = survey(&records);
        let settings =
            settings(&survey, |config| Config { ram_bytes: 0, flash_bytes: 8 * MIB, ..config });
        outcome(&records, &survey, &settings).flash.expect("there is flash")
    };
    // 20 seconds. The first reads fill the cache, and nothing is written after them.
    let read = wear(&|_| false, 10_000_000);
    assert!(read.cache_bytes >= 100 * PAGE, "{read:?}");
    assert_eq!(read.bytes_per_day, Some(0.0), "{read:?}");
    // 500 writes in the second half, ten seconds, of a page each, and notes of them.
    let written = wear(&|number| number % 2 == 1, 10_000_000);
    let per_day = written.bytes_per_day.expect("it has times");
    let least = 500.0 * PAGE as f64 / 10.0 * day;
    assert!((least..least * 1.2).contains(&per_day), "{per_day} {least}");
    // Of less than a second nobody knows what a day is like.
    assert_eq!(wear(&|_| false, 500_000).bytes_per_day, None);
}

#[test]
fn a_batch_wears_the_flash_once_a_day_whenever_it_comes() {
    const BLOCK: u64 = 64 << 10;
    let hour = 3600 * SECOND;
    // A day, half of its requests in one hour. A hundred blocks, of which 8 MiB of flash hold all.
    let early = |number: u64| {
        number.min(1_000) * hour / 1_000 + number.saturating_sub(1_000) * hour * 23 / 1_000
    };
    let late = |number: u64| {
        number.min(1_000) * hour * 23 / 1_000 + number.saturating_sub(1_000) * hour / 1_000
    };
    let wear = |at: &dyn Fn(u64) -> u64, writes: &dyn Fn(u64) -> bool, log: bool| {
        let record = |number: u64| Record {
            time_ns: at(number),
            op: if writes(number) { Op::Write } else { Op::Read },
            offset: number / 2 % 100 * BLOCK,
            len: BLOCK as u32,
            device: 0,
            latency_ns: None,
        };
        let records: Vec<Record> = (0..=2_000).map(record).collect();
        let survey = survey(&records);
        let settings = settings(&survey, |config| match log {
            true => Config { ram_bytes: 0, ..write_back(config, DestageOrder::Strict, 64) },
            false => Config { ram_bytes: 0, flash_bytes: 8 * MIB, ..config },
        });
        outcome(&records, &survey, &settings).flash.expect("there is flash")
    };
    for at in [&early as &dyn Fn(u64) -> u64, &late] {
        // A thousand blocks in the day, and the index, of which the half with more hours writes more.
        let cached = wear(at, &|number| number % 2 == 1, false);
        let per_day = cached.bytes_per_day.expect("it has times");
        let (least, index) = ((1_000 * BLOCK) as f64, cached.index_bytes as f64);
        assert!((least..(least + 2.0 * index) * 1.01).contains(&per_day), "{cached:?}");
        // All of them in one half of the requests. A log has no fill.
        let halves: [&dyn Fn(u64) -> bool; 2] =
            [&|number| number < 1_000, &|number| number >= 1_000];
        for half in halves {
            let logged = wear(at, half, true);
            assert!(logged.log_bytes > 1_000 * BLOCK, "{logged:?}");
            assert_eq!(logged.bytes_per_day, Some(logged.bytes as f64), "{logged:?}");
        }
        // What is more than the cache holds did not fill it.
        let beyond = wear(at, &|number| number < 1_000, false);
        let least = (beyond.cache_bytes - 8 * MIB) as f64;
        assert!(least > 850.0 * BLOCK as f64, "{beyond:?}");
        assert_eq!(beyond.bytes_per_day, Some(least), "{beyond:?}");
    }
}
