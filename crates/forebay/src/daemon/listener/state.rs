//! What a listener counts, and what it reports of clients that it refuses.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_host::events::{EventSender, Severity};
use tokio::sync::oneshot;

use crate::daemon::api::ListenerInfo;
use crate::daemon::control::lock;
use crate::daemon::places::{Entry, Places};

/// Refusals that a listener reports at once, and one more after each [`PERIOD`]: clients choose some of the words, and could
/// fill the event log.
const REPORTED_MAX: u64 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// What a listener counts.
#[derive(Debug)]
pub struct ListenerState {
    address: String,
    disks: Mutex<Vec<String>>,
    places: Arc<Places>,
    accepted: AtomicU64,
    refused: AtomicU64,
    handshakes_failed: AtomicU64,
    reported: Mutex<Reported>,
}

/// Refusals that were reported: so many more than one each period since then.
#[derive(Debug, Default)]
struct Reported {
    since: Option<Instant>,
    count: u64,
}

impl Reported {
    /// True when one more may be reported, which is counted.
    fn admit(&mut self, now: Instant) -> bool {
        let since = self.since.get_or_insert(now);
        let periods = (now - *since).as_secs() / PERIOD.as_secs();
        *since += Duration::from_secs(periods * PERIOD.as_secs());
        self.count = self.count.saturating_sub(periods);
        let may_report = self.count < REPORTED_MAX;
        self.count += u64::from(may_report);
        may_report
    }
}

impl ListenerState {
    /// Of a listener at `address` that has no disks yet.
    pub(in crate::daemon) fn new(address: String, room: u32) -> Arc<ListenerState> {
        Arc::new(ListenerState {
            address,
            disks: Mutex::default(),
            places: Places::new(room),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            reported: Mutex::default(),
        })
    }

    /// Where it is.
    pub(in crate::daemon) fn address(&self) -> &str {
        &self.address
    }

    /// Clients find these disks there.
    pub(in crate::daemon) fn tell_disks(&self, names: Vec<String>) {
        *lock(&self.disks) = names;
    }

    /// So many connections may be open from now on.
    pub(in crate::daemon) fn tell_room(&self, room: u32) {
        self.places.set_max(room);
    }

    /// A place for a connection that was accepted, and what tells that it has to leave; without one it is to be closed. To be
    /// called from one task alone.
    pub(in crate::daemon) fn enter(
        &self,
        from: Option<IpAddr>,
        events: &EventSender,
    ) -> Option<(Entry, oneshot::Receiver<()>)> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let entered = self.places.enter(from);
        if entered.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let max = self.places.max();
            self.report_refusal(from, &format!("all {max} connections are in use"), events);
        }
        entered
    }

    /// Reports that nobody from this address was let in, and why.
    pub(in crate::daemon) fn report_refusal(
        &self,
        from: Option<IpAddr>,
        why: &str,
        events: &EventSender,
    ) {
        if lock(&self.reported).admit(Instant::now()) {
            let from = from.map_or(String::new(), |from| format!(" from {from}"));
            let text = format!("{} refused a client{from}: {why}", self.address);
            events.report(None, Severity::Warning, text);
        }
    }

    /// A connection ended before its handshake did.
    pub(in crate::daemon) fn count_failed(&self) {
        self.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// What it is, and its counters now.
    pub fn info(&self) -> ListenerInfo {
        ListenerInfo {
            address: self.address.clone(),
            disks: lock(&self.disks).clone(),
            connections: self.places.taken(),
            connections_max: self.places.max(),
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            handshakes_failed: self.handshakes_failed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_reports_ten_refusals_and_then_one_a_minute() {
        let mut reported = Reported::default();
        let start = Instant::now();
        let mut admitted = |at| (0..100).filter(|_| reported.admit(start + at)).count();
        assert_eq!(admitted(Duration::ZERO), 10);
        assert_eq!(admitted(Duration::from_secs(59)), 0);
        assert_eq!(admitted(PERIOD), 1);
        assert_eq!(admitted(5 * PERIOD / 2), 1);
        assert_eq!(admitted(3 * PERIOD), 1);
        assert_eq!(admitted(1000 * PERIOD), 10);
    }
}
