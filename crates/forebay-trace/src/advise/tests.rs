use super::random::pattern_from;
use super::{
    Advice, BLOCK_SIZES, Disk, Known, Latencies, Latency, POLICIES, SIZE_MAX, Settings, Share,
    Verdict, Winner, Writes, advise, study,
};
use crate::mrc::{self, key_of};
use crate::record::{Op, Record};
use crate::simulate::{self, SimulatedPolicy, simulate};
use crate::workload::{self, Workload};
use crate::{Error, ErrorKind};
use forebay_core::config::{GridOffset, Mode};
use forebay_core::mrc::Sampler;
use forebay_core::splitmix::Rng;

const MIB: u64 = 1 << 20;
const NOTHING: Known =
    Known { ram: None, flash: None, flash_write: None, backend: None, backend_write: None };
pub(super) const POOL: Settings = Settings { ram: 0, flash: 1 << 40, known: NOTHING };

/// Primary storage takes this.
fn of_backend(ns: f64) -> Settings {
    Settings { known: Known { backend: Some(Latency::of_mean(ns)), ..NOTHING }, ..POOL }
}

fn of_backend_write(ns: f64) -> Settings {
    Settings { known: Known { backend_write: Some(Latency::of_mean(ns)), ..NOTHING }, ..POOL }
}

/// Requests of 8 KiB at these blocks, one a millisecond.
pub(super) fn requests(op: Op, blocks: impl Iterator<Item = u64>) -> Vec<Record> {
    let record = |(n, block): (u64, u64)| Record {
        time_ns: n * 1_000_000,
        op,
        offset: block * 8192,
        len: 8192,
        device: 0,
        latency_ns: None,
    };
    (0..).zip(blocks).map(record).collect()
}

/// Blocks all over a disk, without an order.
pub(super) fn random(n: u64, blocks: u64) -> impl Iterator<Item = u64> {
    let mut random = Rng::new(0);
    (0..n).map(move |_| random.below(blocks))
}

pub(super) fn read(records: &[Record]) -> impl Iterator<Item = Result<Record, Error>> {
    records.iter().copied().map(Ok)
}

pub(super) fn studied(records: &[Record], settings: &Settings) -> Disk {
    study("disk", || Ok(read(records)), settings).unwrap()
}

fn advised(records: &[Record], settings: &Settings) -> Advice {
    advise(&[studied(records, settings)], settings).unwrap().pop().unwrap()
}

pub(super) fn mixed(seed: u64) -> Vec<Record> {
    let interval_ns_mean = 1_000_000;
    let settings =
        workload::Settings { disk_bytes: 256 * MIB, requests: 8_000, interval_ns_mean, seed };
    Workload::new(settings).collect()
}

#[test]
fn a_loop_gets_a_cache_that_holds_it_and_no_more() {
    let records = requests(Op::Read, (0..20_000).map(|n| n % 1000));
    let advice = advised(&records, &POOL);
    let plan = advice.plan.unwrap();
    assert_eq!((plan.ram, advice.mode), (0, Mode::WriteThrough));
    assert!((8_192_000..=8_192_000 * 2).contains(&plan.flash), "{plan:?}");
    assert!((plan.hit_ratio - 0.95).abs() < 0.001, "{plan:?}");
    assert_eq!(advice.writes, Writes::Few);
    assert!(advice.sentence.contains("94–100 % of reads hit, 5.00 ms → 3"), "{}", advice.sentence);
    let in_ram = advised(&records, &Settings { ram: 64 * MIB, ..POOL }).plan.unwrap();
    assert_eq!(in_ram.flash, 0, "what fits into RAM needs no flash");
}

