//! What changes of the cache while it is at work, because an administrator says so.
//!
//! ```text
//!   asked ─► some blocks go over to the other policy at each tick ─► all have ─► was another one asked for meanwhile?
//! ```
//! A tier that becomes smaller takes several ticks, too (`resize.rs`, `flash/resize.rs`).
//!
//! The policy takes many ticks where there are many blocks, as a sweep does (`stale.rs`). All else changes at once.
//!
//! **Limits:** one call moves or spares about [`Cache::visits_max`] blocks of each tier at most. Meanwhile the tiers have
//! the memory of two policies.

use super::directory::Directory;
use super::stale::PAUSE;
use super::{Cache, Undestaged};
use crate::cx::{Cx, Shared};
use crate::ids::Nanos;
use crate::policy::PolicyKind;

/// Between two ticks that empty slots, so that requests have half of the time at least.
const SHRINK_PAUSE: Nanos = Nanos::from_micros(100);
/// The same, while flash is busy with what has left RAM.
const LONG_PAUSE: Nanos = Nanos::from_micros(1_000);

/// What is under way.
#[derive(Debug)]
pub(super) struct Changing {
    /// The policy that the tiers have, or go over to.
    policy: PolicyKind,
    /// When more is to be done.
    due: Nanos,
    /// Of the RAM slots that are to go, those before this one hold no block.
    swept: u32,
}

impl Changing {
    pub(super) fn new(policy: PolicyKind) -> Changing {
        Changing { policy, due: Nanos::NEVER, swept: 0 }
    }

    /// RAM slots from this one on are to be emptied.
    pub(super) fn begin_sweep(&mut self, first: u32) {
        self.swept = first;
    }

    /// The slot that is to be emptied next.
    pub(super) fn swept(&self) -> u32 {
        self.swept
    }

    pub(super) fn sweep_on(&mut self) {
        self.swept += 1;
    }
}

impl Cache {
    /// Goes on as the configuration says.
    pub(crate) fn tune(&mut self, shared: &Shared) {
        if let Some(flash) = &mut self.flash {
            flash.tune(shared);
        }
        self.change_policy(shared);
        self.plan_changes(shared);
    }

    /// When more of a change is to be done.
    pub(crate) fn change_deadline(&self) -> Nanos {
        self.changing.due
    }

    /// Does more of a change, if that is due.
    pub(crate) fn change_more(&mut self, undestaged: Undestaged<'_>, cx: &mut Cx<'_>) {
        if cx.now < self.changing.due || self.changing.due == Nanos::NEVER {
            return;
        }
        let visits = self.visits_max();
        self.directories().for_each(|dir| dir.hand_over(visits));
        self.change_policy(cx);
        if self.is_shrinking() {
            self.vacate_some(undestaged, cx);
        }
        self.vacate_flash(cx);
        self.plan_changes(cx);
    }

    /// Begins to go over to the policy that is wanted, unless the change before has not ended.
    fn change_policy(&mut self, shared: &Shared) {
        let wanted = shared.config.policy;
        if self.changing.policy != wanted && !self.is_handing_over() {
            self.changing.policy = wanted;
            self.directories().for_each(|dir| dir.change_policy(wanted));
        }
    }

    /// Decides when to go on with what is under way.
    pub(super) fn plan_changes(&mut self, shared: &Shared) {
        self.changing.due = if self.is_handing_over() {
            shared.now.plus(PAUSE)
        } else if self.is_shrinking() {
            shared.now.plus(if self.is_flash_busy() { LONG_PAUSE } else { SHRINK_PAUSE })
        } else if self.is_flash_vacating() {
            shared.now.plus(SHRINK_PAUSE)
        } else {
            Nanos::NEVER
        };
    }

    fn is_handing_over(&mut self) -> bool {
        self.directories().any(|dir| dir.is_handing_over())
    }

    fn directories(&mut self) -> impl Iterator<Item = &mut Directory> {
        let ram = self.ram.as_mut().map(|ram| &mut ram.dir);
        ram.into_iter().chain(self.flash.as_mut().map(|flash| &mut flash.tier.dir))
    }
}
