//! How much of its memory each group may use: a part at first, all of it once a write found too little.
//!
//! The groups lie in the staging file, whose memory is taken before a group may use it: a page that tmpfs cannot give would
//! end the process. Hundreds of disks that hardly write would have all of it for nothing. So a group begins with
//! [`GROUP_PAGES_FIRST`] pages of data, and the executor takes the rest when that is too little.
//!
//! [`GROUP_PAGES_FIRST`]: crate::write_back::format::GROUP_PAGES_FIRST

use super::{GroupState, WriteLog};
use crate::action::Action;
use crate::config::WriteLogConfig;
use crate::cx::Cx;

/// Which part of their memory groups may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usable {
    /// The first pages of data.
    First,
    /// The same, until the rest has come.
    Growing,
    /// The same until the disk ends: there was no memory for the rest.
    Kept,
    /// All of it.
    All,
}

impl Usable {
    /// Where each session begins.
    pub(super) fn at_first(config: &WriteLogConfig) -> Usable {
        let is_all = !config.staging || config.group_pages_first >= WriteLog::group_pages(config);
        if is_all { Usable::All } else { Usable::First }
    }
}

impl WriteLog {
    /// Data pages that the open group may have, in memory and in its segment.
    pub(super) fn group_pages_now(&self) -> u32 {
        let in_memory = match self.memory.usable {
            Usable::First | Usable::Growing | Usable::Kept => self.config.group_pages_first,
            Usable::All => Self::group_pages(&self.config),
        };
        in_memory.min(self.segments.pages_left() - 1)
    }

    /// True when a write of `pages` waits for the rest of the memory, which is asked for. No group is opened for that, because
    /// one without records would never be written.
    pub(super) fn waits_for_memory(&mut self, pages: u32, cx: &mut Cx<'_>) -> bool {
        let may_grow = matches!(self.memory.usable, Usable::First | Usable::Growing);
        // At the end of the disk nothing waits for what speeds up the next writes.
        if !may_grow || !self.goes_on() || !self.has_too_little_memory(pages) {
            return false;
        }
        if self.memory.usable == Usable::First {
            self.memory.usable = Usable::Growing;
            cx.push(Action::GrowStaging);
        }
        true
    }

    /// True when the first pages are too few for `pages` more in the group that is open, or in the next one.
    fn has_too_little_memory(&self, pages: u32) -> bool {
        let (group, first) = (&self.memory.groups[self.memory.open], self.config.group_pages_first);
        match group.state {
            GroupState::Empty => pages > first,
            GroupState::Open => group.pages_max == first && group.layout.data_pages + pages > first,
            GroupState::Writing => false,
        }
    }

    /// The rest of the memory came, or there is none.
    pub(in crate::write_back) fn on_staging_grown(&mut self, is_there: bool) {
        assert_eq!(self.memory.usable, Usable::Growing, "nobody asked");
        self.memory.usable = if is_there { Usable::All } else { Usable::Kept };
        self.waiting.room_changed = true;
        let open = self.memory.open;
        if self.memory.groups[open].state == GroupState::Open {
            self.memory.groups[open].pages_max = self.group_pages_now();
        }
    }

    /// Panics when a group has more than its memory.
    pub(super) fn check_group_memory(&self) {
        for group in &self.memory.groups {
            let has = group.layout.data_pages;
            let is_usable =
                self.memory.usable == Usable::All || has <= self.config.group_pages_first;
            assert!(
                group.state == GroupState::Empty || is_usable,
                "{has} pages in the memory of fewer"
            );
        }
    }
}
