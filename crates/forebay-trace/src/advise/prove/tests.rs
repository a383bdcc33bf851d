use super::super::tests::{POOL, mixed, random, read, requests, studied};
use super::super::{Known, Settings, Share, advise};
use super::*;
use crate::record::Op;
use crate::what_if::what_if;
use forebay_core::config::{Config, DestageOrder, FlashAdmission, Mode, WriteLogConfig};

const MIB: u64 = 1 << 20;

fn proved(records: &[Record], settings: &Settings) -> Advice {
    proved_on(STRETCH, records, settings)
}

fn proved_on(stretch: usize, records: &[Record], settings: &Settings) -> Advice {
    let disk = studied(records, settings);
    let proposed = advise(std::slice::from_ref(&disk), settings).unwrap().remove(0);
    prove_on(stretch, &disk, proposed, settings, || Ok(read(records)), &|| ()).unwrap()
}

/// Runs the engine with the setup of `advice`, once more: without a journal if it needs none.
fn run_again(advice: &Advice, records: &[Record], settings: &Settings) -> crate::what_if::Outcome {
    let outcome = run_in_order(DestageOrder::Journaled, advice, records, settings);
    match outcome.log.is_some_and(|log| log.journal_windows > 0) && !advice.needs_journal {
        true => run_in_order(DestageOrder::Strict, advice, records, settings),
        false => outcome,
    }
}

fn run_in_order(
    order: DestageOrder,
    advice: &Advice,
    records: &[Record],
    settings: &Settings,
) -> crate::what_if::Outcome {
    let survey = Survey::of(read(records)).unwrap();
    let config = advice.setup.config(survey.traits());
    let write_log = config.write_log.map(|log| WriteLogConfig { order, ..log });
    let settings = crate::what_if::Settings {
        config: Config { write_log, ..config },
        models: models(settings, &survey),
        durable_writes: true,
        queue_depth: None,
        endurance: None,
    };
    what_if(|| Ok(read(records)), &survey, &settings).unwrap()
}

#[test]
fn what_is_told_is_what_the_engine_does_with_the_setup_that_is_advised() {
    let (mut modes, mut rooms) = (Vec::new(), Vec::new());
    for (seed, ram, flash) in
        [(1, 0, 8 * MIB), (2, 8 * MIB, 0), (3, 2 * MIB, 24 * MIB), (4, 0, 512 * MIB)]
    {
        let settings = Settings { ram, flash, ..POOL };
        let records = mixed(seed);
        let advice = proved(&records, &settings);
        let proof = advice.proof.as_ref().expect("something is advised");
        let plan = advice.plan.as_ref().expect("it has a hot area");
        let outcome = run_again(&advice, &records, &settings);
        assert_eq!((proof.hits, proof.warm, proof.log), (outcome.hits, outcome.warm, outcome.log));
        assert_eq!((proof.before, proof.after), (outcome.before, outcome.after));
        assert_eq!(
            (plan.hit_ratio, plan.metadata_bytes),
            (outcome.hits.ratio, outcome.metadata_bytes)
        );
        assert_eq!(plan.read.mean_ns, outcome.after.reads.mean_ns as f64);
        assert_eq!(advice.after.mean_ns, outcome.after.all.mean_ns as f64);
        assert!(advice.after.mean_ns < advice.before.mean_ns, "{}", advice.sentence);
        assert!(advice.setup.ram <= ram && advice.setup.flash + advice.setup.log <= flash);
        let says_room = advice.sentence.contains("room for the new pages that it still brings");
        assert_eq!(says_room, proof.room_bytes > 0, "{}", advice.sentence);
        rooms.push(proof.room_bytes);
        modes.push(advice.mode);
    }
    assert!(rooms.iter().any(|room| *room > 0), "the traces bring new pages to their end");
    assert!(modes.contains(&Mode::WriteBack) && modes.contains(&Mode::WriteThrough), "{modes:?}");
}

#[test]
fn a_disk_that_is_too_large_for_small_blocks_is_advised_larger_ones() {
    let hot = random(20_000, 1_000).map(|n| n * (MIB / 8192));
    let records = requests(Op::Read, hot.chain([(17 << 40) / 8192]));
    let settings = Settings { flash: 8 * MIB, ..POOL };
    let advice = proved(&records, &settings);
    assert!(advice.setup.caches() && advice.setup.block_size >= 8192, "{}", advice.sentence);
}

