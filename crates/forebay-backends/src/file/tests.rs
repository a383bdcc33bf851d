use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::action::{Extent, ExtentState};
use forebay_core::ids::IoId;
use forebay_io::arena::Arena;
use forebay_io::reactor::Reactor;
use tempfile::NamedTempFile;

use super::*;
use crate::error::ErrorKind;
use crate::testing::Bench;

const MIB: u64 = 1 << 20;

fn file(len: u64) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(len).expect("a size");
    file
}

fn uri(file: &NamedTempFile) -> FileUri {
    FileUri { path: file.path().to_owned(), direct: true, read_only: false }
}

fn bench(file: &NamedTempFile, options: &str) -> Bench {
    Bench::open(&format!("file:{}{options}", file.path().display()))
}

fn open_error(uri: &FileUri) -> Error {
    FileBackend::open_file(uri, OpenOptions::default()).expect_err("it is refused")
}

#[test]
fn what_was_written_is_read_directly_and_through_the_page_cache() {
    for options in ["", "?direct=off"] {
        let file = file(4 * MIB);
        let mut bench = bench(&file, options);
        assert_eq!(bench.write(ByteRange::at(MIB, 64 << 10), 7), IoStatus::Ok);
        assert_eq!(bench.flush(), IoStatus::Ok);
        assert_eq!(bench.read_fill(ByteRange::at(MIB + 4096, 8192)), 7);
        assert_eq!(bench.read_fill(ByteRange::at(0, MIB)), 0);
        let mut byte = [0];
        file.as_file().read_exact_at(&mut byte, MIB).expect("the file has it");
        assert_eq!(byte, [7]);
    }
}

