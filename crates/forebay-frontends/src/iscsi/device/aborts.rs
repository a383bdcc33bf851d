//! What a session does to the tasks of the others, and to themselves.

use forebay_io::reactor::SocketId;

use super::{Cause, Device, Member, Note};
use crate::client::DiskId;
use crate::scsi::NexusId;

impl Device {
    /// The tasks of all sessions but `by` on a unit are aborted.
    pub fn abort_others(&mut self, by: usize, unit: usize, cause: Cause) {
        self.note_aborted(unit, cause, |key, _| key != by);
    }

    /// The tasks on a unit of each session that `is_hit` names are aborted.
    pub(super) fn note_aborted(
        &mut self,
        unit: usize,
        cause: Cause,
        is_hit: impl Fn(usize, &Member) -> bool,
    ) {
        let mut is_any = false;
        for (_, member) in self.members.all.iter_mut().filter(|(key, member)| is_hit(*key, member))
        {
            member.note(Note::Aborted(unit, cause));
            is_any = true;
        }
        self.noted.extend(is_any.then_some(self.units[unit].disk));
    }

    /// A disk of whose unit sessions have tasks that another one aborted. These sessions must look now, even if their initiators
    /// send nothing: others may wait for what the tasks hold.
    pub fn take_noted(&mut self) -> Option<DiskId> {
        self.noted.pop()
    }

    /// Tasks of a session were cleared by another one; true when each of them is to be answered
    /// so (TAS), otherwise the nexus gets a unit attention.
    pub fn tell_cleared(&mut self, session: usize, unit: usize, cause: Cause) -> bool {
        let logical = &mut self.units[unit].logical;
        let answers = match cause {
            Cause::Reset { answers } => answers,
            Cause::Cleared | Cause::Preempted => logical.answers_aborted(),
        };
        if cause == Cause::Cleared
            && !answers
            && let Some(nexus) = self.members.all[session].nexuses.get(unit)
        {
            logical.cleared(*nexus);
        }
        answers
    }

    /// The tasks of some nexuses of a unit are aborted; true when those of `by` are, which it does itself.
    pub fn abort_nexuses(&mut self, by: usize, unit: usize, nexuses: &[NexusId]) -> bool {
        self.note_aborted(unit, Cause::Preempted, |key, member| {
            key != by && member.is_one_of(unit, nexuses)
        });
        self.members.all[by].is_one_of(unit, nexuses)
    }

    /// Every session but `by` is over.
    pub fn end_others(&mut self, by: usize) {
        let others: Vec<usize> =
            self.members.all.iter().map(|(key, _)| key).filter(|key| *key != by).collect();
        others.into_iter().for_each(|key| self.end(key));
    }

    /// A socket that is to be closed: its session was ended by another, and will notice.
    pub fn take_ended(&mut self) -> Option<SocketId> {
        self.ended.pop()
    }

    /// A session is over: it hears of it, and its nexuses are gone at once.
    pub(super) fn end(&mut self, session: usize) {
        let member = &mut self.members.all[session];
        if member.notes.contains(&Note::Ended) || member.nexuses.is_empty() {
            return;
        }
        member.notes.push(Note::Ended);
        self.ended.extend(member.socket.take());
        let nexuses = self.members.end(session);
        self.detach(&nexuses);
    }
}
