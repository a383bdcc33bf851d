//! Pages of the ring that are missing when a restart reads it.

use super::*;

/// A rig whose ring has pages `1..=last`, one batch each.
fn with_pages(last: u64) -> Rig {
    with_pages_in(with_ring(16), last)
}

fn with_pages_in(config: Config, last: u64) -> Rig {
    let mut rig = Rig::new(config);
    let of = |rig: &Rig| rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
    rig.settle_ring();
    let mut block = 0;
    while of(&rig) < last {
        rig.fill(block % 256..block % 256 + 1);
        block += 1;
        rig.settle_ring();
    }
    rig
}

#[test]
fn a_page_that_was_durable_and_is_gone_makes_the_cache_cold() {
    let rig = with_pages(8);
    let last = rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
    assert!(rig.restarted().is_ok());
    for page in 1..=last {
        let mut torn = with_pages(8);
        torn.ring[(page as usize - 1) * 4096 + 100] ^= 1;
        match torn.restarted() {
            // Without the first one a ring as short as this has no page that is looked at.
            Err(cold) => assert!(cold == Cold::Missing(page) || page == 1 && cold == Cold::Empty),
            // The very last one cannot be told from a torn write, and those before the tail do not count.
            Ok((_, restored)) => {
                let is_old = page + restored.pages_read <= last;
                assert!(page == last || is_old, "page {page}");
            }
        }
    }
}

#[test]
fn a_damaged_page_of_those_that_are_looked_at_first_brings_no_older_state_back() {
    let mut config = with_ring(16);
    config.ring.as_mut().expect("a ring").pages = 600;
    for last in [300, 384, 385, 400, 470, 511, 512, 513] {
        let mut rig = with_pages_in(config, last);
        let last = rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
        let found = rig.restarted().expect("warm").1.found;
        for page in [1, 257, 513, last] {
            rig.ring[(page as usize - 1) * 4096 + 100] ^= 1;
            match rig.restarted() {
                Err(cold) => assert!(matches!(cold, Cold::Missing(_)), "{cold:?}"),
                Ok((_, restored)) if page == last => assert!(restored.found + 1 >= found),
                Ok((_, restored)) => assert_eq!(restored.found, found, "page {page} of {last}"),
            }
            rig.ring[(page as usize - 1) * 4096 + 100] ^= 1;
        }
    }
}

#[test]
fn pages_beyond_a_gap_never_count_again() {
    let rig = with_pages(8);
    let last = rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
    // The last page but one is lost, and was not known to be durable: a batch of two, torn.
    let mut torn = with_pages(8);
    let durable = last - 2;
    for page in [last - 1, last] {
        let at = (page as usize - 1) * 4096;
        let bytes: &mut [u8] = &mut torn.ring[at..at + 4096];
        bytes[56..64].copy_from_slice(&durable.to_le_bytes());
        crate::sealed::seal(bytes.try_into().expect("a page"));
    }
    torn.ring[(last as usize - 2) * 4096 + 7] ^= 1;
    let (mut next, first) = torn.restarted().expect("warm, up to the gap");
    // The next run fills the gap and dies: what lies behind is of an older run.
    next.fill(200..201);
    next.tick(1_000);
    next.settle();
    assert_eq!(next.engine.statistics(next.now).ring.expect("a ring").last_page, last - 1);
    let (_, second) = next.restarted().expect("warm");
    assert_eq!(second.found, first.found + 1);
}
