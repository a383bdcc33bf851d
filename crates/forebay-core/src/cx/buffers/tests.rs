use super::*;
use proptest::prelude::*;

#[test]
fn a_run_spans_words_and_waits_for_neighbours() {
    let mut pool = BufferPool::new(200 * PAGE);
    assert_eq!(pool.take(60), Some(0));
    assert_eq!(pool.take(100), Some(60));
    assert_eq!(pool.take(41), None);
    assert_eq!(pool.take(40), Some(160));
    pool.give(0, 60);
    pool.give(160, 40);
    assert_eq!(pool.take(61), None, "free pages are not neighbours");
    pool.give(60, 100);
    assert_eq!(pool.take(200), Some(0));
}

#[test]
fn what_was_used_last_is_used_next() {
    let mut pool = BufferPool::new(200 * PAGE);
    assert_eq!([pool.take(3), pool.take(1), pool.take(2)], [Some(0), Some(3), Some(4)]);
    pool.give(3, 1);
    assert_eq!(pool.take(2), Some(6));
    assert_eq!(pool.take(1), Some(3));
    pool.give(0, 3);
    assert_eq!([pool.take(2), pool.take(1)], [Some(0), Some(2)]);
}

#[test]
fn spent_pages_are_free_after_everything_was_carried_out() {
    let mut pool = BufferPool::new(4 * PAGE);
    assert_eq!(pool.take(4), Some(0));
    pool.spend(0, 2);
    pool.carried_out();
    assert_eq!((pool.pages_free(), pool.take(1)), (2, None), "nobody has carried anything out");
    pool.asked();
    pool.spend(2, 2);
    pool.carried_out();
    assert_eq!((pool.take(2), pool.take(1)), (Some(0), None));
    pool.asked();
    pool.carried_out();
    assert_eq!((pool.take(2), pool.has_spent()), (Some(2), false));
}

#[test]
fn what_was_not_in_use_since_the_last_look_is_idle_once() {
    let mut pool = BufferPool::new(10 * u64::from(HUGE) * PAGE + 5 * PAGE);
    assert!(!pool.has_touched());
    pool.take(9 * HUGE + 7);
    assert!(pool.has_touched());
    assert_eq!(pool.idle(2 * HUGE), None, "it is in use");
    pool.give(3 * HUGE + 1, 6 * HUGE + 6);
    assert_eq!(pool.idle(2 * HUGE), None, "it was");
    assert_eq!(pool.idle(2 * HUGE), Some(8 * HUGE..10 * HUGE));
    assert_eq!(pool.take(2 * HUGE), Some(3 * HUGE + 1));
    pool.give(3 * HUGE + 1, 2 * HUGE);
    assert_eq!(pool.idle(9 * HUGE), Some(6 * HUGE..8 * HUGE), "up to what was used meanwhile");
    assert_eq!(pool.idle(9 * HUGE), Some(4 * HUGE..6 * HUGE), "up to what is taken");
    pool.give(0, 3 * HUGE + 1);
    assert_eq!((pool.idle(9 * HUGE), pool.idle(9 * HUGE)), (None, Some(HUGE..4 * HUGE)));
    assert!(!pool.has_touched() && pool.idle(9 * HUGE).is_none());
}

proptest! {
    #[test]
    fn buffers_never_overlap(steps in prop::collection::vec((1u32..40, any::<prop::sample::Index>()), 1..200)) {
        let mut pool = BufferPool::new(300 * PAGE);
        let mut held: Vec<(u32, u32)> = Vec::new();
        for (count, pick) in steps {
            match pool.take(count) {
                Some(first) => {
                    prop_assert!(first + count <= 300);
                    prop_assert!(held.iter().all(|&(f, c)| first + count <= f || f + c <= first));
                    held.push((first, count));
                }
                None => {
                    let longest = longest_gap(&held);
                    prop_assert!(longest < count, "a gap of {longest} was overlooked");
                    let (first, count) = held.swap_remove(pick.index(held.len()));
                    pool.give(first, count);
                }
            }
            prop_assert_eq!(pool.pages_free(), 300 - held.iter().map(|h| h.1).sum::<u32>());
        }
    }
}

fn longest_gap(held: &[(u32, u32)]) -> u32 {
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    let mut end = 0;
    let mut longest = 0;
    for (first, count) in sorted.into_iter().chain([(300, 0)]) {
        longest = longest.max(first - end);
        end = first + count;
    }
    longest
}
