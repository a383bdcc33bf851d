use super::*;

#[test]
fn a_receive_fills_the_spare_capacity_of_the_buffer() {
    on_each_kind(|mut reactor| {
        let (socket, mut theirs) = add_pair(&mut reactor);
        let mut buffer = Vec::with_capacity(64);
        buffer.extend_from_slice(b"kept ");
        reactor.recv(socket, None, buffer, Token(1));
        theirs.write_all(b"and more").unwrap();
        let completion = wait_for_one(&mut reactor);
        assert_eq!(completion.result.unwrap(), 8);
        assert_eq!(completion.buffer.unwrap(), b"kept and more");
    });
}

#[test]
fn a_receive_fills_the_region_first_then_the_buffer() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 4096);
        let (socket, mut theirs) = add_pair(&mut reactor);
        theirs.write_all(b"payloadheader").unwrap();
        reactor.recv(socket, Some(region(id, 100, 7)), Vec::with_capacity(100), Token(1));
        let completion = wait_for_one(&mut reactor);
        assert_eq!(completion.result.unwrap(), 13);
        assert_eq!(completion.buffer.unwrap(), b"header");
        let mut bytes = [0; 8];
        arena.read_at(100, &mut bytes);
        assert_eq!(&bytes, b"payload\0");
    });
}

#[test]
fn a_short_receive_stays_in_the_region() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 4096);
        let (socket, mut theirs) = add_tcp_pair(&mut reactor);
        reactor.recv(socket, Some(region(id, 0, 4096)), Vec::with_capacity(10), Token(1));
        reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        theirs.write_all(b"pay").unwrap();
        let completion = wait_for_one(&mut reactor);
        assert_eq!(completion.result.unwrap(), 3);
        assert_eq!(completion.buffer.unwrap(), b"");
        let mut bytes = [0; 4];
        arena.read_at(0, &mut bytes);
        assert_eq!(&bytes, b"pay\0");
    });
}

#[test]
fn a_receive_into_a_region_needs_no_buffer_and_one_without_room_is_refused() {
    on_each_kind(|mut reactor| {
        let (id, _arena) = add_arena(&mut reactor, 4096);
        let (socket, mut theirs) = add_pair(&mut reactor);
        theirs.write_all(b"payload").unwrap();
        reactor.recv(socket, Some(region(id, 0, 3)), Vec::new(), Token(1));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 3);
        reactor.recv(socket, None, Vec::new(), Token(2));
        let completion = wait_for_one(&mut reactor);
        assert_eq!(errno(&completion), Some(libc::EINVAL));
        assert!(completion.buffer.is_some());
    });
}

#[test]
fn the_end_of_the_stream_is_a_receive_of_nothing() {
    on_each_kind(|mut reactor| {
        let (socket, theirs) = add_pair(&mut reactor);
        reactor.recv(socket, None, Vec::with_capacity(10), Token(1));
        drop(theirs);
        let completion = wait_for_one(&mut reactor);
        assert_eq!(completion.result.unwrap(), 0);
        assert_eq!(completion.buffer.unwrap().capacity(), 10);
    });
}

#[test]
fn a_second_receive_on_a_socket_is_refused() {
    on_each_kind(|mut reactor| {
        let (socket, mut theirs) = add_pair(&mut reactor);
        reactor.recv(socket, None, Vec::with_capacity(10), Token(1));
        reactor.recv(socket, None, Vec::with_capacity(10), Token(2));
        let completion = wait_for_one(&mut reactor);
        assert_eq!((completion.token, errno(&completion)), (Token(2), Some(libc::EALREADY)));
        theirs.write_all(b"x").unwrap();
        assert_eq!(wait_for_one(&mut reactor).token, Token(1));
    });
}

#[test]
fn send_now_sends_bytes_and_regions_in_order() {
    on_each_kind(|mut reactor| {
        let (id, arena) = add_arena(&mut reactor, 4096);
        arena.write_at(5, b"payload");
        let (socket, mut theirs) = add_pair(&mut reactor);
        let parts = [
            SendPart::Bytes(b"header "),
            SendPart::Region(region(id, 5, 7)),
            SendPart::Bytes(b""),
            SendPart::Bytes(b" next"),
        ];
        assert_eq!(reactor.send_now(socket, &parts).unwrap(), 19);
        let mut bytes = [0; 19];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"header payload next");
        assert_eq!(reactor.send_now(socket, &[]).unwrap(), 0);
        assert!(reactor.send_now(socket, &[SendPart::Region(region(ArenaId(3), 0, 1))]).is_err());
        assert!(reactor.send_now(SocketId(44), &parts).is_err());
    });
}

