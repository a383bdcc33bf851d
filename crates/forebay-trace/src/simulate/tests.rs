use proptest::prelude::*;

use super::*;

fn record(op: Op, offset: u64, len: u32) -> Record {
    Record { time_ns: 0, op, offset, len, device: 0, latency_ns: None }
}

fn settings(cache_size: u64, block_size: u64, policy: &str) -> Settings {
    let policy = policy.parse().unwrap();
    Settings { cache_size, block_size, policy, grid_offset: GridOffset::Fixed(0) }
}

fn run(records: &[Record], settings: Settings) -> Outcome {
    simulate(records.iter().map(|&record| Ok(record)), &settings).unwrap()
}

/// Requests as "r0" (read page 0), "w3-5" (write pages 3 to 5), of 4 KiB pages.
fn pages(text: &str) -> Vec<Record> {
    let parse = |word: &str| {
        let op = if word.starts_with('r') { Op::Read } else { Op::Write };
        let (first, last) = word[1..].split_once('-').unwrap_or((&word[1..], &word[1..]));
        let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
        record(op, first * 4096, ((last - first + 1) * 4096) as u32)
    };
    text.split_whitespace().map(parse).collect()
}

/// Checks (granules, granule hits, requests, request hits) of reads, and evictions.
fn check(text: &str, settings: Settings, expect: ([u64; 4], u64)) {
    let outcome = run(&pages(text), settings);
    let reads = outcome.reads;
    let found = [reads.granules, reads.granule_hits, reads.requests, reads.request_hits];
    assert_eq!((found, outcome.evictions), expect, "{text}: {outcome:?}");
}

#[test]
fn hits_are_counted_by_granule_and_by_request() {
    let lru = |pages: u64| settings(pages * 4096, 4096, "lru");
    check("r0 r0", lru(2), ([2, 1, 2, 1], 0));
    check("w0 r0", lru(2), ([1, 1, 1, 1], 0));
    check("w0 w0 w0", lru(2), ([0, 0, 0, 0], 0));
    check("r0 r0-1 r0-1", lru(2), ([5, 3, 3, 1], 0));
    check("r0 r1 r0 r2 r0 r1", lru(2), ([6, 2, 6, 2], 2));
    check("r0 r1 r0 r2 r0 r1", settings(8192, 4096, "fifo"), ([6, 1, 6, 1], 3));
    check("r0 r1 r2 r0 r1 r2", lru(2), ([6, 0, 6, 0], 4));
    check("r0 r1 r2 r0 r1 r2", settings(8192, 4096, "belady"), ([6, 2, 6, 2], 2));
}

#[test]
fn a_block_fills_by_granules_but_leaves_as_a_whole() {
    // Two pages per block, one block of cache.
    let one = settings(8192, 8192, "lru");
    check("r0 r1 r0-1", one, ([4, 2, 3, 1], 0));
    check("r0 r2 r1", one, ([3, 0, 3, 0], 2));
    check("w0-1 r0 r1", one, ([2, 2, 2, 2], 0));
}

#[test]
fn requests_that_are_not_aligned_touch_what_they_overlap() {
    let straddling = [record(Op::Read, 3584, 4096), record(Op::Read, 0, 512)];
    let outcome = run(&straddling, settings(1 << 20, 4096, "lru"));
    assert_eq!((outcome.reads.granules, outcome.reads.granule_hits), (3, 1));
    let shifted =
        Settings { grid_offset: GridOffset::Fixed(3584), ..settings(1 << 20, 4096, "lru") };
    let outcome = run(&straddling, shifted);
    assert_eq!((outcome.reads.granules, outcome.reads.granule_hits), (2, 0));
    assert_eq!(outcome.grid_offset, 3584);
}

#[test]
fn disks_of_a_trace_do_not_share_blocks() {
    let mut records = pages("r0 r0");
    records[1].device = 1;
    let outcome = run(&records, settings(1 << 20, 4096, "lru"));
    assert_eq!((outcome.reads.granule_hits, outcome.blocks_touched), (0, 2));
}

