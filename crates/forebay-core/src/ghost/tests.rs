use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

proptest! {
    /// One bucket is a queue of its sixteen newest. A block forgotten among the newest eight
    /// leaves a gap there. 64 blocks do not collide in 16 bits here.
    #[test]
    fn a_bucket_remembers_its_eight_newest_and_eight_older_ones(steps in prop::collection::vec((0..3u8, 0..64u32), 0..200)) {
        let mut ghost = Ghost::new(8);
        let mut model: VecDeque<Option<u32>> = vec![None; 16].into();
        for (what, key) in steps {
            match what {
                0 => {
                    ghost.insert(BlockIndex(key));
                    model.retain(|&k| k != Some(key));
                    model.push_front(Some(key));
                    model.truncate(16);
                }
                1 => {
                    let at = model.iter().position(|&k| k == Some(key));
                    if let Some(at) = at {
                        model.remove(at);
                        model.insert(if at < 8 { 7 } else { 15 }, None);
                    }
                    let age = at.map(|at| if at < 8 { Age::Recent } else { Age::Old });
                    prop_assert_eq!(ghost.remove(BlockIndex(key)), age);
                }
                _ => {}
            }
            for key in 0..64 {
                let is_recent = model.iter().take(8).any(|&k| k == Some(key));
                prop_assert_eq!(ghost.contains(BlockIndex(key)), is_recent);
            }
        }
    }
}

#[test]
fn most_of_the_newest_blocks_are_remembered_and_older_ones_fade() {
    let mut ghost = Ghost::new(8000);
    for key in 0..80_000 {
        ghost.insert(BlockIndex(key));
    }
    let remembered = |from: u32, to: u32| {
        (from..to).filter(|&key| ghost.contains(BlockIndex(key))).count() as f64
            / f64::from(to - from)
    };
    assert!(remembered(76_000, 80_000) > 0.95, "{}", remembered(76_000, 80_000));
    assert!(remembered(0, 60_000) < 0.01, "{}", remembered(0, 60_000));
}

#[test]
fn strangers_are_rarely_taken_for_remembered_blocks() {
    let mut ghost = Ghost::new(8000);
    (0..80_000).for_each(|key| ghost.insert(BlockIndex(key)));
    let taken = (1_000_000..1_100_000).filter(|&key| ghost.contains(BlockIndex(key))).count();
    assert!(taken < 30, "{taken} in 100,000");
}

#[test]
fn nothing_is_remembered_after_clear() {
    let mut ghost = Ghost::new(0);
    ghost.insert(BlockIndex(3));
    assert!(ghost.contains(BlockIndex(3)));
    ghost.clear();
    assert!(!ghost.contains(BlockIndex(3)));
    assert_eq!(ghost.memory_bytes() as u64, Ghost::memory_bytes_for(0));
    assert_eq!(Ghost::memory_bytes_for(900), 3616);
}