#[test]
fn the_advice_is_the_fastest_of_what_was_tried_or_nearly_so_and_cheaper() {
    let settings = Settings { flash: 256 * MIB, ..POOL };
    let advice = proved(&sparse(), &settings);
    let is_larger = |other: &&Plan| other.flash > advice.setup.flash;
    let larger: Vec<&Plan> = advice.alternatives.iter().filter(is_larger).collect();
    assert!(!larger.is_empty(), "{:?}", advice.alternatives);
    for other in larger {
        let gain = advice.plan.as_ref().unwrap().read.mean_ns / other.read.mean_ns - 1.0;
        assert!(gain < 0.1, "{} more: {gain}", other.flash - advice.setup.flash);
    }
    assert!(advice.proof.unwrap().trials >= 8);
}

#[test]
fn a_log_that_strict_order_would_fill_destages_through_a_journal() {
    // 1000 writes a second, each an epoch: primary storage takes 200 of them in strict order.
    let records = requests(Op::Write, random(6_000, 1 << 20));
    let advice = proved(&records, &POOL);
    assert!(advice.needs_journal && !advice.options.join(" ").contains("--destage-order"));
    assert_eq!((advice.setup.mode(), advice.plan.is_some()), (Mode::WriteOnly, false));
    // 125 writes a second, which it takes now, and not when another hour is busier; 6, which it takes then.
    let many = requests(Op::Write, random(20_000, 1 << 20));
    for (slower, needs_journal) in [(8, true), (160, false)] {
        let slow = |record: &Record| Record { time_ns: record.time_ns * slower, ..*record };
        let records: Vec<Record> = many.iter().map(slow).collect();
        let advice = proved(&records, &POOL);
        assert_eq!(advice.needs_journal, needs_journal, "{}", advice.sentence);
    }
    let proof = advice.proof.as_ref().unwrap();
    assert!(proof.after.writes.mean_ns * 10 < proof.before.writes.mean_ns, "{}", advice.sentence);
    assert_eq!(proof.log.unwrap().times_full, 0);
    assert!(advice.sentence.contains("It needs a destage journal"), "{}", advice.sentence);
}

#[test]
fn a_log_that_does_without_a_journal_is_told_of_as_it_is_without_one() {
    // A burst that strict order does not keep up with, and the log holds; then what it keeps up with 16 times as fast.
    let burst = requests(Op::Write, random(2_000, 1 << 20));
    let mut end = requests(Op::Write, random(1_000, 1 << 20));
    end.iter_mut().for_each(|record| record.time_ns *= 200);
    let records = one_after_the_other(burst, &end);
    let advice = proved_on(1_000, &records, &POOL);
    let journaled = run_in_order(DestageOrder::Journaled, &advice, &records, &POOL).log.unwrap();
    assert!(journaled.journal_windows > 0 && !advice.needs_journal, "{}", advice.sentence);
    let log = advice.proof.unwrap().log.unwrap();
    assert_eq!(log.journal_windows, 0);
    assert!(log.drained_ns > 0 && log.dirty_bytes_max > journaled.dirty_bytes_max, "{log:?}");
}

#[test]
fn a_log_of_which_the_engine_makes_nothing_is_withdrawn_with_what_it_made() {
    // By the mean of one write flash is faster by an eighth; writes in a log wait for each other.
    let flash_write = Some(Latency::of_mean(4_400_000.0));
    let settings = Settings { known: Known { flash_write, ..POOL.known }, ..POOL };
    let records = requests(Op::Write, random(10_000, 1 << 20));
    let advice = proved(&records, &settings);
    let Writes::Disproved { mean_ns, is_full } = advice.writes else { panic!("{advice:?}") };
    assert!(mean_ns > 4_500_000 && !is_full, "{}", advice.sentence);
    assert_eq!(
        (advice.mode, advice.options.join(" ").as_str()),
        (Mode::Monitor, "--mode monitor --ram 0")
    );
    let words = "Writes: as before; in a simulation a log made them 5.00 ms →";
    assert!(advice.sentence.contains(words), "{}", advice.sentence);
}