#[test]
fn nothing_is_advised_where_nothing_is_gained() {
    let check = |records: &[Record], settings: &Settings, expect: Verdict| {
        let advice = advised(records, settings);
        assert_eq!((advice.verdict, advice.mode), (expect, Mode::Monitor), "{}", advice.sentence);
        assert_eq!((advice.plan, advice.before), (None, advice.after));
    };
    check(&[], &POOL, Verdict::Empty);
    check(&requests(Op::Read, 0..20_000), &POOL, Verdict::Scan);
    // A loop of 64 MiB over 4 MiB of cache, and random reads of it.
    let small = Settings { flash: 4 * MIB, ..POOL };
    for records in [
        requests(Op::Read, (0..40_000).map(|n| n % 8192)),
        requests(Op::Read, random(30_000, 8192)),
    ] {
        let verdict = advised(&records, &small).verdict;
        let Verdict::DoesNotFit { needed } = verdict else { panic!("{verdict:?}") };
        assert!(needed > 4 * MIB && needed <= 128 * MIB, "{needed}");
        check(&records, &small, verdict);
        let large = advised(&records, &POOL);
        assert_eq!(large.verdict, Verdict::Cache, "{}", large.sentence);
    }
    let again = requests(Op::Read, (0..20_000).map(|n| n % 1000));
    check(&again, &of_backend(90_000.0), Verdict::NoGain);
}

#[test]
fn a_stream_of_writes_gets_a_log_where_primary_storage_keeps_up() {
    let records = requests(Op::Write, random(20_000, 1 << 20));
    let check = |settings: Settings, expect: Writes, mode: Mode| {
        let advice = advised(&records, &settings);
        assert_eq!((advice.verdict, advice.writes), (Verdict::NoReads, expect));
        assert_eq!((advice.mode, advice.plan), (mode, None), "{}", advice.sentence);
    };
    check(POOL, Writes::Log { bytes: 64 * MIB }, Mode::WriteOnly);
    check(Settings { flash: MIB, ..POOL }, Writes::NoFlash, Mode::Monitor);
    // 1000 writes a second come; 16 at once of 20 ms are 800.
    check(of_backend_write(20_000_000.0), Writes::TooMany, Mode::Monitor);
    check(of_backend_write(94_000.0), Writes::NoGain, Mode::Monitor);
    let mut timeless = records;
    timeless.iter_mut().for_each(|record| record.time_ns = 0);
    assert_eq!(advised(&timeless, &POOL).writes, Writes::NoTimes);
}

#[test]
fn a_log_does_not_take_the_flash_that_reads_gain_more_from() {
    // A loop of 100 MiB with a few writes.
    let mut records = requests(Op::Read, (0..38_400).map(|n| n % 12_800));
    records.iter_mut().step_by(20).for_each(|record| record.op = Op::Write);
    let tight = advised(&records, &Settings { flash: 128 * MIB, ..POOL });
    assert_eq!((tight.writes, tight.mode), (Writes::CacheGainsMore, Mode::WriteThrough));
    assert!(tight.plan.as_ref().unwrap().flash > 64 * MIB);
    let words = "Writes: as before, the flash of a log gains more as read cache.";
    assert!(tight.sentence.ends_with(words), "{}", tight.sentence);
    let mut of_ram = tight;
    let plan = of_ram.plan.as_mut().unwrap();
    (plan.ram, plan.flash) = (plan.flash, 0);
    let sentence = super::words::sentence(&of_ram);
    let words = "Writes: as before, the cache does better without a log.";
    assert!(sentence.ends_with(words), "{sentence}");
    let roomy = advised(&records, &Settings { flash: 192 * MIB, ..POOL });
    assert_eq!((roomy.writes, roomy.mode), (Writes::Log { bytes: 64 * MIB }, Mode::WriteBack));
}

