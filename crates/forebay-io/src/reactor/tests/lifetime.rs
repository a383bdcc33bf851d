use std::os::fd::AsRawFd;

use super::*;

#[test]
fn removing_a_socket_ends_what_is_in_flight() {
    on_each_kind(|mut reactor| {
        for is_started in [false, true] {
            let (socket, mut theirs) = add_pair(&mut reactor);
            reactor.recv(socket, None, Vec::with_capacity(10), Token(1));
            reactor.send(socket, pattern(8 << 20), 0, Token(2));
            if is_started {
                reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
            }
            reactor.remove_socket(socket);
            for completion in wait_for(&mut reactor, 2) {
                if completion.token == Token(1) {
                    assert_eq!(errno(&completion), Some(libc::ECANCELED));
                } else {
                    assert!(completion.result.is_err() || completion.result.unwrap() < 8 << 20);
                }
                assert!(completion.buffer.is_some());
            }
            // The peer gets what was on its way, then the end.
            let mut rest = Vec::new();
            theirs.read_to_end(&mut rest).unwrap();
            reactor.recv(socket, None, Vec::with_capacity(10), Token(3));
            assert_eq!(errno(&wait_for_one(&mut reactor)), Some(libc::EBADF));
        }
    });
}

#[test]
fn removing_a_socket_without_anything_in_flight_tells_the_peer() {
    on_each_kind(|mut reactor| {
        let (socket, mut theirs) = add_tcp_pair(&mut reactor);
        reactor.remove_socket(socket);
        assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
        reactor.remove_socket(socket);
        reactor.remove_socket(SocketId(1234));
    });
}

#[test]
fn a_removed_arena_lives_until_its_last_operation() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 4096);
        let (socket, mut theirs) = add_pair(&mut reactor);
        reactor.recv(socket, Some(region(id, 0, 4096)), Vec::new(), Token(1));
        reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        reactor.remove_arena(id);
        assert_eq!(Arc::strong_count(&arena), 2);
        theirs.write_all(b"late").unwrap();
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 4);
        assert_eq!(Arc::strong_count(&arena), 1);
        let mut bytes = [0; 4];
        arena.read_at(0, &mut bytes);
        assert_eq!(&bytes, b"late");
    });
}

#[test]
fn numbers_of_removed_things_are_used_again() {
    on_each_kind(|mut reactor| {
        for round in 0..2000_u32 {
            let (id, arena) = add_arena(&mut reactor, 4096);
            let file = add_file(&mut reactor);
            let (socket, _theirs) = add_pair(&mut reactor);
            assert_eq!((id, file, socket), (ArenaId(0), FileId(0), SocketId(0)));
            if round % 100 == 0 {
                arena.write_at(0, &round.to_ne_bytes());
                reactor.write(file, 0, region(id, 0, 512), Token(1));
                reactor.remove_file(file);
                reactor.remove_arena(id);
                assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 512);
            }
            reactor.remove_file(file);
            reactor.remove_arena(id);
            reactor.remove_socket(socket);
            assert_eq!(Arc::strong_count(&arena), 1);
        }
    });
}

#[test]
fn dropping_a_reactor_ends_what_is_in_flight_and_lets_go_of_its_memory() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 1 << 20);
        let file = add_file(&mut reactor);
        let (socket, mut theirs) = add_pair(&mut reactor);
        let (idle, _idle) = add_pair(&mut reactor);
        reactor.recv(socket, Some(region(id, 0, 4096)), Vec::with_capacity(10), Token(1));
        reactor.recv(idle, None, Vec::with_capacity(10), Token(1));
        reactor.send(socket, pattern(8 << 20), 0, Token(2));
        reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        for number in 0..200 {
            reactor.write(file, number * 4096, region(id, 0, 4096), Token(3));
        }
        drop(reactor);
        assert_eq!(Arc::strong_count(&arena), 1);
        theirs.read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn a_reactor_may_be_made_on_another_thread() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 4096);
        let (socket, mut theirs) = add_pair(&mut reactor);
        theirs.write_all(b"hello").unwrap();
        let shard = std::thread::spawn(move || {
            reactor.recv(socket, Some(region(id, 0, 5)), Vec::new(), Token(1));
            wait_for_one(&mut reactor).result.unwrap()
        });
        assert_eq!(shard.join().unwrap(), 5);
        let mut bytes = [0; 5];
        arena.read_at(0, &mut bytes);
        assert_eq!(&bytes, b"hello");
    });
}

#[test]
fn a_reactor_dropped_on_a_foreign_thread_leaves_its_memory_alone() {
    // The ring belongs to the thread that used it: another one cannot end what is in flight, so the
    // memory has to stay.
    let Ok(mut reactor) = Reactor::new(8, Some(ReactorKind::Uring)) else { return };
    let (id, arena) = add_arena(&mut reactor, 4096);
    let (socket, theirs) = add_pair(&mut reactor);
    reactor.recv(socket, Some(region(id, 0, 4096)), Vec::new(), Token(1));
    reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    std::thread::spawn(move || drop(reactor)).join().unwrap();
    assert!(Arc::strong_count(&arena) <= 2);
    assert!(theirs.as_fd().try_clone_to_owned().is_ok());
}