#[derive(Debug, Default)]
struct Told {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Writes for Told {
    fn begins(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_write_is_told_of_before_anybody_can_carry_it_out_and_when_it_has_ended() {
    for wrapped in ["", "model:san?latency=1ms&inner=", "fault:rule=error,op=read&inner="] {
        let file = file(4 * MIB);
        let uri = format!("{wrapped}file:{}", file.path().display());
        let mut backend = crate::open(&uri.parse().unwrap(), OpenOptions::default()).unwrap();
        let told = Arc::new(Told::default());
        backend.tell_of_writes(told.clone());
        let mut bench = Bench::new(backend);
        let told = || (told.begun.load(Ordering::Relaxed), told.ended.load(Ordering::Relaxed));
        let read = bench.submit_read(ByteRange::at(0, 4096)).0;
        bench.end_of(read);
        assert_eq!((bench.flush(), told()), (IoStatus::Ok, (0, 0)), "nothing is changed");
        let write = bench.submit_write(ByteRange::at(0, MIB), 7);
        if wrapped.is_empty() {
            // Nobody has waited for the reactor: a thread of it may be at work already.
            assert_eq!(told(), (1, 0));
        }
        bench.end_of(write);
        assert_eq!(told(), (1, 1));
        let zero = IoOp::WriteZeroes { may_unmap: true, fast_only: false };
        for (op, expect) in [(zero, 2), (IoOp::Discard, 3)] {
            let id = bench.submit(op, ByteRange::at(0, MIB));
            bench.end_of(id);
            assert_eq!(told(), (expect, expect), "{op:?}");
        }
    }
}

#[test]
fn many_ios_at_a_time_end_each_once() {
    let file = file(4 * MIB);
    let mut bench = bench(&file, "");
    let writes: Vec<_> =
        (0..64).map(|i| bench.submit_write(ByteRange::at(i * 8192, 8192), i as u8 + 1)).collect();
    for id in writes {
        assert_eq!(bench.end_of(id), IoStatus::Ok);
    }
    for i in 0..64 {
        assert_eq!(bench.read_fill(ByteRange::at(i * 8192, 8192)), i as u8 + 1);
    }
}

#[test]
fn a_file_that_became_shorter_is_an_error_and_not_zeroes() {
    let file = file(MIB);
    let mut bench = bench(&file, "");
    file.as_file().set_len(MIB / 2).expect("cut");
    assert_eq!(bench.read(ByteRange::at(0, MIB)), Err(IoStatus::IoError));
    assert_eq!(bench.read(ByteRange::at(MIB / 2, 4096)), Err(IoStatus::IoError));
    assert_eq!(bench.read_fill(ByteRange::at(0, MIB / 2)), 0);
}

#[test]
fn zeroes_and_discards_read_as_zeroes_or_are_refused_for_good() {
    let file = file(MIB);
    let mut bench = bench(&file, "");
    for (op, range) in [
        (IoOp::WriteZeroes { may_unmap: true, fast_only: true }, ByteRange::at(0, 64 << 10)),
        (IoOp::WriteZeroes { may_unmap: false, fast_only: false }, ByteRange::at(64 << 10, 4096)),
        (IoOp::Discard, ByteRange::at(128 << 10, 64 << 10)),
    ] {
        assert_eq!(bench.write(range, 9), IoStatus::Ok);
        match bench.run(op, range) {
            IoStatus::Ok => assert_eq!(bench.read_fill(range), 0, "{op:?}"),
            status => {
                assert_eq!(status, IoStatus::Unsupported, "{op:?}");
                assert_eq!(bench.run(op, range), IoStatus::Unsupported);
                assert_eq!(bench.read_fill(range), 9);
            }
        }
    }
    // The file keeps its size, whatever was punched.
    assert_eq!(file.as_file().metadata().expect("it is there").len(), MIB);
}

#[test]
fn a_discard_of_less_than_a_block_does_nothing() {
    let file = file(MIB);
    let mut bench = bench(&file, "");
    let block = u64::from(bench.backend.properties().logical_block);
    assert_eq!(bench.write(ByteRange::at(0, 8192), 9), IoStatus::Ok);
    assert_eq!(bench.run(IoOp::Discard, ByteRange::at(1, block - 1)), IoStatus::Ok);
    assert_eq!(bench.read_fill(ByteRange::at(0, 8192)), 9);
}

#[test]
fn holes_are_told_from_data() {
    let mut file = file(4 * MIB);
    file.seek(SeekFrom::Start(MIB)).expect("seek");
    file.write_all(&[1; 65536]).expect("write");
    file.as_file().sync_all().expect("sync");
    let mut bench = bench(&file, "");
    let extents = bench.extents_of(ByteRange::at(0, 4 * MIB));
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), 4 * MIB);
    if extents.len() > 1 {
        assert_eq!(extents[0], Extent { len: MIB, state: ExtentState::Hole });
        assert_eq!(extents[1].state, ExtentState::Allocated);
    }
    let part = bench.extents_of(ByteRange::at(MIB + 512, 1024));
    assert_eq!(part, [Extent { len: 1024, state: ExtentState::Allocated }]);
}

#[test]
fn what_breaks_a_constraint_is_refused() {
    let file = file(MIB);
    let mut bench = bench(&file, "");
    assert_eq!(bench.read(ByteRange::at(MIB - 4096, 8192)), Err(IoStatus::Invalid));
    assert_eq!(bench.read(ByteRange::at(100, 512)), Err(IoStatus::Invalid));
    drop(bench);
    let mut bench = self::bench(&file, "?read-only=on");
    assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::ReadOnly);
    assert_eq!(bench.run(IoOp::Discard, ByteRange::at(0, 4096)), IoStatus::ReadOnly);
    assert_eq!(bench.flush(), IoStatus::Ok);
}

#[test]
fn a_second_writer_is_refused_until_the_first_has_gone() {
    let file = file(MIB);
    let first = FileBackend::open_file(&uri(&file), OpenOptions::default()).expect("it is free");
    let error = open_error(&uri(&file));
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("in use"), "{error}");
    drop(first);
    FileBackend::open_file(&uri(&file), OpenOptions::default()).expect("it is free again");
}

