use super::*;

/// Draws requests as `R 0..4` and tells which run; then lets one leave and tells who becomes ready.
struct Drawing {
    overlap: Overlap,
    keys: Vec<Key>,
}

impl Drawing {
    fn new() -> Drawing {
        Drawing { overlap: Overlap::new(16), keys: Vec::new() }
    }

    fn enter(&mut self, what: What, start: u64, end: u64) -> bool {
        let key = Key(self.keys.len() as u64);
        self.keys.push(key);
        let range = ByteRange::new(start, end);
        let access = match what {
            Query => Access::Read(ByteRange::default()),
            Read => Access::Read(range),
            Background => Access::Background,
            Write => Access::Write,
        };
        let runs = self.overlap.enter(key, range, access);
        self.overlap.check_invariants();
        runs
    }

    fn leave(&mut self, index: usize) -> Vec<u64> {
        let mut ready = Vec::new();
        self.overlap.leave(self.keys[index], &mut ready);
        self.overlap.check_invariants();
        ready.into_iter().map(|k: Key| k.0).collect()
    }
}

/// A request. A query reads and brings no bytes.
#[derive(Clone, Copy)]
enum What {
    Query,
    Read,
    Background,
    Write,
}

use What::{Background, Query, Read, Write};

#[test]
fn overlapping_writes_run_one_after_the_other() {
    let mut d = Drawing::new();
    assert!(d.enter(Write, 0, 8));
    assert!(!d.enter(Write, 4, 12));
    assert!(!d.enter(Write, 0, 6));
    assert!(d.enter(Write, 12, 16), "a neighbour does not wait");
    assert_eq!(d.leave(0), [1]);
    assert_eq!(d.leave(1), [2]);
    assert_eq!(d.leave(2), [] as [u64; 0]);
}

#[test]
fn who_is_waited_for_came_earlier_and_is_in_the_way() {
    let mut d = Drawing::new();
    d.enter(Write, 0, 8);
    d.enter(Write, 4, 12);
    d.enter(Read, 8, 12);
    let waits = |d: &Drawing, owner: u64, for_: u64| {
        d.overlap.waits_for(Key(owner), |earlier| earlier == Key(for_))
    };
    assert!(waits(&d, 1, 0) && waits(&d, 2, 1));
    assert!(!waits(&d, 0, 1) && !waits(&d, 2, 0) && !waits(&d, 1, 1) && !waits(&d, 9, 0));
    let mut ready = Vec::new();
    d.overlap.narrow(Key(0), ByteRange::new(2, 4), &mut ready);
    assert_eq!(ready, [Key(1)]);
    assert!(!waits(&d, 1, 0));
}

#[test]
fn a_read_waits_for_an_earlier_write_but_reads_do_not_wait_for_reads() {
    let mut d = Drawing::new();
    assert!(d.enter(Write, 0, 8));
    assert!(!d.enter(Query, 7, 9));
    assert!(!d.enter(Read, 0, 8));
    assert!(d.enter(Query, 8, 9));
    assert_eq!(d.leave(0), [1, 2]);
}

#[test]
fn a_read_of_bytes_that_an_earlier_one_brings_waits_for_it() {
    let mut d = Drawing::new();
    assert!(d.enter(Read, 0, 8));
    assert!(!d.enter(Read, 4, 8));
    assert!(d.enter(Query, 0, 8));
    assert_eq!(d.overlap.next_waiter(d.keys[0], 0), Some((1, d.keys[1])));
    assert_eq!(d.overlap.next_waiter(d.keys[0], 1), None);
    assert_eq!(d.leave(0), [1]);
}

#[test]
fn who_waits_for_others_as_well_is_not_given_the_bytes() {
    let mut d = Drawing::new();
    assert!(d.enter(Read, 0, 8));
    assert!(!d.enter(Write, 0, 1));
    assert!(!d.enter(Read, 0, 8));
    assert!(!d.enter(Read, 4, 8));
    // The last one waits for the two reads before it, the one before for the write.
    assert_eq!(d.overlap.next_waiter(d.keys[0], 0), Some((1, d.keys[1])), "the write");
    assert_eq!(d.overlap.next_waiter(d.keys[0], 1), None);
}

#[test]
fn a_background_read_holds_up_nobody_and_waits_for_writes_alone() {
    let mut d = Drawing::new();
    assert!(d.enter(Write, 0, 8));
    assert!(d.enter(Read, 8, 16));
    assert!(!d.enter(Background, 0, 8));
    assert!(d.enter(Background, 8, 16));
    assert!(!d.enter(Read, 8, 9), "the read brings it");
    assert_eq!(d.leave(0), [2]);
    assert!(d.enter(Write, 0, 8), "nothing but a background read is there");
    assert_eq!(d.overlap.background_in(ByteRange::new(7, 9)), Some(d.keys[2]));
    assert_eq!(d.leave(2), [] as [u64; 0]);
    assert_eq!((d.overlap.background_in(ByteRange::new(0, 8)), d.overlap.backgrounds()), (None, 1));
}

#[test]
fn a_read_that_wants_more_than_an_earlier_one_brings_waits_for_none() {
    let mut d = Drawing::new();
    assert!(d.enter(Read, 4, 8));
    assert!(d.enter(Read, 7, 12), "they share an edge");
    assert!(d.enter(Read, 0, 12), "it has both within it");
    assert!(!d.enter(Read, 4, 8), "two have it");
    assert!(!d.enter(Write, 7, 8));
    assert_eq!(d.leave(0), [] as [u64; 0]);
    assert_eq!(d.leave(2), [3]);
    assert_eq!(d.leave(1), [] as [u64; 0]);
    assert_eq!(d.leave(3), [4]);
}

#[test]
fn a_read_behind_a_waiting_write_waits_too() {
    let mut d = Drawing::new();
    assert!(d.enter(Query, 0, 8));
    assert!(!d.enter(Write, 0, 8));
    assert!(!d.enter(Query, 0, 8), "else writers starve");
    assert!(d.overlap.has_writer(ByteRange::new(0, 1)));
    assert!(!d.overlap.has_writer(ByteRange::new(8, 9)));
    assert_eq!(d.leave(0), [1]);
    assert_eq!(d.leave(1), [2]);
}

#[test]
fn a_waiting_request_that_gives_up_unblocks_those_behind_it() {
    let mut d = Drawing::new();
    assert!(d.enter(Query, 0, 8));
    assert!(!d.enter(Write, 0, 8));
    assert!(!d.enter(Query, 4, 8));
    assert_eq!(d.leave(1), [2]);
    assert_eq!(d.leave(1), [] as [u64; 0], "leaving twice does nothing");
}
