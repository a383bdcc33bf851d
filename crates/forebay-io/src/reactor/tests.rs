//! One suite for both kinds of reactor.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::{
    ArenaId, Completion, FileId, Reactor, ReactorKind, Region, SendPart, SocketId, Token, send_now,
};
use crate::arena::Arena;

mod events;
mod files;
mod lifetime;
mod sockets;
mod waiting;

/// Runs a test on each kind of reactor that works here.
fn on_each_kind(test: impl Fn(Reactor)) {
    on_each_kind_of(64, test);
}

fn on_each_kind_of(entries: u32, test: impl Fn(Reactor)) {
    test(Reactor::new(entries, Some(ReactorKind::Epoll)).unwrap());
    match Reactor::new(entries, Some(ReactorKind::Uring)) {
        Ok(reactor) => test(reactor),
        Err(error) => eprintln!("not tested on io_uring: {error}"),
    }
}

/// Waits until `count` operations have ended, for at most ten seconds each.
fn wait_for(reactor: &mut Reactor, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        let before = completions.len();
        reactor.wait(Some(Duration::from_secs(10)), &mut completions).unwrap();
        assert!(completions.len() > before, "nothing ended in ten seconds");
    }
    assert_eq!(completions.len(), count);
    completions
}

fn wait_for_one(reactor: &mut Reactor) -> Completion {
    wait_for(reactor, 1).remove(0)
}

fn add_arena(reactor: &mut Reactor, len: usize) -> (ArenaId, Arc<Arena>) {
    let arena = Arc::new(Arena::new(len).unwrap());
    (reactor.add_arena(Arc::clone(&arena)).unwrap(), arena)
}

fn add_file(reactor: &mut Reactor) -> FileId {
    reactor.add_file(OwnedFd::from(tempfile::tempfile().unwrap()), None).unwrap()
}

fn add_pair(reactor: &mut Reactor) -> (SocketId, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (reactor.add_socket(OwnedFd::from(ours)).unwrap(), theirs)
}

fn add_tcp_pair(reactor: &mut Reactor) -> (SocketId, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    (reactor.add_socket(OwnedFd::from(ours)).unwrap(), theirs)
}

fn region(arena: ArenaId, offset: u64, len: u32) -> Region {
    Region { arena, offset, len }
}

fn errno(completion: &Completion) -> Option<i32> {
    completion.result.as_ref().unwrap_err().raw_os_error()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}
