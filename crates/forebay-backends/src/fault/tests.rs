use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;

use crate::testing::Bench;

const KIB: u64 = 1024;

fn faulty(rules: &str) -> Bench {
    Bench::at(&format!("fault:{rules}&inner=mem:1MiB"), Nanos(0))
}

fn block(number: u64) -> ByteRange {
    ByteRange::at(number * 4 * KIB, 4 * KIB)
}

#[test]
fn an_error_meets_the_io_that_its_rule_names_and_no_other() {
    let mut bench = faulty("rule=error,op=read,range=8KiB+4KiB,status=no-space");
    assert_eq!(bench.write(block(2), 1), IoStatus::Ok);
    assert_eq!(bench.read(block(2)), Err(IoStatus::NoSpace));
    assert_eq!(bench.read_fill(block(3)), 0);
}

#[test]
fn rules_count_what_they_look_at() {
    let mut bench = faulty("rule=error,op=write,nth=2&rule=error,op=read,every=3,times=2");
    let writes: Vec<_> = (0..4).map(|_| bench.write(block(0), 1).is_ok()).collect();
    assert_eq!(writes, [true, false, true, true]);
    let reads: String =
        (0..9).map(|_| if bench.read(block(0)).is_ok() { '.' } else { 'x' }).collect();
    assert_eq!(reads, "..x..x...");
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let run = |seed| {
        let mut bench = faulty(&format!("seed={seed}&rule=error,p=0.3"));
        (0..64).map(|_| bench.read(block(0)).is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!((30..60).contains(&run(1).iter().filter(|ok| **ok).count()));
}

#[test]
fn a_delayed_write_lands_late() {
    let mut bench = faulty("rule=delay,op=write,nth=1,time=50ms");
    let late = bench.submit_write(block(0), 1);
    assert_eq!(bench.read_fill(block(0)), 0);
    assert_eq!(bench.backend.next_deadline(), Nanos::from_millis(50));
    bench.at_time(Nanos::from_millis(49));
    assert!(!bench.ended.contains_key(&late));
    bench.at_time(Nanos::from_millis(50));
    assert_eq!(bench.ended[&late], IoStatus::Ok);
    assert_eq!(bench.read_fill(block(0)), 1);
}

#[test]
fn a_hung_io_ends_only_when_its_session_does() {
    let mut bench = faulty("rule=hang,op=read,nth=1&rule=session-lost,op=flush,nth=1,time=1s");
    let (hung, _) = bench.submit_read(block(0));
    bench.at_time(Nanos::from_millis(1_000_000));
    assert!(!bench.ended.contains_key(&hung));
    assert_eq!(bench.backend.next_deadline(), Nanos::NEVER);
    // The flush meets the end of the session, and fails with it.
    assert_eq!(bench.flush(), IoStatus::IoError);
    assert_eq!(bench.sessions, "-");
    let (waits, _) = bench.submit_read(block(1));
    bench.at_time(Nanos::from_millis(1_000_999));
    assert!(!bench.ended.contains_key(&waits));
    bench.at_time(Nanos::from_millis(1_001_000));
    assert_eq!(bench.sessions, "-+");
    assert_eq!(bench.ended[&hung], IoStatus::Ok);
    assert_eq!(bench.ended[&waits], IoStatus::Ok);
}

#[test]
fn a_torn_write_leaves_a_part_from_its_start_in_whole_blocks() {
    let mut seen = Vec::new();
    for seed in 0..32 {
        let mut bench = faulty(&format!("seed={seed}&rule=torn,nth=1"));
        assert_eq!(bench.write(block(0), 1), IoStatus::IoError);
        let bytes = bench.read(block(0)).expect("it reads");
        let written = bytes.iter().take_while(|byte| **byte == 1).count();
        assert!(bytes[written..].iter().all(|byte| *byte == 0));
        assert!(written % 512 == 0 && written < 4096);
        seen.push(written);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 4, "{seen:?}");
}

#[test]
fn a_dropped_write_is_acknowledged_and_not_there() {
    let mut bench = faulty("rule=drop,nth=1");
    assert_eq!(bench.write(block(0), 1), IoStatus::Ok);
    assert_eq!(bench.flush(), IoStatus::Ok);
    assert_eq!(bench.read_fill(block(0)), 0);
}

#[test]
fn a_power_cut_loses_only_what_was_not_flushed() {
    let mut lost = 0;
    for seed in 0..16 {
        let mut bench =
            faulty(&format!("seed={seed}&volatile=on&rule=power-cut,op=extents,nth=1,time=1ms"));
        for number in 0..4 {
            assert_eq!(bench.write(block(number), 1), IoStatus::Ok);
        }
        assert_eq!(bench.flush(), IoStatus::Ok);
        for number in 2..6 {
            assert_eq!(bench.write(block(number), 2), IoStatus::Ok);
        }
        let trigger = bench.submit(IoOp::Extents, block(0));
        assert_eq!(bench.sessions, "-");
        bench.at_time(Nanos::from_millis(1));
        assert_eq!((bench.sessions.as_str(), bench.ended[&trigger]), ("-+", IoStatus::Ok));
        for number in 0..2 {
            assert_eq!(bench.read_fill(block(number)), 1, "flushed");
        }
        for number in 2..6 {
            let bytes = bench.read(block(number)).expect("it reads");
            let old = if number < 4 { 1 } else { 0 };
            for sector in bytes.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "no torn block");
                assert!([old, 2].contains(&sector[0]), "{}", sector[0]);
                lost += usize::from(sector[0] == old);
            }
        }
    }
    assert!((100..400).contains(&lost), "{lost} of 512 blocks were lost");
}

#[test]
fn without_a_power_cut_volatile_writes_stay() {
    let mut bench = faulty("volatile=on&rule=session-lost,op=discard,nth=1");
    assert_eq!(bench.write(ByteRange::at(0, 64 * KIB), 3), IoStatus::Ok);
    assert_eq!(bench.run(IoOp::Discard, ByteRange::at(512 * KIB, 4 * KIB)), IoStatus::Ok);
    assert_eq!(bench.sessions, "-+");
    assert_eq!(bench.read_fill(ByteRange::at(0, 64 * KIB)), 3);
}

#[test]
fn a_fault_backend_wraps_a_fault_backend() {
    let mut bench = Bench::at(
        "fault:volatile=on&rule=error,op=read,nth=2&inner=fault:volatile=on&inner=mem:1MiB",
        Nanos(0),
    );
    let range = ByteRange::at(0, 900 * KIB);
    assert_eq!(bench.write(range, 5), IoStatus::Ok);
    assert_eq!(bench.read_fill(range), 5);
    assert_eq!(bench.read(block(0)), Err(IoStatus::IoError));
}
