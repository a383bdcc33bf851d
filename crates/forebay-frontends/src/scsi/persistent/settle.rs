//! How a change of persistent reservations comes into force: at once, or when it is stored.
//!
//! ```text
//! PERSISTENT RESERVE OUT ── nothing to store ─────────────────────► in force, who is to be told is told
//!                        └─ Outcome::Store ── stored(true) ───────►
//!                                          └─ stored(false): all as before, 4/44
//! ```
//! Until it is stored the state before is in force. Other commands that would change reservations
//! are answered with BUSY. So a failure leaves nothing to be taken back. A change comes into
//! force whatever became of the nexus that asked for it: a restart would find it.

use super::{Effects, Persistent};
use crate::scsi::nexus::NexusId;
use crate::scsi::sense::{Code, Key, Sense};
use crate::scsi::task::{Outcome, Response};
use crate::scsi::unit::{Answer, LogicalUnit, Refusal};

/// A change that is being stored.
#[derive(Debug)]
pub(in crate::scsi) struct Pending {
    by: NexusId,
    next: Persistent,
    effects: Effects,
}

impl LogicalUnit {
    /// Lets `next` come into force, on behalf of `by`.
    pub(super) fn change(&mut self, by: NexusId, next: Persistent, effects: Effects) -> Answer {
        if !effects.store {
            let abort = self.settle(by, next, &effects);
            let response = Response::GOOD;
            return Ok(match abort.is_empty() {
                true => Outcome::Done(response),
                false => Outcome::Settle { response, abort },
            });
        }
        let state = next.encode();
        if state.len() > self.export.store_max {
            return Err(Sense::illegal(Code::INSUFFICIENT_REGISTRATION_RESOURCES).into());
        }
        self.pending = Some(Pending { by, next, effects });
        Ok(Outcome::Store(state))
    }

    /// The state of [`Outcome::Store`] is stored durably, or it could not be. Returns the answer,
    /// and the nexuses whose tasks on this logical unit are to be aborted before it, without
    /// answers.
    ///
    /// Panics when nothing was asked for.
    pub fn stored(&mut self, is_stored: bool) -> (Response, Vec<NexusId>) {
        let Pending { by, next, effects } = self.pending.take().expect("it was asked for");
        if is_stored {
            return (Response::GOOD, self.settle(by, next, &effects));
        }
        let sense = Sense::new(Key::HardwareError, Code::INTERNAL_TARGET_FAILURE);
        (self.check(sense), Vec::new())
    }

    /// Refuses a command that would change reservations while another one is being stored.
    pub(in crate::scsi) fn check_pending(&self) -> Result<(), Refusal> {
        if self.pending.is_some() { Err(Refusal::Busy) } else { Ok(()) }
    }

    /// From here on `next` is in force, and unit attentions are raised. Returns the nexuses whose
    /// tasks are to be aborted.
    fn settle(&mut self, by: NexusId, next: Persistent, effects: &Effects) -> Vec<NexusId> {
        self.persistent = next;
        let mut abort = Vec::new();
        for (id, attached) in self.nexuses.iter_mut() {
            attached.standing = self.persistent.standing(&attached.nexus);
            for (nexus, code) in &effects.told {
                if *nexus == attached.nexus {
                    attached.tell(*code);
                }
            }
            if id != by && effects.aborted.contains(&attached.nexus) {
                abort.push(id);
            }
        }
        abort
    }
}
