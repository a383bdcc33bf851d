use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::{Arena, available};

#[test]
fn new_memory_is_rounded_to_pages_aligned_and_zero() {
    let arena = Arena::new(5000).unwrap();
    assert_eq!(arena.len(), 8192);
    assert_eq!(arena.piece(0, 1) as usize % (2 << 20), 0);
    let mut bytes = vec![1; 8192];
    arena.read_at(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn large_memory_is_on_huge_pages_where_the_kernel_has_them() {
    let arena = Arena::new(8 << 20).unwrap();
    let huge = arena.huge_bytes();
    assert!(huge <= arena.len());
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if setting.is_ok_and(|s| !s.contains("[never]")) && huge == 0 {
        eprintln!("no huge pages were free");
    }
}

#[test]
fn memory_that_is_reserved_takes_none_before_it_is_populated() {
    const LEN: usize = 32 << 20;
    let arena = Arena::reserve(LEN).unwrap();
    assert_eq!(arena.anonymous_bytes(), 0);
    arena.populate(0, LEN / 2, || true);
    // The kernel may merge the mapping with a neighbour; a huge page more may be there.
    let there = arena.anonymous_bytes();
    assert!((LEN / 2..=LEN).contains(&there), "{there}");
    arena.populate(LEN as u64 / 2, LEN / 2, || true);
    assert_eq!(arena.anonymous_bytes(), LEN);
    assert_eq!(Arena::new(LEN).unwrap().anonymous_bytes(), LEN);
}

#[test]
fn sizes_that_cannot_be_had_are_errors() {
    assert_eq!(Arena::new(0).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(Arena::new(usize::MAX).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let error = Arena::new(1 << 50).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("ask for less"), "{error}");
}

/// Who touches it sees to it that there is some: a RAM cache waits for its memory.
#[test]
fn memory_that_others_have_can_be_mapped_and_not_populated_at_once() {
    let hard = available().into_iter().filter(|available| available.is_hard);
    let there = hard.map(|available| available.bytes).min().expect("the kernel says it");
    let len = there as usize + (1 << 30);
    let arena = Arena::reserve(len).unwrap();
    assert_eq!((arena.len(), arena.anonymous_bytes()), (len.next_multiple_of(4096), 0));
    assert_eq!(Arena::new(len).unwrap_err().kind(), std::io::ErrorKind::OutOfMemory);
}

#[test]
fn copies_arrive_where_they_should() {
    let arena = Arena::new(4096).unwrap();
    arena.write_at(100, b"forebay");
    arena.copy_within(100, 200, 7);
    arena.zero(101, 2);
    let mut out = b"> ".to_vec();
    arena.append_to(200, 7, &mut out);
    assert_eq!(out, b"> forebay");
    let mut bytes = [9; 9];
    arena.read_at(99, &mut bytes);
    assert_eq!(&bytes, b"\0f\0\0ebay\0");
    arena.write_at(4096, b"");
}

#[test]
fn pieces_are_compared_up_to_where_they_differ() {
    let arena = Arena::new(8192).unwrap();
    arena.write_at(1, &[7; 3000]);
    arena.write_at(4099, &[7; 3000]);
    assert_eq!(arena.first_difference(1, 4099, 3000), None);
    assert_eq!(arena.first_difference(1, 4099, 0), None);
    arena.write_at(1 + 2999, &[8]);
    assert_eq!(arena.first_difference(1, 4099, 3000), Some(2999));
    arena.write_at(4099 + 17, &[8]);
    assert_eq!(arena.first_difference(1, 4099, 3000), Some(17));
    assert_eq!(arena.first_difference(1, 2, 100), None, "pieces may overlap");
}

#[test]
fn one_arena_can_be_used_from_several_threads() {
    let arena = Arena::new(4096).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let arena = &arena;
            scope.spawn(move || {
                for _ in 0..200 {
                    arena.write_at(0, &[thread; 512]);
                    let mut bytes = [0; 512];
                    arena.read_at(0, &mut bytes);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn copy");
                }
            });
        }
    });
}

