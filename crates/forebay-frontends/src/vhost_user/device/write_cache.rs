//! The write cache of a device, as its guest switches it.

use super::super::driver::{Order, Weight};
use super::{Device, Shard};

impl<S: Shard> Device<S> {
    /// The guest switches it, and hears of that when this is done: it does not flush from then on, or relies on it.
    pub(super) fn set_write_cache(&mut self, is_on: bool) {
        let before = self.is_durable();
        self.write_cache = is_on;
        let durable = self.is_durable();
        if durable != before {
            self.order_all(|| Order::Durable(durable));
        }
        if let Some(region) = &self.inflight {
            region.note_cache(self.is_cache_off());
        }
        self.note_cache();
    }

    /// Notes what the hypervisor is about to show, before it does: a kill right after that does not lose it.
    pub(super) fn note_cache(&mut self) {
        if let Err(error) = self.shard.note_cache(self.is_cache_off()) {
            let text = format!(
                "a restart may forget whether the guest switched its write cache off: {error}"
            );
            (self.report.0)(Weight::Warning, text);
        }
    }
}
