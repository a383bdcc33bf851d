//! The speed of destaging, as it is measured.

use super::*;

#[test]
fn a_pause_is_not_taken_for_slow_storage() {
    let mut config = with_log();
    config.write_log = Some(WriteLogConfig::new(SEGMENT_PAGES, 32));
    let mut rig = write_back(config);
    // Primary storage that ends a write each 5 ms.
    let serve = |rig: &mut Rig, milliseconds: u64| {
        for _ in 0..milliseconds / 5 {
            rig.log();
            rig.tick(5);
            if let Some(at) = rig.pending.iter().position(|io| io.target == Target::Backend) {
                rig.complete(at, IoStatus::Ok);
            }
        }
    };
    let speed =
        |rig: &Rig| rig.engine.log_statistics(rig.now).expect("a log").destage_bytes_per_second;
    // No two of them are neighbours.
    for n in 0..120 {
        rig.write(n, n * 8192, 4096, 7);
        rig.log();
    }
    rig.submit(500, 0, 0, Op::Flush);
    serve(&mut rig, 450);
    let before = speed(&rig);
    assert!(before > 400_000, "{before} B/s");
    assert_ne!(rig.backend[119 * 8192], 7, "something is left");
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.run_actions();
    serve(&mut rig, 60_000);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    serve(&mut rig, 2_000);
    assert_eq!(rig.backend[119 * 8192], 7);
    assert!(speed(&rig) > before / 2, "{before} B/s before, {} after", speed(&rig));
}
