use super::*;
use crate::replay::{EndedBy, Outcome};
use crate::report::mismatches;

/// A run of 100 slices with 50 reads each, at `mean_ns` more or less; what a slice is like lasts for four of them.
fn run(mean_ns: f64, seed: u64) -> Run {
    let mut random = Rng::new(seed);
    let mut level = 1.0;
    let mut slices = Vec::new();
    let mut all: Vec<u64> = Vec::new();
    for n in 0..100u64 {
        if n % 4 == 0 {
            level = 0.7 + 0.6 * random.unit();
        }
        let latencies: Vec<u64> =
            (0..50).map(|_| (mean_ns * level * (0.5 + random.unit())) as u64).collect();
        let mut buckets = BTreeMap::new();
        for latency in &latencies {
            let step = ((*latency as f64).log2() * STEPS).ceil() / STEPS;
            *buckets.entry(step.exp2() as u64).or_insert(0) += 1;
        }
        let reads = Part {
            count: 50,
            bytes: 50 * 4096,
            sum_ns: latencies.iter().sum(),
            max_ns: *latencies.iter().max().unwrap(),
            buckets: buckets.into_iter().collect(),
        };
        slices.push(Slice { start_ns: n * 1_000_000, reads, writes: Part::default() });
        all.extend(latencies);
    }
    all.sort_unstable();
    let reads = Latency {
        count: all.len() as u64,
        mean_ns: all.iter().sum::<u64>() as f64 / all.len() as f64,
        p50_ns: all[all.len() / 2],
        p99_ns: all[all.len() * 99 / 100],
        ..Latency::default()
    };
    let outcome =
        Outcome { reads, slices, slice_ns: 1_000_000, iops: 50_000.0, ..Outcome::default() };
    Run { outcome, ..Run::default() }
}

fn of(differences: &[Difference], figure: Figure) -> Difference {
    *differences.iter().find(|difference| difference.figure == figure).unwrap()
}

#[test]
fn a_difference_is_found_and_chance_is_not_taken_for_one() {
    for figure in [Figure::ReadMean, Figure::ReadP50, Figure::ReadP99] {
        let faster = of(&differences(&run(5e6, 1), &run(1e6, 2)), figure);
        let (low, high) = faster.interval.unwrap();
        assert!((0.14..0.21).contains(&low) && (0.19..0.26).contains(&high), "{faster:?}");
        assert_eq!(faster.stands_out(), Some(true));
        let said = words(&[faster]);
        assert!(said[0].contains("× shorter ("), "{said:?}");
    }
    // Of many pairs that do not differ, about one in twenty is allowed to look as if it did.
    let looks_different = (0..60).filter(|n| {
        let difference = of(&differences(&run(1e6, 2 * n), &run(1e6, 2 * n + 1)), Figure::ReadMean);
        difference.stands_out() == Some(true)
    });
    assert!(looks_different.count() <= 8);
}

#[test]
fn the_same_run_does_not_differ_from_itself() {
    let one = run(1e6, 3);
    let all = differences(&one, &one);
    // No writes, no figures of them.
    assert_eq!(all.len(), 4);
    for difference in all {
        assert_eq!((difference.ratio, difference.interval), (1.0, Some((1.0, 1.0))));
        let expect = "no significant difference (0.0 to 0.0 %)";
        let said = words(&[difference]);
        assert!(said[0].contains(expect), "{said:?}");
    }
}

#[test]
fn the_rate_of_the_same_requests_does_not_differ_by_the_noise_of_their_end() {
    let one = run(1e6, 3);
    for times in [1.001, 0.97] {
        let mut other = one.clone();
        other.outcome.iops *= times;
        let rate = of(&differences(&one, &other), Figure::Iops);
        assert_eq!((rate.ratio, rate.stands_out()), (times, Some(false)), "{rate:?}");
        let (low, high) = rate.interval.unwrap();
        assert!((low..=high).contains(&times), "{rate:?}");
    }
    // Primary storage that takes half of them only: they are issued late, which the slices show.
    let mut late = one.clone();
    late.outcome.iops /= 2.0;
    for slice in &mut late.outcome.slices {
        slice.reads.count /= 2;
    }
    let rate = of(&differences(&one, &late), Figure::Iops);
    assert_eq!((rate.interval, rate.stands_out()), (Some((0.5, 0.5)), Some(true)));
}

