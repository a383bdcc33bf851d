//! How far the study of traces is: a bar on a terminal, else a line every [`SAY_EVERY`].
//!
//! A trace is read several times. How many requests it has is known after the first; how long a reading takes is only known of
//! itself, since most of the work is in the last.

use std::cell::RefCell;
use std::io::{IsTerminal, Write as _};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_trace::advise::READINGS;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::table::count;

/// Time between two lines where there is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Requests between two looks at the clock.
const LOOK_EVERY: u64 = 4096;
const FIRST: &str = "{spinner} {msg}, {pos} requests";
const TRIALS: &str = "{spinner} {msg}, {prefix} trials";
const LATER: &str = "{bar:30} {percent} %, {eta} left ({msg})";

/// See the module. Clones are of the same.
#[derive(Clone)]
pub(in crate::command) struct Passes(Rc<RefCell<State>>);

struct State {
    trace: String,
    /// The reading that is under way, from 1 on, and since when.
    reading: usize,
    began: Instant,
    /// Requests of it so far, and of the first one: all.
    requests: u64,
    all: u64,
    bar: ProgressBar,
    is_terminal: bool,
    said: Instant,
}

impl Passes {
    /// `json`: without a bar.
    pub fn new(json: bool) -> Passes {
        let is_terminal = std::io::stderr().is_terminal() && !json;
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let (bar, now) = (ProgressBar::with_draw_target(None, target), Instant::now());
        Passes(Rc::new(RefCell::new(State {
            trace: String::new(),
            reading: 0,
            began: now,
            requests: 0,
            all: 0,
            bar,
            is_terminal,
            said: now,
        })))
    }

    /// The trace that is studied next.
    pub fn begin_trace(&self, name: &str) {
        let state = &mut *self.0.borrow_mut();
        (state.trace, state.reading, state.all) = (name.to_owned(), 0, 0);
    }

    /// It is read from the beginning.
    pub fn begin_reading(&self) {
        self.0.borrow_mut().begin_reading(Instant::now());
    }

    /// What was studied is run in the engine, in one setup after the other.
    pub fn begin_trials(&self, name: &str) {
        let state = &mut *self.0.borrow_mut();
        state.begin_reading(Instant::now());
        (state.trace, state.reading) = (name.to_owned(), READINGS + 1);
        if state.is_terminal {
            let style = ProgressStyle::with_template(TRIALS).expect("a template that is right");
            state.bar.set_style(style);
            state.bar.set_message(state.what());
        }
    }

    /// To be called after each of them.
    pub fn trial(&self) -> impl Fn() + Sync + use<> {
        let bar = self.0.borrow().bar.clone();
        let trials = AtomicU64::new(0);
        move || bar.set_prefix((1 + trials.fetch_add(1, Ordering::Relaxed)).to_string())
    }

    /// A request of it.
    pub fn step(&self) {
        let state = &mut *self.0.borrow_mut();
        state.requests += 1;
        if state.requests.is_multiple_of(LOOK_EVERY) {
            state.show(Instant::now());
        }
    }
}

impl State {
    fn begin_reading(&mut self, now: Instant) {
        if self.reading == 1 {
            self.all = self.requests;
        }
        (self.reading, self.requests, self.began) = (self.reading + 1, 0, now);
        if self.is_terminal {
            let template = if self.reading == 1 { FIRST } else { LATER };
            let style = ProgressStyle::with_template(template).expect("a template that is right");
            self.bar.set_style(style);
            self.bar.set_length(self.all);
            self.bar.reset();
            self.bar.set_message(self.what());
        }
    }

    fn show(&mut self, now: Instant) {
        if self.is_terminal {
            self.bar.set_position(self.requests);
        } else if now.duration_since(self.said) >= SAY_EVERY {
            self.said = now;
            let _ = writeln!(std::io::stderr(), "{}", self.line(now));
        }
    }

    fn what(&self) -> String {
        match self.reading {
            1..=READINGS => format!("{}: reading {} of {READINGS}", self.trace, self.reading),
            _ => format!("{}: in the engine", self.trace),
        }
    }

    fn line(&self, now: Instant) -> String {
        let (what, requests) = (self.what(), count(self.requests));
        // In the engine each setup reads all of them.
        if self.reading == 1 || self.reading > READINGS {
            return format!("{what}, {requests} requests");
        }
        let left = self.all.saturating_sub(self.requests) as f64 / self.requests.max(1) as f64;
        let left = HumanDuration(now.duration_since(self.began).mul_f64(left));
        format!("{what}, {requests} of {} requests, {left} left", count(self.all))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_trace_the_reading_and_from_the_second_on_how_long_it_takes() {
        let (passes, began) = (Passes::new(true), Instant::now());
        passes.begin_trace("db.fbt");
        passes.begin_reading();
        (0..3000).for_each(|_| passes.step());
        let state = &mut *passes.0.borrow_mut();
        assert_eq!(state.line(began), format!("db.fbt: reading 1 of {READINGS}, 3,000 requests"));
        state.begin_reading(began);
        state.requests = 1000;
        let line = state.line(began + Duration::from_secs(5));
        let expect =
            format!("db.fbt: reading 2 of {READINGS}, 1,000 of 3,000 requests, 10 seconds left");
        assert_eq!(line, expect);
        state.reading = READINGS + 1;
        state.requests = 7000;
        assert_eq!(state.line(began), "db.fbt: in the engine, 7,000 requests");
    }
}
