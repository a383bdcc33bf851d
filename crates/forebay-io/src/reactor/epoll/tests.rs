use super::*;
use crate::reactor::shared::Target;
use crate::reactor::{FileId, Token};
use pool::THREADS_MAX;

fn new_file() -> Arc<OwnedFd> {
    Arc::new(OwnedFd::from(tempfile::tempfile_in("/var/tmp").unwrap()))
}

fn add_file(epoll: &mut Epoll, shared: &mut Shared, file: &Arc<OwnedFd>) -> usize {
    let key = shared.add_file(Arc::clone(file), None);
    epoll.on_file(key, file).unwrap();
    key
}

fn remove_file(epoll: &mut Epoll, shared: &mut Shared, key: usize) {
    shared.remove_file(key);
    shared.freed.drain(..).for_each(|freed| epoll.forget(&freed));
}

/// Flushes a file so often at a time.
fn flush(epoll: &mut Epoll, shared: &mut Shared, key: usize, times: usize) {
    for _ in 0..times {
        let (target, work) = (Target::File(FileId(key as u32)), Work::Flush);
        let op = Op { token: Token(1), target, work, memory: None, buffer: None };
        let op = shared.begin(op).expect("it is registered");
        epoll.start(shared, op);
    }
    let mut ended = Vec::new();
    while ended.len() < times {
        let before = ended.len();
        epoll.wait(shared, Some(Duration::from_secs(10)), &mut ended, &mut ()).unwrap();
        assert!(ended.len() > before, "nothing ended in ten seconds");
    }
    assert!(ended.into_iter().all(|completion| completion.result.is_ok()));
}

#[test]
fn a_file_has_one_set_of_threads_however_often_it_is_registered() {
    let (mut epoll, mut shared) = (Epoll::new().unwrap(), Shared::new(8));
    let pool = new_file();
    let [first, second] = [(); 2].map(|()| add_file(&mut epoll, &mut shared, &pool));
    for key in [first, second, first] {
        flush(&mut epoll, &mut shared, key, 300);
    }
    let threads: Vec<usize> = epoll.pools.all().map(|pool| pool.threads()).collect();
    assert!(threads.len() == 1 && threads[0] <= THREADS_MAX, "{threads:?}");
    remove_file(&mut epoll, &mut shared, first);
    flush(&mut epoll, &mut shared, second, 300);
    remove_file(&mut epoll, &mut shared, second);
    assert_eq!(epoll.pools.all().count(), 0);
    assert_eq!(Arc::strong_count(&pool), 1);
}

#[test]
fn a_file_of_which_one_thing_is_asked_at_a_time_has_one_thread() {
    let (mut epoll, mut shared) = (Epoll::new().unwrap(), Shared::new(8));
    let keys: Vec<usize> =
        (0..200).map(|_| add_file(&mut epoll, &mut shared, &new_file())).collect();
    for _ in 0..20 {
        flush(&mut epoll, &mut shared, keys[100], 1);
    }
    assert!(epoll.pools.all().all(|pool| pool.threads() == 1));
}
