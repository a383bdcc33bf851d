//! Requests alone: who is answered, who is forgotten, and what stays owned.

use super::*;
use crate::action::Actions;
use crate::config::{BackendTraits, Config};
use crate::cx::Shared;
use crate::geometry::Grid;
use crate::ids::{Nanos, RequestTag};
use crate::requests::ledger::LatencyOf;

struct Rig {
    requests: Requests,
    shared: Shared,
    actions: Actions,
}

impl Rig {
    fn new() -> Rig {
        let backend = BackendTraits {
            size: 1 << 20,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        };
        let config = Config { buffer_bytes: 1 << 20, ..Config::for_disk(backend) };
        let grid = Grid::new(config.backend.size, config.block_size, 0);
        Rig {
            requests: Requests::new(8, config.backend_timeout, Observer::new(0, None), 1 << 20),
            shared: Shared::new(config, grid, 16),
            actions: Actions::with_capacity(16),
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Requests, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx { actions: &mut self.actions, shared: &mut self.shared };
        let result = call(&mut self.requests, &mut cx);
        self.requests.check_invariants();
        result
    }

    fn flush(&mut self, tag: u64) -> Key {
        let range = ByteRange::default();
        let request = Request { tag: RequestTag(tag), range, op: Op::Flush };
        self.call(|requests, cx| requests.insert(request, Job::Flush, cx))
    }

    fn replies(&self) -> Vec<(u64, IoStatus)> {
        let replies = self.actions.list.iter().filter_map(|action| match action {
            Action::Reply(reply) => Some((reply.tag.0, reply.status)),
            _ => None,
        });
        replies.collect()
    }
}

#[test]
fn a_request_gets_one_reply_and_is_forgotten() {
    let mut rig = Rig::new();
    let key = rig.flush(7);
    assert_eq!(rig.requests.flushes(), 1);
    rig.call(|requests, cx| {
        requests.answer(key, IoStatus::Ok, ReplyData::None, Some(LatencyOf::Flush), cx);
        requests.forget(key, cx);
    });
    assert_eq!(rig.replies(), [(7, IoStatus::Ok)]);
    assert_eq!((rig.requests.table.len(), rig.requests.deadlines.next()), (0, Nanos::NEVER));
}

#[test]
#[should_panic(expected = "one reply per request")]
fn a_second_reply_is_a_bug() {
    let mut rig = Rig::new();
    let key = rig.flush(7);
    let answer = |requests: &mut Requests, cx: &mut Cx<'_>| {
        requests.answer(key, IoStatus::Ok, ReplyData::None, None, cx);
    };
    rig.call(answer);
    rig.call(answer);
}

#[test]
fn an_answered_request_owns_its_io_until_it_ends() {
    let mut rig = Rig::new();
    let key = rig.flush(7);
    let range = ByteRange::at(0, 512);
    rig.call(|requests, cx| {
        requests.start_io(key, RequestIo::Extents, Target::Backend, range, IoOp::Extents, cx);
        requests.answer(key, IoStatus::TimedOut, ReplyData::None, None, cx);
    });
    assert_eq!(rig.requests.outstanding(), 1);
    assert!(rig.requests.table.find(key).is_some(), "it stays as the owner");
    rig.call(|requests, cx| {
        requests.end_io(key, IoStatus::Ok, cx);
        requests.forget(key, cx);
    });
    assert_eq!(rig.requests.outstanding(), 0);
}

#[test]
fn the_first_error_of_its_ios_is_kept() {
    let mut rig = Rig::new();
    let key = rig.flush(7);
    let range = ByteRange::at(0, 512);
    for status in [IoStatus::Ok, IoStatus::NoSpace, IoStatus::IoError] {
        rig.call(|requests, cx| {
            requests.start_io(key, RequestIo::Extents, Target::Backend, range, IoOp::Extents, cx);
            requests.end_io(key, status, cx);
        });
    }
    assert_eq!(rig.requests.table[key].failed, Some(IoStatus::NoSpace));
}

#[test]
fn the_last_failed_request_is_remembered() {
    let mut rig = Rig::new();
    let key = rig.flush(7);
    rig.call(|requests, cx| requests.answer(key, IoStatus::IoError, ReplyData::None, None, cx));
    let failed = rig.requests.ledger.last_failed().expect("it failed");
    assert_eq!(failed.status, IoStatus::IoError);
    assert_eq!(rig.shared.counters.requests_failed, 1);
}