#[test]
fn a_cache_of_which_the_engine_makes_nothing_is_withdrawn_with_what_it_made() {
    // A loop that curves like, at a rate at which flash is no faster than primary storage that takes any number at once.
    let mut records = requests(Op::Read, (0..30_000).map(|n| n % 1000));
    records.iter_mut().for_each(|record| record.time_ns /= 10_000);
    let advice = proved(&records, &Settings { flash: 64 * MIB, ..POOL });
    assert_eq!(
        (advice.verdict, advice.mode),
        (Verdict::Disproved, Mode::Monitor),
        "{}",
        advice.sentence
    );
    assert_eq!((advice.plan.is_none(), advice.before == advice.after), (true, true));
    let forgone = advice.forgone.as_ref().expect("the best of them");
    assert!(forgone.read.mean_ns > 0.9 * advice.before.mean_ns);
    assert!(
        advice.sentence.starts_with("no read cache: in a simulation with"),
        "{}",
        advice.sentence
    );
}

#[test]
fn what_proposes_nothing_is_given_as_it_is() {
    let settings = POOL;
    let records = requests(Op::Read, 0..5_000);
    let disk = studied(&records, &settings);
    let proposed = advise(std::slice::from_ref(&disk), &settings).unwrap().remove(0);
    let never = || -> Result<std::iter::Empty<_>, Error> { panic!("nothing is run") };
    let given = prove(&disk, proposed.clone(), &settings, never, &|| ()).unwrap();
    assert_eq!(given, proposed);
}

#[test]
fn a_long_trace_is_compared_by_its_end_and_told_as_a_whole() {
    let settings = Settings { flash: 64 * MIB, ..POOL };
    let records = mixed(5);
    let advice = proved_on(2_000, &records, &settings);
    let proof = advice.proof.as_ref().expect("something is advised");
    let stretch = proof.stretch.expect("it is long");
    assert_eq!(stretch.requests, 2_000);
    let outcome = run_again(&advice, &records, &settings);
    assert_eq!((proof.hits, proof.after), (outcome.hits, outcome.after));
    assert!(proof.words().contains("compared by the last 2,000 requests"), "{}", proof.words());
}

#[test]
fn a_larger_cache_adds_to_what_the_same_requests_hit() {
    let settings = Settings { flash: 256 * MIB, ..POOL };
    let never_again = requests(Op::Read, (0..10_000).map(|n| (n + 2_000) * 8));
    let records = one_after_the_other(never_again, &sparse());
    let advice = proved_on(10_000, &records, &settings);
    let stretch = advice.proof.as_ref().and_then(|proof| proof.stretch).expect("it is long");
    let plan = advice.plan.as_ref().unwrap();
    let is_larger =
        |of: &&Plan| of.block_size == plan.block_size && of.larger().0 > plan.larger().0;
    let larger = advice.alternatives.iter().find(is_larger).expect("one was tried");
    let whole = (larger.hit_ratio - plan.hit_ratio) * 100.0;
    let points = (larger.hit_ratio - stretch.hit_ratio) * 100.0;
    assert!(whole - points > 1.0, "{whole} {points}");
    let points = if points < 0.05 { "nothing".to_owned() } else { format!("{points:.1} points") };
    let says = advice.sentence.contains(&format!("would add {points}"));
    assert!(says, "{points}: {}", advice.sentence);
}

/// Reads of a block of 8 KiB in every 64 KiB: larger blocks need more room. The second half has hardly any new pages.
fn sparse() -> Vec<Record> {
    requests(Op::Read, random(10_000, 1_000).map(|block| block * 8))
}

/// `before`, and then `end`.
fn one_after_the_other(before: Vec<Record>, end: &[Record]) -> Vec<Record> {
    let gap = before.last().unwrap().time_ns + 10_000_000_000 - end[0].time_ns;
    let later = |it: &Record| Record { time_ns: it.time_ns + gap, ..*it };
    before.iter().copied().chain(end.iter().map(later)).collect()
}

#[test]
fn a_log_that_fails_on_the_whole_of_a_long_trace_only_is_withdrawn_with_what_it_did_there() {
    // Writes in a log wait for each other at the beginning, and not at the end, when they come slowly.
    let flash_write = Some(Latency::of_mean(4_200_000.0));
    let settings = Settings { known: Known { flash_write, ..POOL.known }, ..POOL };
    let mut end = requests(Op::Write, random(1_000, 1 << 20));
    end.iter_mut().for_each(|record| record.time_ns *= 1_000);
    let records = one_after_the_other(requests(Op::Write, random(20_000, 1 << 20)), &end);
    let advice = proved_on(1_000, &records, &settings);
    assert_eq!(advice.mode, Mode::Monitor, "{}", advice.sentence);
    let Writes::Disproved { mean_ns, .. } = advice.writes else { panic!("{}", advice.sentence) };
    assert!(mean_ns > 4_500_000, "{}", advice.sentence);
}