#[test]
fn an_arena_with_an_owner_refuses_other_threads() {
    let arena = Arena::new(4096).unwrap();
    arena.write_at(0, b"from before");
    arena.own();
    arena.copy_within(0, 100, 11);
    let other = std::thread::scope(|scope| scope.spawn(|| arena.write_at(0, b"!")).join());
    assert!(other.is_err(), "it was not kept away");
    let taken = std::thread::scope(|scope| scope.spawn(|| arena.own()).join());
    assert!(taken.is_err(), "it has another owner");
    let mut bytes = [0; 11];
    arena.read_at(100, &mut bytes);
    assert_eq!(&bytes, b"from before");
    arena.read_at(0, &mut bytes);
    assert_eq!(&bytes, b"from before");
}

#[test]
fn an_owner_that_comes_amid_copies_of_others_is_the_only_one_afterwards() {
    for _ in 0..200 {
        let arena = Arena::new(4096).unwrap();
        std::thread::scope(|scope| {
            let others: Vec<std::thread::ScopedJoinHandle<'_, ()>> = (1..=3_u8)
                .map(|thread| {
                    let arena = &arena;
                    scope.spawn(move || {
                        loop {
                            arena.write_at(0, &[thread; 512]);
                        }
                    })
                })
                .collect();
            arena.own();
            while others.iter().any(|other| !other.is_finished()) {
                arena.write_at(0, &[9; 512]);
            }
            assert!(others.into_iter().all(|other| other.join().is_err()));
        });
        let mut bytes = [0; 512];
        arena.read_at(0, &mut bytes);
        assert_eq!(bytes, [9; 512]);
    }
}

#[test]
#[should_panic(expected = "a copy within a copy")]
fn an_owner_does_not_copy_within_a_copy() {
    let arena = Arena::new(4096).unwrap();
    arena.own();
    arena.edit(0, 512, |_| arena.zero(0, 512));
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_write_beyond_the_end_panics() {
    Arena::new(4096).unwrap().write_at(4090, &[0; 7]);
}

#[test]
#[should_panic(expected = "out of bounds")]
fn an_offset_that_overflows_panics() {
    Arena::new(4096).unwrap().zero(u64::MAX, 2);
}

#[test]
#[should_panic(expected = "overlap")]
fn an_overlapping_copy_panics() {
    Arena::new(4096).unwrap().copy_within(0, 10, 11);
}

#[test]
fn the_checksum_is_castagnolis() {
    let arena = Arena::new(4096).unwrap();
    arena.write_at(7, b"123456789");
    assert_eq!(arena.crc32c(7, 9), 0xe306_9283);
    assert_eq!(arena.crc32c(0, 0), 0);
}

proptest! {
    #[test]
    fn the_checksum_agrees_with_another_implementation(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        offset in 0_u64..3000,
    ) {
        let arena = Arena::new(8192).unwrap();
        arena.write_at(offset, &bytes);
        prop_assert_eq!(arena.crc32c(offset, bytes.len() as u32), crc32c::crc32c(&bytes));
    }
}

#[test]
fn a_tail_in_a_file_outlives_the_arena() {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    let file = tempfile::tempfile().unwrap();
    assert!(Arena::with_tail(3 * 4096, 4096, file.as_fd()).is_err(), "the file is too short");
    file.set_len(8192).unwrap();
    assert!(Arena::with_tail(3 * 4096, 100, file.as_fd()).is_err(), "not at a page");
    file.write_all_at(b"before", 10).unwrap();
    let arena = Arena::with_tail(3 * 4096, 4096, file.as_fd()).unwrap();
    assert_eq!(arena.tail_start(), 4096);
    let mut bytes = [0; 6];
    arena.read_at(4096 + 10, &mut bytes);
    assert_eq!(&bytes, b"before");
    // Across the seam.
    arena.write_at(4090, b"0123456789");
    arena.edit(4096 + 10, 6, |bytes| bytes.copy_from_slice(b"after!"));
    drop(arena);
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"6789\0\0\0\0\0\0after!");
}

/// A page of an arena that cannot be written.
fn is_spare(arena: &Arena, page: u64) -> bool {
    let write = || arena.write_at(page * 4096, &[1]);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err()
}

