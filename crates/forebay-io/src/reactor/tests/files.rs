use super::*;
use rustix::fs::FallocateFlags;

#[test]
fn what_was_written_is_read_back() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 1 << 16);
        let file = add_file(&mut reactor);
        arena.write_at(4096, &pattern(8192));
        reactor.write(file, 12288, region(id, 4096, 8192), Token(1));
        let written = wait_for_one(&mut reactor);
        assert_eq!((written.token, written.result.unwrap()), (Token(1), 8192));
        reactor.flush(file, Token(2));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 0);
        reactor.read(file, 12288, region(id, 32768, 8192), Token(3));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 8192);
        assert_eq!(arena.crc32c(32768, 8192), crc32c::crc32c(&pattern(8192)));
    });
}

#[test]
fn memory_that_was_given_back_is_used_again_as_if_it_had_never_been() {
    const HUGE: u64 = 2 << 20;
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 4 * HUGE as usize);
        let file = add_file(&mut reactor);
        let mut number = 0;
        // More often than it takes for memory to be registered.
        let mut use_it = |reactor: &mut Reactor| {
            for at in [HUGE, 2 * HUGE + 4096, 3 * HUGE - 4096].into_iter().cycle().take(300) {
                number += 1;
                let bytes = [number as u8; 4096];
                arena.write_at(at, &bytes);
                reactor.write(file, 0, region(id, at, 4096), Token(1));
                assert_eq!(wait_for_one(reactor).result.unwrap(), 4096);
                arena.zero(at, 4096);
                reactor.read(file, 0, region(id, at, 4096), Token(2));
                assert_eq!(wait_for_one(reactor).result.unwrap(), 4096);
                assert!(arena.look(at, 4096, |found| found == bytes), "use {number}");
            }
        };
        use_it(&mut reactor);
        for _ in 0..3 {
            arena.write_at(HUGE - 1, &[9]);
            arena.write_at(3 * HUGE, &[9]);
            let before = arena.anonymous_bytes();
            reactor.release(region(id, HUGE, 2 * HUGE as u32)).unwrap();
            assert_eq!(before - arena.anonymous_bytes(), 2 * HUGE as usize);
            assert!(arena.look(HUGE, 2 * HUGE as u32, |found| found.iter().all(|b| *b == 0)));
            assert!(arena.look(HUGE - 1, 1, |found| found == [9]), "what is before it stays");
            assert!(arena.look(3 * HUGE, 1, |found| found == [9]), "and what is behind it");
            use_it(&mut reactor);
            arena.populate(HUGE, 2 * HUGE as usize, || true);
        }
    });
}

#[test]
fn a_durable_write_is_a_write() {
    on_each_kind(|mut reactor| {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let (id, arena) = add_arena(&mut reactor, 1 << 16);
        let added = reactor.add_file(OwnedFd::from(file.reopen().unwrap()), None).unwrap();
        arena.write_at(0, &pattern(8192));
        reactor.write_durably(added, 4096, region(id, 0, 8192), Token(1));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 8192);
        assert_eq!(std::fs::read(file.path()).unwrap()[4096..], pattern(8192));
    });
}

#[test]
fn a_read_across_the_end_is_short_and_behind_it_is_empty() {
    on_each_kind(|mut reactor| {
        let (id, _arena) = add_arena(&mut reactor, 1 << 16);
        let file = add_file(&mut reactor);
        reactor.write(file, 0, region(id, 0, 5000), Token(1));
        wait_for_one(&mut reactor);
        reactor.read(file, 4096, region(id, 0, 4096), Token(2));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 904);
        reactor.read(file, 1 << 20, region(id, 0, 4096), Token(3));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 0);
    });
}

#[test]
fn direct_io_works_at_its_alignment() {
    on_each_kind(|mut reactor| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, pattern(1 << 16)).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT;
        let Ok(fd) = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()) else { return };
        let (id, arena) = add_arena(&mut reactor, 1 << 16);
        let file = reactor.add_file(fd, None).unwrap();
        reactor.read(file, 8192, region(id, 4096, 4096), Token(1));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 4096);
        let mut bytes = vec![0; 4096];
        arena.read_at(4096, &mut bytes);
        assert_eq!(bytes, pattern(1 << 16)[8192..12288]);
    });
}

