//! The record of a run: a hash of its trace always, its lines on request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use forebay_core::action::Actions;
use forebay_core::ids::Nanos;

use crate::trace::{self, TraceHash};

const LINES_MAX: usize = 400;

/// The use of a run's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Nothing: they are not made.
    #[default]
    None,
    /// The last ones are kept.
    Kept,
    /// They are printed.
    Printed,
    /// The trace of actions is printed instead.
    Trace,
}

/// The log of one run. It outlives a run that panics.
#[derive(Debug, Default)]
pub struct Log {
    lines: Lines,
    kept: RefCell<VecDeque<String>>,
    hash: Cell<TraceHash>,
}

impl Log {
    /// A log that does this with its lines.
    pub fn new(lines: Lines) -> Log {
        Log { lines, ..Log::default() }
    }

    /// Takes note of a line; it is made only when somebody wants it.
    pub fn line(&self, now: Nanos, line: impl FnOnce() -> String) {
        if matches!(self.lines, Lines::None | Lines::Trace) {
            return;
        }
        let line = format!("{:>12.3} us  {}", now.0 as f64 / 1000.0, line());
        if self.lines == Lines::Printed {
            return println!("{line}");
        }
        let mut kept = self.kept.borrow_mut();
        if kept.len() == LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    /// Takes note of actions about to be carried out.
    pub fn actions(&self, now: Nanos, actions: &Actions) {
        let mut hash = self.hash.get();
        for action in &actions.list {
            let step = trace::step(now, action, actions);
            hash.add(&step);
            if self.lines == Lines::Trace {
                println!("{step}");
            }
            self.line(now, || format!("  {action:?}"));
        }
        self.hash.set(hash);
    }

    /// A number that stands for everything that the engine did.
    pub fn trace_hash(&self) -> TraceHash {
        self.hash.get()
    }

    /// The last `count` lines.
    pub fn tail(&self, count: usize) -> Vec<String> {
        let kept = self.kept.borrow();
        kept.iter().skip(kept.len().saturating_sub(count)).cloned().collect()
    }
}