#[test]
fn the_last_slice_and_other_widths_do_not_mislead() {
    let one = run(1e6, 4);
    let mut wide = one.clone();
    wide.outcome.slice_ns *= 2;
    let pairs = one.outcome.slices.chunks(2).map(|pair| {
        let mut joined = pair[0].clone();
        joined.reads.count += pair[1].reads.count;
        joined.reads.sum_ns += pair[1].reads.sum_ns;
        joined.reads.buckets.extend(&pair[1].reads.buckets);
        joined.reads.buckets.sort_unstable();
        joined
    });
    wide.outcome.slices = pairs.collect();
    let difference = of(&differences(&one, &wide), Figure::ReadMean);
    assert_eq!(difference.interval, Some((1.0, 1.0)));
}

#[test]
fn a_replay_whose_requests_come_in_one_burst_is_not_judged_by_its_rate() {
    let mut burst = run(1e6, 5);
    for slice in &mut burst.outcome.slices[1..] {
        slice.reads = Part::default();
    }
    let difference = of(&differences(&burst, &burst.clone()), Figure::Iops);
    assert_eq!(difference.interval, None, "most draws have no request at all");
}

#[test]
fn a_short_replay_is_not_judged() {
    let mut short = run(1e6, 5);
    short.outcome.slices.truncate(SLICES_MIN);
    let difference = of(&differences(&short, &run(5e6, 6)), Figure::ReadMean);
    assert_eq!((difference.interval, difference.stands_out()), (None, None));
    let said = words(&[difference]);
    assert!(said[0].contains("× longer (too short"), "{said:?}");
}

#[test]
fn a_list_tells_all_differences_in_one_unit() {
    let of = |figure, ratio, interval| Difference {
        figure,
        before: 1.0,
        after: ratio,
        ratio,
        interval: Some(interval),
    };
    let little = of(Figure::ReadMean, 0.96, (0.94, 0.98));
    let none = of(Figure::ReadP99, 1.0, (0.9996, 1.3));
    assert_eq!(
        words(&[little, none]),
        [
            "read latency, mean: 4.0 % shorter (2.0 to 6.0)",
            "read latency, p99: no significant difference (0.0 to +30.0 %)",
        ]
    );
    let much = of(Figure::WriteP99, 0.25, (0.2, 0.5));
    assert_eq!(
        words(&[little, none, much]),
        [
            "read latency, mean: 1.04 × shorter (1.02 to 1.06)",
            "read latency, p99: no significant difference (1.000 to 1.30)",
            "write latency, p99: 4.0 × shorter (2.0 to 5.0)",
        ]
    );
}

#[test]
fn a_run_that_was_cut_short_is_paired_only_with_one_that_got_as_far() {
    let named = |name: &str, run: &Run| Run { name: name.to_owned(), ..run.clone() };
    let mut whole = named("whole", &run(1e6, 7));
    whole.outcome.trace_time_ns = 100_000_000;
    let mut cut = named("cut", &whole);
    cut.outcome.slices.truncate(50);
    cut.outcome.trace_time_ns = 50_000_000;
    for ended_by in [EndedBy::Duration, EndedBy::Interrupt] {
        cut.outcome.ended_by = ended_by;
        let mut beside = named("beside", &cut);
        // Which request was the last is chance.
        beside.outcome.trace_time_ns -= 900_000;
        assert!(is_paired(&cut, &beside));
        assert_eq!(mismatches(&[cut.clone(), beside.clone()]), Vec::<String>::new());
        beside.outcome.trace_time_ns -= 200_000;
        assert!(!is_paired(&cut, &beside) && !is_paired(&whole, &cut) && !is_paired(&cut, &whole));
        let said = mismatches(&[whole.clone(), cut.clone()]);
        let expect = "whole got to 100 ms of the trace, cut to 50.0 ms: they are not replays of the same requests.";
        assert_eq!(said, [expect]);
    }
}

#[test]
fn a_latency_of_nothing_is_not_divided_by() {
    let one = run(1e6, 8);
    let mut none = one.clone();
    none.outcome.reads = Latency { count: 5000, ..Latency::default() };
    for slice in &mut none.outcome.slices {
        slice.reads.sum_ns = 0;
    }
    for (before, after) in [(&none, &one), (&one, &none)] {
        let found = differences(before, after);
        let figures: Vec<Figure> = found.iter().map(|difference| difference.figure).collect();
        assert_eq!(figures, [Figure::Iops]);
    }
    none.outcome.reads = one.outcome.reads;
    let mean = of(&differences(&none, &one), Figure::ReadMean);
    assert_eq!((mean.ratio, mean.interval), (1.0, None));
}
