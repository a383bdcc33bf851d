use std::io::Write;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use super::*;
use crate::arena::{Arena, Region};
use crate::reactor::{ArenaId, Driver, FileId, Token};

/// A driver with an arena, if there is io_uring here.
fn driver() -> Option<(Uring, Shared, ArenaId)> {
    let mut driver = Uring::new(64).ok()?;
    let mut shared = Shared::new(64);
    let arena = shared.arenas.insert(Arc::new(Arena::new(4096).unwrap()));
    driver.on_arena(arena, shared.arenas.held(arena));
    Some((driver, shared, ArenaId(arena as u16)))
}

fn add_file(driver: &mut Uring, shared: &mut Shared, file: &Arc<std::os::fd::OwnedFd>) -> usize {
    let key = shared.add_file(Arc::clone(file), None);
    driver.on_file(key, file).unwrap();
    key
}

fn start(driver: &mut Uring, shared: &mut Shared, file: usize, work: Work, arena: ArenaId) {
    let memory = matches!(work, Work::Read { .. }).then_some(Region { arena, offset: 0, len: 1 });
    let target = Target::File(FileId(file as u32));
    let op = Op { token: Token(file as u64), target, work, memory, buffer: None };
    let key = shared.begin(op).expect("it is registered");
    driver.start(shared, key);
}

/// The tokens of so many operations that end.
fn ended(driver: &mut Uring, shared: &mut Shared, count: usize) -> Vec<u64> {
    let mut ended = Vec::new();
    while ended.len() < count {
        let before = ended.len();
        driver.wait(shared, Some(Duration::from_secs(10)), &mut ended, &mut ()).unwrap();
        assert!(ended.len() > before, "nothing ended in ten seconds");
    }
    assert!(ended.iter().all(|completion| completion.result.is_ok()), "{ended:?}");
    ended.into_iter().map(|completion| completion.token.0).collect()
}

/// Reads of a pipe that nobody writes to are those of a device that hangs.
#[test]
fn a_file_that_hangs_has_no_more_than_its_share_in_the_kernel() {
    const BEYOND: usize = 50;
    let Some((mut driver, mut shared, arena)) = driver() else { return };
    let (pipe, mut end) = std::io::pipe().unwrap();
    let pipe = Arc::new(pipe.into());
    let hanging = [(); 2].map(|()| add_file(&mut driver, &mut shared, &pipe));
    let healthy = Arc::new(tempfile::tempfile().unwrap().into());
    let healthy = add_file(&mut driver, &mut shared, &healthy);
    for number in 0..OF_A_FILE_MAX + BEYOND {
        start(&mut driver, &mut shared, hanging[number % 2], Work::Read { offset: 0 }, arena);
    }
    let line = driver.lines.of(hanging[1]);
    assert_eq!((line.under_way, line.waiting.len()), (OF_A_FILE_MAX, BEYOND));
    start(&mut driver, &mut shared, healthy, Work::Flush, arena);
    assert_eq!(ended(&mut driver, &mut shared, 1), [healthy as u64]);
    // One that is removed meanwhile goes with its last operation, and the others go on.
    shared.remove_file(hanging[0]);
    end.write_all(&[7; OF_A_FILE_MAX + BEYOND - 1]).unwrap();
    ended(&mut driver, &mut shared, OF_A_FILE_MAX + BEYOND - 1);
    let line = driver.lines.of(hanging[1]);
    assert_eq!((line.under_way, line.waiting.len()), (1, 0));
    for _ in 0..OF_A_FILE_MAX + BEYOND {
        start(&mut driver, &mut shared, hanging[1], Work::Read { offset: 0 }, arena);
    }
    assert!(driver.stop(&mut shared), "what waits is not begun at the end");
}

#[test]
fn the_kernel_may_use_more_threads_than_a_file_has_operations() {
    let Some((mut driver, mut shared, arena)) = driver() else { return };
    let file = Arc::new(tempfile::tempfile().unwrap().into());
    let file = add_file(&mut driver, &mut shared, &file);
    start(&mut driver, &mut shared, file, Work::Flush, arena);
    ended(&mut driver, &mut shared, 1);
    let mut now = [0; 2];
    if driver.ring.submitter().register_iowq_max_workers(&mut now).is_err() {
        return eprintln!("not tested: it takes Linux 5.15");
    }
    let processes = getrlimit(Resource::Nproc).current.unwrap_or(u64::MAX);
    assert_eq!(u64::from(now[0]), u64::from(setup::WORKERS_MAX).min(processes));
}