#[test]
fn the_advice_is_within_3_percent_of_the_best_of_all_simulations() {
    for (seed, flash) in [(1, 8 * MIB), (2, 24 * MIB), (3, 1 << 40)] {
        let records = mixed(seed);
        let settings = Settings { flash, ..POOL };
        let advice = advised(&records, &settings);
        let plan = advice.plan.expect("it has a hot area");
        let mean = |block_size: u64, cache_size: u64, policy| {
            let grid_offset = GridOffset::Fixed(0);
            let settings = simulate::Settings { cache_size, block_size, policy, grid_offset };
            let hits = simulate(read(&records), &settings).unwrap().read_request_hit_ratio;
            hits * advice.latencies.flash.mean_ns + (1.0 - hits) * advice.latencies.backend.mean_ns
        };
        let mut best = f64::MAX;
        for block_size in BLOCK_SIZES {
            for policy in POLICIES.map(SimulatedPolicy::Online) {
                for cache_size in [2, 4, 8, 12, 16, 20, 24, 32, 64, 128, 512].map(|n| n * MIB) {
                    if cache_size <= flash {
                        best = best.min(mean(block_size, cache_size, policy));
                    }
                }
            }
        }
        let policy = plan.policy.parse().unwrap();
        let reached = mean(plan.block_size, plan.flash, policy);
        assert!((reached / plan.read.mean_ns - 1.0).abs() < 1e-9, "what was said is so");
        assert!(reached <= best * 1.03, "seed {seed}: {reached} beside {best}");
    }
}

#[test]
fn a_pool_goes_to_whoever_gains_from_it() {
    let again = requests(Op::Read, (0..20_000).map(|n| n % 1000));
    let settings = Settings { flash: 16 * MIB, ram: 16 * MIB, ..POOL };
    let disks = [
        studied(&requests(Op::Read, 0..20_000), &settings),
        studied(&again, &settings),
        studied(&requests(Op::Read, random(30_000, 8192)), &settings),
    ];
    let advices = advise(&disks, &settings).unwrap();
    let verdicts: Vec<_> = advices.iter().map(|advice| advice.verdict).collect();
    assert_eq!(verdicts[..2], [Verdict::Scan, Verdict::Cache], "{advices:?}");
    let taken = |of: &dyn Fn(&super::Plan) -> u64| -> u64 {
        advices.iter().filter_map(|advice| advice.plan.as_ref()).map(of).sum()
    };
    assert!(taken(&|plan| plan.ram) <= settings.ram);
    assert!(taken(&|plan| plan.flash) <= settings.flash);
    let plan = advices[1].plan.as_ref().unwrap();
    assert!(plan.hit_ratio > 0.94, "{plan:?}");
}

#[test]
fn a_trace_is_read_as_often_as_it_is_said() {
    let records = requests(Op::Read, (0..2000).map(|n| n % 100));
    let mut readings = 0;
    let open = || {
        readings += 1;
        Ok(read(&records))
    };
    study("disk", open, &POOL).unwrap();
    assert_eq!(readings, super::READINGS);
}

#[test]
fn a_trace_that_has_latencies_is_believed_unless_told_otherwise() {
    let mut records = requests(Op::Read, (0..2000).map(|n| n % 1000));
    records.iter_mut().for_each(|record| record.latency_ns = Some(2_000_000));
    let of = |settings: &Settings| studied(&records, settings).latencies.backend.mean_ns;
    assert!((of(&POOL) / 2e6 - 1.0).abs() < 0.001);
    assert_eq!(of(&of_backend(7e6)), 7e6);
}

#[test]
fn ram_that_was_measured_on_a_busy_host_is_not_slower_than_flash_that_was_not() {
    let records = requests(Op::Read, (0..20_000).map(|n| n % 1000));
    let known = Known { ram: Some(Latency::of_mean(150_000.0)), ..Known::default() };
    let disk = studied(&records, &Settings { known, ..POOL });
    let Latencies { ram, flash, flash_write, .. } = disk.latencies;
    assert_eq!((ram.mean_ns, flash.mean_ns, flash_write.mean_ns), (150e3, 239e3, 233e3));
}

