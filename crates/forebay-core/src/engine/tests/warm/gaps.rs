//! Pages of the ring that are missing when a restart reads it.

use super::*;

/// A rig whose ring has pages `1..=last`, one batch each.
fn with_pages(last: u64) -> Rig {
    let mut rig = Rig::new(with_ring(16));
    let of = |rig: &Rig| rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
    rig.settle_ring();
    let mut block = 0;
    while of(&rig) < last {
        rig.fill(block..block + 1);
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
