mod wear;

use forebay_backends::model::ModelConfig;
use forebay_core::config::{
    DestageOrder, FlashAdmission, GridOffset, Mode, SequentialBypass, WriteLogConfig,
};
use forebay_core::geometry::PAGE;
use forebay_core::policy::PolicyKind;

use super::run::WhatIfRun;
use super::*;
use crate::record::Op;
use crate::simulate::{self, SimulatedPolicy};
use crate::workload::{self, Workload};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn made_up(requests: u64) -> Vec<Record> {
    let settings = workload::Settings {
        disk_bytes: 256 * MIB,
        requests,
        interval_ns_mean: 1_000_000,
        seed: 7,
    };
    Workload::new(settings).collect()
}

fn simple(latency: Nanos, iops: Option<u64>) -> ModelConfig {
    ModelConfig {
        latency: Some(latency),
        flush_latency: Some(Nanos(0)),
        iops,
        ..ModelConfig::default()
    }
}

/// Settings for a trace, on primary storage of 5 ms.
fn settings(survey: &Survey, change: impl Fn(Config) -> Config) -> Settings {
    let storage = simple(Nanos::from_millis(5), None);
    Settings {
        config: change(Config {
            grid_offset: GridOffset::Fixed(0),
            ..Config::for_disk(survey.traits())
        }),
        models: Models::new(&GivenLatencies::default(), Some(storage), survey),
        durable_writes: true,
        queue_depth: None,
        endurance: None,
    }
}

fn survey(records: &[Record]) -> Survey {
    Survey::of(records.iter().copied().map(Ok)).expect("a trace")
}

fn outcome(records: &[Record], survey: &Survey, settings: &Settings) -> Outcome {
    let open = || Ok(records.iter().copied().map(Ok));
    what_if(open, survey, settings).expect("it works")
}

/// Write-back with a log of so many MiB.
fn write_back(config: Config, order: DestageOrder, log: u32) -> Config {
    let log = WriteLogConfig { order, ..WriteLogConfig::new(256, log) };
    Config { mode: Mode::WriteBack, write_log: Some(log), ram_bytes: 16 * MIB, ..config }
}

/// Writes of distinct pages at a steady rate, for so many seconds.
fn burst(per_second: u64, seconds: u64) -> Vec<Record> {
    let write = |number: u64| Record {
        time_ns: number * SECOND / per_second,
        op: Op::Write,
        // Another order than that of the disk, so that none merges with the one before.
        offset: number * 7919 % (1 << 20) * PAGE,
        len: PAGE as u32,
        device: 0,
        latency_ns: None,
    };
    (0..per_second * seconds).map(write).collect()
}

#[test]
fn without_bypass_and_admission_it_hits_as_the_plain_simulation() {
    let records = made_up(60_000);
    let survey = survey(&records);
    // The engine puts at most 32 blocks on their way to flash at a time, and passes over others.
    for (ram, policy, bound) in [
        (true, PolicyKind::Lru, 0.005),
        (true, PolicyKind::S3Fifo, 0.005),
        (false, PolicyKind::Lru, 0.05),
    ] {
        let cache = 96 * MIB;
        let settings = Settings {
            queue_depth: Some(1),
            ..settings(&survey, |config| Config {
                block_size: 8 << 10,
                ram_bytes: if ram { cache } else { 0 },
                flash_bytes: if ram { 0 } else { cache },
                policy,
                flash_admission: FlashAdmission::Always,
                sequential_bypass: SequentialBypass::Off,
                ..config
            })
        };
        let plain = simulate::Settings {
            cache_size: cache,
            block_size: 8 << 10,
            policy: SimulatedPolicy::Online(policy),
            grid_offset: GridOffset::Fixed(0),
        };
        let plain = simulate::simulate(records.iter().copied().map(Ok), &plain).expect("it works");
        let whole = outcome(&records, &survey, &settings);
        let difference = (whole.hits.ratio - plain.read_request_hit_ratio).abs();
        assert!(
            difference < bound,
            "{policy}: {} and {}",
            whole.hits.ratio,
            plain.read_request_hit_ratio
        );
        assert!(plain.read_request_hit_ratio > 0.3, "there is something to compare");
    }
}