#[test]
fn a_punched_hole_reads_as_zeroes() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 1 << 16);
        let file = add_file(&mut reactor);
        arena.write_at(0, &[7; 12288]);
        reactor.write(file, 0, region(id, 0, 12288), Token(1));
        wait_for_one(&mut reactor);
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        reactor.fallocate(file, mode, 4096, 4096, Token(2));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 0);
        reactor.read(file, 0, region(id, 16384, 12288), Token(3));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 12288);
        let mut bytes = vec![1; 12288];
        arena.read_at(16384, &mut bytes);
        assert_eq!(bytes, [vec![7; 4096], vec![0; 4096], vec![7; 4096]].concat());
    });
}

#[test]
fn errors_of_the_kernel_come_back() {
    on_each_kind(|mut reactor| {
        let (id, _arena) = add_arena(&mut reactor, 4096);
        let read_only = std::fs::File::open("/dev/null").unwrap();
        let file = reactor.add_file(OwnedFd::from(read_only), None).unwrap();
        reactor.write(file, 0, region(id, 0, 4096), Token(1));
        assert_eq!(errno(&wait_for_one(&mut reactor)), Some(libc::EBADF));
        reactor.fallocate(file, FallocateFlags::PUNCH_HOLE, 0, 0, Token(2));
        assert!(wait_for_one(&mut reactor).result.is_err());
    });
}

#[test]
fn more_operations_than_the_queue_has_entries_all_end() {
    on_each_kind_of(8, |mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 512 * 1000);
        let file = add_file(&mut reactor);
        for number in 0..1000_u64 {
            arena.write_at(number * 512, &[number as u8; 512]);
            reactor.write(file, number * 512, region(id, number * 512, 512), Token(number));
        }
        assert_eq!(reactor.in_flight(), 1000);
        let mut tokens: Vec<u64> = wait_for(&mut reactor, 1000)
            .into_iter()
            .map(|completion| {
                assert_eq!(completion.result.unwrap(), 512);
                completion.token.0
            })
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..1000).collect::<Vec<_>>());
        assert_eq!(reactor.in_flight(), 0);
    });
}

#[test]
fn operations_on_what_is_not_there_end_with_an_error() {
    on_each_kind(|mut reactor| {
        let (id, _arena) = add_arena(&mut reactor, 4096);
        let file = add_file(&mut reactor);
        reactor.read(FileId(77), 0, region(id, 0, 512), Token(1));
        assert_eq!(errno(&wait_for_one(&mut reactor)), Some(libc::EBADF));
        reactor.read(file, 0, region(ArenaId(9), 0, 512), Token(2));
        assert_eq!(errno(&wait_for_one(&mut reactor)), Some(libc::EFAULT));
        reactor.remove_file(file);
        reactor.flush(file, Token(3));
        assert_eq!(errno(&wait_for_one(&mut reactor)), Some(libc::EBADF));
        assert_eq!(reactor.in_flight(), 0);
    });
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_region_beyond_its_arena_panics() {
    let mut reactor = Reactor::new(8, None).unwrap();
    let (id, _arena) = add_arena(&mut reactor, 4096);
    let file = add_file(&mut reactor);
    reactor.read(file, 0, region(id, 4000, 512), Token(1));
}

#[test]
fn an_arena_beyond_one_gibibyte_works_across_the_pieces_it_is_registered_in() {
    let available = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = available
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
        .unwrap();
    if kib < 3 << 20 {
        eprintln!("not tested: less than 3 GiB of memory are available");
        return;
    }
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, (1 << 30) + (1 << 20));
        let file = add_file(&mut reactor);
        let bytes = pattern(16384);
        for (number, offset) in [(1 << 30) - 8192, 1 << 30, 0].into_iter().enumerate() {
            arena.write_at(offset, &bytes);
            reactor.write(file, 0, region(id, offset, 16384), Token(number as u64));
            assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 16384);
            arena.zero(offset, 16384);
            reactor.read(file, 0, region(id, offset, 16384), Token(9));
            assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 16384);
            assert_eq!(arena.crc32c(offset, 16384), crc32c::crc32c(&bytes));
        }
    });
}

