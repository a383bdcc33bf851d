//! The write cache of a device, as its guest switches it.
//!
//! ```text
//! off: writes are durable ──► noted ──► the hypervisor is answered
//! on:                                   the hypervisor is answered ──► noted ──► writes may be volatile
//! ```
//! A kill in between leaves a note that it is off, whatever the hypervisor shows. That is safe: a guest that flushes loses
//! nothing when its writes are durable. The other way round, one that does not flush would lose what was answered.

use super::super::driver::{Order, Weight};
use super::{Device, Shard};

impl<S: Shard> Device<S> {
    /// The guest switches it, and hears of that when this is done: it does not flush from then on, or relies on it.
    pub(super) fn set_write_cache(&mut self, is_on: bool) {
        let before = self.is_durable();
        self.write_cache = is_on;
        self.relaxes &= is_on;
        match (before, self.is_durable()) {
            (false, true) => self.order_all(|| Order::Durable(true)),
            (true, false) => self.relaxes = true,
            (false, false) | (true, true) => {}
        }
        self.note_if_off();
    }

    /// Notes a cache that is off, before the hypervisor is answered.
    pub(super) fn note_if_off(&mut self) {
        if self.is_cache_off() {
            self.note_cache();
        }
    }

    /// Notes what the hypervisor shows from now on. Whoever hands it a message calls this once that is answered.
    pub fn note_cache(&mut self) {
        let is_off = self.is_cache_off();
        if let Some(region) = &self.inflight {
            region.note_cache(is_off);
        }
        if let Err(error) = self.shard.note_cache(is_off) {
            let text = format!(
                "a restart may forget whether the guest switched its write cache off: {error}"
            );
            (self.report.0)(Weight::Warning, text);
        }
        if std::mem::take(&mut self.relaxes) && !self.is_durable() {
            self.order_all(|| Order::Durable(false));
        }
    }
}