#[test]
fn send_now_takes_more_parts_than_one_call_does() {
    on_each_kind(|mut reactor| {
        let (socket, mut theirs) = add_pair(&mut reactor);
        let bytes = pattern(5000);
        let parts: Vec<SendPart<'_>> = bytes.chunks(2).map(SendPart::Bytes).collect();
        assert!(parts.len() > send_now::PARTS_PER_CALL_MAX);
        assert_eq!(reactor.send_now(socket, &parts).unwrap(), 5000);
        let mut received = vec![0; 5000];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(received, bytes);
    });
}

#[test]
fn send_now_stops_when_the_socket_is_full() {
    on_each_kind(|mut reactor| {
        let (socket, mut theirs) = add_pair(&mut reactor);
        let bytes = pattern(1 << 20);
        let mut sent = 0;
        loop {
            let now = reactor.send_now(socket, &[SendPart::Bytes(&bytes[sent..])]).unwrap();
            if now == 0 {
                break;
            }
            sent += now;
        }
        assert!(sent > 0 && sent < bytes.len());
        let mut received = vec![0; sent];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(received, bytes[..sent]);
    });
}

#[test]
fn send_now_to_a_peer_that_is_gone_is_an_error_not_a_signal() {
    on_each_kind(|mut reactor| {
        let (socket, theirs) = add_pair(&mut reactor);
        drop(theirs);
        let error = reactor.send_now(socket, &[SendPart::Bytes(b"x")]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    });
}

#[test]
fn a_send_waits_for_a_slow_reader() {
    on_each_kind(|mut reactor| {
        for is_tcp in [false, true] {
            let (socket, mut theirs): (_, Box<dyn Read + Send>) = if is_tcp {
                let (socket, theirs) = add_tcp_pair(&mut reactor);
                (socket, Box::new(theirs))
            } else {
                let (socket, theirs) = add_pair(&mut reactor);
                (socket, Box::new(theirs))
            };
            let bytes = pattern(8 << 20);
            reactor.send(socket, bytes.clone(), 1000, Token(1));
            reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
            let reader = std::thread::spawn(move || {
                let mut received = vec![0; (8 << 20) - 1000];
                for chunk in received.chunks_mut(3001) {
                    theirs.read_exact(chunk).unwrap();
                }
                received
            });
            let completion = wait_for_one(&mut reactor);
            assert_eq!(completion.result.unwrap(), (8 << 20) - 1000);
            assert_eq!(completion.buffer.unwrap(), bytes);
            assert_eq!(reader.join().unwrap(), bytes[1000..]);
        }
    });
}

#[test]
fn both_directions_of_a_socket_work_at_once() {
    on_each_kind(|mut reactor| {
        let (socket, mut theirs) = add_pair(&mut reactor);
        reactor.send(socket, pattern(4 << 20), 0, Token(1));
        reactor.recv(socket, None, Vec::with_capacity(16), Token(2));
        theirs.write_all(b"request").unwrap();
        let completion = wait_for_one(&mut reactor);
        assert_eq!((completion.token, completion.result.unwrap()), (Token(2), 7));
        let reader = std::thread::spawn(move || {
            theirs.read_exact(&mut vec![0; 4 << 20]).unwrap();
        });
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 4 << 20);
        reader.join().unwrap();
    });
}

#[test]
fn a_send_to_a_peer_that_goes_away_is_short_or_an_error() {
    on_each_kind(|mut reactor| {
        let (socket, theirs) = add_pair(&mut reactor);
        reactor.send(socket, pattern(8 << 20), 0, Token(1));
        reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        drop(theirs);
        let completion = wait_for_one(&mut reactor);
        assert!(completion.result.is_err() || completion.result.unwrap() < 8 << 20);
        assert_eq!(completion.buffer.unwrap().len(), 8 << 20);
    });
}

#[test]
fn a_send_of_nothing_ends_at_once() {
    on_each_kind(|mut reactor| {
        let (socket, _theirs) = add_pair(&mut reactor);
        reactor.send(socket, b"abc".to_vec(), 3, Token(1));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 0);
        reactor.send(socket, b"abc".to_vec(), 9, Token(1));
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 0);
    });
}

#[test]
fn sockets_that_carry_no_stream_are_refused() {
    on_each_kind(|mut reactor| {
        let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let error = reactor.add_socket(OwnedFd::from(datagrams)).unwrap_err();
        assert!(error.to_string().contains("stream"), "{error}");
    });
}

#[test]
fn sockets_that_were_non_blocking_work_as_well() {
    on_each_kind(|mut reactor| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let socket = reactor.add_socket(OwnedFd::from(ours)).unwrap();
        reactor.recv(socket, None, Vec::with_capacity(10), Token(1));
        reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        theirs.write_all(b"late").unwrap();
        assert_eq!(wait_for_one(&mut reactor).result.unwrap(), 4);
    });
}
