use super::*;
use forebay_core::config::{Config, DestageOrder, Mode, WriteLogConfig};

use crate::characterise::characterise;
use crate::mrc::{Sample, Settings};
use crate::record::Record;
use crate::replay::{EndedBy, Latency, Outcome, Part, Slice};
use crate::results::{CacheUse, Run};
use crate::what_if::{self, Models, Survey};
use crate::workload::{self, Workload};

fn records() -> Vec<Record> {
    let settings = workload::Settings {
        disk_bytes: 64 << 20,
        requests: 3000,
        interval_ns_mean: 100_000,
        seed: 2,
    };
    Workload::new(settings).map(|record| Record { latency_ns: Some(70_000), ..record }).collect()
}

fn all() -> impl Iterator<Item = Result<Record, crate::Error>> {
    records().into_iter().map(Ok)
}

/// Every page that there is stands alone, is closed, and has no figure that is none.
fn check(page: &str, expect: &[&str]) {
    for part in expect {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    for not in ["<script", "src=", "href=", "@import", "url(", "NaN", ">inf<", "=\"#"] {
        assert!(!page.contains(not), "{not} is in {page}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

fn run(name: &str, scale: u64) -> Run {
    let slice = |n: u64| {
        let part = |ns: u64| Part {
            count: 10,
            bytes: 40_960,
            sum_ns: ns * 10,
            max_ns: ns * 2,
            buckets: vec![(ns, 9), (ns * 2, 1)],
        };
        Slice { start_ns: n * 1_000_000, reads: part(scale * 1000 + n), writes: part(5000 + n) }
    };
    let latency = |ns: u64| Latency {
        count: 300,
        mean_ns: ns as f64,
        min_ns: ns / 2,
        p50_ns: ns,
        p90_ns: ns,
        p99_ns: ns * 2,
        p999_ns: ns * 2,
        max_ns: ns * 2,
    };
    let outcome = Outcome {
        elapsed_ns: 30_000_000,
        reads: latency(scale * 1000),
        writes: latency(5000),
        iops: 20_000.0,
        slice_ns: 1_000_000,
        slices: (0..30).map(slice).collect(),
        read_cdf: vec![(scale * 500, 0.0), (scale * 1000, 0.9), (scale * 2000, 1.0)],
        write_cdf: vec![(5000, 0.9), (10_000, 1.0)],
        histograms: characterise(all()).unwrap().remove(0).histograms,
        ..Outcome::default()
    };
    Run { name: name.to_owned(), trace: "a<b>.fbt".to_owned(), outcome, ..Run::default() }
}

#[test]
fn a_configuration_has_its_latencies_its_log_and_its_flash_on_a_page() {
    let survey = Survey::of(all()).expect("a trace");
    let log = WriteLogConfig { order: DestageOrder::Window, ..WriteLogConfig::new(256, 64) };
    let config = Config {
        mode: Mode::WriteBack,
        ram_bytes: 8 << 20,
        flash_bytes: 32 << 20,
        write_log: Some(log),
        ..Config::for_disk(survey.traits())
    };
    let settings = what_if::Settings {
        config,
        models: Models::new(&what_if::GivenLatencies::default(), None, &survey),
        durable_writes: true,
        queue_depth: None,
        endurance: Some(1 << 50),
    };
    let outcome = what_if::what_if(|| Ok(all()), &survey, &settings).expect("it works");
    let page = super::what_if("vm <1>", &outcome);
    check(
        &page,
        &[
            "vm &lt;1&gt; with write-back",
            "Mean latency of reads",
            "Mean latency of writes",
            "Dirty bytes in the write log",
            "injected latency, in all",
            "to the write log",
        ],
    );
}

#[test]
fn a_replay_has_its_figures_charts_and_notes() {
    let mut one = run("x", 1000);
    let page = replay(&one);
    check(
        &page,
        &[
            "Replay of a&lt;b&gt;.fbt",
            "1.00 ms",
            "99.9 %",
            "Latency of reads",
            "Length of requests",
            "Requests per second",
        ],
    );
    assert_eq!(page.matches("<figure>").count(), 2 + 2 + 2 + 6);
    assert!(!page.contains("class=\"warn\""));
    one.outcome.ended_by = EndedBy::Interrupt;
    one.outcome.errors = 3;
    one.cache = Some(CacheUse { reads: 300, read_hits: 240, backend_ios: 60 });
    check(&replay(&one), &["interrupted", "3 requests failed", "(80.0 %)"]);
}

#[test]
fn a_replay_of_nothing_is_a_page_too() {
    check(&replay(&Run::default()), &["0 requests"]);
}

#[test]
fn a_comparison_says_in_words_what_differs() {
    let runs = [run("before", 5000), run("with cache", 1000), run("again", 5000)];
    let page = comparison(&runs);
    let expect = [
        "with cache vs. before",
        "read latency, mean: 5.0 × shorter (",
        "write latency, mean: no significant difference",
        "circular block bootstrap",
        "the same slices are drawn",
    ];
    check(&page, &expect);
    let mut other = run("other", 1);
    other.asked.reads = 7;
    check(&comparison(&[run("before", 1), other]), &["not replays of the same requests"]);
}

#[test]
fn a_trace_has_pages_of_what_it_is_its_histograms_and_its_curves() {
    let found = crate::info::info(all(), false).unwrap();
    check(
        &info("t.fbt", &found),
        &["What t.fbt is", "3,000 requests", "Working set", "Reuse distances", "Hottest regions"],
    );
    let devices = characterise(all()).unwrap();
    check(
        &histograms("t.fbt", &devices),
        &["Device 0", "Latency", "closest of the last 16", "IO lengths of commands"],
    );
    let settings = Settings {
        policies: vec!["lru".parse().unwrap(), "s3fifo".parse().unwrap()],
        block_sizes: vec![4096],
        cache_sizes: Vec::new(),
        sample: Sample::Exact,
        grid_offset: forebay_core::config::GridOffset::Fixed(0),
    };
    let curves = crate::mrc::curves(|| Ok(all()), &settings).unwrap();
    check(
        &mrc("t.fbt", &curves),
        &[
            "Miss ratios of t.fbt",
            "lru, 4 KiB blocks",
            "s3fifo, 4 KiB blocks",
            "every reuse distance",
        ],
    );
}

#[test]
fn a_trace_of_nothing_has_pages_too() {
    let none = || std::iter::empty::<Result<Record, crate::Error>>();
    check(&info("t", &crate::info::info(none(), false).unwrap()), &["0 requests"]);
    let one = crate::info::info(all().take(1), false).unwrap();
    check(&info("t", &one), &["1 request in "]);
    check(&histograms("t", &characterise(none()).unwrap()), &["0 requests"]);
    check(&mrc("t", &[]), &["Miss ratios"]);
}

#[test]
fn an_advice_has_its_curves_with_the_advised_cache_on_them() {
    use crate::advise::{self, Known, Latency};
    let known = Known { backend: Some(Latency::of_mean(5e6)), ..Known::default() };
    let settings = advise::Settings { ram: 0, flash: 1 << 30, known };
    let disk = advise::study("a<b", || Ok(all()), &settings).unwrap();
    let advices = advise::advise(std::slice::from_ref(&disk), &settings).unwrap();
    let notes = [("recording", "a note".to_owned())];
    let told = DiskAdvice { disk: &disk, advice: &advices[0], notes: &notes };
    assert!(advices[0].plan.is_some(), "{}", advices[0].sentence);
    let page = advice(&[told]);
    check(
        &page,
        &[
            "Advice for a&lt;b",
            "of reads hit",
            "advised",
            "a note",
            "64 KiB blocks",
            "--flash POOL:",
        ],
    );
    assert_eq!(page.matches("<figure>").count(), 2);
    // In each chart for wide windows with its label, in each for narrow ones, and in the keys.
    assert_eq!(page.matches("<circle").count(), 2 * (2 + 1 + 1), "the advised cache");
    let of_long = "the other rows are of its last 1,048,576 requests";
    assert!(!page.contains(of_long), "{page}");
    let ran = advise::prove(&disk, advices[0].clone(), &settings, || Ok(all()), &|| ()).unwrap();
    let mut proof = ran.proof.clone().expect("it has a cache");
    let has_log = ran.writes.log_bytes() > 0;
    assert!(proof.after.writes.count > 0);
    let of_ran = advice(&[DiskAdvice { advice: &ran, ..told }]);
    assert_eq!(of_ran.contains("mean of writes"), has_log, "{of_ran}");
    let without = advise::Advice { writes: advise::Writes::CacheGainsMore, ..ran.clone() };
    let without = advice(&[DiskAdvice { advice: &without, ..told }]);
    assert!(!without.contains("mean of writes"), "{without}");
    proof.stretch = Some(advise::Stretch { requests: 1 << 20, hit_ratio: 0.5, mean_ns: 1 });
    let long = advise::Advice { proof: Some(proof), ..ran };
    check(&advice(&[DiskAdvice { advice: &long, ..told }]), &[of_long]);
    let two = advice(&[told, DiskAdvice { notes: &[], ..told }]);
    check(&two, &["2 disks share", "Advice for a&lt;b, a&lt;b"]);
}

#[test]
fn too_little_to_advise_from_has_no_charts_and_nothing_to_carry_out() {
    use crate::advise::{self, Known};
    let settings = advise::Settings { ram: 0, flash: 1 << 30, known: Known::default() };
    let disk = advise::study("few", || Ok(all().take(20)), &settings).unwrap();
    let advices = advise::advise(std::slice::from_ref(&disk), &settings).unwrap();
    let page = advice(&[DiskAdvice { disk: &disk, advice: &advices[0], notes: &[] }]);
    check(&page, &["Too little to advise from", "What was reckoned with"]);
    for not in ["to carry it out", "<figure>", "The figures of the advised cache"] {
        assert!(!page.contains(not), "{not}: {page}");
    }
}

/// The colours of a theme by name: the first one is light, the second one dark.
fn theme(n: usize) -> std::collections::HashMap<&'static str, [u8; 3]> {
    let block = STYLE.split(":root {").nth(n + 1).and_then(|rest| rest.split('}').next()).unwrap();
    let colour = |text: &'static str| {
        let (name, value) = text.trim().strip_prefix("--")?.split_once(": #")?;
        let value = match value.len() {
            3 => value.chars().flat_map(|digit| [digit, digit]).collect(),
            _ => value.to_owned(),
        };
        let [_, red, green, blue] = u32::from_str_radix(&value, 16).unwrap().to_be_bytes();
        Some((name, [red, green, blue]))
    };
    block.split(';').filter_map(colour).collect()
}

/// WCAG 2.2: the contrast of two colours.
fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
    let luminance = |colour: [u8; 3]| {
        let [red, green, blue] = colour.map(|part| match f64::from(part) / 255.0 {
            part if part <= 0.04045 => part / 12.92,
            part => ((part + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn text_and_lines_stand_out_in_both_themes() {
    assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
    let themes = [theme(0), theme(1)];
    let names: std::collections::BTreeSet<&str> = themes[0].keys().copied().collect();
    assert_eq!(names, themes[1].keys().copied().collect(), "each theme has all colours");
    for theme in themes {
        let check = |name: &str, on: &str, least: f64| {
            let found = contrast(theme[name], theme[on]);
            assert!(found >= least, "{name} on {on}: {found:.2}, in {theme:?}");
        };
        // WCAG AA: 4.5 for text, 3 for graphics.
        for text in ["text", "quiet", "ink"] {
            check(text, "page", 4.5);
        }
        check("text", "warn", 4.5);
        check("warn-rule", "page", 3.0);
        (0..7).for_each(|n| check(&format!("line-{n}"), "page", 3.0));
        for hue in ["blue", "red"] {
            // A step of a map is stronger than the one before it.
            let steps =
                (0..5).map(|n| contrast(theme[format!("{hue}-{n}").as_str()], theme["page"]));
            let steps: Vec<f64> = steps.collect();
            assert!(steps.windows(2).all(|two| two[1] > 1.3 * two[0]), "{hue}: {steps:?}");
        }
    }
}
