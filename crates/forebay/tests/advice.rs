//! What `forebay trace advise` tells is what `forebay trace simulate` tells of the options that it prints: on the project's recordings, and on the
//! traces of the folder that `FOREBAY_TRACES` names.

#![allow(missing_docs, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::forebay;
use serde_json::Value;

/// RAM and flash that there is: too little, enough, and enough for a write log as well.
const BUDGETS: [&[&str]; 4] = [
    &["--ram", "2MiB"],
    &["--flash", "48MiB"],
    &["--ram", "8MiB", "--flash", "100MiB"],
    &["--flash", "640MiB"],
];
/// Of a recording these are enough to have every mode.
const OF_LARGE: [usize; 2] = [1, 3];

/// Names of traces, and whether they are large.
fn traces() -> Vec<(String, bool)> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let own = |name: &str| own.join(name).display().to_string();
    let mut all = vec![(own("build.fbt"), false), (own("pgbench.fbt"), true)];
    if let Some(folder) = std::env::var_os("FOREBAY_TRACES") {
        let mut shared: Vec<_> = std::fs::read_dir(folder).expect("it is a folder").collect();
        shared.sort_by_key(|entry| entry.as_ref().map(|entry| entry.path()).ok());
        for entry in shared {
            let path = entry.expect("it can be read").path().display().to_string();
            // A page, counts without requests, and a format that is not read.
            let is_trace =
                !["README", "histogram", "netapp"].iter().any(|word| path.contains(word));
            all.extend(is_trace.then_some((path, false)));
        }
    }
    all
}

fn json(arguments: &[&str]) -> Value {
    let output = forebay(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {error}"))
}

#[test]
fn what_is_printed_is_what_the_printed_options_do() {
    let mut modes = BTreeSet::new();
    for (trace, is_large) in traces() {
        for (at, budget) in BUDGETS.into_iter().enumerate() {
            if is_large && !OF_LARGE.contains(&at) {
                continue;
            }
            let told = json(&[&["trace", "advise", &trace, "--json"], budget].concat());
            let advice = &told["disks"][0];
            let mode = advice["mode"].as_str().expect("it has one").to_owned();
            let Some(proof) = advice["proof"].as_object() else {
                assert_eq!(mode, "monitor", "{trace} {budget:?}: {advice}");
                modes.insert(mode);
                continue;
            };
            let options = advice["options"].as_array().expect("words").iter();
            let options: Vec<&str> = options.map(|word| word.as_str().expect("words")).collect();
            let simulated = |more: &[&str]| {
                json(&[&["trace", "simulate", &trace, "--json"][..], &options[..], more].concat())
            };
            let mut outcome = simulated(&[]);
            let uses_journal =
                outcome["log"]["journal_windows"].as_u64().is_some_and(|windows| windows > 0);
            if uses_journal && advice["needs_journal"] == false {
                // It is told of as on a disk that has none.
                outcome = simulated(&["--destage-order", "strict"]);
            }
            for figure in ["before", "after", "hits", "warm", "log", "flash"] {
                assert_eq!(proof[figure], outcome[figure], "{figure} of {trace} {budget:?}");
            }
            if !advice["plan"].is_null() {
                let plan = &advice["plan"];
                assert_eq!(plan["hit_ratio"], outcome["hits"]["ratio"], "{trace} {budget:?}");
                let [low, high] = [0, 1].map(|at| plan["hit_ratio_range"][at].as_f64().unwrap());
                let warm = outcome["warm"]["hit_ratio"].as_f64().unwrap();
                assert!((low..=high).contains(&warm), "{low} {warm} {high}: {trace} {budget:?}");
                let reads = |of: &str| outcome[of]["reads"]["mean_ns"].as_u64().unwrap();
                assert!(reads("after") < reads("before"), "{trace} {budget:?}");
            }
            if !proof["log"].is_null() {
                let writes = |of: &str| outcome[of]["writes"]["mean_ns"].as_u64().unwrap();
                assert!(writes("after") < writes("before"), "{trace} {budget:?}");
                assert_eq!(outcome["log"]["times_full"], 0);
            }
            modes.insert(mode);
        }
    }
    for mode in ["monitor", "write-through", "write-back"] {
        assert!(modes.contains(mode), "{modes:?}");
    }
}
