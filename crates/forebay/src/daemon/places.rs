//! The connections that a listener may have open, and who has to leave when there is no room.
//!
//! ```text
//!   accept ─► enter ─► handshake ─► settle ─► served
//!               │          └─ a newcomer finds no room: the longest handshake of the busiest address is closed for it
//!               └─ all have settled: refused
//! ```
//! Silent connections keep nobody out: a client that goes on with its handshake needs its place for a moment only.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub(super) struct Places {
    max: AtomicU32,
    taken: AtomicU32,
    entering: Mutex<Entering>,
}

/// Those whose handshake has not ended, from the oldest on.
#[derive(Debug, Default)]
struct Entering {
    next: u64,
    clients: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    place: ConnectionPlace,
    /// Of a client over TCP.
    address: Option<IpAddr>,
    /// Tells it to leave.
    leave: oneshot::Sender<()>,
}

/// One of the connections that a listener may have open; dropping it makes room.
#[derive(Debug)]
pub(super) struct ConnectionPlace(Arc<Places>);

/// A place as long as the handshake goes on.
#[derive(Debug)]
pub(super) struct Entry {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(super) fn new(max: u32) -> Arc<Places> {
        Arc::new(Places {
            max: AtomicU32::new(max),
            taken: AtomicU32::new(0),
            entering: Mutex::default(),
        })
    }

    /// How many there are.
    pub(super) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// There are so many from now on. Whoever has one keeps it.
    pub(super) fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// A place for a connection that was accepted, and what tells that it has to leave; `None`: all have settled. To be called
    /// from one task alone, so that the count cannot pass the limit between the look and the step.
    pub(super) fn enter(
        self: &Arc<Places>,
        address: Option<IpAddr>,
    ) -> Option<(Entry, oneshot::Receiver<()>)> {
        let mut entering = self.entering();
        let place = if self.taken() < self.max() {
            self.taken.fetch_add(1, Ordering::Relaxed);
            ConnectionPlace(self.clone())
        } else {
            let client = entering.give_up()?;
            // It may be leaving by itself.
            let _ = client.leave.send(());
            client.place
        };
        let number = entering.next;
        entering.next += 1;
        let (leave, has_to_leave) = oneshot::channel();
        entering.clients.insert(number, Client { place, address, leave });
        Some((Entry { places: self.clone(), number }, has_to_leave))
    }

    fn entering(&self) -> MutexGuard<'_, Entering> {
        self.entering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entering {
    /// The oldest of the address that has most.
    fn give_up(&mut self) -> Option<Client> {
        let mut counts = BTreeMap::new();
        for client in self.clients.values() {
            *counts.entry(client.address).or_insert(0_u32) += 1;
        }
        let most = *counts.values().max()?;
        let is_of_most = |client: &Client| counts[&client.address] == most;
        let number = *self.clients.iter().find(|(_, client)| is_of_most(client))?.0;
        self.clients.remove(&number)
    }
}

impl Entry {
    /// The handshake has ended well: the place for as long as the client is served; `None`: a newer client has it.
    pub(super) fn settle(self) -> Option<ConnectionPlace> {
        self.take()
    }

    fn take(&self) -> Option<ConnectionPlace> {
        let client = self.places.entering().clients.remove(&self.number);
        client.map(|client| client.place)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients of these addresses enter where two of four places are settled; who had to leave.
    fn leavers(addresses: &[u8]) -> Vec<usize> {
        let places = Places::new(4);
        let settled = || places.enter(None).unwrap().0.settle().unwrap();
        let _settled = [settled(), settled()];
        let address = |last: &u8| IpAddr::from([10, 0, 0, *last]);
        let enter = |last| places.enter(Some(address(last))).expect("some have not settled");
        let mut entered: Vec<_> = addresses.iter().map(enter).collect();
        assert_eq!(places.taken(), 4.min(2 + addresses.len() as u32));
        let has_left = |(at, (_, leave)): (usize, &mut (Entry, oneshot::Receiver<()>))| {
            leave.try_recv().is_ok().then_some(at)
        };
        let left: Vec<usize> = entered.iter_mut().enumerate().filter_map(has_left).collect();
        for (at, (entry, _)) in entered.into_iter().enumerate() {
            assert_eq!(entry.settle().is_none(), left.contains(&at), "client {at}");
        }
        assert_eq!(places.taken(), 2);
        left
    }

    #[test]
    fn the_longest_handshake_of_the_busiest_address_leaves_for_a_newcomer() {
        let check = |addresses: &[u8], expect: &[usize]| assert_eq!(leavers(addresses), expect);
        check(&[1, 1], &[]);
        check(&[1, 2, 3], &[0]);
        check(&[1, 1, 1], &[0]);
        check(&[1, 2, 2], &[0]);
        check(&[1, 1, 2, 3], &[0, 1]);
        check(&[1, 1, 1, 1, 2], &[0, 1, 2]);
    }

    #[test]
    fn a_client_is_refused_when_all_have_settled_and_a_place_is_free_when_one_leaves() {
        let places = Places::new(2);
        let settled = places.enter(None).unwrap().0.settle().unwrap();
        let (entry, _) = places.enter(None).unwrap();
        let also_settled = entry.settle().unwrap();
        assert!(places.enter(None).is_none());
        drop(settled);
        let (entry, _) = places.enter(None).unwrap();
        drop(entry);
        assert_eq!(places.taken(), 1);
        drop(also_settled);
        assert_eq!(places.taken(), 0);
    }
}
