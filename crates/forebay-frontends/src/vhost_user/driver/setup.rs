//! The parts of a queue, and its reports.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::export::{Agreed, SERIAL_BYTES};
use super::super::ring::RingSetup;

/// What a queue is made from.
#[derive(Debug)]
pub struct QueueSetup {
    /// Its ring.
    pub ring: RingSetup,
    /// Signalled when the guest has made requests available.
    pub kick: OwnedFd,
    /// What the driver agreed to.
    pub agreed: Agreed,
    /// Every write is durable before it is answered.
    pub durable: bool,
    /// The disk's serial number.
    pub serial: [u8; SERIAL_BYTES],
    /// Where it counts.
    pub counters: Arc<Counters>,
    /// Whom it tells that its ring is broken, or is so no more.
    pub report: Report,
}

/// Takes a message for an operator.
#[derive(Clone)]
pub struct Report(pub Arc<dyn Fn(Weight, String) + Send + Sync>);

/// How bad it is what an operator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It is good to know.
    Info,
    /// It may become worse.
    Warning,
    /// A guest suffers from it.
    Error,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Report")
    }
}

/// The counters of a queue; one writer.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests taken.
    pub requests: AtomicU64,
    /// Of these, those that a daemon before this one had taken.
    pub replayed: AtomicU64,
    /// Kicks.
    pub kicks: AtomicU64,
    /// Times that the guest was woken.
    pub calls: AtomicU64,
    /// Rings found broken.
    pub broken: AtomicU64,
}