#[test]
fn the_grid_moves_when_the_requests_agree_on_another_place() {
    let records: Vec<_> =
        (0..1000).map(|i| record(Op::Read, 3584 + i % 400 * 4096, 4096)).collect();
    for policy in ["lru", "belady"] {
        let auto = Settings { grid_offset: GridOffset::Auto, ..settings(64 << 20, 4096, policy) };
        let outcome = run(&records, auto);
        assert_eq!((outcome.grid_offset, outcome.grid_moved_after), (3584, Some(255)));
        // Each read touches two granules before the move and one after it.
        assert_eq!(outcome.reads.granules, 2 * 255 + 745);
        let small = Settings { cache_size: 1 << 20, ..auto };
        assert_eq!(run(&records, small).grid_moved_after, None, "5 % was filled at once");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_is_allowed() {
    let with_offset = |offset| Settings {
        grid_offset: GridOffset::Fixed(offset),
        ..settings(1 << 20, 4096, "lru")
    };
    let cases = [
        (settings(1 << 20, 3000, "lru"), "a power of two from 512 to 1 MiB"),
        (settings(1 << 30, 2 << 20, "lru"), "a power of two from 512 to 1 MiB"),
        (settings(4095, 4096, "lru"), "below the block size"),
        (settings(1 << 60, 4096, "lru"), "is more than"),
        (with_offset(4096), "a multiple of 512 below the block size"),
        (with_offset(100), "a multiple of 512 below the block size"),
    ];
    for (settings, expect) in cases {
        let error = simulate(std::iter::empty(), &settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expect), "{error}");
    }
    let error = "mru".parse::<SimulatedPolicy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown policy \"mru\": use one of auto, fifo, lru, clock, sieve, s3fifo, arc, lirs, \
         wtinylfu, belady (the offline optimum)"
    );
}

#[test]
fn an_error_of_the_trace_ends_the_simulation() {
    let broken = || Some(Err(Error::new(ErrorKind::BadRecord, "line 7"))).into_iter();
    for policy in ["lru", "belady"] {
        let error = simulate(broken(), &settings(1 << 20, 4096, policy)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadRecord);
    }
}

/// The results of LRU and FIFO by a plain list of (block, valid pages) in order of eviction.
fn naive(records: &[Record], settings: &Settings) -> (u64, u64, u64) {
    let slots = (settings.cache_size / settings.block_size) as usize;
    let per_block = settings.block_size / 4096;
    let moves = settings.policy == SimulatedPolicy::Online(PolicyKind::Lru);
    let mut cache: Vec<(u64, Vec<u64>)> = Vec::new();
    let (mut hits, mut request_hits, mut evictions) = (0, 0, 0);
    for record in records {
        let mut all = true;
        for page in record.offset / 4096..=(record.end() - 1) / 4096 {
            let block = page / per_block;
            let at = cache.iter().position(|(b, _)| *b == block).unwrap_or_else(|| {
                if cache.len() == slots {
                    cache.remove(0);
                    evictions += 1;
                }
                cache.push((block, Vec::new()));
                cache.len() - 1
            });
            let hit = cache[at].1.contains(&page);
            if !hit {
                cache[at].1.push(page);
            }
            if moves {
                let entry = cache.remove(at);
                cache.push(entry);
            }
            all &= hit;
            hits += u64::from(hit && record.op == Op::Read);
        }
        request_hits += u64::from(all && record.op == Op::Read);
    }
    (hits, request_hits, evictions)
}

fn requests() -> impl Strategy<Value = Vec<Record>> {
    let request = (any::<bool>(), 0..3000u64, 1..100u32).prop_map(|(read, sector, sectors)| {
        record(if read { Op::Read } else { Op::Write }, sector * 512, sectors * 512)
    });
    prop::collection::vec(request, 0..150)
}

proptest! {
    #[test]
    fn lru_and_fifo_hit_as_a_plain_list_does(
        records in requests(),
        slots in 1..40u64,
        shift in 12..=20u32,
        policy in prop::sample::select(vec!["lru", "fifo"]),
    ) {
        let settings = settings(slots << shift, 1 << shift, policy);
        let outcome = run(&records, settings);
        let found = (outcome.reads.granule_hits, outcome.reads.request_hits, outcome.evictions);
        prop_assert_eq!(found, naive(&records, &settings));
    }

    #[test]
    fn no_policy_misses_less_than_belady(
        blocks in prop::collection::vec(0..40u64, 0..300),
        slots in 1..20u64,
        policy in prop::sample::select(vec!["auto", "lru", "fifo", "s3fifo", "sieve", "arc", "lirs", "wtinylfu"]),
    ) {
        let records: Vec<_> =
            blocks.into_iter().map(|block| record(Op::Read, block * 4096, 4096)).collect();
        let hits = |policy: &str| {
            run(&records, settings(slots * 4096, 4096, policy)).reads.granule_hits
        };
        prop_assert!(hits(policy) <= hits("belady"));
    }
}
