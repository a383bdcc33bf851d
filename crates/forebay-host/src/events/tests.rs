use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::log::ALIKE_MAX;
use super::*;

const INFO: EventKind = EventKind { severity: Severity::Info, code: None };
const WARNING: EventKind = EventKind { severity: Severity::Warning, code: None };

fn line(text: &str) -> EventLine {
    EventLine::new(0, Some("db".into()), INFO, text)
}

fn warning(time_ms: u64, text: &str) -> EventLine {
    EventLine::new(time_ms, Some("db".into()), WARNING, text)
}

fn texts(log: &EventLog) -> Vec<String> {
    log.lines(None).into_iter().map(|line| line.text).collect()
}

#[test]
fn the_log_keeps_the_last_events_and_numbers_them_all() {
    let log = EventLog::default();
    for i in 0..KEPT + 5 {
        log.keep(line(&i.to_string()), 0);
    }
    log.keep(line("after a gap"), 3);
    let lines = log.lines(Some("db"));
    assert_eq!(lines.len(), KEPT);
    assert_eq!(lines[0].text, "6");
    assert_eq!(lines[KEPT - 1].number, KEPT as u64 + 9);
    assert!(log.lines(Some("other")).is_empty());
}

#[test]
fn lines_are_written_in_their_order_and_what_was_forgotten_meanwhile_is_counted() {
    let log = EventLog::default();
    log.keep(line("first"), 0);
    log.keep(line("second"), 2);
    let mut written = Vec::new();
    log.write(&Default::default(), |line, missing| {
        written.push((line.text.clone(), missing));
        match written.len() {
            // Whoever reads them pauses, and more come than are kept.
            2 => (0..KEPT + 5).for_each(|i| log.keep(self::line(&i.to_string()), 0)),
            3 => log.end(),
            _ => {}
        }
    });
    assert_eq!(written.len(), KEPT + 2);
    let [first, second, third, .., last] = &written[..] else { panic!("more than four") };
    assert_eq!([first, second], [&("first".into(), 0), &("second".into(), 2)]);
    assert_eq!([third, last], [&("5".into(), 5), &((KEPT + 4).to_string(), 0)]);
}

#[test]
fn a_writer_outlives_a_repeated_event_before_which_others_are_missing() {
    let log = EventLog::default();
    log.keep(warning(0, "again"), 0);
    let (repeated, may_go_on) = std::sync::mpsc::channel();
    let mut written = Vec::new();
    let of_thread = &log;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            may_go_on.recv().unwrap();
            of_thread.keep(line("after"), 0);
            of_thread.end();
        });
        log.write(&Default::default(), |line, missing| {
            written.push((line.text.clone(), missing));
            if written.len() == 1 {
                log.keep(warning(1, "again"), 3);
                repeated.send(()).unwrap();
            }
        });
    });
    assert_eq!(written, [("again".to_owned(), 0), ("after".to_owned(), 3)]);
}

#[tokio::test]
async fn what_was_reported_is_logged_once_it_settled() {
    let folder = tempfile::tempdir().unwrap();
    let file = EventFile::open(folder.path(), "db").unwrap();
    let (log, events) = EventLog::start(Some(file)).unwrap();
    for round in 1..100 {
        events.report(None, Severity::Info, "x".into());
        log.settle(&events).await;
        assert_eq!(log.lines(None).len(), round);
        let kept = fs::read_to_string(EventFile::path(folder.path(), "db")).unwrap();
        assert_eq!(kept.lines().count(), round);
    }
}

#[test]
fn reporting_to_a_full_log_only_counts() {
    let (events, _receiver) = EventSender::for_test();
    for _ in 0..WAITING_MAX + 2 {
        events.report(None, Severity::Info, "x".into());
    }
    assert_eq!(events.dropped.load(Ordering::Relaxed), 2);
}

#[test]
fn a_warning_that_comes_again_and_again_is_one_event_with_a_count_and_an_end() {
    let log = EventLog::default();
    let minute = REPEATED_WITHIN;
    for second in 0..5000 {
        log.keep(warning(second * 1000, "no answer"), 0);
        if second % 50 == 0 {
            log.keep(warning(second * 1000, "no room"), 0);
        }
        log.end_repeated(second * 1000, minute);
    }
    let lines = log.lines(None);
    assert_eq!(texts(&log), ["no answer", "no room"]);
    assert_eq!((lines[0].count, lines[0].last_ms), (5000, Some(4_999_000)));
    assert_eq!(lines[1].count, 100);
    log.end_repeated(4_999_000 + minute.as_millis() as u64, minute);
    let end = "this came 5000 times, first at 1970-01-01T00:00:00.000Z, last at 1970-01-01T01:23:19.000Z: no answer";
    assert!(texts(&log).contains(&end.to_owned()), "{:?}", texts(&log));
    assert_eq!(log.lines(None).len(), 4, "each has one end");
    log.keep(warning(9_000_000, "no answer"), 0);
    assert_eq!(log.lines(None).len(), 5, "after its end it is another one");
    log.end_repeated(u64::MAX, minute);
    assert_eq!(log.lines(None).len(), 5, "what came once needs no end");
}

