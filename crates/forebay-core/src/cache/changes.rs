//! What changes of the cache while it is at work, because an administrator says so.
//!
//! ```text
//!   asked ─► some blocks go over to the other policy at each tick ─► all have ─► was another one asked for meanwhile?
//! ```
//! The policy takes many ticks where there are many blocks, as a sweep does (`stale.rs`). All else changes at once.
//!
//! **Limits:** one call moves at most [`Cache::visits_max`] blocks of each tier. Meanwhile the tiers have the memory of
//! two policies.

use super::Cache;
use super::directory::Directory;
use super::stale::PAUSE;
use crate::cx::Shared;
use crate::ids::Nanos;
use crate::policy::PolicyKind;

/// What is under way.
#[derive(Debug)]
pub(super) struct Changing {
    /// The policy that the tiers have, or go over to.
    policy: PolicyKind,
    /// When more is to be done.
    due: Nanos,
}

impl Changing {
    pub(super) fn new(policy: PolicyKind) -> Changing {
        Changing { policy, due: Nanos::NEVER }
    }
}

impl Cache {
    /// Goes on as the configuration says.
    pub(crate) fn tune(&mut self, shared: &Shared) {
        if let Some(flash) = &mut self.flash {
            flash.tune(shared);
        }
        self.change_policy(shared);
    }

    /// When more of a change is to be done.
    pub(crate) fn change_deadline(&self) -> Nanos {
        self.changing.due
    }

    /// Does more of a change, if that is due.
    pub(crate) fn change_more(&mut self, shared: &Shared) {
        if shared.now < self.changing.due || self.changing.due == Nanos::NEVER {
            return;
        }
        let visits = self.visits_max();
        self.directories().for_each(|dir| dir.hand_over(visits));
        self.change_policy(shared);
    }

    /// Begins to go over to the policy that is wanted, unless the change before has not ended; when to go on.
    fn change_policy(&mut self, shared: &Shared) {
        let wanted = shared.config.policy;
        if self.changing.policy != wanted && !self.is_handing_over() {
            self.changing.policy = wanted;
            self.directories().for_each(|dir| dir.change_policy(wanted));
        }
        self.changing.due = match self.is_handing_over() {
            true => shared.now.plus(PAUSE),
            false => Nanos::NEVER,
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
