//! Replays of a trace, and the demonstration.

use super::common::{Folder, Forebay, forebay};
use super::{trace, trace_of};

#[test]
fn replay_writes_what_the_trace_writes_and_reports() {
    let folder = Folder::new();
    let file = trace(&folder);
    folder.image("disk.raw", 1 << 20);
    let target = folder.text("file:", "disk.raw");
    let fast = ["--as-fast-as-possible", "--queue-depth", "4", "--json", "-"];
    let output = forebay(&[&["trace", "replay", &file, "--target", &target], &fast[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
    let run = &results["runs"][0];
    assert_eq!((&run["reads"]["count"], &run["writes"]["count"]), (&64.into(), &32.into()));
    assert!(std::fs::read(folder.path("disk.raw")).unwrap()[..4096] != [0; 4096]);
    let figures = folder.text("", "no/such/out.json");
    let output = forebay(&["trace", "replay", &file, "--target", &target, "--json", &figures]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no/such does not exist; create it"), "{error}");
    folder.image("small.raw", 64 << 10);
    let small = folder.text("file:", "small.raw");
    let output = forebay(&["trace", "replay", &file, "--target", &small]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("--wrap"), "{error}");
    let output =
        forebay(&["trace", "replay", &file, "--target", &small, "--wrap", "--speed", "10"]);
    assert!(output.status.success());
}

#[test]
fn replay_through_a_cache_hits_on_what_was_written() {
    let folder = Folder::new();
    let file = trace(&folder);
    let (nbd, control) = (folder.text("unix:", "nbd.sock"), folder.text("", "control.sock"));
    let args =
        ["run", "mem:1MiB", "--name", "m", "--ram", "1MiB", "--nbd", &nbd, "--control", &control];
    let _server = Forebay::start(&args);
    let target = folder.text("nbd+unix:///m?socket=", "nbd.sock");
    let output = forebay(&[
        "trace",
        "replay",
        &file,
        "--target",
        &target,
        "--as-fast-as-possible",
        "--queue-depth",
        "1",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = forebay(&["stats", "m", "--json", "--control", &control]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["vfrc"]["vFlash:cacheHitPercentage"], 100.0);
}

#[test]
fn the_demonstration_shows_three_runs_and_cleans_up() {
    let folder = Folder::new();
    let figures = Folder::new();
    let json = figures.text("", "demo.json");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["demo", "--requests", "300", "--json", &json])
        .env("TMPDIR", folder.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for words in ["pgbench", "no cache", "cold cache", "warm cache", "What to try next"] {
        assert!(text.contains(words), "{text}");
    }
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let [unhelped, cold, warm] = [0, 1, 2].map(|run| &results["runs"][run]);
    assert_eq!(unhelped["cache"]["read_hits"], 0);
    let expect = "write-back, RAM 256 MiB, flash 512 MiB with a write log of 128 MiB, 8 KiB blocks, policy auto, in front of a modelled SAN";
    assert_eq!(warm["configuration"], expect);
    assert_eq!(unhelped["configuration"], "pass-through, no cache, in front of a modelled SAN");
    let hits = |run: &serde_json::Value| run["cache"]["read_hits"].as_u64().unwrap();
    assert!(hits(warm) < warm["cache"]["reads"].as_u64().unwrap(), "these were not read before");
    assert!(hits(warm) >= hits(cold), "{text}");
    // Four for each of the replay, or as many as it comes to in the time that the replay may take.
    let (_, warmed) = text.split_once("then the ").expect("it says how it is warmed");
    let (warmed, _) = warmed.split_once(" requests before them in the trace").expect("so many");
    let warmed: u64 = warmed.replace(',', "").parse().unwrap();
    assert!((301..=1200).contains(&warmed), "{text}");
    assert!(warm["cache"]["reads"].as_u64() > Some(100), "{warm}");
    assert!(warm["cache"]["backend_ios"].as_u64() > Some(0), "what was written was destaged");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0, "cleaned up");
}

#[test]
fn a_warm_cache_that_saw_the_same_requests_says_so() {
    let (folder, temporary) = (Folder::new(), Folder::new());
    let file = trace(&folder);
    let page = folder.text("", "page.html");
    let text = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(args)
            .env("TMPDIR", temporary.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let says = "warm cache: it has seen the very same requests before";
    // The trace is as long as the demonstration: nothing comes before it.
    let shown = text(&["demo", "--trace", &file, "--html", &page]);
    assert!(shown.contains(says), "{shown}");
    assert!(std::fs::read_to_string(&page).unwrap().contains(says));
    let config = folder.text("", "with.toml");
    std::fs::write(&config, "[[disk]]\nname = 'db'\nbackend = 'mem:1MiB'\nram = '1MiB'\n").unwrap();
    let shown = text(&["trace", "ab", &file, "--backend", "mem:1MiB", "--config", &config]);
    assert!(shown.contains(says), "{shown}");
}

#[test]
fn a_replay_that_reads_holes_says_so_unless_they_are_filled_before() {
    let folder = Folder::new();
    let file = trace_of(&folder, "reads.csv", 0, 64);
    let disk = folder.path("disk.raw");
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let target = format!("file:{}", disk.display());
    let results = folder.text("", "run.json");
    let replay = |more: &[&str]| {
        let args = ["trace", "replay", &file, "--target", &target, "--json", &results];
        let output = forebay(&[&args[..], &["--as-fast-as-possible"], more].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{error}");
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&results).unwrap()).unwrap();
        (error, json["runs"][0].clone())
    };
    let says = "256 KiB of the 256 KiB that the trace reads first are holes of the target";
    let (error, run) = replay(&[]);
    assert!(error.contains(says), "{error}");
    assert!(run["warnings"][0].as_str().unwrap().contains(says), "{run}");
    let (error, run) = replay(&["--prefill"]);
    assert!(!error.contains("holes"), "{error}");
    assert_eq!(run["prefilled_bytes"], 256 << 10);
    let (error, run) = replay(&[]);
    assert!(!error.contains("holes"), "{error}");
    assert_eq!(run["holes"]["bytes"], 0, "the first replay has left data");
}

#[test]
fn a_replay_of_no_request_is_an_error() {
    let folder = Folder::new();
    let file = folder.text("", "long.csv");
    std::fs::write(&file, "1,R,0,1073741824,1\n").unwrap();
    let output = forebay(&["trace", "replay", &file, "--target", "mem:2GiB"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("none of the trace's requests was replayed: 1 are too long"), "{error}");
}
