//! Hosts with several addresses.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::super::connect::open_session_at;
use super::super::dial::Place;
use super::server::{Script, Server};
use crate::Uri;
use crate::backend::HostLoses;
use crate::uri::NbdUri;

fn uri() -> NbdUri {
    match "nbd://several:1/disk?connections=3&timeout=2s".parse() {
        Ok(Uri::Nbd(uri)) => uri,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_has_all_its_connections_with_one_of_the_servers_behind_a_name() {
    // The first server takes no more than so many.
    for connections_max in [1, 2, u32::MAX] {
        let first = Server::start_tcp_up_to(connections_max, "127.0.0.1", Script::good());
        let second = Server::start_tcp("127.0.0.2", Script::good());
        let place = Place::Tcp(vec![first.address(), second.address()]);
        let session = open_session_at(place, &uri()).expect("it connects");
        assert_eq!(session.sockets.len(), connections_max.min(3) as usize);
        assert_eq!((session.peer(), second.connections()), (Some(first.address()), 0));
        assert_eq!(session.host_loses(), HostLoses::Anything, "it runs on this host");
    }
}

/// An address that answers no connection attempt, as behind a firewall that drops packets.
struct Silent {
    address: SocketAddr,
    _full: (TcpListener, TcpStream),
}

impl Silent {
    fn new() -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // A queue for one connection, which nobody accepts.
        rustix::net::listen(&listener, 0).expect("it listens");
        let address = listener.local_addr().expect("bound");
        let first = TcpStream::connect(address).expect("it is queued");
        let next = TcpStream::connect_timeout(&address, Duration::from_millis(50));
        assert_eq!(next.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        Silent { address, _full: (listener, first) }
    }
}

#[test]
fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
    let (silent, server) = (Silent::new(), Server::start_tcp("127.0.0.1", Script::good()));
    let place = Place::Tcp(vec![silent.address, server.address()]);
    let session = open_session_at(place, &uri()).expect("it connects");
    assert_eq!((session.peer(), session.sockets.len()), (Some(server.address()), 3));
}

#[test]
fn of_several_addresses_the_error_tells_of_the_one_that_refuses() {
    let silent = Silent::new();
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    for addresses in [vec![silent.address, nobody], vec![nobody, silent.address]] {
        let error = open_session_at(Place::Tcp(addresses), &uri()).expect_err("nobody is there");
        assert!(error.to_string().contains("nothing listens"), "{error}");
    }
}
