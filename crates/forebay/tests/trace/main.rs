//! `forebay trace` and `forebay demo` as processes.

#![allow(missing_docs, clippy::disallowed_methods)]

#[path = "../common/mod.rs"]
mod common;
mod files;
mod replay;

use common::{Folder, forebay};

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