#[test]
fn what_only_takes_cheap_reads_away_is_no_gain() {
    // Nine of ten reads are of the same blocks, and the array has them at hand; the others are dear.
    let again =
        requests(Op::Read, (0..20_000).map(|n| if n % 10 == 0 { 5000 + n } else { n % 500 }));
    let with = |cheap: u64| {
        let mut records = again.clone();
        for record in &mut records {
            let is_dear = record.offset >= 5000 * 8192;
            record.latency_ns = Some(if is_dear { 10_000_000 } else { cheap });
        }
        advised(&records, &POOL)
    };
    let none = with(110_000);
    assert_eq!(none.verdict, Verdict::NoGain, "{}", none.sentence);
    let plan = with(5_000_000).plan.unwrap();
    let expect = 0.9 * 100_000.0 + 0.1 * 10e6;
    assert!((plan.read.mean_ns / expect - 1.0).abs() < 0.2, "{plan:?}");
}

/// A loop over 8 MiB, read so often.
fn looped(name: &str, reads: u64, settings: &Settings) -> Disk {
    let records = requests(Op::Read, (0..reads).map(|n| n % 1000));
    study(name, || Ok(read(&records)), settings).unwrap()
}

#[test]
fn who_loses_the_division_is_told_to_whom_and_what_it_would_gain() {
    // For one of them, and a sixteenth of the other.
    let settings = Settings { flash: 17 * MIB / 2, ..POOL };
    let once = requests(Op::Read, 0..20_000);
    let disks = ["few", "many", "scan"].map(|name| match name {
        "few" => looped(name, 20_000, &settings),
        "many" => looped(name, 40_000, &settings),
        _ => study(name, || Ok(read(&once)), &settings).unwrap(),
    });
    let [few, many, scan] = <[Advice; 3]>::try_from(advise(&disks, &settings).unwrap()).unwrap();
    let has = many.used();
    assert!((8 * MIB..=9 * MIB).contains(&has.flash), "{many:?}");
    assert_eq!((few.verdict, few.mode, &few.plan), (Verdict::GoesToOthers, Mode::Monitor, &None));
    let winner = Winner { name: "many".into(), has, reserved: Share::default() };
    assert_eq!(few.goes_to, [winner]);
    assert!(few.forgone.as_ref().unwrap().hit_ratio > 0.94, "{few:?}");
    let words = "goes to many (8 MiB of flash, gains more); with 8 MiB of flash 95 % of reads would hit, 5.00 ms → 3";
    assert!(few.sentence.contains(words), "{}", few.sentence);
    assert_eq!((scan.verdict, scan.goes_to), (Verdict::Scan, Vec::new()));
    // Alone it does not fit either: nobody took it away.
    let small = Settings { flash: MIB / 2, ..POOL };
    let advices = advise(&disks, &small).unwrap();
    assert!(matches!(advices[0].verdict, Verdict::DoesNotFit { .. }), "{advices:?}");
}

