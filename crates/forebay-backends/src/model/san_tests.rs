use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const SIZE: u64 = 64 << 30;

/// Runs `count` I/Os, `depth` at a time; returns mean latency in microseconds and I/Os per second.
fn closed_loop(
    san: &mut San,
    depth: usize,
    count: u64,
    mut next: impl FnMut() -> (ModelOp, ByteRange),
) -> (u64, u64) {
    let mut running = BinaryHeap::new();
    let (mut now, mut latency) = (0, 0);
    for _ in 0..count {
        if running.len() == depth {
            let Reverse(done) = running.pop().expect("depth is not 0");
            now = done;
        }
        let (op, range) = next();
        let done = san.submit(Nanos(now), op, range).0;
        assert!(done > now, "an I/O takes time");
        latency += done - now;
        running.push(Reverse(done));
    }
    let end = running.into_iter().map(|Reverse(done)| done).max().unwrap_or(now);
    (latency / count / 1000, (u128::from(count) * 1_000_000_000 / u128::from(end)) as u64)
}

fn san(write_cache: u64) -> San {
    San::new(SIZE, write_cache, Rng::new(1))
}

fn random(op: ModelOp, len: u64) -> impl FnMut() -> (ModelOp, ByteRange) {
    let mut rng = Rng::new(2);
    move || (op, ByteRange::at(rng.below(SIZE / len) * len, len))
}

fn sequential(op: ModelOp, len: u64) -> impl FnMut() -> (ModelOp, ByteRange) {
    let mut position = 0;
    move || {
        position += len;
        (op, ByteRange::at(position - len, len))
    }
}

#[test]
fn a_random_read_takes_five_milliseconds() {
    let (mean_us, _) = closed_loop(&mut san(0), 1, 5_000, random(ModelOp::Read, 8192));
    assert!((4_700..5_300).contains(&mean_us), "{mean_us} us");
}

#[test]
fn throughput_grows_with_queue_depth_and_saturates() {
    let iops = |depth| closed_loop(&mut san(0), depth, 20_000, random(ModelOp::Read, 8192)).1;
    let (one, four, thirty_two, many) = (iops(1), iops(4), iops(32), iops(256));
    assert!((185..215).contains(&one), "{one}");
    assert!((450..750).contains(&four), "{four}");
    assert!((900..1_150).contains(&thirty_two), "{thirty_two}");
    assert!((1_000..1_450).contains(&many), "{many}");
}

#[test]
fn queueing_delays_what_comes_later() {
    let mean = |depth| closed_loop(&mut san(0), depth, 20_000, random(ModelOp::Read, 8192)).0;
    // Little's law: beyond saturation, latency is depth over throughput.
    assert!(mean(32) > 5 * mean(1), "{}", mean(32));
    assert!(mean(256) > 6 * mean(32), "{}", mean(256));
}

#[test]
fn sequential_reads_are_much_faster_than_random_ones() {
    let (mean_us, iops) = closed_loop(&mut san(0), 1, 20_000, sequential(ModelOp::Read, 8192));
    assert!(mean_us < 500, "{mean_us} us");
    let megabytes = iops * 8192 / 1_000_000;
    assert!((20..=80).contains(&megabytes), "{megabytes} MB/s at depth 1");
    let (_, iops) = closed_loop(&mut san(0), 4, 5_000, sequential(ModelOp::Read, 1 << 20));
    let megabytes = iops * (1 << 20) / 1_000_000;
    assert!((250..=420).contains(&megabytes), "{megabytes} MB/s in large reads");
}

#[test]
fn several_sequential_streams_are_recognised() {
    let mut positions = [0, SIZE / 2, SIZE / 4];
    let mut turn = 0;
    let (mean_us, _) = closed_loop(&mut san(0), 1, 20_000, || {
        turn = (turn + 1) % 3;
        positions[turn] += 8192;
        (ModelOp::Read, ByteRange::at(positions[turn] - 8192, 8192))
    });
    assert!(mean_us < 1_000, "{mean_us} us");
}

#[test]
fn a_small_write_costs_four_disk_ios() {
    let (mean_us, _) = closed_loop(&mut san(0), 1, 5_000, random(ModelOp::Write, 8192));
    assert!((8_500..13_000).contains(&mean_us), "{mean_us} us");
    let reads = closed_loop(&mut san(0), 64, 20_000, random(ModelOp::Read, 8192)).1;
    let writes = closed_loop(&mut san(0), 64, 20_000, random(ModelOp::Write, 8192)).1;
    assert!((3 * writes..5 * writes).contains(&reads), "{reads} reads, {writes} writes");
}

#[test]
fn the_write_cache_takes_a_burst_and_no_more() {
    let mut cached = san(16 << 20);
    let (burst_us, _) = closed_loop(&mut cached, 1, 500, random(ModelOp::Write, 8192));
    assert!(burst_us < 300, "{burst_us} us");
    let sustained = closed_loop(&mut cached, 1, 30_000, random(ModelOp::Write, 8192)).1;
    let disks = closed_loop(&mut san(0), 64, 20_000, random(ModelOp::Write, 8192)).1;
    assert!(sustained < 2 * disks, "{sustained} sustained, disks alone {disks}");
}

#[test]
fn background_writes_slow_reads_down() {
    let mut busy = san(16 << 20);
    for write in 0..200 {
        busy.submit(Nanos(0), ModelOp::Write, ByteRange::at(write * (SIZE / 200), 8192));
    }
    let done = busy.submit(Nanos(0), ModelOp::Read, ByteRange::at(SIZE / 3, 8192));
    assert!(done > Nanos::from_millis(100), "{done:?}");
}

#[test]
fn sequential_writes_are_gathered_into_stripes() {
    let mut cached = san(16 << 20);
    let (_, iops) = closed_loop(&mut cached, 8, 50_000, sequential(ModelOp::Write, 8192));
    let megabytes = iops * 8192 / 1_000_000;
    assert!(megabytes > 60, "{megabytes} MB/s");
}

#[test]
fn a_flush_costs_one_command() {
    let mut san = san(16 << 20);
    let done = san.submit(Nanos(7), ModelOp::Flush, ByteRange::at(0, 0));
    assert_eq!(done, Nanos(7 + COMMAND_NS));
}

#[test]
fn a_seed_repeats_its_times_exactly_and_another_does_not() {
    let run = |seed| {
        let mut san = San::new(1 << 30, 1 << 20, Rng::new(seed));
        let mut rng = Rng::new(9);
        let mut now = 0;
        (0..2_000)
            .map(|_| {
                now += rng.below(3_000_000);
                let op = if rng.below(3) == 0 { ModelOp::Write } else { ModelOp::Read };
                let len = (rng.below(64) + 1) * 4096;
                let start = rng.below(((1 << 30) - len) / 512) * 512;
                san.submit(Nanos(now), op, ByteRange::at(start, len)).0
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn pieces_of_a_range_cover_its_chunks() {
    // The first stripe has its parity on the last disk and its data on disks 0 to 3.
    let one = pieces(ByteRange::at(CHUNK + 512, 512));
    assert_eq!(one, [None, Some(ByteRange::at(512, 512)), None, None, None]);
    let stripe = pieces(ByteRange::at(0, STRIPE));
    assert_eq!(stripe.iter().flatten().count(), 4);
    assert_eq!(stripe[parity_disk(0)], None);
    let all: u64 = pieces(ByteRange::at(0, 5 * STRIPE)).iter().flatten().map(|p| p.len()).sum();
    assert!((5 * STRIPE..=5 * STRIPE + 5 * CHUNK).contains(&all));
}
