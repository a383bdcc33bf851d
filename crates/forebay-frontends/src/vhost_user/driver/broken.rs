//! A queue whose ring says what cannot be.

use super::super::chain::Broken;
use super::{Phase, Queue, Weight, count};

impl Queue {
    /// Takes nothing more from a ring that says what cannot be.
    pub(super) fn break_off(&mut self, broken: Broken) {
        if self.broken.is_none() {
            self.broken = Some(broken);
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
    }

    /// The guest's memory has changed, and has the ring: what it lacked may be there by now.
    pub(super) fn mend(&mut self) {
        if matches!(self.broken, Some(Broken::Address { .. })) {
            self.broken = None;
            if self.phase == Phase::Open {
                let text = "a guest's queue that was stopped goes on: its hypervisor has changed the guest's memory";
                (self.tells.report.0)(Weight::Info, text.to_owned());
            }
        }
    }
}