#[test]
fn room_has_no_memory_until_it_is_made_usable_and_gives_it_back() {
    const PAGES: u64 = 4096;
    let arena = Arena::with_room((PAGES * 4096) as usize, 1024 * 4096..3072 * 4096, None).unwrap();
    assert!(!arena.populate(1020 * 4096, 8 * 4096, || true), "a part of it is spare");
    arena.write_at(1023 * 4096, &[7; 4096]);
    arena.write_at(3072 * 4096, &[8; 4096]);
    let at_first = arena.anonymous_bytes();
    assert!(is_spare(&arena, 1024) && is_spare(&arena, 3071));

    arena.make_usable(2048 * 4096).unwrap();
    arena.make_usable(100 * 4096).unwrap();
    assert_eq!(arena.spare(), 2048 * 4096..3072 * 4096);
    assert!(arena.populate(1024 * 4096, 1024 * 4096, || true));
    assert!(arena.anonymous_bytes() >= 1024 * 4096);
    arena.write_at(2047 * 4096, &[9; 4096]);
    assert!(is_spare(&arena, 2048));
    assert!(arena.make_usable(3073 * 4096).is_err(), "beyond the room");

    assert!(!arena.give_back(1024 * 4096, u64::MAX).unwrap());
    assert!(!arena.give_back(3000 * 4096, u64::MAX).unwrap());
    assert!(is_spare(&arena, 2047) && is_spare(&arena, 1024));
    assert_eq!(arena.anonymous_bytes(), at_first, "the kernel has it again");
    let at = |page: u64| {
        let mut bytes = [0; 1];
        arena.read_at(page * 4096, &mut bytes);
        bytes[0]
    };
    assert_eq!([at(1023), at(3072)], [7, 8], "what is beside it stays");
    arena.make_usable(3072 * 4096).unwrap();
    assert_eq!([at(1024), at(2047), at(3071)], [0; 3], "it is there again, empty");

    // In steps, from the end; in between there may be other room.
    assert!(arena.give_back(1024 * 4096, 1000 * 4096).unwrap());
    assert_eq!(arena.spare(), 2072 * 4096..3072 * 4096);
    arena.make_usable(2080 * 4096).unwrap();
    let mut steps = 1;
    while arena.give_back(1024 * 4096, 1000 * 4096 + 1).unwrap() {
        steps += 1;
    }
    assert_eq!((steps, arena.spare()), (2, 1024 * 4096..3072 * 4096));
    assert_eq!(arena.anonymous_bytes(), at_first);
}

#[test]
fn room_that_is_given_back_while_somebody_populates_it_is_not_touched_after() {
    const LEN: u64 = 64 << 20;
    let arena = Arena::with_room(LEN as usize, 0..LEN, None).unwrap();
    for round in 1..20 {
        arena.make_usable(LEN).unwrap();
        let populated = AtomicU64::new(0);
        let is_wanted = || {
            populated.fetch_add(1, Ordering::Relaxed);
            true
        };
        std::thread::scope(|scope| {
            let populating = scope.spawn(|| arena.populate(0, LEN as usize, is_wanted));
            // So many huge pages of 32 are under way.
            while populated.load(Ordering::Relaxed) < round {
                std::hint::spin_loop();
            }
            arena.give_back(4096 * round, u64::MAX).unwrap();
            populating.join().unwrap();
        });
        assert_eq!(arena.spare().start, 4096 * round);
        arena.give_back(0, u64::MAX).unwrap();
    }
}

#[test]
fn whoever_populates_ends_when_it_is_not_wanted_any_more() {
    let arena = Arena::reserve(64 << 20).unwrap();
    let asked = std::cell::Cell::new(0);
    let is_wanted = || {
        asked.set(asked.get() + 1);
        asked.get() < 5
    };
    assert!(!arena.populate(4096, 32 << 20, is_wanted));
    assert_eq!(asked.get(), 5);
}

#[test]
fn memory_with_room_and_a_tail_counts_only_what_is_wanted() {
    use std::os::fd::AsFd;
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let tail = Some((1 << 40, file.as_fd()));
    // A TiB of room is there for nothing.
    let arena = Arena::with_room((1 << 40) + 4096, 8192..1 << 40, tail).unwrap();
    arena.write_at(1 << 40, &[1; 4096]);
    arena.write_at(0, &[1; 8192]);
    assert!(is_spare(&arena, 2));
    assert!(arena.make_usable(1 << 40).is_err(), "this machine has no TiB");
    assert!(
        Arena::with_room((1 << 20) + 4096, 8192..(1 << 20) + 4096, Some((1 << 20, file.as_fd())))
            .is_err()
    );
}
