//! The files of a trace: damaged, doubtful, a pipe; and those that results go to.

use super::common::{Folder, forebay};
use super::trace;

#[test]
fn what_skip_bad_passes_over_is_told_by_every_command() {
    let folder = Folder::new();
    let file = trace(&folder);
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good + "what is this\nor this\n").unwrap();
    let out = folder.text("", "out.fbt");
    let results = folder.text("", "results.json");
    for args in [
        &["info", &file][..],
        &["mrc", &file, "--policy", "lru,fifo"],
        &["simulate", &file, "--cache-size", "1MiB"],
        &["simulate", &file, "--ram", "1MiB"],
        &["advise", &file, "--ram", "1MiB"],
        &["convert", &file, &out],
        &["histogram", &file],
        &["replay", &file, "--target", "mem:1MiB", "--loop", "2", "--as-fast-as-possible"],
    ] {
        let is_replay = args[0] == "replay";
        let json = if is_replay { &["--json", &results][..] } else { &["--json"] };
        let output = forebay(&[&["trace"], args, &["--skip-bad"], json].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{error}");
        let told = "2 bad records passed over; the first: ";
        assert_eq!(error.matches(told).count(), 1, "{args:?}: {error}");
        assert!(error.contains("line 99:"), "{args:?}: {error}");
        let json = if is_replay { std::fs::read(&results).unwrap() } else { output.stdout };
        let mut json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        if is_replay {
            json = json["runs"][0].take();
        }
        if args[0] != "histogram" {
            assert_eq!(json["bad"], 2, "{args:?}: {json}");
            assert!(json["first_bad"].as_str().unwrap().contains("line 99:"), "{json}");
        }
    }
}

#[test]
fn more_bad_records_than_skip_bad_allows_are_an_error() {
    let folder = Folder::new();
    let file = trace(&folder);
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good + "what is this\nor this\n").unwrap();
    let info = |skip: &str| {
        let output = forebay(&["trace", "info", &file, skip]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for enough in ["--skip-bad", "--skip-bad=2"] {
        assert_eq!(info(enough).0, Some(0), "{enough}");
    }
    let (code, error) = info("--skip-bad=1");
    assert_eq!(code, Some(1), "{error}");
    for part in ["line 100: ", "more than 1 bad records are not to be passed over", "line 99: "] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let (code, error) = info("--skip-bad=0");
    assert!(code == Some(1) && error.contains("line 99: "), "{error}");
    assert_eq!(info("--skip-bad=some").0, Some(2));
}

#[test]
fn what_is_doubtful_of_a_trace_is_told_and_one_without_a_request_is_an_error() {
    let folder = Folder::new();
    let file = folder.text("", "cut.csv");
    std::fs::write(&file, "1,W,0,4096,9000000\n1,R,0,4096,2000000").unwrap();
    let output = forebay(&["trace", "info", &file, "--json"]);
    let error = String::from_utf8(output.stderr).unwrap();
    for part in [
        "line 2: the last line has no end of line",
        "1 request comes after later ones, by up to 7.0 s (line 2)",
        "1 request has a time before that of the first one, from which times count: such a time counts as 0",
    ] {
        assert_eq!(error.matches(part).count(), 1, "{part}: {error}");
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["warnings"].as_array().unwrap().len(), &json["bad"]), (3, &0.into()));
    std::fs::write(&file, "fio version 2 iolog\n").unwrap();
    for command in ["info", "histogram", "mrc"] {
        let output = forebay(&["trace", command, &file]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("no read or write is in it"), "{command}: {error}");
    }
}

