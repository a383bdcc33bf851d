//! The engine without a shard or a client: what each transport is compared with.

use forebay_core::action::Actions;
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;

use crate::common;
use crate::load::{self, BATCH, BLOCK, Hit};

/// See the module.
pub struct Bare {
    engine: Engine,
    actions: Actions,
    now: Nanos,
    next: Vec<Hit>,
}

impl Bare {
    /// After a lap, and ready for the next.
    pub fn new() -> Bare {
        let [first, second] = load::laps();
        let (engine, actions) = (load::warm_engine(), Actions::with_capacity(256));
        let mut bare = Bare { engine, actions, now: Nanos(0), next: first };
        bare.lap();
        bare.next = second;
        bare
    }

    /// A lap: each batch is submitted, and dropped as if it were sent.
    pub fn lap(&mut self) {
        for batch in self.next.chunks(BATCH) {
            self.now = self.now.plus(Nanos(1));
            for hit in batch {
                let range = ByteRange::at(hit.block * BLOCK, BLOCK);
                common::read(&mut self.engine, self.now, range, &mut self.actions);
            }
            self.engine.sent(self.now);
            self.actions.clear();
        }
    }
}

impl Default for Bare {
    fn default() -> Bare {
        Bare::new()
    }
}
