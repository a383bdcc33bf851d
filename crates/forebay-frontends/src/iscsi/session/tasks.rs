//! The tasks of a session: those that are in its window, and immediate ones.

use std::ops::{Index, IndexMut};

use slab::Slab;

use super::super::codec::NO_TAG;
use super::super::task::Task;
use super::{IMMEDIATE_MAX, WINDOW};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: Slab<Task>,
    /// The initiator's names of them, by their keys.
    tags: Vec<u32>,
    /// Those that count in the window, and those that do not.
    numbered: u32,
    immediate: u32,
}

impl Tasks {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// How many count in the window.
    pub(super) fn numbered(&self) -> u32 {
        self.numbered
    }

    /// True when no immediate one may be added.
    pub(super) fn is_full_of_immediate(&self) -> bool {
        self.immediate == IMMEDIATE_MAX
    }

    /// Whether the initiator calls one so. Almost always it does not, which takes fewer instructions than to look where.
    pub(super) fn has(&self, tag: u32) -> bool {
        tag != NO_TAG && self.tags.contains(&tag)
    }

    /// The one that the initiator calls so.
    pub(super) fn find(&self, tag: u32) -> Option<u32> {
        if tag == NO_TAG {
            return None;
        }
        self.tags.iter().position(|it| *it == tag).map(|at| at as u32)
    }

    /// The one with this key, if it is not gone.
    pub(super) fn get(&self, key: u32) -> Option<&Task> {
        self.tasks.get(key as usize)
    }

    /// All of them, by their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.tasks.iter().map(|(key, task)| (key as u32, task))
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.iter_mut().map(|(_, task)| task)
    }

    pub(super) fn insert(&mut self, task: Task) -> u32 {
        *self.count_of(&task) += 1;
        let tag = task.tag;
        let key = self.tasks.insert(task);
        assert!(key < (WINDOW + IMMEDIATE_MAX) as usize, "the window bounds the tasks");
        if self.tags.len() <= key {
            self.tags.resize(key + 1, NO_TAG);
        }
        self.tags[key] = tag;
        key as u32
    }

    /// A task is gone.
    pub(super) fn remove(&mut self, key: u32) -> Task {
        let task = self.tasks.remove(key as usize);
        self.tags[key as usize] = NO_TAG;
        *self.count_of(&task) -= 1;
        task
    }

    /// The same, where nobody needs it any more.
    pub(super) fn forget(&mut self, key: u32) {
        self.tags[key as usize] = NO_TAG;
        let is_immediate = self[key].wish.is_immediate;
        *if is_immediate { &mut self.immediate } else { &mut self.numbered } -= 1;
        drop(self.tasks.remove(key as usize));
    }

    /// The initiator may call another one so.
    pub(super) fn forget_tag(&mut self, key: u32) {
        self.tags[key as usize] = NO_TAG;
        self[key].tag = NO_TAG;
    }

    fn count_of(&mut self, task: &Task) -> &mut u32 {
        if task.wish.is_immediate { &mut self.immediate } else { &mut self.numbered }
    }
}

impl Index<u32> for Tasks {
    type Output = Task;

    fn index(&self, key: u32) -> &Task {
        self.tasks.get(key as usize).expect("the task is not gone")
    }
}

impl IndexMut<u32> for Tasks {
    fn index_mut(&mut self, key: u32) -> &mut Task {
        self.tasks.get_mut(key as usize).expect("the task is not gone")
    }
}