/// Runs `forebay trace` with these bytes in a pipe as its standard input: exit code, standard output, standard error.
fn piped(args: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let (from, mut to) = std::io::pipe().unwrap();
    let output = std::thread::scope(|scope| {
        // Who refuses a pipe does not read it.
        scope.spawn(move || std::io::Write::write_all(&mut to, input));
        let command = env!("CARGO_BIN_EXE_forebay");
        std::process::Command::new(command).arg("trace").args(args).stdin(from).output().unwrap()
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_pipe_is_read_once_and_refused_where_that_is_not_enough() {
    let folder = Folder::new();
    let file = trace(&folder);
    let bytes = std::fs::read(&file).unwrap();
    let fbt = folder.text("", "out.fbt");
    for args in [
        &["info", "-"][..],
        &["info", "/dev/stdin"],
        &["histogram", "-"],
        &["mrc", "-"],
        &["simulate", "-", "--cache-size", "1MiB", "--policy", "belady"],
        &["convert", "-", &fbt],
    ] {
        let (code, out, error) = piped(args, &bytes);
        assert_eq!(code, Some(0), "{args:?}: {error}");
        let named = args.iter().map(|&arg| match arg {
            "-" | "/dev/stdin" => &file,
            _ => arg,
        });
        let named: Vec<&str> = std::iter::once("trace").chain(named).collect();
        let expect = String::from_utf8(forebay(&named).stdout).unwrap();
        let out = match out.strip_prefix(args[1]) {
            Some(rest) => format!("{file}{rest}"),
            None => out,
        };
        assert_eq!(out, expect, "{args:?}");
    }
    let fifo = folder.text("", "fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    for args in [
        &["replay", "-", "--target", "mem:1MiB"][..],
        &["replay", &fifo, "--target", "mem:1MiB"],
        &["simulate", "-", "--ram", "1MiB"],
        &["mrc", "/dev/stdin", "--policy", "lru,auto"],
        &["advise", &file, "-", "--ram", "1MiB"],
        &["ab", "-", "--backend", "mem:1MiB", "--config", "none.toml"],
    ] {
        let (code, out, error) = piped(args, &bytes);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {error}");
        assert!(error.contains("which can be read once"), "{args:?}: {error}");
        assert!(
            error.contains("write it to a file first, for example with 'forebay trace convert"),
            "{error}"
        );
    }
}

#[test]
fn a_file_that_is_standard_output_has_it_alone() {
    let folder = Folder::new();
    let file = trace(&folder);
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.arg("trace").args(args).current_dir(folder.path("")).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, error) = run(&["convert", &file, "-", "--to", "fio3"]);
    assert!(code == Some(0) && out.starts_with("fio version 3 iolog\n"), "{out}");
    let each = format!("{:.1} bytes each", out.len() as f64 / 96.0);
    assert!(error.contains("96 requests of vscsi-csv as fio3") && error.contains(&each), "{error}");
    let (code, out, error) = run(&["info", &file, "--html", "-"]);
    assert!(
        code == Some(0) && out.starts_with("<!DOCTYPE html>") && out.ends_with("</html>"),
        "{out}"
    );
    assert!(error.contains("96 requests in"), "{error}");
    let replay = ["replay", &file, "--target", "mem:1MiB", "--as-fast-as-possible", "--json", "-"];
    let (code, out, error) = run(&replay);
    assert_eq!(code, Some(0), "{error}");
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["runs"].is_array());
    assert!(error.contains("I/Os per second"), "{error}");
    let (code, out, error) = run(&[&replay[..], &["--html", "-"]].concat());
    assert_eq!((code, out.as_str()), (Some(1), ""), "{error}");
    assert!(error.contains("two files cannot both be standard output"), "{error}");
    let (code, _, error) = run(&["convert", &file, "-"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("does not tell the format to write"), "{error}");
    assert!(!folder.path("-").exists());
}

#[test]
fn what_numbers_of_a_trace_are_taken_for_is_told() {
    let folder = Folder::new();
    std::fs::write(folder.path("t.ssdsim"), "0 0 8 8 1\n5000 0 8 8 1\n").unwrap();
    let file = folder.text("", "t.ssdsim");
    let told = |args: &[&str]| {
        let output = forebay(&[&["trace"], args].concat());
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = told(&["simulate", &file, "--ram", "1MiB"]);
    let says = "t.ssdsim: its format does not tell: takes times for nanoseconds (--time-unit), lengths for units of 512 bytes (--length-unit)";
    assert_eq!(error.matches(says).count(), 1, "{error}");
    let error = told(&["info", &file, "--time-unit", "us"]);
    assert!(!error.contains("times") && error.contains("lengths for units of 512"), "{error}");
    assert_eq!(told(&["info", &file, "--time-unit", "us", "--length-unit", "512"]), "");
    assert_eq!(told(&["info", &trace(&folder)]), "");
}

#[test]
fn a_file_that_is_there_stays_until_what_replaces_it_is_whole() {
    let folder = Folder::new();
    let file = trace(&folder);
    let old = |name: &str| {
        std::fs::write(folder.path(name), "old").unwrap();
        folder.text("", name)
    };
    let (json, html, arc, fbt) = (old("o.json"), old("o.html"), old("o.lis"), old("o.fbt"));
    let bad = folder.text("", "bad.csv");
    std::fs::write(&bad, std::fs::read_to_string(&file).unwrap() + "what is this\n").unwrap();
    let none = folder.text("file:", "none");
    for args in [
        &["replay", &file, "--target", &none, "--json", &json, "--html", &html][..],
        &["simulate", &file, "--mode", "write-back", "--html", &html],
        &["info", &bad, "--html", &html],
        &["mrc", &bad, "--html", &html],
        &["histogram", &bad, "--html", &html],
        &["advise", &bad, "--ram", "1MiB", "--html", &html],
        &["convert", &file, &arc, "--to", "arc"],
        &["convert", &bad, &fbt],
        &["record", "no-such-disk", "-o", &fbt],
    ] {
        let output = forebay(&[&["trace"], args].concat());
        assert!(!output.status.success(), "{args:?}");
    }
    let names = std::fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().path());
    let (old, others): (Vec<_>, Vec<_>) =
        names.partition(|path| std::fs::read(path).unwrap() == b"old");
    assert_eq!((old.len(), others.len()), (4, 2), "{old:?} {others:?}");
    assert!(forebay(&["trace", "convert", &file, &fbt]).status.success());
    assert!(forebay(&["trace", "info", &fbt, "--html", &html]).status.success());
    assert!(std::fs::read_to_string(&html).unwrap().contains("o.fbt"));
}

#[test]
fn a_full_disk_is_told_once_and_a_reader_that_left_is_no_error() {
    let folder = Folder::new();
    let file = trace(&folder);
    let target = "--target=mem:1MiB";
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run = |args: &[&str], stdout: std::process::Stdio| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.arg("trace").args(args).stdout(stdout).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for args in [
        &["replay", &file, target, "--as-fast-as-possible", "--json", "/dev/full"][..],
        &["info", &file, "--html", "/dev/full"],
        &["convert", &file, "/dev/full", "--to", "fbt"],
    ] {
        let (code, error) = run(args, std::process::Stdio::null());
        assert_eq!((code, error.matches("No space left").count()), (Some(1), 1), "{error}");
    }
    let options = [
        &["info", &file][..],
        &["info", &file, "--json"],
        &["mrc", &file],
        &["histogram", &file],
        &["advise", &file, "--ram", "1MiB"],
        &["simulate", &file, "--cache-size", "1MiB"],
        &["simulate", &file, "--ram", "1MiB"],
        &["replay", &file, target, "--as-fast-as-possible"],
    ];
    for args in options {
        let (code, error) = run(args, full().into());
        assert_eq!(code, Some(1), "{args:?}");
        assert!(error.contains("cannot write to standard output: No space left"), "{error}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(args, writer.into()), (Some(0), String::new()), "{args:?}");
    }
}