#[test]
fn what_cannot_serve_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &std::path::Path| FileUri { path: path.into(), direct: true, read_only: false };
    let missing = open_error(&at(&folder.path().join("missing")));
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("create it"), "{missing}");
    assert_eq!(open_error(&at(folder.path())).kind(), ErrorKind::Unsuitable);
    assert_eq!(open_error(&at("/dev/null".as_ref())).kind(), ErrorKind::Unsuitable);
    let empty = open_error(&uri(&file(0)));
    assert!(empty.to_string().contains("truncate"), "{empty}");
    let odd = open_error(&uri(&file(1000)));
    assert!(odd.to_string().contains("1000 bytes"), "{odd}");
    let block = FileBackend::open_block(&uri(&file(MIB)), OpenOptions::default());
    let block = block.expect_err("it is a file");
    assert!(block.to_string().contains("file:"), "{block}");
}

/// The kernel writes zeroes where a device has no other way, and says nothing of it.
#[test]
fn a_device_that_refuses_holes_is_not_filled_with_zeroes_instead() {
    let file = file(MIB);
    let mut backend = FileBackend::open_file(&uri(&file), OpenOptions::default()).unwrap();
    let range = ByteRange::at(0, 4096);
    let next = |backend: &FileBackend, may_unmap, tried| {
        backend.zeroes_mode(range, may_unmap, false, tried)
    };
    assert_eq!(next(&backend, true, Some(PUNCH)), Some(ZERO), "a file is not written to");
    backend.is_block = true;
    assert_eq!(
        (next(&backend, true, None), next(&backend, false, None)),
        (Some(PUNCH), Some(ZERO))
    );
    assert_eq!(next(&backend, true, Some(PUNCH)), None);
    backend.holes.can_punch = false;
    assert_eq!((next(&backend, true, None), next(&backend, false, None)), (None, Some(ZERO)));
    for errno in [Errno::OPNOTSUPP, Errno::REMOTEIO] {
        backend.holes.can_discard = true;
        assert_eq!(backend.discarded(&Err(errno.into())), IoStatus::Unsupported);
        assert!(!backend.holes.can_discard);
    }
    backend.holes.can_discard = true;
    assert_eq!(backend.discarded(&Err(Errno::IO.into())), IoStatus::IoError);
    assert!(backend.holes.can_discard);
    let mut reactor = Reactor::new(8, None).expect("a reactor");
    let arena = reactor.add_arena(Arc::new(Arena::new(4096).expect("memory"))).expect("room");
    let mut failed = |op, errno: Errno| {
        backend.holes.can_punch = true;
        let io = BackendIo { id: IoId(0), range, op, arena };
        let key = backend.running.insert(Running { io, done: 0, mode: PUNCH });
        (backend.failure(key, &errno.into()), backend.holes.can_punch)
    };
    let unmap = IoOp::WriteZeroes { may_unmap: true, fast_only: false };
    assert_eq!(failed(unmap, Errno::REMOTEIO), (Some(IoStatus::Unsupported), false));
    assert_eq!(failed(unmap, Errno::IO), (Some(IoStatus::IoError), true));
    assert_eq!(failed(IoOp::Flush, Errno::REMOTEIO), (Some(IoStatus::IoError), true));
}

#[test]
fn discards_that_have_waited_for_too_long_are_left_out() {
    let file = file(MIB);
    let reactor = Reactor::new(8, None).expect("a reactor");
    let thread = FileThread::start(file.reopen().unwrap(), reactor.waker()).expect("a thread");
    let late = Instant::now();
    while Instant::now() == late {}
    let in_time = late + Duration::from_secs(60);
    for (id, until) in [(1, late), (2, in_time), (3, late)] {
        thread.ask(IoId(id), Question::Discard { until }, ByteRange::at(0, 4096));
    }
    let answers = std::iter::from_fn(|| {
        loop {
            match thread.answer() {
                Some((id, Answer::Discarded(done))) => return Some((id.0, done.is_ok())),
                Some(other) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
    });
    // A regular file refuses to be discarded.
    assert_eq!(answers.take(3).collect::<Vec<_>>(), [(1, true), (2, false), (3, true)]);
}
