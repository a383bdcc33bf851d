//! What `forebay top` knows and what its keys do. It neither asks nor draws.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use forebay_core::stats::LogState;
use ratatui::crossterm::event::KeyCode;

use super::Answers;
use crate::cli::SortBy;
use crate::command::rates::Rates;
use crate::daemon::api::{AllStats, DiskStats, PrimaryState, ShardLoad};
use crate::messages;

/// A disk of a daemon, by the daemon's control socket and its name.
pub(super) type Key = (PathBuf, String);

/// See the module.
pub(super) struct Top {
    /// In the order of their keys.
    disks: BTreeMap<Key, Disk>,
    /// What is wrong with daemons.
    pub(super) troubles: Vec<String>,
    /// Of all daemons.
    pub(super) shards: Vec<ShardLoad>,
    pub(super) sort: SortBy,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) is_typing: bool,
    /// What the list is at.
    pub(super) selected: Option<Key>,
    /// The disk that is looked at alone.
    pub(super) shown: Option<Key>,
}

pub(super) struct Disk {
    pub(super) what: What,
    /// What it did in the last interval.
    pub(super) rates: Option<Rates>,
    /// When it answered.
    at: Instant,
}

pub(super) enum What {
    Served(Box<DiskStats>),
    /// It did not answer in time; what it answered last.
    Silent(Option<Box<DiskStats>>),
    /// Why it is not served.
    Refused(String),
}

/// What comes after a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    Quit,
}

impl Top {
    pub(super) fn new(sort: SortBy) -> Top {
        Top {
            disks: BTreeMap::new(),
            troubles: Vec::new(),
            shards: Vec::new(),
            sort,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            selected: None,
            shown: None,
        }
    }

    /// Takes what daemons answered. A disk that nobody names any more is gone.
    pub(super) fn take(&mut self, Answers { at, heard }: Answers) {
        let mut before = std::mem::take(&mut self.disks);
        self.troubles.clear();
        self.shards.clear();
        for (control, answer) in heard {
            match answer {
                Ok(all) => self.take_all(at, &control, all, &mut before),
                Err(error) => self.troubles.push(format!("{error:#}")),
            }
        }
    }

    fn take_all(
        &mut self,
        at: Instant,
        control: &Path,
        all: AllStats,
        before: &mut BTreeMap<Key, Disk>,
    ) {
        let AllStats { disks, silent, refused, shards } = all;
        self.shards.extend(shards);
        for stats in disks {
            let key = (control.to_owned(), stats.name.clone());
            let earlier = before.remove(&key);
            let is_silent = silent.contains(&stats.name);
            // What is told of a silent disk may be what it answered last.
            let is_old = |earlier: &&Disk| {
                let counters = |stats: &DiskStats| stats.engine.counters;
                is_silent && earlier.stats().is_some_and(|it| counters(it) == counters(&stats))
            };
            let at = earlier.as_ref().filter(is_old).map_or(at, |earlier| earlier.at);
            let rates = earlier.filter(|_| !is_silent).and_then(|earlier| {
                let later = at.saturating_duration_since(earlier.at);
                Some(Rates::between(earlier.stats()?, &stats, later))
            });
            let stats = Box::new(stats);
            let what = if is_silent { What::Silent(Some(stats)) } else { What::Served(stats) };
            self.disks.insert(key, Disk { what, rates, at });
        }
        for name in silent {
            let never = Disk { what: What::Silent(None), rates: None, at };
            self.disks.entry((control.to_owned(), name)).or_insert(never);
        }
        for disk in refused {
            let what = What::Refused(disk.reason);
            self.disks.insert((control.to_owned(), disk.name), Disk { what, rates: None, at });
        }
    }

    /// The disk of this key.
    pub(super) fn disk(&self, key: &Key) -> Option<&Disk> {
        self.disks.get(key)
    }

    /// How many there are, and how many of them are not served or do not answer.
    pub(super) fn counts(&self) -> (usize, usize) {
        let bad = self.disks.values().filter(|disk| !matches!(disk.what, What::Served(_)));
        (self.disks.len(), bad.count())
    }

    /// All that the filter lets through, in order.
    pub(super) fn list(&self) -> Vec<(&Key, &Disk)> {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |(key, _): &(&Key, &Disk)| key.1.to_lowercase().contains(&wanted);
        let mut list: Vec<_> = self.disks.iter().filter(is_wanted).collect();
        list.sort_by(|(a_key, a), (b_key, b)| {
            let by_name = || a_key.1.cmp(&b_key.1).then_with(|| a_key.0.cmp(&b_key.0));
            let order = match self.sort {
                SortBy::Name => by_name(),
                // The largest first, and those without a figure last.
                figure => compare(b.figure(figure), a.figure(figure)),
            };
            let order = if self.is_reversed { order.reverse() } else { order };
            order.then_with(by_name)
        });
        list
    }