/// Two reactors of one kind.
fn on_two_of_each_kind(test: impl Fn(Reactor, Reactor)) {
    on_each_kind(|first| {
        let second = Reactor::new(64, Some(first.kind())).unwrap();
        test(first, second);
    });
}

#[test]
fn a_socket_that_is_taken_goes_on_in_another_reactor_and_no_byte_is_lost() {
    on_two_of_each_kind(|mut first, mut second| {
        let (mut socket, mut theirs) = add_tcp_pair(&mut first);
        // The peer goes on each time only after a receive has found nothing: however fast it is, some are ended early.
        let (found_nothing, go_on) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            for some in pattern(1 << 20).chunks(777 * 64) {
                go_on.recv().unwrap();
                some.chunks(777).for_each(|piece| theirs.write_all(piece).unwrap());
            }
            theirs
        });
        let mut seen = Vec::new();
        while seen.len() < 1 << 20 {
            first.recv(socket, None, Vec::with_capacity(3000), Token(1));
            let mut early = Vec::new();
            first.wait(Some(Duration::ZERO), &mut early).unwrap();
            let taken = first.take_socket(socket).unwrap();
            let received = early.pop().unwrap_or_else(|| wait_for_one(&mut first));
            assert_eq!(first.in_flight(), 0);
            match received.result {
                Ok(count) => assert_eq!(count, received.buffer.as_ref().unwrap().len()),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                    let _ = found_nothing.send(());
                }
            }
            seen.extend(received.buffer.unwrap());
            socket = second.add_socket(taken).unwrap();
            std::mem::swap(&mut first, &mut second);
        }
        assert!(seen == pattern(1 << 20), "bytes differ");
        // And the one that has it now can still send.
        let mut theirs = writer.join().unwrap();
        first.send(socket, b"bye".to_vec(), 0, Token(2));
        assert_eq!(wait_for_one(&mut first).result.unwrap(), 3);
        let mut bytes = [0; 3];
        theirs.read_exact(&mut bytes).unwrap();
    });
}

#[test]
fn a_socket_that_waits_is_taken_and_its_peer_notices_nothing() {
    on_two_of_each_kind(|mut first, mut second| {
        let (socket, mut theirs) = add_pair(&mut first);
        first.recv(socket, None, Vec::with_capacity(10), Token(1));
        first.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        let taken = first.take_socket(socket).unwrap();
        assert_eq!(errno(&wait_for_one(&mut first)), Some(libc::ECANCELED));
        assert!(first.take_socket(socket).is_err(), "it has it no more");
        let socket = second.add_socket(taken).unwrap();
        second.recv(socket, None, Vec::with_capacity(10), Token(2));
        theirs.write_all(b"hello").unwrap();
        assert_eq!(wait_for_one(&mut second).buffer.unwrap(), b"hello");
        drop(theirs);
        second.recv(socket, None, Vec::with_capacity(10), Token(3));
        assert_eq!(wait_for_one(&mut second).result.unwrap(), 0);
    });
}

#[test]
fn a_socket_is_taken_from_a_send_that_waits_and_the_rest_can_be_sent_elsewhere() {
    on_two_of_each_kind(|mut first, mut second| {
        for takes_at in [0, 1, 2] {
            let (socket, mut theirs) = add_pair(&mut first);
            first.send(socket, pattern(8 << 20), 0, Token(1));
            for _ in 0..takes_at {
                first.wait(Some(Duration::from_millis(1)), &mut Vec::new()).unwrap();
                theirs.read_exact(&mut [0; 100]).unwrap();
            }
            let taken = first.take_socket(socket).unwrap();
            let ended = wait_for_one(&mut first);
            let sent = ended.result.unwrap_or(0);
            assert!(sent < 8 << 20);
            let socket = second.add_socket(taken).unwrap();
            second.send(socket, ended.buffer.unwrap(), sent, Token(2));
            let reader = std::thread::spawn(move || {
                let mut bytes = vec![0; (8 << 20) - 100 * takes_at];
                theirs.read_exact(&mut bytes).unwrap();
                bytes
            });
            assert_eq!(wait_for_one(&mut second).result.unwrap(), (8 << 20) - sent);
            assert!(reader.join().unwrap() == pattern(8 << 20)[100 * takes_at..]);
        }
    });
}

#[test]
fn what_goes_to_another_reactor_needs_no_further_descriptor() {
    on_two_of_each_kind(|mut first, _| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let number = ours.as_raw_fd();
        let socket = first.add_socket(OwnedFd::from(ours)).unwrap();
        assert_eq!(first.take_socket(socket).unwrap().as_raw_fd(), number);
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let ours = rustix::event::eventfd(0, flags).unwrap();
        let number = ours.as_raw_fd();
        let event = first.add_event(ours, Token(1)).unwrap();
        assert_eq!(first.share_event(event).unwrap().as_raw_fd(), number);
    });
}