#[test]
fn what_comes_again_after_it_was_over_is_another_event_and_the_last_one_counts() {
    let log = EventLog::default();
    let restored = |time| EventLine::new(time, Some("db".into()), INFO, "it is back");
    log.keep(warning(0, "no answer"), 0);
    log.keep(warning(1000, "no answer"), 0);
    log.keep(restored(5000), 0);
    log.keep(warning(20_000, "no answer"), 0);
    assert_eq!(texts(&log), ["no answer", "it is back", "no answer"]);
    assert_eq!(log.lines(None)[0].count, 2);
    // What comes and goes all the time leaves room for others.
    for n in 0..300 {
        log.keep(restored(20_001 + n), 0);
        log.keep(warning(20_001 + n, "no answer"), 0);
    }
    let lines = log.lines(None);
    let of = lines.iter().filter(|line| line.text == "no answer").map(|line| line.count);
    let of: Vec<u64> = of.collect();
    assert_eq!((of.len(), of.iter().sum::<u64>()), (ALIKE_MAX, 303));
}

#[test]
fn the_end_of_one_repeated_warning_ends_no_other_one() {
    let log = EventLog::default();
    log.keep(warning(0, "no room"), 0);
    log.keep(warning(1000, "no room"), 0);
    for second in 0..600 {
        log.keep(warning(second * 1000, "no answer"), 0);
        log.end_repeated(second * 1000, REPEATED_WITHIN);
    }
    let texts = texts(&log);
    assert_eq!(texts[..2], ["no room", "no answer"]);
    assert!(texts[2].starts_with("this came 2 times") && texts.len() == 3, "{texts:?}");
}

#[test]
fn an_error_after_the_clock_was_set_back_is_an_event_of_its_own() {
    let log = EventLog::default();
    let hour = 3_600_000;
    log.keep(warning(hour, "no answer"), 0);
    log.keep(warning(hour + 1000, "no answer"), 0);
    log.keep(warning(1000, "no answer"), 0);
    assert_eq!(texts(&log), ["no answer", "no answer"]);
    log.end_repeated(2000, REPEATED_WITHIN);
    let end = texts(&log).pop().unwrap();
    assert!(end.starts_with("this came 2 times"), "it has ended: {end}");
}

#[test]
fn each_loss_of_data_is_an_event_of_its_own() {
    let log = EventLog::default();
    let kind = EventKind { severity: Severity::Error, code: Some(EventCode::LogCorrupt) };
    for n in 0..500 {
        let text = format!("the log cannot be read back for bytes {n}..{}", n + 1);
        log.keep(EventLine::new(n, Some("db".into()), kind, &text), 0);
    }
    assert_eq!(log.lines(None).len(), 100, "up to a limit");
}

#[test]
fn a_guest_that_makes_errors_at_will_leaves_room_for_others() {
    let log = EventLog::default();
    log.keep(warning(0, "no answer"), 0);
    for n in 0..3000 {
        log.keep(warning(n, &format!("{n} bytes at {:#x} are not the guest's memory", n * 7)), 0);
    }
    let lines = log.lines(None);
    assert_eq!(lines.len(), 1 + ALIKE_MAX, "{:?}", texts(&log));
    assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), 3001);
    log.end_repeated(u64::MAX, REPEATED_WITHIN);
    let end = texts(&log).pop().unwrap();
    assert!(end.starts_with("this came 2996 times, also with other figures, first at"), "{end}");
}

#[test]
fn only_the_same_warning_of_the_same_disk_is_counted_with_another() {
    let log = EventLog::default();
    let of = |disk: Option<&str>, kind, text| EventLine::new(0, disk.map(Into::into), kind, text);
    let coded = EventKind { code: Some(EventCode::LogFull), ..WARNING };
    for (disk, kind, text) in [
        (Some("db"), WARNING, "x"),
        (Some("web"), WARNING, "x"),
        (None, WARNING, "x"),
        (Some("db"), coded, "x"),
        (Some("db"), WARNING, "y"),
        (Some("db"), INFO, "x"),
        (Some("db"), INFO, "x"),
    ] {
        log.keep(of(disk, kind, text), 0);
    }
    assert_eq!(log.lines(None).len(), 7);
}

