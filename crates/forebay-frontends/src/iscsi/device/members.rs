//! The sessions of a target, as they know of each other.

use std::collections::HashMap;

use forebay_io::reactor::SocketId;
use slab::Slab;

use super::Note;
use crate::scsi::{Initiator, NexusId};

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub all: Slab<Member>,
    /// The one of each initiator port that was not ended. Thousands may come or go at once, so nobody looks through all.
    current: HashMap<Initiator, usize>,
}

/// A session, as the others know it.
#[derive(Debug)]
pub(super) struct Member {
    pub initiator: Initiator,
    /// None while it is on its way to another shard.
    pub socket: Option<SocketId>,
    /// The relative identifier of the target port.
    pub port: u16,
    /// With each unit; none once it was ended.
    pub nexuses: Vec<NexusId>,
    pub notes: Vec<Note>,
    /// The initiator has logged out.
    pub is_leaving: bool,
}

impl Members {
    /// The session of an initiator port that was not ended.
    pub fn current(&self, initiator: &Initiator) -> Option<usize> {
        self.current.get(initiator).copied()
    }

    /// A session begins. Its number.
    pub fn add(&mut self, member: Member) -> usize {
        let initiator = member.initiator.clone();
        let session = self.all.insert(member);
        self.current.insert(initiator, session);
        session
    }

    /// A session is ended by another one. Its nexuses, unless it was ended before.
    pub fn end(&mut self, session: usize) -> Vec<NexusId> {
        self.forget(session);
        std::mem::take(&mut self.all[session].nexuses)
    }

    /// A session is over.
    pub fn remove(&mut self, session: usize) -> Member {
        self.forget(session);
        self.all.remove(session)
    }

    /// It is not the current one of its initiator port any more.
    fn forget(&mut self, session: usize) {
        let initiator = &self.all[session].initiator;
        if self.current(initiator) == Some(session) {
            self.current.remove(initiator);
        }
    }
}

impl Member {
    /// Whether its nexus with a unit is one of these.
    pub fn is_one_of(&self, unit: usize, nexuses: &[NexusId]) -> bool {
        self.nexuses.get(unit).is_some_and(|nexus| nexuses.contains(nexus))
    }

    /// Once, however often it happened.
    pub fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