#[test]
fn a_burst_leaves_the_backlog_that_arithmetic_says() {
    // 4,000 writes a second for five seconds, of which storage takes 1,000.
    let records = burst(4_000, 5);
    let survey = survey(&records);
    let storage = simple(Nanos::from_millis(1), Some(1_000));
    let with = |log| Settings {
        models: Models { storage, ..settings(&survey, |config| config).models },
        ..settings(&survey, |config| write_back(config, DestageOrder::Throughput, log))
    };
    let roomy = outcome(&records, &survey, &with(512));
    let log = roomy.log.expect("there is a log");
    // Destaging begins after a second at most; a record takes a page, and each group of them one more.
    let least = 3_000 * 5 * PAGE;
    let most = (3_000 * 5 + 1_000) * 2 * PAGE;
    assert!((least..most).contains(&log.dirty_bytes_max), "{log:?}");
    assert_eq!((log.throttled_ns, log.times_full, log.acknowledgements_delayed), (0, 0, 0));
    assert!(roomy.after.writes.mean_ns < 200_000, "{roomy:#?}");
    assert!((900 * PAGE..=1_010 * PAGE).contains(&log.destage_bytes_per_second), "{log:?}");
    // What is left takes storage 15 seconds, and up to one more.
    assert!((14 * SECOND..17 * SECOND).contains(&log.drained_ns), "{log:?}");

    let tight = outcome(&records, &survey, &with(32));
    let log = tight.log.expect("there is a log");
    assert!(log.dirty_bytes_max <= 32 * MIB, "{log:?}");
    assert!(log.throttled_ns > 2 * SECOND && log.acknowledgements_delayed > 1_000, "{log:?}");
    assert!(tight.after.writes.mean_ns > SECOND / 2, "writers wait for storage: {tight:#?}");
}

#[test]
fn requests_that_wait_for_minutes_are_late_unless_the_log_lets_them_wait() {
    // 5,000 reads in a second, of which storage takes ten: the last are answered after 500 seconds.
    let mut reads = burst(5_000, 1);
    reads.iter_mut().for_each(|record| record.op = Op::Read);
    let slow = |iops| simple(Nanos::from_millis(1), Some(iops));
    let with = |records: &[Record], iops, change: &dyn Fn(Config) -> Config| {
        let survey = survey(records);
        let of = settings(&survey, change);
        let settings = Settings { models: Models { storage: slow(iops), ..of.models }, ..of };
        outcome(records, &survey, &settings)
    };
    // The engine has a place for many small ones, and for few large ones: the others wait for memory, and in front of it.
    let config = |config| Config { ram_bytes: 8 * MIB, ..config };
    let outcome = with(&reads, 10, &config);
    assert!((4_650..4_750).contains(&outcome.late), "{}", outcome.late);
    for (number, record) in (0..).zip(&mut reads) {
        (record.offset, record.len) = (number * 7919 % 8192 * MIB, MIB as u32);
    }
    let outcome = with(&reads, 10, &config);
    assert!((4_650..4_750).contains(&outcome.late), "{}", outcome.late);
    // 20,000 writes, of which storage takes a hundred a second, into a log that takes a fifth of them.
    let writes = burst(4_000, 5);
    let order = DestageOrder::Throughput;
    let outcome = with(&writes, 100, &|config| write_back(config, order, 32));
    assert!(outcome.after.writes.p50_ns > 60 * SECOND, "{:?}", outcome.after);
    assert_eq!(outcome.late, 0, "{:?}", outcome.log);
}

