use forebay_core::config::Mode;
use forebay_core::ids::Nanos;
use forebay_core::stats::{LogStatistics, Statistics, TierState, TierStatistics};

use super::super::{Latencies, Latency};
use super::{Configuration, Outcome, Prediction, Reads};

const MS: u64 = 1_000_000;

/// 80 to 90 % hits: flash 0.1 ms, primary storage 5 ms.
fn prediction() -> Prediction {
    let [ram, flash, backend] = [10_000.0, 100_000.0, 5e6].map(Latency::of_mean);
    let latencies = Latencies {
        ram,
        flash,
        flash_write: flash,
        backend,
        backend_first: backend,
        backend_again: backend,
        backend_far: backend,
        backend_write: backend,
    };
    let at = |hits: f64| latencies.reads(0.0, hits, 0.1);
    Prediction {
        made_ms: 1,
        sentence: "64 MiB of flash".into(),
        configuration: Configuration {
            mode: Mode::WriteThrough,
            ram: 0,
            flash: 64 << 20,
            block_size: 8192,
            grid_offset: 0,
            policy: "auto".into(),
            flash_admission: Some("always".into()),
            bypass_sequential: Some("auto".into()),
            write_log: None,
        },
        reads: 10_000,
        hit_ratio_range: [0.8, 0.9],
        read_mean_range_ns: [at(0.9).mean_ns, at(0.8).mean_ns],
        read_p99_range_ns: [at(0.9).p99_ns, at(0.8).p99_ns],
        latencies,
    }
}

fn reads(hits: u64, hit_ns: u64, misses: u64, miss_ns: u64) -> Reads {
    let mut reads = Reads::default();
    reads.flash.record(Nanos(hit_ns), hits);
    reads.backend.record(Nanos(miss_ns), misses);
    reads
}

#[test]
fn what_happens_is_judged_with_its_reasons() {
    let check = |reads: &Reads, lru, outcome: Outcome, because: &[&str]| {
        let judgement = prediction().judge(reads, lru);
        assert_eq!(judgement.outcome, outcome, "{judgement:?}");
        assert_eq!(judgement.because.len(), because.len(), "{judgement:?}");
        for (reason, part) in judgement.because.iter().zip(because) {
            assert!(reason.contains(part), "{judgement:?}");
        }
    };
    let (hit, miss) = (MS / 10, 5 * MS);
    check(&Reads::default(), None, Outcome::TooEarly, &[]);
    check(&reads(85, hit, 15, miss), None, Outcome::TooEarly, &[]);
    check(&reads(8500, hit, 1500, miss), None, Outcome::AsPredicted, &[]);
    check(&reads(9800, hit, 200, miss), Some(0.97), Outcome::Better, &["fewer things"]);
    check(&reads(5000, hit, 5000, miss), Some(0.5), Outcome::Worse, &["other things"]);
    let streams = Reads { bypassed: 3000, ..reads(5000, hit, 5000, miss) };
    check(&streams, Some(0.85), Outcome::Worse, &["streams", "fewer reads"]);
    check(
        &reads(8500, hit, 1500, 9 * MS),
        None,
        Outcome::Worse,
        &["storage took 9.00 ms instead of 5.00 ms"],
    );
    check(&reads(8500, 9 * hit, 1500, 5 * MS), None, Outcome::Worse, &["flash took"]);
    // A point of a hundred less than the range, of so few that it is chance.
    check(&reads(790, hit, 210, miss), None, Outcome::AsPredicted, &[]);
    check(&reads(790_000, hit, 210_000, miss), None, Outcome::Worse, &["fewer reads"]);
}

#[test]
fn a_judgement_is_told_in_words() {
    let words = |reads: &Reads| prediction().judge(reads, None).words();
    assert_eq!(words(&Reads::default()), None);
    let text = words(&reads(8500, MS / 10, 1500, 5 * MS)).unwrap();
    assert!(text.starts_with("85.0 % of 10,000 reads hit, 835 µs on average, p99 5.0"), "{text}");
    assert!(text.ends_with(": as predicted"), "{text}");
    let text = words(&reads(8500, MS / 10, 1500, 9 * MS)).unwrap();
    assert!(text.contains("worse than predicted, because primary storage took"), "{text}");
    let text = prediction().words();
    assert_eq!(text, "80–90 % of reads hit, 590 µs to 1.08 ms on average, p99 15.0 ms");
}