#[test]
fn what_a_disk_reserved_is_its_own_and_no_more_than_there_is() {
    let settings = Settings { flash: 12 * MIB, ..POOL };
    let of_flash = |flash| Share { ram: 0, flash };
    let studied = [looped("few", 20_000, &settings), looped("many", 40_000, &settings)];
    let with = |few: Share, many: Share| {
        let mut disks = studied.clone();
        (disks[0].reserved, disks[1].reserved) = (few, many);
        advise(&disks, &settings)
    };
    let none = Share::default();
    let advices = with(none, none).unwrap();
    assert!(advices[0].used().flash < 8 * MIB && advices[1].used() == of_flash(8 * MIB));
    // Between two sizes that are tried.
    let advices = with(of_flash(23 * MIB / 2), none).unwrap();
    assert_eq!(advices[0].verdict, Verdict::Cache, "{}", advices[0].sentence);
    assert_eq!(advices[0].used(), of_flash(8 * MIB));
    assert_eq!((advices[0].share.flash, advices[0].reserved.flash), (23 * MIB / 2, 23 * MIB / 2));
    assert_eq!((advices[1].verdict, advices[1].share.flash), (Verdict::GoesToOthers, 0));
    assert_eq!(advices[1].goes_to[0].has, of_flash(23 * MIB / 2));
    assert_eq!(advices[1].goes_to[0].reserved, of_flash(23 * MIB / 2));
    let sentence = &advices[1].sentence;
    assert!(sentence.contains("goes to few (11.5 MiB of flash, reserved)"), "{sentence}");
    let unused = "; of the 11.5 MiB of flash that are reserved 3.5 MiB are of no use to it.";
    assert!(advices[0].sentence.ends_with(unused), "{}", advices[0].sentence);
    for (few, many, says) in [
        (of_flash(8 * MIB), of_flash(5 * MIB), "13 MiB of flash are reserved, and there is 12 MiB"),
        (of_flash(u64::MAX), of_flash(u64::MAX), "of flash are reserved"),
        (Share { ram: 5 * MIB, flash: 0 }, none, "5 MiB of RAM are reserved, and there is 0 B"),
    ] {
        let error = with(few, many).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(with(of_flash(6 * MIB), of_flash(6 * MIB)).is_ok(), "all of it");
    let endless = Settings { flash: u64::MAX, ..POOL };
    let most = Share { ram: 0, flash: u64::MAX };
    assert!(super::check_reservations(&[most, most], &endless).is_err());
    assert!(super::check_reservations(&[most, none], &endless).is_ok());
}

#[test]
fn a_part_of_a_loop_is_kept_where_that_is_worth_it() {
    let disk = [looped("loop", 20_000, &POOL)];
    let with = |flash| advise(&disk, &Settings { flash, ..POOL }).unwrap().remove(0);
    // LRU would hit nothing of it.
    let half = with(4 * MIB);
    let plan = half.plan.as_ref().expect(&half.sentence);
    assert!(plan.policy == "auto" && plan.hit_ratio > 0.4, "{plan:?}");
    assert!(matches!(with(MIB / 2).verdict, Verdict::DoesNotFit { .. }));
}

#[test]
fn logs_and_reservations_fit_into_the_flash_together() {
    let writes = requests(Op::Write, random(5_000, 1 << 20));
    let settings = Settings { flash: 512 * MIB, ..POOL };
    let studied = studied(&writes, &settings);
    for reserved in [0, 100 * MIB, 300 * MIB, 512 * MIB] {
        let disk = |n: u64| {
            let mut disk = studied.clone();
            disk.reserved = Share { ram: 0, flash: if n == 0 { reserved } else { 0 } };
            disk
        };
        let advices = advise(&[0, 1, 2].map(disk), &settings).unwrap();
        let shares: u64 = advices.iter().map(|advice| advice.share.flash).sum();
        assert!(shares <= settings.flash && advices[0].share.flash >= reserved, "{advices:?}");
        let logs = advices.iter().filter(|advice| advice.writes.log_bytes() > 0).count();
        assert_eq!(logs, if reserved == 512 * MIB || reserved == 300 * MIB { 1 } else { 3 });
        assert!(advices.iter().all(|advice| advice.used().flash <= advice.share.flash));
    }
}

#[test]
fn a_handful_of_requests_is_too_little_to_advise_from() {
    let reads = |n: u64| requests(Op::Read, (0..n).map(|n| n % 10));
    let writes = |n: u64| requests(Op::Write, (0..n).map(|n| n * 7));
    let with = |some: u64, others: u64| advised(&[reads(some), writes(others)].concat(), &POOL);
    let advice = with(60, 39);
    assert_eq!((advice.verdict, advice.mode), (Verdict::TooLittle { wanted: 100 }, Mode::Monitor));
    assert_eq!(advice.options.join(" "), "--mode monitor --ram 0");
    let words = "too little to advise from: 60 reads and 39 writes, and it takes 100";
    assert!(advice.sentence.starts_with(words), "{}", advice.sentence);
    let one = with(1, 1).sentence;
    assert!(one.starts_with("too little to advise from: 1 read and 1 write, and it"), "{one}");
    // Of enough it is as uncertain as so few make it.
    let few = with(100, 0);
    let [low, high] = few.plan.as_ref().expect("it is enough").hit_ratio_range;
    assert!(low < 0.82 && high == 1.0, "{few:?}");
    let [low, _] = with(10_000, 0).plan.unwrap().hit_ratio_range;
    assert!(low > 0.98);
    let advice = with(60, 2000);
    let Writes::Log { .. } = advice.writes else { panic!("{advice:?}") };
    assert_eq!(advice.verdict, Verdict::TooLittle { wanted: 100 });
    assert!(advice.sentence.contains("60 reads are too few to tell"), "{}", advice.sentence);
    assert_eq!(with(2000, 60).writes, Writes::TooLittle { wanted: 100 });
    assert_eq!(with(20, 5000).verdict, Verdict::NoReads);
}

#[test]
fn a_random_working_set_is_cached_as_a_whole_or_not_at_all() {
    // 64 MiB.
    let disk = [studied(&requests(Op::Read, random(60_000, 8192)), &POOL)];
    let with = |mib: u64| advise(&disk, &Settings { flash: mib * MIB, ..POOL }).unwrap().remove(0);
    for mib in [8, 32, 48] {
        let advice = with(mib);
        let Verdict::DoesNotFit { needed } = advice.verdict else { panic!("{advice:?}") };
        assert_eq!((needed, advice.mode), (64 * MIB, Mode::Monitor), "{}", advice.sentence);
        let forgone = advice.forgone.as_ref().expect("the mean would be less");
        assert!(forgone.read.mean_ns < 0.9 * advice.latencies.backend.mean_ns);
        assert!(advice.sentence.contains("hardly gain; it takes 64 MiB"), "{}", advice.sentence);
    }
    assert_eq!(with(64).verdict, Verdict::Cache);
    // A log that is written beside it is no pattern of the reads.
    let beside = |(n, block): (u64, u64)| if n % 3 == 0 { (1 << 20) + n } else { block };
    let mut mixed = requests(Op::Read, (0..).zip(random(60_000, 8192)).map(beside));
    mixed.iter_mut().step_by(3).for_each(|record| record.op = Op::Write);
    let advice = advised(&mixed, &Settings { flash: 32 * MIB, ..POOL });
    assert!(matches!(advice.verdict, Verdict::DoesNotFit { .. }), "{}", advice.sentence);
    // The same with a region that is read as often as all the others: that is worth a cache.
    let one = |(n, block): (u64, u64)| if n % 2 == 0 { block } else { block % 400 };
    let records = requests(Op::Read, (0..).zip(random(60_000, 8192)).map(one));
    let advice = advised(&records, &Settings { flash: 8 * MIB, ..POOL });
    assert_eq!(advice.verdict, Verdict::Cache, "{}", advice.sentence);
}

#[test]
fn what_a_plan_leaves_goes_to_the_others() {
    // The one that is read more often would have all flash, if it were not for the RAM that holds it.
    let settings = Settings { ram: MIB, flash: MIB, ..POOL };
    let of = |name: &str, reads: u64, blocks: u64| {
        let records = requests(Op::Read, random(reads, blocks));
        study(name, || Ok(read(&records)), &settings).unwrap()
    };
    let disks = [of("much", 60_000, 100), of("little", 500, 100)];
    let [much, little] = <[Advice; 2]>::try_from(advise(&disks, &settings).unwrap()).unwrap();
    assert_eq!(much.used(), Share { ram: MIB, flash: 0 }, "{}", much.sentence);
    assert_eq!(little.used(), Share { ram: 0, flash: MIB }, "{}", little.sentence);
    // To one that has some and would gain from more, too: a loop of 4 MiB.
    let settings = Settings { flash: 4 * MIB, ..settings };
    let records = requests(Op::Read, (0..5_000).map(|n| n % 512));
    let disks = [disks[0].clone(), study("loop", || Ok(read(&records)), &settings).unwrap()];
    let advices = advise(&disks, &settings).unwrap();
    assert_eq!(advices[1].used(), Share { ram: 0, flash: 4 * MIB }, "{}", advices[1].sentence);
}

#[test]
fn what_nearly_fits_is_what_a_warm_cache_would_hit_not_what_nobody_can_rule_out() {
    // A random set of 64 MiB, of which it is uncertain by a percent and more what a cache hits.
    let disk = [studied(&requests(Op::Read, random(60_000, 8192)), &POOL)];
    for percent in [90, 95, 98] {
        let flash = 64 * MIB * percent / 100;
        let advice = advise(&disk, &Settings { flash, ..POOL }).unwrap().remove(0);
        assert!(matches!(advice.verdict, Verdict::DoesNotFit { .. }), "{}", advice.sentence);
    }
}

#[test]
fn what_would_help_is_told_of_the_tier_that_would() {
    // Flash as slow as primary storage helps nobody, RAM that does not hold it neither.
    let of_flash = Some(Latency::of_mean(5_000_000.0));
    let known = Known { flash: of_flash, ..of_backend(5_000_000.0).known };
    let settings = Settings { ram: 16 * MIB, flash: 1 << 30, known };
    let disk = [studied(&requests(Op::Read, random(60_000, 8192)), &settings)];
    let advice = advise(&disk, &settings).unwrap().remove(0);
    assert_eq!(advice.verdict, Verdict::DoesNotFit { needed: 64 * MIB }, "{}", advice.sentence);
    let all = advise(&disk, &Settings { ram: 64 * MIB, ..settings }).unwrap().remove(0);
    assert_eq!(all.used(), Share { ram: 64 * MIB, flash: 0 }, "{}", all.sentence);
    let none = advise(&disk, &Settings { ram: 0, ..settings }).unwrap().remove(0);
    assert_eq!(none.verdict, Verdict::NoGain, "{}", none.sentence);
}

#[test]
fn a_disk_with_more_than_an_engine_can_cache_is_studied_as_any_other() {
    // A sample of few blocks stands for very many: all that are used are of those that it looks at first.
    let mut sampler = Sampler::default();
    let is_first = |block: &u64| sampler.position_of(key_of(0, *block)) < u32::MAX >> 13;
    let blocks: Vec<u64> = (0..u64::MAX).filter(is_first).take(20_000).collect();
    let mut records = requests(Op::Read, blocks.iter().map(|block| block * 8));
    records.extend(records.clone());
    let disk = studied(&records, &POOL);
    let largest = disk.of_reads.points.last().unwrap().cache_size;
    assert_eq!(largest, SIZE_MAX);
    let advice = advise(&[disk], &POOL).unwrap().remove(0);
    assert_eq!(advice.verdict, Verdict::Cache, "{}", advice.sentence);
}

#[test]
fn a_pattern_is_one_whether_or_not_a_cache_holds_everything() {
    // A loop, of which LRU hits nothing unless it holds all of it.
    let mut disk = looped("loop", 20_000, &POOL);
    disk.curves.retain(|curve| curve.policy == mrc::LRU.to_string());
    let all = pattern_from(&disk);
    assert!(all < 2 * MIB, "{all}");
    for curve in disk.curves.iter_mut().chain([&mut disk.of_reads]) {
        curve.points.retain(|point| point.cache_size <= 4 * MIB);
    }
    assert_eq!(pattern_from(&disk), all);
}

#[test]
fn reads_are_counted_on_the_grid_of_the_curves() {
    let mut records = requests(Op::Read, random(5_000, 1_000));
    records.iter_mut().for_each(|record| record.offset += 3584);
    let disk = studied(&records, &POOL);
    assert_eq!((disk.curves[0].grid_offset % 4096, disk.read_uses), (3584, 10_000));
}