#[test]
fn durable_writes_are_destaged_faster_through_a_journal_that_primary_storage_pays_for() {
    let records = burst(3_000, 4);
    let survey = survey(&records);
    let [strict, journaled] = [DestageOrder::Strict, DestageOrder::Journaled].map(|order| {
        let settings = settings(&survey, |config| write_back(config, order, 64));
        let run = WhatIfRun::new(completed(settings.config), &survey, &settings, Pacing::Trace);
        run.expect("it works").run(records.iter().copied().map(Ok)).expect("it works")
    });
    let counters = journaled.statistics.counters;
    assert!(counters.journal_windows > 3, "{counters:?}");
    assert_eq!(journaled.written.journal, counters.journal_bytes);
    let injected = |run: &super::run::Ran| run.statistics.counters.injected_latency_ns;
    let (slow, fast) = (injected(&strict), injected(&journaled));
    assert!(slow > 10 * fast.max(SECOND), "{slow} ns injected in strict order, {fast} ns");
}

#[test]
fn what_flash_is_told_to_write_is_what_the_engine_counts() {
    let records = made_up(20_000);
    let survey = survey(&records);
    let settings = settings(&survey, |config| {
        let config = write_back(config, DestageOrder::Window, 64);
        Config { ram_bytes: 4 * MIB, flash_bytes: 32 * MIB, ..config }
    });
    let run = WhatIfRun::new(completed(settings.config), &survey, &settings, Pacing::Trace);
    let ran = run.expect("it works").run(records.into_iter().map(Ok)).expect("it works");
    let counters = ran.statistics.counters;
    assert_eq!(ran.written.cache, counters.flash_write_bytes);
    assert_eq!(ran.written.log, counters.log_write_bytes);
    assert_eq!(ran.written.ring, counters.ring_write_bytes);
    let destaged = counters.destage_write_bytes;
    assert_eq!(ran.written.backend, counters.backend_write_bytes + destaged);
    for bytes in [ran.written.cache, ran.written.log, ran.written.ring, ran.written.notes] {
        assert!(bytes > 0, "{:?}", ran.written);
    }
}

#[test]
fn pass_through_adds_what_a_request_takes_and_nothing_else() {
    let records = made_up(5_000);
    let survey = survey(&records);
    for mode in [Mode::Monitor, Mode::PassThrough] {
        let settings = settings(&survey, |config| Config { mode, ..config });
        // One at a time: no read finds another one in flight whose bytes it could take.
        let settings = Settings { queue_depth: Some(1), ..settings };
        let outcome = outcome(&records, &survey, &settings);
        assert_eq!(outcome.storage_before, outcome.storage_after);
        assert_eq!((outcome.hits.ratio, outcome.flash, outcome.log), (0.0, None, None));
        assert_eq!(outcome.before.reads.mean_ns, 5_000_000);
        // Requests that overlap wait for each other.
        let added = outcome.after.all.p50_ns - outcome.before.all.p50_ns;
        assert!((10_000..100_000).contains(&added), "{outcome:#?}");
    }
}

#[test]
fn a_cache_takes_load_off_storage_and_time_off_reads() {
    let records = made_up(20_000);
    let survey = survey(&records);
    let settings = Settings {
        endurance: Some(1 << 50),
        ..settings(&survey, |config| Config { ram_bytes: 8 * MIB, flash_bytes: 64 * MIB, ..config })
    };
    let outcome = outcome(&records, &survey, &settings);
    assert!(outcome.hits.ram > 0 && outcome.hits.flash > 0, "{outcome:#?}");
    assert!(outcome.storage_after.reads < outcome.storage_before.reads);
    assert!(outcome.after.reads.mean_ns < outcome.before.reads.mean_ns);
    assert_eq!(outcome.trace.reads, outcome.after.reads.count);
    assert_eq!(outcome.trace.writes, outcome.after.writes.count);
    let flash = outcome.flash.expect("there is flash");
    assert_eq!(flash.bytes, flash.cache_bytes + flash.index_bytes);
    let per_day = flash.bytes_per_day.expect("it has times");
    let drive = per_day / (64 * MIB) as f64;
    assert!((flash.drive_writes_per_day.expect("it has times") / drive - 1.0).abs() < 1e-9);
    let life = (1u64 << 50) as f64 / per_day;
    assert!((flash.lifetime_days.expect("it was given") / life - 1.0).abs() < 1e-9);
}

