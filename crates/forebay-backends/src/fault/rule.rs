//! One rule: which I/O it looks at, when it fires, and what it does. Syntax: see the parent module.

use std::fmt;

use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;

use crate::backend::BackendIo;
use crate::{duration, size};
use forebay_core::splitmix::Rng;

/// What a rule does to an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It fails.
    Error(IoStatus),
    /// It starts later.
    Delay(Nanos),
    /// It never ends.
    Hang,
    /// A part of it is written, then it fails.
    Torn,
    /// It is acknowledged and not done.
    Drop,
    /// The session ends.
    SessionLost {
        /// For how long.
        time: Nanos,
    },
    /// The session ends and unflushed writes are lost.
    PowerCut {
        /// For how long.
        time: Nanos,
    },
}

/// Kinds of I/O that a rule can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Write zeroes.
    Zeroes,
    /// Questions for extents.
    Extents,
}

impl OpKind {
    const ALL: [(OpKind, &'static str); 6] = [
        (OpKind::Read, "read"),
        (OpKind::Write, "write"),
        (OpKind::Flush, "flush"),
        (OpKind::Discard, "discard"),
        (OpKind::Zeroes, "zeroes"),
        (OpKind::Extents, "extents"),
    ];

    fn of(op: IoOp) -> OpKind {
        match op {
            IoOp::Read { .. } => OpKind::Read,
            IoOp::Write { .. } => OpKind::Write,
            IoOp::Flush => OpKind::Flush,
            IoOp::Discard => OpKind::Discard,
            IoOp::WriteZeroes { .. } => OpKind::Zeroes,
            IoOp::Extents => OpKind::Extents,
            IoOp::Progress { .. } => unreachable!("of the log alone"),
        }
    }
}

const STATUSES: [(IoStatus, &str); 5] = [
    (IoStatus::IoError, "io"),
    (IoStatus::NoSpace, "no-space"),
    (IoStatus::Unsupported, "unsupported"),
    (IoStatus::ReadOnly, "read-only"),
    (IoStatus::TimedOut, "timeout"),
];

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// What it does.
    pub action: Action,
    /// The kind of I/O it looks at; all without.
    pub op: Option<OpKind>,
    /// The bytes it looks at; all without.
    pub range: Option<ByteRange>,
    /// How likely it fires.
    pub probability: Option<f64>,
    /// Fires on this one, counted from 1.
    pub nth: Option<u64>,
    /// Fires on each so-many-th.
    pub every: Option<u64>,
    /// Fires at most this often.
    pub times: Option<u64>,
}

