//! `forebay trace` and `forebay demo` as processes.

#![allow(missing_docs, clippy::disallowed_methods)]

mod common;

use common::{Folder, Forebay, forebay};

/// A trace in the CSV of `vscsiStats -e`: 8 KiB each, write every block of the first 256 KiB, then
/// read them twice, one per millisecond.
fn trace(folder: &Folder) -> String {
    trace_of(folder, "trace.csv", 32, 64)
}

/// The same with so many writes and reads.
fn trace_of(folder: &Folder, name: &str, writes: u64, reads: u64) -> String {
    let mut text = "#Vscsi Cmd Trace. (Trace Format Version 1)\n#Serial Number,IO Data Length,Num \
                    SG Entries,Command Type,LBN,Time Stamp (microseconds)\n"
        .to_owned();
    for n in 0..writes + reads {
        let kind = if n < writes { "write" } else { "read" };
        text += &format!("{n},8192,1,{kind},{},{}\n", n % 32 * 16, 1_000_000 + n * 1000);
    }
    std::fs::write(folder.path(name), text).unwrap();
    folder.text("", name)
}

#[test]
fn simulate_counts_hits_of_a_cache_that_holds_everything() {
    let folder = Folder::new();
    let file = trace(&folder);
    let args = ["trace", "simulate", &file, "--cache-size", "1MiB", "--policy", "lru", "--json"];
    let output = forebay(&args);
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["read_hit_ratio"], 1.0);
    assert_eq!(outcome["reads"]["requests"], 64);
    let output = forebay(&["trace", "simulate", &file, "--cache-size", "1MiB", "--policy", "best"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn simulate_runs_a_whole_configuration() {
    let folder = Folder::new();
    let file = trace(&folder);
    let page = folder.text("", "page.html");
    let run = |options: &[&str]| forebay(&[&["trace", "simulate", &file], options].concat());
    let output = run(&["--ram", "1MiB", "--backend-latency", "4ms", "--json", "--html", &page]);
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["hits"]["ratio"], 1.0);
    assert_eq!(outcome["trace"]["writes"], 32);
    assert_eq!(
        (&outcome["storage_before"]["reads"], &outcome["storage_after"]["reads"]),
        (&64.into(), &0.into())
    );
    // A hit takes what is assumed of one.
    assert_eq!(outcome["after"]["reads"]["mean_ns"], 11_000);
    assert!(std::fs::read_to_string(&page).unwrap().contains("trace.csv with write-through"));
    let options = "--mode write-back --flash /nvme/pool:64MiB --write-log 16MiB --destage-order window --backend \
                   model:san?latency=2ms --flash-endurance 600TB";
    let text =
        String::from_utf8(run(&options.split_whitespace().collect::<Vec<_>>()).stdout).unwrap();
    for part in ["write-back", "without Forebay", "write log:", "destaging: 256 KiB", "flash:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (options, says) in [
        ("", "--cache-size"),
        ("--cache-size 1MiB --ram 1MiB", "--ram"),
        ("--cache-size 1MiB --html x.html", "--html"),
        ("--ram 1MiB --policy belady", "--cache-size SIZE"),
        ("--mode write-back", "a write log needs flash"),
        ("--ram 1MiB --destage-order window", "--destage-order is for a disk with a write log"),
        ("--ram 1MiB --backend model:san --backend-latency 1ms", "--backend-latency"),
        ("--ram 1MiB --backend mem:1MiB", "it is no model"),
        ("--flash 1MiB --flash-endurance 600", "600TB"),
        ("--flash lots", "--flash"),
    ] {
        let output = run(&options.split_whitespace().collect::<Vec<_>>());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{options}: {error}");
        assert!(error.contains(says), "{options}: {error}");
    }
}

#[test]
fn convert_writes_what_the_name_says_and_it_means_the_same() {
    let folder = Folder::new();
    let file = trace(&folder);
    let outcome_of = |file: &str| {
        let args = ["trace", "simulate", file, "--cache-size", "64KiB", "--json"];
        String::from_utf8(forebay(&args).stdout).unwrap()
    };
    let expect = outcome_of(&file);
    let mut from = file.clone();
    for name in ["a.fbt", "b.vscsi.xz", "c.vscsi2.gz", "d.msr.zst", "e.iolog", "f.fio2", "g.fbt"] {
        let to = folder.text("", name);
        let output = forebay(&["trace", "convert", &from, &to, "--json"]);
        let error = String::from_utf8_lossy(&output.stderr);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
        assert_eq!((&told["requests"], &told["bad"]), (&96.into(), &0.into()));
        assert_eq!(outcome_of(&to), expect, "{name}");
        from = to;
    }
    let error_of = |args: &[&str]| {
        let output = forebay(&[&["trace", "convert", &file][..], args].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = error_of(&[&folder.text("", "a.csv")]);
    assert!(error.contains("does not tell the format to write: name it"), "{error}");
    let error = error_of(&[&file, "--to", "msr"]);
    assert!(error.contains("is the trace that is read"), "{error}");
    assert_eq!(outcome_of(&file), expect, "it was not touched");
    let error = error_of(&[&folder.text("", "no/a.fbt")]);
    assert!(error.contains("does not exist; create it or choose another path"), "{error}");
}

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
    for words in ["pgbench", "without cache", "cold cache", "warm cache", "What to try next"] {
        assert!(text.contains(words), "{text}");
    }
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let [unhelped, cold, warm] = [0, 1, 2].map(|run| &results["runs"][run]);
    assert_eq!(unhelped["cache"]["read_hits"], 0);
    let hits = |run: &serde_json::Value| run["cache"]["read_hits"].as_u64().unwrap();
    assert!(hits(warm) < warm["cache"]["reads"].as_u64().unwrap(), "these were not read before");
    assert!(hits(warm) >= hits(cold), "{text}");
    assert!(text.contains("then the 1,200 requests before them in the trace"), "{text}");
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

#[test]
fn a_curve_says_what_simulations_say() {
    let folder = Folder::new();
    let file = trace(&folder);
    let args = ["trace", "mrc", &file, "--policy", "lru,s3fifo,belady", "--block-size"];
    let more = ["4KiB,64KiB", "--cache-size", "64KiB,128KiB,1MiB", "--sample", "exact", "--json"];
    let output = forebay(&[&args[..], &more[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
    let curves = told["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 6);
    for curve in curves {
        assert_eq!(curve["touched"], 256 << 10);
        for point in curve["points"].as_array().unwrap() {
            let [size, block] = [&point["cache_size"], &curve["block_size"]].map(|n| n.to_string());
            let policy = curve["policy"].as_str().unwrap();
            let args = ["trace", "simulate", &file, "--cache-size", &size, "--block-size", &block];
            let output = forebay(&[&args[..], &["--policy", policy, "--json"]].concat());
            let alone: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            for name in ["reads", "writes", "miss_ratio", "read_request_hit_ratio"] {
                assert_eq!(point[name], alone[name], "{policy} {size} {name}");
            }
        }
    }
    let output = forebay(&["trace", "mrc", &file, "--policy", "lru,fifo"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for line in ["  A  lru, blocks of 8 KiB", "  B  fifo, blocks", "  256 KiB  0.", "  0.0 |"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let output = forebay(&["trace", "mrc", &file, "--sample", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("use auto, exact, or a share"));
}

#[test]
fn info_tells_people_and_programs_what_the_trace_is() {
    let folder = Folder::new();
    let file = trace(&folder);
    let output = forebay(&["trace", "info", &file, "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
    assert_eq!((&told["reads"], &told["writes"]), (&64.into(), &32.into()));
    assert_eq!(told["duration_ns"], 95_000_000);
    assert_eq!(told["lengths"]["common"], serde_json::json!([[8192, 96]]));
    assert_eq!(told["reuse"]["footprint"], 256 << 10);
    let text = forebay(&["trace", "info", &file, "--exact"]).stdout;
    let text = String::from_utf8_lossy(&text);
    for words in
        ["96 requests in 95.0 ms, 66.7 % reads", "most: 8 KiB 100.0 %", "(exact)", "first use"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn advise_says_in_words_and_figures_what_a_disk_should_have() {
    let folder = Folder::new();
    let file = trace_of(&folder, "trace.csv", 128, 256);
    let output = forebay(&["trace", "advise", &file, "--flash", "1GiB", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
    let disk = &told["disks"][0];
    assert_eq!((&disk["name"], &disk["mode"]), (&"trace.csv".into(), &"write-back".into()));
    assert_eq!((&disk["plan"]["flash"], &disk["plan"]["ram"]), (&(256 << 10).into(), &0.into()));
    assert_eq!(disk["plan"]["hit_ratio"], 1.0);
    let of_writes = |of: &str| disk["proof"][of]["writes"]["mean_ns"].as_u64().unwrap();
    assert!(of_writes("after") < 200_000 && of_writes("before") > 4_000_000, "{disk}");
    let mean = disk["after"]["mean_ns"].as_f64().unwrap();
    assert!((90_000.0..120_000.0).contains(&mean), "every request is one of flash: {mean}");
    let text = forebay(&["trace", "advise", &file, &file, "--ram", "1GiB"]).stdout;
    let text = String::from_utf8_lossy(&text);
    for words in [
        "trace.csv: 256 KiB of RAM at 64 KiB: 98–100 % of reads hit, 4.52 ms → 11.0 µs on average",
        "Writes: as before, a write log needs flash, 128 MiB or more.",
        "forebay run … --mode write-through --ram 256KiB --block-size 64KiB",
    ] {
        assert_eq!(text.matches(words).count(), 2, "{words} in {text}");
    }
    for (options, says) in [
        (&[][..], "--ram"),
        (&["--ram", "0"], "such as --ram 4GiB"),
        (&["--ram", "1GiB", "--reserve-ram", "4GiB"], "write FILE=SIZE, such as db.fbt=16GiB"),
    ] {
        let output = forebay(&[&["trace", "advise", &file], options].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{says}: {error}");
    }
    let few = trace(&folder);
    let output = forebay(&["trace", "advise", &few, "--flash", "1GiB", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = &told["disks"][0]["verdict"];
    assert_eq!(*verdict, serde_json::json!({ "kind": "too-little", "wanted": 100 }));
}

#[test]
fn disks_share_what_there_is_and_keep_what_they_reserved() {
    let folder = Folder::new();
    let few = trace_of(&folder, "few.csv", 0, 512);
    let many = trace_of(&folder, "many.csv", 0, 5120);
    let advise = |more: &[&str]| {
        let output =
            forebay(&[&["trace", "advise", &few, &many, "--ram", "256KiB"], more].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, text, error) = advise(&[]);
    assert_eq!(code, Some(0), "{error}");
    let lost = "few.csv: no read cache, since what there is goes to many.csv (256 KiB of RAM, gains more); with 256 KiB of RAM \
                94 % of reads would hit, 5.00 ms → ";
    assert!(text.contains(lost) && text.contains("many.csv: 256 KiB of RAM at"), "{text}");
    let (_, text, _) = advise(&["--reserve-ram", "few.csv=256KiB"]);
    assert!(text.contains("few.csv: 256 KiB of RAM at"), "{text}");
    assert!(text.contains("goes to few.csv (256 KiB of RAM, reserved)"), "{text}");
    assert!(text.contains("  reserved: 256 KiB of RAM\n"), "{text}");
    let by_path = format!("{few}=208KiB");
    let (_, text, _) = advise(&["--reserve-ram", &by_path, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let [few_told, many_told] = [&told["disks"][0], &told["disks"][1]];
    assert_eq!(few_told["reserved"], serde_json::json!({ "ram": 208 << 10, "flash": 0 }));
    assert_eq!(many_told["verdict"]["kind"], "goes-to-others", "{told}");
    // What is left is too little for many.csv, so that few.csv may have it as well.
    let winner = &many_told["goes_to"][0];
    assert_eq!(
        (&winner["has"]["ram"], &winner["reserved"]["ram"]),
        (&262_144.into(), &(208 << 10).into())
    );
    let sentence = many_told["sentence"].as_str().unwrap();
    let who = "goes to few.csv (256 KiB of RAM, of which 208 KiB of RAM are reserved)";
    assert!(sentence.contains(who), "{sentence}");
    for (options, says) in [
        (&["--reserve-ram", "few.csv=1MiB"][..], "1 MiB of RAM are reserved, and there is 256 KiB"),
        (&["--reserve-flash", "few.csv=1MiB"], "1 MiB of flash are reserved, and there is 0 B"),
        (&["--reserve-ram", "web=1KiB"], "no trace is called so; there are"),
        (&["--reserve-ram", "few.csv=1KiB", "--reserve-ram", "few.csv=2KiB"], "given twice"),
        (&["--reserve-ram", "few.csv=0", "--reserve-ram", &format!("{few}=2KiB")], "given twice"),
        (&[&few, "--reserve-ram", "few.csv=1KiB"], "several traces are called so"),
        (&["--reserve-ram", "few.csv=much"], "much"),
    ] {
        let (code, _, error) = advise(options);
        assert_eq!(code, Some(2), "{options:?}: {error}");
        assert!(error.contains(says), "{says}: {error}");
    }
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
        "1 requests come after later ones, by up to 7.0 s (line 2)",
    ] {
        assert_eq!(error.matches(part).count(), 1, "{part}: {error}");
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["warnings"].as_array().unwrap().len(), &json["bad"]), (2, &0.into()));
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
