//! Hosts with several addresses.

use super::super::connect::open_session_at;
use super::super::dial::Place;
use super::server::{Script, Server};
use crate::Uri;
use crate::uri::NbdUri;

fn uri() -> NbdUri {
    match "nbd://several:1/disk?connections=3".parse() {
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
    }
}