#[test]
fn a_short_read_of_a_file_in_memory_is_done_when_it_is_started() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 1 << 20);
        let fd = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = reactor.add_file(fd.try_clone().unwrap(), None).unwrap();
        arena.write_at(0, &pattern(8192));
        reactor.write(file, 4096, region(id, 0, 8192), Token(1));
        reactor.read(file, 4096, region(id, 65536, 8192), Token(2));
        reactor.read(file, 8192, region(id, 0, 8192), Token(3));
        reactor.remove_file(file);
        let mut bytes = vec![0; 8192];
        arena.read_at(65536, &mut bytes);
        assert_eq!(bytes, pattern(8192));
        assert_eq!(reactor.in_flight(), 3);
        let mut ended = Vec::new();
        reactor.wait(Some(Duration::ZERO), &mut ended).unwrap();
        let ended: Vec<_> =
            ended.iter().map(|c| (c.token.0, *c.result.as_ref().unwrap())).collect();
        assert_eq!(ended, [(1, 8192), (2, 8192), (3, 4096)], "short at the end of the file");
        // A long one takes the way of all others.
        let file = reactor.add_file(fd, None).unwrap();
        reactor.write(file, 0, region(id, 0, 1 << 20), Token(4));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 1 << 20);
    });
}

#[test]
fn memory_of_a_file_with_holes_is_used_often_and_the_holes_stay() {
    on_each_kind(|mut reactor| {
        let file = add_file(&mut reactor);
        let tail = rustix::fs::memfd_create("tail", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&tail, 1 << 20).unwrap();
        let arena = Arc::new(Arena::with_tail(4096 + (1 << 20), 4096, tail.as_fd()).unwrap());
        let id = reactor.add_arena(arena.clone()).unwrap();
        for byte in 0..100 {
            arena.write_at(4096, &[byte; 8192]);
            reactor.write(file, 0, region(id, 4096, 8192), Token(1));
            assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 8192);
        }
        assert_eq!(rustix::fs::fstat(&tail).unwrap().st_blocks * 512, 8192);
    });
}

/// Windows of memory that is used often are registered; their slots are used again when memory goes.
#[test]
fn memory_that_is_used_often_has_the_bytes_of_its_own_file_whoever_had_it_registered_before() {
    const WINDOW: u64 = 2 << 20;
    const TAIL: usize = 3 << 20;
    on_each_kind(|mut reactor| {
        let file = add_file(&mut reactor);
        for round in 0..3u8 {
            let tail = rustix::fs::memfd_create("tail", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&tail, 1 << 20).unwrap();
            let arena = Arena::with_tail(TAIL + (1 << 20), TAIL, tail.as_fd()).unwrap();
            let arena = Arc::new(arena);
            if round > 0 {
                arena.have_whole_tail();
            }
            let id = reactor.add_arena(arena.clone()).unwrap();
            // In one window each, one that ends at the tail, one in it, and one over two windows.
            let places = [0, WINDOW + 4096, TAIL as u64 - 8192, TAIL as u64 + 4096, WINDOW - 4096];
            for use_of_it in 0..100u8 {
                for (n, at) in places.into_iter().enumerate() {
                    let byte = round ^ use_of_it.wrapping_mul(7) ^ n as u8;
                    arena.write_at(at, &[byte; 8192]);
                    reactor.write(file, n as u64 * 8192, region(id, at, 8192), Token(1));
                    assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 8192);
                    arena.zero(at, 8192);
                    reactor.read(file, n as u64 * 8192, region(id, at, 8192), Token(2));
                    assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 8192);
                    let is_right = |bytes: &[u8]| bytes.iter().all(|it| *it == byte);
                    assert!(arena.look(at, 8192, is_right), "{round}, {use_of_it}, {at}");
                }
            }
            reactor.remove_arena(id);
        }
    });
}