impl Rule {
    /// Parses what comes after `rule=`; the error says what is wrong and what is allowed.
    pub(super) fn parse(text: &str) -> Result<Rule, String> {
        let (name, keys) = text.split_once(',').unwrap_or((text, ""));
        let mut time = None;
        let mut status = None;
        // The action is put in its place at the end, when its keys are known.
        let mut rule = Rule {
            action: Action::Hang,
            op: None,
            range: None,
            probability: None,
            nth: None,
            every: None,
            times: None,
        };
        for part in keys.split(',').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` has no value (key=value)"))?;
            let count = || match value.parse() {
                Ok(count) if count > 0 => Ok(Some(count)),
                _ => Err(format!("{key}: allowed: a whole number from 1")),
            };
            match key {
                "op" => rule.op = Some(named(&OpKind::ALL, key, value)?),
                "range" => rule.range = Some(parse_range(value)?),
                "p" => rule.probability = Some(parse_probability(value)?),
                "nth" => rule.nth = count()?,
                "every" => rule.every = count()?,
                "times" => rule.times = count()?,
                "time" => time = Some(duration::parse(value).map_err(|error| error.to_string())?),
                "status" => status = Some(named(&STATUSES, key, value)?),
                _ => {
                    return Err(format!(
                        "key `{key}` is not known; allowed: op, range, p, nth, every, times, \
                         time, status"
                    ));
                }
            }
        }
        rule.action = action(name, time, status)?;
        rule.limit_to_writes()?;
        Ok(rule)
    }

    /// `torn` and `drop` look at writes only.
    fn limit_to_writes(&mut self) -> Result<(), String> {
        match (self.action, self.op) {
            (Action::Torn | Action::Drop, None) => self.op = Some(OpKind::Write),
            (Action::Torn | Action::Drop, Some(op)) if op != OpKind::Write => {
                return Err("this action is for writes: op=write".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn looks_at(&self, io: &BackendIo) -> bool {
        self.op.is_none_or(|op| op == OpKind::of(io.op))
            && self.range.is_none_or(|range| range.overlaps(io.range))
    }
}

fn named<T: Copy>(all: &[(T, &str)], key: &str, value: &str) -> Result<T, String> {
    all.iter().find(|(_, name)| *name == value).map(|(found, _)| *found).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        format!("{key}={value} is not known; allowed: {}", names.join(", "))
    })
}

fn parse_range(value: &str) -> Result<ByteRange, String> {
    let (start, len) = value.split_once('+').ok_or("range: write START+LEN, such as 1MiB+4KiB")?;
    let start = size::parse(start).map_err(|error| error.to_string())?;
    let len = size::parse(len).map_err(|error| error.to_string())?;
    match start.checked_add(len) {
        Some(end) if len > 0 => Ok(ByteRange::new(start, end)),
        _ => Err("range: it is empty or too long".to_owned()),
    }
}

fn parse_probability(value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("p: allowed: a number from 0 to 1".to_owned()),
    }
}

fn action(name: &str, time: Option<Nanos>, status: Option<IoStatus>) -> Result<Action, String> {
    let takes_time = matches!(name, "delay" | "session-lost" | "power-cut");
    if time.is_some() && !takes_time {
        return Err("time is for delay, session-lost and power-cut".to_owned());
    }
    if status.is_some() && name != "error" {
        return Err("status is for error".to_owned());
    }
    let down = time.unwrap_or_default();
    match name {
        "error" => Ok(Action::Error(status.unwrap_or(IoStatus::IoError))),
        "delay" => time.map(Action::Delay).ok_or_else(|| "delay needs time=T".to_owned()),
        "hang" => Ok(Action::Hang),
        "torn" => Ok(Action::Torn),
        "drop" => Ok(Action::Drop),
        "session-lost" => Ok(Action::SessionLost { time: down }),
        "power-cut" => Ok(Action::PowerCut { time: down }),
        _ => Err(format!(
            "action `{name}` is not known; allowed: error, delay, hang, torn, drop, session-lost, \
             power-cut"
        )),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Error(status) => {
                write!(f, "error")?;
                for (_, name) in STATUSES.iter().skip(1).filter(|(known, _)| *known == status) {
                    write!(f, ",status={name}")?;
                }
            }
            Action::Delay(time) => write!(f, "delay,time={}", duration::exact(time))?,
            Action::Hang => write!(f, "hang")?,
            Action::Torn => write!(f, "torn")?,
            Action::Drop => write!(f, "drop")?,
            Action::SessionLost { time } => {
                write!(f, "session-lost,time={}", duration::exact(time))?;
            }
            Action::PowerCut { time } => write!(f, "power-cut,time={}", duration::exact(time))?,
        }
        for (_, name) in OpKind::ALL.iter().filter(|(op, _)| Some(*op) == self.op) {
            write!(f, ",op={name}")?;
        }
        if let Some(range) = self.range {
            write!(f, ",range={}+{}", size::exact(range.start), size::exact(range.len()))?;
        }
        if let Some(p) = self.probability {
            write!(f, ",p={p}")?;
        }
        let counts = [("nth", self.nth), ("every", self.every), ("times", self.times)];
        for (key, count) in counts {
            if let Some(count) = count {
                write!(f, ",{key}={count}")?;
            }
        }
        Ok(())
    }
}

/// A rule at work.
#[derive(Clone, Debug)]
pub(super) struct ActiveRule {
    rule: Rule,
    looked_at: u64,
    fired: u64,
}

impl ActiveRule {
    pub(super) fn new(rule: Rule) -> ActiveRule {
        ActiveRule { rule, looked_at: 0, fired: 0 }
    }

    /// What happens to this I/O, if the rule fires.
    pub(super) fn meet(&mut self, io: &BackendIo, rng: &mut Rng) -> Option<Action> {
        let rule = &self.rule;
        if !rule.looks_at(io) {
            return None;
        }
        self.looked_at += 1;
        let fires = rule.nth.is_none_or(|nth| self.looked_at == nth)
            && rule.every.is_none_or(|every| self.looked_at.is_multiple_of(every))
            && rule.times.is_none_or(|times| self.fired < times)
            && rule.probability.is_none_or(|p| rng.unit() < p);
        self.fired += u64::from(fires);
        fires.then_some(rule.action)
    }
}