#[test]
fn a_disk_is_as_advised_or_says_how_it_is_not() {
    let tier = |slots| TierStatistics { slots, ..TierStatistics::default() };
    let as_advised = Statistics {
        mode_actual: Mode::WriteThrough,
        block_size: 8192,
        policy: "auto".into(),
        flash_admission: "always".into(),
        bypass_sequential: "auto".into(),
        flash: tier((63 << 20) / 8192),
        ..Statistics::default()
    };
    let configuration = prediction().configuration;
    assert_eq!(configuration.difference(&as_advised), None);
    let check = |now: Statistics, expect: &str| {
        assert_eq!(configuration.difference(&now).as_deref(), Some(expect));
    };
    let now = || as_advised.clone();
    check(
        Statistics { mode_actual: Mode::Monitor, ..now() },
        "mode monitor, advised write-through",
    );
    check(Statistics { flash: tier(4096), ..now() }, "flash 32 MiB, advised 64 MiB");
    // It still has its slots, and caches nothing there.
    let failed = TierStatistics { state: TierState::Failed, ..now().flash };
    check(Statistics { flash: failed.clone(), ..now() }, "flash has failed");
    let without = Configuration { flash: 0, ..configuration.clone() };
    let spare = TierStatistics { slots: 0, ..failed };
    assert_eq!(without.difference(&Statistics { flash: spare, ..now() }), None, "none was advised");
    let other = Statistics { ram: tier(1), policy: "lru".into(), ..now() };
    check(other, "RAM 8 KiB, advised 0 B; policy lru, advised auto");
    let other = Statistics { flash_admission: "history".into(), ..now() };
    check(other, "flash admission history, advised always");
    let other = Statistics { bypass_sequential: "1048576".into(), ..now() };
    check(other, "bypass of streams 1 MiB, advised auto");
    let log = |bytes| LogStatistics { capacity_bytes: bytes, ..LogStatistics::default() };
    let with_log = |of| Statistics { log: of, ..now() };
    assert_eq!(configuration.difference(&with_log(Some(log(64 << 20)))), None, "it has no use");
    let logs = Configuration { write_log: Some(128 << 20), ..prediction().configuration };
    let difference = |log| logs.difference(&with_log(log));
    assert_eq!(difference(Some(log(127 << 20))), None);
    // A pool of more than 8 TiB has segments of 32 MiB, and no log has fewer than three.
    let smallest = Configuration { write_log: Some(64 << 20), ..logs.clone() };
    assert_eq!(smallest.difference(&with_log(Some(log(96 << 20)))), None);
    let less = difference(Some(log(64 << 20)));
    assert_eq!(less.as_deref(), Some("write log 64 MiB, advised 128 MiB"));
    assert_eq!(difference(None).as_deref(), Some("write log 0 B, advised 128 MiB"));
}

#[test]
fn an_advice_that_was_kept_before_all_was_compared_is_read_and_compared_by_what_it_has() {
    let mut json = serde_json::to_value(prediction()).unwrap();
    let configuration = json["configuration"].as_object_mut().unwrap();
    for later in ["flash_admission", "bypass_sequential", "write_log"] {
        configuration.remove(later).unwrap();
    }
    let kept: Prediction = serde_json::from_value(json).unwrap();
    let other = Configuration {
        flash_admission: None,
        bypass_sequential: None,
        ..prediction().configuration
    };
    assert_eq!(kept.configuration, other);
    let flash = TierStatistics { slots: (64 << 20) / 8192, ..TierStatistics::default() };
    let now = Statistics {
        mode_actual: Mode::WriteThrough,
        block_size: 8192,
        policy: "auto".into(),
        flash_admission: "history".into(),
        flash,
        ..Statistics::default()
    };
    assert_eq!(kept.configuration.difference(&now), None);
}

#[test]
fn figures_that_cannot_be_are_found() {
    assert!(prediction().is_sound());
    let check = |spoil: fn(&mut Prediction)| {
        let mut spoilt = prediction();
        spoil(&mut spoilt);
        assert!(!spoilt.is_sound(), "{spoilt:?}");
    };
    check(|of| of.hit_ratio_range = [0.9, 0.8]);
    check(|of| of.hit_ratio_range = [0.5, 1.5]);
    check(|of| of.read_mean_range_ns = [-1.0, 5.0]);
    check(|of| of.latencies.flash.p99_ns = f64::INFINITY);
    check(|of| of.configuration.block_size = 0);
    check(|of| of.sentence = "\u{1b}[2J".into());
}