#[test]
fn hundred_slices_add_up_to_the_whole() {
    let records = made_up(20_050);
    let survey = survey(&records);
    let settings = settings(&survey, |config| write_back(config, DestageOrder::Window, 64));
    let outcome = outcome(&records, &survey, &settings);
    let slices = &outcome.slices;
    assert_eq!(slices.len(), 100);
    let reads: u64 = slices.iter().map(|slice| slice.reads).sum();
    let writes: u64 = slices.iter().map(|slice| slice.writes).sum();
    assert_eq!((reads, writes), (outcome.trace.reads, outcome.trace.writes));
    assert!(slices.is_sorted_by_key(|slice| slice.start_ns));
    let weighted = |of: fn(&Slice) -> u64| {
        slices.iter().map(|slice| of(slice) * slice.reads).sum::<u64>() as f64 / reads as f64
    };
    for (sum, mean) in [
        (weighted(|slice| slice.read_ns_before), outcome.before.reads.mean_ns),
        (weighted(|slice| slice.read_ns_after), outcome.after.reads.mean_ns),
    ] {
        assert!((sum - mean as f64).abs() < mean as f64 * 0.02 + 1.0, "{sum} {mean}");
    }
    let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>();
    assert_eq!(sum(|slice| slice.answered), outcome.hits.reads());
    let hits = outcome.hits.ram + outcome.hits.flash + outcome.hits.joined;
    assert_eq!(sum(|slice| slice.hits), hits);
    let warm = outcome.warm;
    assert!(warm.hit_ratio > outcome.hits.ratio && warm.reads < reads, "{warm:?}");
    let dirty = slices.iter().map(|slice| slice.dirty_bytes_max).max();
    assert_eq!(dirty, outcome.log.map(|log| log.dirty_bytes_max));
}

#[test]
fn the_same_trace_gives_the_same_outcome() {
    let records = made_up(5_000);
    let survey = survey(&records);
    let settings = Settings {
        models: Models::new(&GivenLatencies::default(), None, &survey),
        ..settings(&survey, |config| write_back(config, DestageOrder::Strict, 64))
    };
    assert_eq!(outcome(&records, &survey, &settings), outcome(&records, &survey, &settings));
}

#[test]
fn a_trace_without_times_runs_so_many_at_a_time() {
    let mut records = made_up(2_000);
    records.iter_mut().for_each(|record| record.time_ns = 0);
    let survey = survey(&records);
    let of = |queue_depth| {
        let settings = settings(&survey, |config| Config { mode: Mode::Monitor, ..config });
        outcome(&records, &survey, &Settings { queue_depth, ..settings })
    };
    let (one, four) = (of(Some(1)), of(Some(4)));
    // 5 ms and 11 µs each, one by one.
    assert_eq!(one.duration_ns, 2_000 * 5_011_000);
    assert!((3.5..4.01).contains(&(one.duration_ns as f64 / four.duration_ns as f64)));
    assert_eq!(of(None).pacing, Pacing::Closed { queue_depth: QUEUE_DEPTH });
    assert_eq!(one.flash, None);
}

#[test]
fn devices_lie_side_by_side() {
    let mut records = made_up(2_000);
    let one = survey(&records);
    let again = records.clone().into_iter().map(|record| Record { device: 9, ..record });
    records.extend(again);
    let two = survey(&records);
    assert_eq!((one.devices(), two.devices()), (1, 2));
    assert_eq!(two.traits().size, 2 * one.traits().size);
    let [first, second] = [0, 2_000].map(|at: usize| two.place(&records[at]).expect("its own"));
    assert_eq!(second.start - first.start, one.traits().size);
}

#[test]
fn requests_of_any_length_and_place_are_taken() {
    let odd = |number: u64| Record {
        time_ns: number * 1_000,
        op: if number.is_multiple_of(2) { Op::Read } else { Op::Write },
        offset: number * 777,
        len: if number == 6 { 100 << 20 } else { 1 + number as u32 * 333 },
        device: 0,
        latency_ns: None,
    };
    let records: Vec<Record> = (0..40).map(odd).collect();
    let survey = survey(&records);
    let settings = settings(&survey, |config| Config { ram_bytes: 8 * MIB, ..config });
    let outcome = outcome(&records, &survey, &settings);
    assert_eq!((outcome.after.reads.count, outcome.after.writes.count), (20, 20));
}