/// What a log with this file knows, after it took one more event.
async fn restarted(folder: &Path, text: &str) -> Vec<EventLine> {
    let (log, events) = EventLog::start(Some(EventFile::open(folder, "db").unwrap())).unwrap();
    events.report(Some("db"), Severity::Warning, text.to_owned());
    log.settle(&events).await;
    log.lines(None)
}

#[tokio::test]
async fn events_outlive_a_restart_with_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for run in 1..4 {
        let lines = restarted(folder.path(), "the same words").await;
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, (1..=run).collect::<Vec<_>>(), "another run's event is another one");
        tokio::time::timeout(Duration::from_secs(10), async {
            while EventFile::open(folder.path(), "db").is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the log of the run before lets go of the file");
    }
}

#[tokio::test]
async fn a_torn_line_and_what_is_no_event_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = EventFile::path(folder.path(), "db");
    let whole = |number| EventLine { number, ..warning(5, "whole") };
    let json = |line: &EventLine| serde_json::to_string(line).unwrap();
    let mut file = fs::File::create(&path).unwrap();
    for text in [
        json(&whole(1)),
        "\u{1b}[2J no event".to_owned(),
        json(&EventLine { number: u64::MAX, ..whole(1) }),
        json(&whole(2)),
        json(&whole(2)),
        json(&EventLine { text: "two\nlines \u{1b}[2J".into(), ..whole(3) }),
        String::new(),
        // Of a later version, which knows more.
        json(&EventLine { number: 4, code: Some(EventCode::LogFull), ..whole(1) })
            .replace("log-full", "of-tomorrow")
            .replace("\"number\"", "\"new\":[1],\"number\""),
    ] {
        writeln!(file, "{text}").unwrap();
    }
    file.write_all(&[0xff; 300]).unwrap();
    file.write_all(b"\n").unwrap();
    file.write_all(&json(&whole(5)).as_bytes()[..20]).unwrap();
    drop(file);
    let lines = restarted(folder.path(), "new").await;
    let found: Vec<(u64, &str)> = lines.iter().map(|line| (line.number, &*line.text)).collect();
    let escaped = "two\\nlines \\u{1b}[2J";
    assert_eq!(found, [(1, "whole"), (2, "whole"), (3, escaped), (4, "whole"), (5, "new")]);
    assert_eq!(lines[3].code, None);
    let text = fs::read(&path).unwrap();
    let last = text.split(|byte| *byte == b'\n').rev().nth(1).unwrap();
    assert_eq!(serde_json::from_slice::<EventLine>(last).unwrap().text, "new", "a line of its own");
}

#[test]
fn the_file_is_rotated_once_and_never_grows_beyond() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = EventFile::open(folder.path(), "db").unwrap();
    let text = "x".repeat(4000);
    for number in 1..=2000 {
        file.append(&EventLine { number, ..warning(0, &text) });
    }
    let sizes: Vec<u64> = fs::read_dir(folder.path())
        .unwrap()
        .map(|it| it.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|size| *size < (1 << 20) + 8192), "{sizes:?}");
    drop(file);
    let lines = EventFile::open(folder.path(), "db").unwrap().take_lines();
    assert_eq!(lines.last().unwrap().number, 2000);
    assert!(lines.len() > 250, "both files are read: {}", lines.len());
    // Somebody removes it when it is full, or it was renamed and no new one could be made.
    let mut file = EventFile::open(folder.path(), "db").unwrap();
    fs::remove_file(EventFile::path(folder.path(), "db")).unwrap();
    for number in 2001..=2300 {
        file.append(&EventLine { number, ..warning(0, &text) });
    }
    drop(file);
    let lines = EventFile::open(folder.path(), "db").unwrap().take_lines();
    assert_eq!(lines.last().unwrap().number, 2300);
}

#[test]
fn the_file_of_another_daemon_and_what_is_no_file_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let _other = EventFile::open(folder.path(), "db").unwrap();
    let error = EventFile::open(folder.path(), "db").unwrap_err().to_string();
    assert!(error.contains("another daemon"), "{error}");
    let precious = folder.path().join("precious");
    fs::write(&precious, "data").unwrap();
    std::os::unix::fs::symlink(&precious, EventFile::path(folder.path(), "link")).unwrap();
    assert!(EventFile::open(folder.path(), "link").is_err());
    assert_eq!(fs::read(&precious).unwrap(), b"data");
}

#[test]
fn text_of_others_becomes_one_line_of_bounded_length() {
    let check = |text: &str, expect: &str| assert_eq!(on_one_line(text), expect);
    check("a \"b\" für é", "a \"b\" für é");
    check("one\ntwo\r<0>\u{1b}[2J\u{9b}", "one\\ntwo\\r<0>\\u{1b}[2J\\u{9b}");
    let long = on_one_line(&"é".repeat(5000));
    assert!(long.len() < TEXT_BYTES_MAX + 8 && long.ends_with('…'));
}