#[test]
fn a_cache_that_fails_on_the_whole_of_a_long_trace_only_is_withdrawn_with_what_it_did_there() {
    let mut fast = requests(Op::Read, (0..30_000).map(|n| n % 1000));
    fast.iter_mut().for_each(|record| record.time_ns /= 10_000);
    let records = one_after_the_other(fast, &requests(Op::Read, (0..2_000).map(|n| n % 1000)));
    let advice = proved_on(2_000, &records, &Settings { flash: 64 * MIB, ..POOL });
    assert_eq!((advice.verdict, advice.mode), (Verdict::Disproved, Mode::Monitor));
    let forgone = advice.forgone.as_ref().expect("one that passed by the end");
    assert!(forgone.read.mean_ns > 0.9 * advice.before.mean_ns, "{}", advice.sentence);
    let says = advice.sentence.starts_with("no read cache: in a simulation with");
    assert!(says && !advice.sentence.contains("writes took"), "{}", advice.sentence);
    let unknown = words::sentence(&Advice { forgone: None, ..advice });
    assert!(!unknown.contains("a write log alone"), "no log is advised: {unknown}");
}

#[test]
fn a_log_that_fails_under_load_counts_as_one_that_failed_and_so_do_smaller_ones() {
    let flash_write = Some(Latency::of_mean(4_200_000.0));
    let settings = Settings { known: Known { flash_write, ..POOL.known }, ..POOL };
    let busy = requests(Op::Write, random(5_000, 1 << 20));
    let slow = |it: &Record| Record { time_ns: it.time_ns * 1_000, ..*it };
    let calm: Vec<Record> = busy.iter().map(slow).collect();
    let disk = studied(&calm, &settings);
    let [calm_survey, busy_survey] = [&calm, &busy].map(|it| Survey::of(read(it)).unwrap());
    let models = models(&settings, &calm_survey);
    let share = (Share { ram: 0, flash: POOL.flash }, POOL.flash);
    let mut search = Search::new(&disk, share, (&calm, &calm_survey), models);
    search.run(setup(&disk, None, 64 * MIB), &|| ()).unwrap();
    let mut seen = Seen { search, failures: Failures::default() };
    assert!(seen.is_any_good(Setup::logs));
    let largest = *seen.all(Setup::logs).map(|of| &of.setup).max_by_key(|of| of.log).unwrap();
    assert!(largest.log > 64 * MIB);
    let weak = Trial::run(largest, models, &busy_survey, || Ok(read(&busy))).unwrap();
    assert_eq!(weak.flaw(), Some(Flaw::Writes));
    seen.failures.weak.push(weak);
    assert!(!seen.is_any_good(Setup::logs));
    assert_eq!(seen.bad_log().and_then(Trial::flaw), Some(Flaw::Writes));
    let proposed = Writes::Log { bytes: 64 * MIB };
    assert_eq!(without_log(proposed, &seen, false), Writes::NoReserve);
}

#[test]
fn a_log_beside_a_cache_that_fails_on_the_whole_trace_is_tried_alone() {
    let mut fast = requests(Op::Read, (0..30_000).map(|n| n % 1000));
    fast.iter_mut().for_each(|record| record.time_ns /= 10_000);
    let mut end = requests(Op::Read, (0..2_000).map(|n| n % 1000));
    let writes = requests(Op::Write, random(2_000, 1 << 20));
    let later = |it: &Record| Record {
        time_ns: it.time_ns * 10 + 500_000,
        offset: it.offset + (1 << 30),
        ..*it
    };
    end.extend(writes.iter().map(later));
    end.sort_by_key(|record| record.time_ns);
    let records = one_after_the_other(fast, &end);
    let advice = proved_on(4_000, &records, &Settings { flash: 256 * MIB, ..POOL });
    assert_eq!(advice.mode, Mode::WriteOnly, "{}", advice.sentence);
    assert_eq!(advice.verdict, Verdict::Disproved, "{}", advice.sentence);
    let says = advice.sentence.starts_with("no read cache: in a simulation with");
    assert!(says, "{}", advice.sentence);
}