#[test]
fn what_cannot_work_is_refused_in_words() {
    let nothing = Survey::of(std::iter::empty()).expect_err("nothing to simulate");
    assert!(nothing.to_string().contains("no request"), "{nothing}");
    let records = made_up(10);
    let survey = survey(&records);
    let open = || Ok(records.iter().copied().map(Ok));
    for (change, says) in [
        (Config { block_size: 5000, ..Config::for_disk(survey.traits()) }, "block size 5000"),
        (
            Config { mode: Mode::WriteBack, ..Config::for_disk(survey.traits()) },
            "needs a write log",
        ),
        (
            Config { flash_bytes: 1 << 44, ..Config::for_disk(survey.traits()) },
            "use a larger block size",
        ),
    ] {
        let error = what_if(open, &survey, &settings(&survey, |_| change)).expect_err(says);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
    // Another trace than was looked at.
    let far = Record { offset: 1 << 50, ..records[0] };
    let error = what_if(|| Ok([Ok(far)].into_iter()), &survey, &settings(&survey, |config| config));
    assert!(error.expect_err("it has changed").to_string().contains("changed while it was read"));
}

#[test]
fn what_takes_longer_than_anybody_lives_is_refused() {
    let refusal = |records: &[Record], change: &dyn Fn(Settings) -> Settings| {
        let survey = survey(records);
        let settings = change(settings(&survey, |config| config));
        let error = what_if(|| Ok(records.iter().copied().map(Ok)), &survey, &settings);
        let error = error.expect_err("it takes too long");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let at = |time_ns| Record {
        time_ns,
        op: Op::Read,
        offset: 0,
        len: 4096,
        device: 0,
        latency_ns: Some(1 << 60),
    };
    // Responses of the trace, and latencies that are told.
    let slow: Vec<Record> = (0..200).map(at).collect();
    let survey = survey(&slow);
    let of_trace = Models::new(&GivenLatencies::default(), None, &survey);
    let error = refusal(&slow, &|settings| Settings { models: of_trace, ..settings });
    assert!(error.contains("a read of primary storage cannot take 1152921504 s"), "{error}");
    assert!(error.contains("--backend-latency"), "{error}");
    for ns in [ModelConfig::LATENCY_MAX.0 + 1, u64::MAX] {
        let told = |told: GivenLatencies| {
            let models = Models::new(&told, None, &survey);
            refusal(&slow, &|settings| Settings { models, ..settings })
        };
        let (some, fast) = (Some(ns), Some(1000));
        let backend_ns = fast;
        let of = GivenLatencies { backend_ns, ..GivenLatencies::default() };
        for (error, option) in [
            (told(GivenLatencies { ram_ns: some, ..of }), "--ram-latency"),
            (told(GivenLatencies { backend_write_ns: some, ..of }), "--backend-write-latency"),
            (told(GivenLatencies { ram_ns: Some(0), flash_ns: some, ..of }), "--flash-latency"),
            (
                told(GivenLatencies { ram_ns: Some(0), flash_write_ns: some, ..of }),
                "--flash-write-latency",
            ),
        ] {
            assert!(error.contains(option), "{error}");
        }
    }
    // Times of the trace, and requests that wait for each other.
    for last in [200 * 365 * 24 * 3600 * SECOND / 2 + 1, u64::MAX] {
        let error = refusal(&[at(0), at(last)], &|settings| settings);
        assert!(error.contains("request 2 of the trace comes, or waits"), "{error}");
    }
    let hour = simple(ModelConfig::LATENCY_MAX, None);
    let many: Vec<Record> =
        (0..100 * 365 * 24 + 2).map(|n| Record { offset: n << 14, ..at(n) }).collect();
    let error = refusal(&many, &|settings| Settings {
        models: Models { storage: hour, ..settings.models },
        queue_depth: Some(1),
        ..settings
    });
    assert!(error.contains("request 876001 of the trace comes, or waits"), "{error}");
}
