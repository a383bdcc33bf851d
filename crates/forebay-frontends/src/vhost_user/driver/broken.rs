//! A queue whose ring says what cannot be.

use super::super::chain::Broken;
use super::{Queue, Weight, count};

impl Queue {
    /// Takes nothing more from a ring that says what cannot be.
    pub(super) fn break_off(&mut self, broken: Broken) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(broken);
        if self.mended.take() == Some(broken) {
            // The memory that has changed was other memory: it never went on.
            return;
        }
        count(&self.tells.counters.broken);
        let end = match broken {
            Broken::Address { .. } => {
                "it goes on when the hypervisor shares that memory; otherwise the guest has to reset the device"
            }
            _ => "the guest has to reset the device",
        };
        let text = format!("a guest's queue is stopped, its ring is broken: {broken}; {end}");
        (self.tells.report.0)(Weight::Error, text);
    }

    /// The guest's memory has changed, and has the ring: what it lacked may be there by now, which the next request shows.
    pub(super) fn mend(&mut self) {
        if matches!(self.broken, Some(Broken::Address { .. })) {
            self.mended = self.broken.take();
        }
    }

    /// A request was taken: what the guest's memory lacked is there.
    #[inline(always)]
    pub(super) fn tell_if_mended(&mut self) {
        if self.mended.is_some() {
            self.tell_that_it_goes_on();
        }
    }

    #[cold]
    fn tell_that_it_goes_on(&mut self) {
        self.mended = None;
        let text = "a guest's queue that was stopped goes on: its hypervisor has changed the guest's memory";
        (self.tells.report.0)(Weight::Info, text.to_owned());
    }
}
