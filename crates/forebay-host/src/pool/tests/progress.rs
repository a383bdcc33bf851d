//! A page that says how far the log of a disk is destaged, and that cannot be read.

use forebay_core::flash_pool::PairId;

use super::super::file::medium;
use super::faults::folder;
use super::*;

const SHARES: [Share; 1] = [Share { cache: 2 * MIB, ring: 0, log: 3 * MIB }];

#[test]
fn a_page_of_progress_that_cannot_be_read_is_named_with_what_to_do() {
    let folder = folder();
    let path = folder.path().join("flash");
    let wish = wish("db", "file:/db");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let (number, log) = serve(&mut pool, &wish);
    for copy in [0, 1] {
        let place = pool.geometry().pair_offset(PairId::Progress(number), copy);
        let check = |result: Result<()>| {
            let error = format!("{:#}", result.unwrap_err());
            let shown = path.display().to_string();
            for what in ["progress of disk 'db'", &format!("at byte {place}"), &shown, "copy it"] {
                assert!(error.contains(what), "{what}: {error}");
            }
        };
        medium::spoil(&[place]);
        check(pool.begin_log(number));
        // Its shard has written there: nobody knows what.
        check(pool.close(number, EndOfSession::Clean, true, None).map(drop));
        medium::disarm(&path, None);
    }
    assert!(pool.close(number, EndOfSession::Clean, true, None).unwrap());
    staging::remove_of(log.disk);
}

#[test]
fn a_disk_without_a_log_ends_in_order_whatever_became_of_its_progress() {
    let folder = folder();
    let path = folder.path().join("flash");
    let wish = wish("db", "file:/db");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let number = pool.admit(&wish).unwrap();
    let places = [0, 1].map(|copy| pool.geometry().pair_offset(PairId::Progress(number), copy));
    for end in [EndOfSession::Clean, EndOfSession::Detached] {
        pool.begin_session(number).unwrap();
        pool.commit_session(number, &wish, &[], Default::default()).unwrap();
        medium::spoil(&places);
        let closed = pool.close(number, end, true, None);
        medium::disarm(&path, None);
        assert!(closed.unwrap(), "{end:?}");
    }
}