#[test]
fn a_log_that_is_withdrawn_leaves_the_reason_against_a_cache_as_it_is() {
    let flash_write = Some(Latency::of_mean(4_400_000.0));
    let known = Known { flash_write, ..POOL.known };
    let settings = Settings { flash: 128 * MIB, known, ..POOL };
    // Reads all over 256 MiB, and writes elsewhere.
    let mut records = requests(Op::Read, random(60_000, 32_768));
    let mut writes = requests(Op::Write, random(10_000, 1 << 20).map(|block| block + 32_768));
    writes.iter_mut().for_each(|record| record.time_ns += 500_000);
    records.extend(writes);
    records.sort_by_key(|record| record.time_ns);
    let disk = studied(&records, &settings);
    let proposed = advise(std::slice::from_ref(&disk), &settings).unwrap().remove(0);
    assert!(proposed.forgone.is_some(), "{}", proposed.sentence);
    let advice = proved(&records, &settings);
    assert!(matches!(advice.writes, Writes::Disproved { .. }), "{}", advice.sentence);
    assert_eq!((advice.verdict, &advice.forgone), (proposed.verdict, &proposed.forgone));
}

#[test]
fn the_end_of_a_long_trace_wears_the_flash_in_its_own_time() {
    let settings = Settings { flash: 64 * MIB, ..POOL };
    let records = mixed(5);
    let admission = proved(&records, &settings).setup.admission;
    assert_eq!(admission, FlashAdmission::History, "it spares the flash");
    // A request a month before the others.
    let month = 30 * 86_400 * 1_000_000_000;
    let later = |record: &Record| Record { time_ns: record.time_ns + month, ..*record };
    let long: Vec<Record> = records[..1].iter().copied().chain(records.iter().map(later)).collect();
    let advice = proved_on(records.len(), &long, &settings);
    assert_eq!(advice.setup.admission, FlashAdmission::History, "{}", advice.sentence);
}

/// Reads of a small part of a disk, of which every second one becomes a write somewhere on it.
fn written_and_read(of: u64) -> Vec<Record> {
    let mut records = requests(Op::Read, random(of, 300));
    for (record, block) in records.iter_mut().step_by(2).zip(random(of, 1 << 20)) {
        (record.op, record.offset) = (Op::Write, block * 8192);
    }
    records
}

#[test]
fn what_fills_a_cache_that_holds_everything_does_not_count_as_wear() {
    // Half of it by the first reads, the rest in the first half as well.
    let settings = Settings { flash: 16 * MIB, ..POOL };
    let advice = proved(&requests(Op::Read, random(20_000, 1_500)), &settings);
    assert_eq!(advice.setup.admission, FlashAdmission::Always, "{}", advice.sentence);
    assert!(advice.proof.unwrap().flash.unwrap().bytes > 8 * MIB);
    assert!(advice.drive_writes_per_day.unwrap() < 3.0, "{:?}", advice.drive_writes_per_day);
}

#[test]
fn disks_that_share_the_flash_spare_it_together() {
    let records = written_and_read(20_000);
    // Primary storage that writes as fast as flash: there is no log, which nothing would spare.
    let backend_write = Some(Latency::of_mean(94_000.0));
    let known = Known { backend_write, ..POOL.known };
    let settings = Settings { flash: 192 << 30, known, ..POOL };
    let disk = studied(&records, &settings);
    let wear = |disks: &[Disk]| -> Vec<f64> {
        let proposed = advise(disks, &settings).unwrap();
        let given = disks.iter().zip(proposed).map(|(disk, advice)| {
            prove_on(20_000, disk, advice, &settings, || Ok(read(&records)), &|| ()).unwrap()
        });
        given.map(|advice| advice.drive_writes_per_day.unwrap()).collect()
    };
    let alone = wear(std::slice::from_ref(&disk))[0];
    assert!((1.5..3.0).contains(&alone), "two of them would write too much: {alone}");
    let together: f64 = wear(&[disk.clone(), disk]).iter().sum();
    assert!(together < 3.0, "{together}");
}

#[test]
fn a_setup_that_wears_out_the_flash_before_the_end_of_a_long_trace_is_not_preferred() {
    let settings = Settings { flash: 32 << 30, ..POOL };
    let end = requests(Op::Read, random(10_000, 300));
    let records = one_after_the_other(written_and_read(30_000), &end);
    let advice = proved_on(10_000, &records, &settings);
    let times = advice.drive_writes_per_day.unwrap();
    assert_eq!(advice.setup.admission, FlashAdmission::History, "{}", advice.sentence);
    assert!(times < 3.0, "{times}: {}", advice.sentence);
}