    /// Does what a key asks for.
    pub(super) fn key(&mut self, key: KeyCode) -> Next {
        if self.is_typing {
            match key {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(letter) => self.filter.push(letter),
                _ => {}
            }
            return Next::Go;
        }
        match key {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace if self.shown.is_some() => {
                self.shown = None;
            }
            KeyCode::Esc => self.filter.clear(),
            _ if self.shown.is_some() => {}
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            KeyCode::Enter | KeyCode::Right => {
                self.select(0);
                self.shown = self.selected.clone();
            }
            _ => {}
        }
        Next::Go
    }

    /// Where the selected disk is in `list`; the first, if it is not there.
    pub(super) fn place(&self, list: &[(&Key, &Disk)]) -> Option<usize> {
        let selected = self.selected.as_ref();
        let place = list.iter().position(|(key, _)| Some(*key) == selected);
        place.or((!list.is_empty()).then_some(0))
    }

    /// Selects the disk so many lines further on, as far as there are any.
    fn select(&mut self, lines: isize) {
        let list = self.list();
        let Some(place) = self.place(&list) else { return };
        let place = place.saturating_add_signed(lines).min(list.len() - 1);
        self.selected = Some(list[place].0.clone());
    }
}

/// Those without a figure are the smallest.
fn compare(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

impl Disk {
    /// Its figures, however old.
    pub(super) fn stats(&self) -> Option<&DiskStats> {
        match &self.what {
            What::Served(stats) | What::Silent(Some(stats)) => Some(stats),
            What::Silent(None) | What::Refused(_) => None,
        }
    }

    /// The figure that disks are ordered by.
    fn figure(&self, by: SortBy) -> Option<f64> {
        let rates = self.rates.as_ref();
        let ns = |time: Option<u64>| time.map(|ns| ns as f64);
        match by {
            SortBy::Name => None,
            SortBy::Iops => rates.map(|it| it.iops() as f64),
            SortBy::Hits => rates.and_then(Rates::hit_ratio),
            SortBy::Guest => ns(rates.and_then(|it| it.guest)),
            SortBy::Flash => ns(rates.and_then(|it| it.flash)),
            SortBy::Primary => ns(rates.and_then(|it| it.primary)),
            SortBy::Used => self.used(),
            SortBy::Dirty => self.dirty().map(|bytes| bytes as f64),
            SortBy::State => Some(f64::from(u8::from(self.state().1))),
        }
    }

    /// How much of the cache is used, of 1; both tiers together.
    pub(super) fn used(&self) -> Option<f64> {
        let engine = &self.stats()?.engine;
        let slots = engine.ram.slots + engine.flash.slots;
        let used = engine.ram.slots_used + engine.flash.slots_used;
        (slots > 0).then(|| used as f64 / slots as f64)
    }

    /// Dirty bytes, where it has a log.
    pub(super) fn dirty(&self) -> Option<u64> {
        Some(self.stats()?.engine.log.as_ref()?.dirty_bytes)
    }

    /// Its state in a word or two, and whether somebody should look: the worst of all that is not as it should be.
    pub(super) fn state(&self) -> (String, bool) {
        let stats = match &self.what {
            What::Refused(_) => return ("REFUSED".to_owned(), true),
            What::Silent(_) => return ("NO ANSWER".to_owned(), true),
            What::Served(stats) => stats,
        };
        let engine = &stats.engine;
        let log = engine.log.as_ref().map_or(LogState::Unused, |log| log.state);
        let bad = match (log, stats.primary_storage) {
            (LogState::Lost, _) => Some("LOG LOST"),
            (LogState::Failed, _) => Some("LOG FAILED"),
            (_, PrimaryState::Lost) => Some("NO PRIMARY"),
            (_, PrimaryState::Fails) => Some("I/O ERRORS"),
            (LogState::Full, _) => Some("LOG FULL"),
            (LogState::WaitsForFlush, _) => Some("LOG WAITS"),
            _ if stats.storage_changed.is_some() => Some("CHANGED"),
            _ => messages::flash_trouble(engine),
        };
        if let Some(bad) = bad {
            return (bad.to_owned(), true);
        }
        let good = match (log, stats.primary_storage) {
            _ if stats.is_detaching => "detaching".to_owned(),
            (LogState::Paused, _) => "paused".to_owned(),
            (LogState::Draining, _) => "draining".to_owned(),
            (_, PrimaryState::HoldsWrites) => "holds writes".to_owned(),
            _ if engine.mode != engine.mode_actual => format!("to {}", engine.mode),
            _ => engine.mode_actual.to_string(),
        };
        (good, false)
    }
}
