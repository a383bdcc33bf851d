//! The screen as a terminal has it, from figures and keys.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_core::config::Mode;
use forebay_core::stats::{LatencySummary, LogState, LogStatistics, TierState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::model::{Next, Top};
use super::{Answers, view};
use crate::cli::SortBy;
use crate::daemon::api::{AllStats, DiskStats, RefusedDisk, ShardLoad};

struct Bench {
    top: Top,
    terminal: Terminal<TestBackend>,
    start: Instant,
    seconds: u64,
}

impl Bench {
    fn new(width: u16, height: u16) -> Bench {
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        Bench { top: Top::new(SortBy::Iops), terminal, start: Instant::now(), seconds: 0 }
    }

    /// A second later a daemon answers.
    fn answer(&mut self, all: AllStats) {
        self.seconds += 1;
        let at = self.start + Duration::from_secs(self.seconds);
        self.top.take(Answers { at, heard: vec![(PathBuf::from("/run/a.sock"), Ok(all))] });
    }

    fn keys(&mut self, keys: &str) {
        for letter in keys.chars() {
            let key = match letter {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                'v' => KeyCode::Down,
                letter => KeyCode::Char(letter),
            };
            assert_eq!(self.top.key(key), Next::Go, "{letter}");
        }
    }

    /// The lines of the screen.
    fn screen(&mut self) -> Vec<String> {
        let top = &mut self.top;
        self.terminal.draw(|frame| view::draw(frame, top)).unwrap();
        let buffer = self.terminal.backend().buffer();
        let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    /// The first words of the lines of the list.
    fn names(&mut self) -> Vec<String> {
        let lines = self.screen();
        let body = &lines[2..lines.len() - 1];
        let names = body.iter().filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect()
    }
}

/// A disk that did so many reads, of which a half were hits.
fn disk(name: &str, reads: u64) -> DiskStats {
    let mut disk = DiskStats { name: name.to_owned(), connections: 1, ..DiskStats::default() };
    let engine = &mut disk.engine;
    (engine.mode, engine.mode_actual, engine.block_size) = (Mode::WriteBack, Mode::WriteBack, 8192);
    (engine.ram.state, engine.ram.slots, engine.ram.slots_used) = (TierState::Active, 1000, 250);
    engine.counters.reads = reads;
    engine.counters.read_hits_ram = reads / 2;
    engine.latency.read =
        LatencySummary { count: reads, sum_ns: reads * 1_500_000, ..Default::default() };
    engine.latency.backend_io =
        LatencySummary { count: reads / 2, sum_ns: reads / 2 * 5_000_000, ..Default::default() };
    let state = LogState::Active;
    engine.log = Some(LogStatistics { state, dirty_bytes: 3 << 20, ..LogStatistics::default() });
    disk
}

fn all(disks: Vec<DiskStats>) -> AllStats {
    AllStats { disks, ..AllStats::default() }
}

fn load(busy: Option<f64>) -> ShardLoad {
    ShardLoad { disks: 1, busy, cpu_seconds: 0.0 }
}

#[test]
fn a_list_shows_the_last_interval_in_80_columns() {
    let mut bench = Bench::new(80, 24);
    bench.answer(all(vec![disk("db", 1000), disk("web", 10)]));
    let first = bench.screen();
    assert!(first[2].starts_with("db") && first[2].contains(" - "), "{first:#?}");
    bench.answer(all(vec![disk("db", 3000), disk("web", 5010)]));
    let lines = bench.screen();
    let expect = [
        "forebay top: 2 disks, by iops",
        "DISK             IOPS  HIT%   GUEST   FLASH PRIMARY USED%    DIRTY STATE",
        "web             5,000  50.0 1.50 ms       - 5.00 ms  25.0    3 MiB write-back",
        "db              2,000  50.0 1.50 ms       - 5.00 ms  25.0    3 MiB write-back",
    ];
    assert_eq!(lines[..4], expect);
    assert!(lines[23].starts_with("q quit") && lines[23].contains("/ filter"), "{lines:#?}");
    assert_eq!(lines.len(), 24);
}

#[test]
fn disks_with_long_names_and_the_default_mode_are_told_apart_in_60_and_80_columns() {
    for (width, expect) in
        [(60, ["webserve…tion-01", "webserve…tion-02"]), (80, ["webser…ion-01", "webser…ion-02"])]
    {
        let mut bench = Bench::new(width, 24);
        let named = ["webserver-production-01", "webserver-production-02"].map(|name| {
            let mut disk = disk(name, 10);
            (disk.engine.mode, disk.engine.mode_actual) = (Mode::WriteThrough, Mode::WriteThrough);
            disk.engine.log.as_mut().unwrap().dirty_bytes = (1 << 30) - (1 << 19);
            disk
        });
        bench.answer(all(named.into()));
        let lines = bench.screen();
        let mut names = bench.names();
        names.sort_unstable();
        assert_eq!(names, expect, "{lines:#?}");
        assert!(lines[2..4].iter().all(|line| line.ends_with(" write-through")), "{lines:#?}");
        let is_dirty_whole = lines[2].contains(" 1023 MiB ");
        assert_eq!(is_dirty_whole, width == 80, "{lines:#?}");
    }
}

#[test]
fn a_wide_terminal_shows_more_and_a_small_one_what_fits() {
    let mut bench = Bench::new(120, 30);
    let long = "a-name-that-is-longer-than-it";
    bench.answer(all(vec![disk(long, 0)]));
    let lines = bench.screen();
    assert!(lines[1].contains("WRITTEN/s") && lines[1].contains("CLIENTS"), "{lines:#?}");
    // It is as wide as what is left.
    assert!(lines[2].starts_with("a-name-that-…nger-than-it "), "{lines:#?}");
    bench.terminal.backend_mut().resize(40, 5);
    let lines = bench.screen();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[1], "DISK                  IOPS STATE", "{lines:#?}");
    assert!(lines[2].starts_with("a-name-th…-than-it "), "{lines:#?}");
    bench.terminal.backend_mut().resize(1, 1);
    assert_eq!(bench.screen().len(), 1, "it draws what fits");
}

#[test]
fn keys_sort_reverse_and_filter() {
    let mut bench = Bench::new(80, 24);
    bench.answer(all(vec![disk("a", 0), disk("b", 0), disk("c", 0)]));
    let mut dirty = disk("b", 500);
    dirty.engine.log.as_mut().unwrap().dirty_bytes = 1 << 40;
    bench.answer(all(vec![disk("a", 100), dirty, disk("c", 900)]));
    assert_eq!(bench.names(), ["c", "b", "a"], "by requests per second");
    bench.keys("r");
    assert_eq!(bench.names(), ["a", "b", "c"]);
    bench.keys("rssssss");
    assert!(bench.screen()[0].contains("by dirty"), "{:?}", bench.screen()[0]);
    assert_eq!(bench.names(), ["b", "a", "c"]);
    bench.keys("ss");
    assert_eq!(bench.names(), ["a", "b", "c"], "by name");
    // While a filter is typed, keys are letters.
    bench.keys("/B");
    assert!(bench.screen()[23].starts_with("filter: B_"));
    assert_eq!(bench.names(), ["b"]);
    bench.keys("q\n");
    let nothing = "no disk has 'Bq' in its name; Esc clears the filter";
    assert_eq!(bench.screen()[1], nothing);
    bench.keys("\x1b");
    assert_eq!(bench.names(), ["a", "b", "c"]);
    assert_eq!(bench.top.key(KeyCode::Char('q')), Next::Quit);
}

#[test]
fn a_disk_is_shown_alone_and_keeps_its_place_in_the_list() {
    let mut bench = Bench::new(80, 24);
    bench.answer(all(vec![disk("a", 0), disk("b", 0)]));
    let mut failing = disk("b", 10);
    failing.engine.mode = Mode::WriteThrough;
    failing.engine.log.as_mut().unwrap().state = LogState::Draining;
    bench.answer(all(vec![disk("a", 100), failing]));
    bench.keys("v\n");
    let lines = bench.screen();
    let text = lines.join("\n");
    for words in [
        "disk b: 0 B, mode write-back (write-through was asked for)",
        "primary storage connected",
        "per second, now",
        "guest reads",
        "write log: draining",
        "dirty data: 3 MiB",
        "RAM: active, 2 MiB of 7.8 MiB used (25.0 %)",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(lines[23].starts_with("Esc back"), "{text}");
    // It goes away, and comes back.
    bench.answer(all(vec![disk("a", 100)]));
    let text = bench.screen().join("\n");
    assert!(text.contains("disk b: it is gone. It was detached, or its daemon ended."), "{text}");
    bench.keys("\x1b");
    assert_eq!(bench.names(), ["a"]);
}

#[test]
fn disks_that_are_refused_or_silent_are_named_first_by_state() {
    let mut bench = Bench::new(80, 24);
    let refused = |name: &str| RefusedDisk {
        name: name.to_owned(),
        backend: "file:/x".to_owned(),
        reason: "its pool is in use".to_owned(),
        pool: None,
        is_tried_again: false,
    };
    let mut lost = disk("lost", 5);
    lost.engine.log.as_mut().unwrap().state = LogState::Full;
    let answer = AllStats {
        disks: vec![disk("fine", 5), disk("old", 5), lost],
        silent: vec!["old".to_owned(), "never".to_owned()],
        refused: vec![refused("bad")],
        shards: [Some(0.07), Some(0.871), None].map(load).into(),
    };
    bench.answer(answer);
    bench.keys("sssssss");
    let lines = bench.screen();
    assert!(lines[0].contains("busiest shard 87 %"), "{lines:?}");
    assert!(lines[0].starts_with("forebay top: 5 disks, 3 NOT SERVED, by state"), "{lines:#?}");
    let state = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap();
    for (name, words) in [
        ("bad", "REFUSED"),
        ("old", "NO ANSWER"),
        ("never", "NO ANSWER"),
        ("lost", "LOG FULL"),
        ("fine", "write-back"),
    ] {
        assert!(state(name).ends_with(words), "{name}: {lines:#?}");
    }
    assert_eq!(bench.names()[4], "fine");
    bench.keys("\n");
    assert!(bench.screen().join("\n").contains("its pool is in use"));
}

#[test]
fn a_disk_that_was_silent_has_the_rates_of_all_the_time_since_its_last_answer() {
    let mut bench = Bench::new(80, 24);
    let silent = |disk| AllStats { silent: vec!["a".to_owned()], ..all(vec![disk]) };
    bench.answer(all(vec![disk("a", 0)]));
    for _ in 0..9 {
        bench.answer(silent(disk("a", 0)));
    }
    bench.answer(all(vec![disk("a", 10_000)]));
    let known = bench.top.disk(&(PathBuf::from("/run/a.sock"), "a".to_owned())).unwrap();
    assert_eq!(known.rates.as_ref().unwrap().reads, 1_000);
    // Answers that come late are told with the next question.
    for n in 11..20 {
        bench.answer(silent(disk("a", n * 1_000)));
    }
    bench.answer(all(vec![disk("a", 20_000)]));
    let known = bench.top.disk(&(PathBuf::from("/run/a.sock"), "a".to_owned())).unwrap();
    assert_eq!(known.rates.as_ref().unwrap().reads, 1_000);
}

#[test]
fn a_daemon_that_ends_takes_its_disks_along_and_is_named() {
    let mut bench = Bench::new(80, 24);
    bench.answer(all(vec![disk("a", 0)]));
    assert_eq!(bench.names(), ["a"]);
    let at = Instant::now();
    let error = anyhow::anyhow!("nobody listens on the control socket /run/a.sock");
    bench.top.take(Answers { at, heard: vec![(PathBuf::from("/run/a.sock"), Err(error))] });
    let lines = bench.screen();
    assert!(lines[0].contains("NO ANSWER: nobody listens on"), "{lines:#?}");
    assert_eq!(lines[1], "no disk is running");
}

#[test]
fn five_hundred_disks_scroll_and_the_selected_one_stays_on_the_screen() {
    let mut bench = Bench::new(80, 24);
    bench.answer(all((0..500).map(|number| disk(&format!("d{number:03}"), 0)).collect()));
    bench.top.key(KeyCode::End);
    assert_eq!(bench.names().last().map(String::as_str), Some("d499"));
    for _ in 0..25 {
        bench.top.key(KeyCode::PageUp);
    }
    assert!(bench.names().contains(&"d249".to_owned()), "{:?}", bench.names());
    bench.top.key(KeyCode::Home);
    assert_eq!(bench.names()[0], "d000");
}

#[test]
fn no_line_of_a_disk_is_longer_than_80_columns() {
    let mut stats = disk(&"n".repeat(64), 1 << 42);
    stats.primary_trouble = Some("a reason ".repeat(20));
    stats.primary_storage = crate::daemon::api::PrimaryState::Lost;
    stats.engine.mode = Mode::WriteThrough;
    let log = stats.engine.log.as_mut().unwrap();
    log.primary_age_ns = u64::MAX;
    log.state = LogState::Full;
    for line in crate::command::detail::lines(&stats, None) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
