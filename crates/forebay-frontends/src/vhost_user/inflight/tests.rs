use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;

use super::*;

const SIZE: u16 = 8;

fn open(region: &Region, used: u16) -> (Inflight, Vec<u16>) {
    Inflight::open(region, 1, SIZE, used).unwrap()
}

fn region() -> Region {
    Region::create(2, SIZE).unwrap().0
}

#[test]
fn what_was_taken_and_not_answered_comes_back_in_its_order() {
    let region = region();
    let (mut marks, none) = open(&region, 0);
    assert!(none.is_empty());
    [5, 2, 7, 0].into_iter().for_each(|head| _ = marks.take(head));
    marks.answering(2);
    marks.answered(2, 1);
    let (mut marks, heads) = open(&region, 1);
    assert_eq!(heads, [5, 7, 0]);
    // The next one may be killed before it has taken all of them; new ones come after them.
    [5, 7].into_iter().for_each(|head| assert!(marks.take(head)));
    let (mut marks, heads) = open(&region, 1);
    assert_eq!(heads, [5, 7, 0]);
    [5, 7, 0, 1].into_iter().for_each(|head| _ = marks.take(head));
    assert_eq!(open(&region, 1).1, [5, 7, 0, 1]);
}

/// Answers one request and dies after so many steps; what the next one finds.
#[test]
fn a_kill_between_any_two_steps_leaves_a_request_answered_or_marked() {
    for steps in 0..4 {
        let region = region();
        let (mut marks, _) = open(&region, 65535);
        [3, 4].into_iter().for_each(|head| _ = marks.take(head));
        let mut used = 65535_u16;
        if steps > 0 {
            marks.answering(4);
        }
        if steps > 1 {
            used = used.wrapping_add(1);
        }
        if steps > 2 {
            marks.answered(4, used);
        }
        let expect: &[u16] = if used == 0 { &[3] } else { &[3, 4] };
        assert_eq!(open(&region, used).1, expect, "after {steps} steps");
    }
}

#[test]
fn a_mark_may_be_gone_and_its_count_not_noted() {
    let region = region();
    let (mut marks, _) = open(&region, 0);
    [3, 4].into_iter().for_each(|head| _ = marks.take(head));
    marks.answering(3);
    marks.store(entry(3), 0_u8);
    assert_eq!(open(&region, 1).1, [4]);
    assert_eq!(open(&region, 1).1, [4], "found again the same way");
}

#[test]
fn a_batch_of_another_daemon_is_unmarked_as_a_whole() {
    let region = region();
    let (mut marks, _) = open(&region, 10);
    (0..6).for_each(|head| _ = marks.take(head));
    [4, 1, 3].into_iter().for_each(|head| marks.answering(head));
    assert_eq!(open(&region, 13).1, [0, 2, 5]);
}

#[test]
fn a_ring_that_began_anew_unmarks_nothing_by_mistake() {
    let region = region();
    let (mut marks, _) = open(&region, 500);
    marks.take(6);
    marks.answering(6);
    marks.answered(6, 501);
    let (mut marks, heads) = open(&region, 0);
    assert!(heads.is_empty());
    marks.take(2);
    assert_eq!(open(&region, 0).1, [2]);
}

#[test]
fn nonsense_in_the_region_is_bounded() {
    let region = region();
    let (mut marks, _) = open(&region, 0);
    marks.take(1);
    marks.store(LAST_AT, 60_000_u16);
    assert_eq!(open(&region, 5).1, [1]);
    marks.store(LAST_AT, 1_u16);
    marks.store(entry(1) + 6, 1_u16);
    assert!(open(&region, 9).1.is_empty(), "a loop");
}

#[test]
fn counters_that_change_while_they_are_read_give_some_order_of_all_that_is_marked() {
    const MANY: u16 = 1024;
    let region = Region::create(1, MANY).unwrap().0;
    let (mut marks, _) = Inflight::open(&region, 0, MANY, 0).unwrap();
    (0..MANY).for_each(|head| _ = marks.take(head));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1_u64;
            while !is_over.load(Ordering::Relaxed) {
                for head in 0..MANY {
                    number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    marks.store(entry(head) + 8, number);
                }
            }
        });
        let opens = || Inflight::open(&region, 0, MANY, 0).unwrap().1;
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| {
            (0..300).map(|_| opens()).collect::<Vec<_>>()
        }));
        is_over.store(true, Ordering::Relaxed);
        for mut heads in opened.unwrap() {
            heads.sort_unstable();
            assert!(heads.into_iter().eq(0..MANY));
        }
    });
}

#[test]
fn a_region_of_another_ring_is_refused() {
    let region = region();
    let (marks, _) = open(&region, 0);
    let refused = |queue, size| Inflight::open(&region, queue, size, 0).is_err();
    assert!(refused(1, 4) && refused(2, SIZE) && refused(0, 2 * SIZE));
    assert!(!refused(0, 4), "not used before");
    marks.store(VERSION_AT, 2_u16);
    assert!(refused(1, SIZE));
}

#[test]
fn a_region_is_found_again_by_its_file() {
    let (region, file) = Region::create(2, SIZE).unwrap();
    let (mut marks, _) = open(&region, 0);
    marks.take(7);
    region.note_cache(true);
    drop((region, marks));
    let bytes = Region::bytes(2, SIZE);
    let region = Region::open(file.try_clone().unwrap(), 0, bytes, 2, SIZE).unwrap();
    assert!(region.is_cache_off());
    assert_eq!(open(&region, 0).1, [7]);
    region.note_cache(false);
    assert!(!region.is_cache_off());
    assert!(Region::open(file.try_clone().unwrap(), 0, bytes - 1, 2, SIZE).is_err());
    assert!(Region::open(file, 4096, bytes, 2, SIZE).is_err(), "beyond the file's end");
}
