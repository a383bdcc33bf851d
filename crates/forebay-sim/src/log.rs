//! What happened in a run: a hash of it always, its last lines when asked for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use forebay_core::action::{Action, Actions, ReplyData};
use forebay_core::ids::Nanos;

const LINES_MAX: usize = 400;

/// The log of one run. It outlives a run that panics.
#[derive(Debug, Default)]
pub struct Log {
    keeps_lines: bool,
    prints: bool,
    lines: RefCell<VecDeque<String>>,
    hash: RefCell<TraceHasher>,
}

impl Log {
    /// A log that keeps its last lines, or prints them as they come.
    pub fn new(keeps_lines: bool, prints: bool) -> Log {
        Log { keeps_lines, prints, ..Log::default() }
    }

    /// Takes note of a line; it is made only when somebody wants it.
    pub fn line(&self, now: Nanos, line: impl FnOnce() -> String) {
        if !self.keeps_lines && !self.prints {
            return;
        }
        let line = format!("{:>12.3} us  {}", now.0 as f64 / 1000.0, line());
        if self.prints {
            println!("{line}");
        }
        let mut lines = self.lines.borrow_mut();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Takes note of actions about to be carried out.
    pub fn actions(&self, now: Nanos, actions: &Actions) {
        let mut hasher = self.hash.borrow_mut();
        now.hash(&mut *hasher);
        for action in &actions.list {
            hash_action(action, &mut hasher);
            self.line(now, || format!("  {action:?}"));
        }
        actions.slices.hash(&mut *hasher);
        actions.extents.hash(&mut *hasher);
    }

    /// A number that stands for everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.hash.borrow().finish()
    }

    /// The last `count` lines.
    pub fn tail(&self, count: usize) -> Vec<String> {
        let lines = self.lines.borrow();
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }
}

fn hash_action(action: &Action, hasher: &mut TraceHasher) {
    match action {
        Action::Io(io) => io.hash(hasher),
        Action::Copy { from, to } => (from, to).hash(hasher),
        Action::Zero { memory } => memory.hash(hasher),
        Action::Compare { id, found, expected } => (id, found, expected).hash(hasher),
        Action::Reply(reply) => {
            let data: &ReplyData = &reply.data;
            (reply.tag, reply.status, reply.submitted, data).hash(hasher);
        }
        Action::Unlease(segment) => segment.hash(hasher),
        Action::Ring { memory } => memory.hash(hasher),
        Action::Void => 2u8.hash(hasher),
        Action::Revoke => 3u8.hash(hasher),
        // These follow from the rest.
        Action::Event(_) | Action::Log(_) | Action::Lease => 1u8.hash(hasher),
    }
}

/// FNV-1a: the same on every machine.
#[derive(Debug)]
struct TraceHasher(u64);

impl Default for TraceHasher {
    fn default() -> Self {
        TraceHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for TraceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}
