//! Compare-and-write while something changes or hangs under it.

use super::*;
use crate::config::FlashAdmission;

#[test]
fn what_ram_gives_up_meanwhile_is_fetched_while_neighbours_in_the_page_write() {
    let ram = Config { ram_bytes: 4 * KIB, ..with_log() };
    let mut rig = write_back(ram);
    // The page is in the log, in parts.
    for (tag, at) in [(1, 0), (2, 512), (3, 2048)] {
        rig.write(tag, 4096 + at, 512, 10 + tag as u8);
        rig.tick(1);
        rig.commit();
    }
    rig.read(4, 4096, 4096);
    while !rig.has_reply(4) {
        rig.complete(0, IoStatus::Ok);
    }
    rig.sent();
    // It arrives while RAM has all of it, behind a write to the same sector that waits for the log.
    rig.write_with(5, 4096 + 512, 512, 20, true);
    let mut expected = [20; 1024];
    expected[512..].fill(1);
    rig.compare_and_write(6, 4096 + 512, &expected, 70, false);
    rig.read(7, 65536, 4096);
    let other = rig.find("R 65536+4096");
    rig.complete(other, IoStatus::Ok);
    rig.commit();
    rig.sent();
    // Its sectors alone: one from primary storage, one from the log. A neighbour is written under it.
    let below = rig.find("R 4608+1024");
    rig.complete(below, IoStatus::Ok);
    rig.write(8, 4096, 512, 30);
    rig.write(9, 4096 + 2048, 512, 31);
    assert!(rig.has_reply(8) && rig.has_reply(9));
    rig.commit();
    assert!(rig.replied(6).1.is_ok());
    rig.settle_log();
    rig.expect_bytes(4096, 512, 30);
    rig.expect_bytes(4096 + 512, 1024, 70);
    rig.expect_bytes(4096 + 2048, 512, 31);
    rig.no_memory_is_lost();
}

#[test]
fn a_mode_that_changes_under_the_comparison_is_the_one_it_writes_in() {
    let mut config = with_log();
    config.mode = Mode::WriteThrough;
    let mut rig = Rig::new(config);
    rig.tells_comparisons = false;
    rig.tick(0);
    rig.settle_log();
    rig.compare_and_write(1, 4096, &[1; 512], 70, true);
    rig.complete(0, IoStatus::Ok);
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    rig.compared();
    rig.run_actions();
    assert!(rig.drawn().iter().all(|io| io.starts_with("log")), "{:?}", rig.drawn());
    while !rig.has_reply(1) {
        rig.grant();
        rig.complete(0, IoStatus::Ok);
    }
    assert_eq!(rig.backend[4096], 1, "it is in the log");
    rig.compare_and_write(2, 4096, &[70; 512], 71, true);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    while rig.engine.mode() != Mode::WriteThrough {
        rig.tick(10);
        rig.settle();
    }
    assert!(!rig.has_reply(2));
    rig.compared();
    rig.run_actions();
    assert_eq!(rig.drawn(), ["W 4096+512"]);
    rig.settle_log();
    assert!(rig.replied(2).1.is_ok());
    assert_eq!(rig.backend[4096], 71);
    rig.no_memory_is_lost();
}

#[test]
fn a_grid_that_moves_after_the_buffer_was_taken_does_no_harm() {
    let mut config = Config { grid_offset: GridOffset::Auto, ram_bytes: 64 << 20, ..config() };
    config.backend.size = 64 << 20;
    let mut rig = Rig::new(config);
    let range = ByteRange::at(8192, 4096);
    let early = rig.engine.compare_buffer(range).expect("a free buffer");
    rig.slice(early.at(range)).fill(70);
    rig.slice(early.expected(range)).fill(2);
    rig.compare_and_write(1, 16384, &[4; 4096], 71, false);
    for tag in 1000..1300 {
        rig.read(tag, 3584 + tag * 7 % 200 * 4096 + (1 << 20), 4096);
    }
    assert_eq!(rig.events, [Event::GridMoved { offset: 3584 }]);
    rig.submit(2, 8192, 4096, Op::CompareAndWrite { buffer: early, fua: false });
    rig.settle();
    assert!(rig.replied(1).1.is_ok() && rig.replied(2).1.is_ok());
    assert_eq!(rig.backend[8192..12288], [70; 4096]);
    assert_eq!(rig.backend[16384..20480], [71; 4096]);
    rig.no_memory_is_lost();
}

#[test]
fn flash_that_hangs_under_it_is_gone_around() {
    let flash = Config {
        ram_bytes: 0,
        flash_bytes: 256 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    };
    for has_memory in [true, false] {
        let mut config = Config { buffer_bytes: 36 << 20, ..flash };
        config.backend.size = 64 << 20;
        let mut rig = Rig::new(config);
        rig.read(1, 4096, 4096);
        rig.settle();
        rig.compare_and_write(2, 4096, &[1; 512], 70, false);
        assert_eq!(rig.drawn(), ["r 0+4096"]);
        let mut held = Vec::new();
        for pages in [8192, 512, 64, 8, 1] {
            let range = ByteRange::at(0, pages * 4096);
            while let Some(buffer) = rig.engine.write_buffer(range).filter(|_| !has_memory) {
                held.push(buffer);
            }
        }
        rig.tick(5_000);
        for buffer in held {
            rig.engine.release(rig.now, buffer, &mut rig.actions);
        }
        if has_memory {
            let again = rig.find("R 4096+4096");
            rig.complete(again, IoStatus::Ok);
            rig.settle();
            assert!(rig.replied(2).1.is_ok());
            assert_eq!(rig.backend[4096], 70);
        } else {
            assert_eq!(rig.replied(2).1, IoStatus::TimedOut);
            rig.settle();
            assert_eq!(rig.backend[4096], 1);
        }
    }
}
