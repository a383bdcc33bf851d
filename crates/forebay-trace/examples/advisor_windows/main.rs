//! The advisor out of time, as JSON: what it says of one part of a trace, held against what happens in the next part.
//!
//! ```text
//! requests   1 ................ n | n + 1 ........... 2n | 2n + 1 ...
//!            studied, advised ──► plan, its range
//!            the plan fills its cache ─► what happens here ─► in the range? how far from the best setup for this part?
//! ```
//! `advisor_windows [FOLDER] [WORDS]`: of the project's own recordings and of made-up loads always, and of the traces in FOLDER, which the project
//! does not keep (`FOREBAY_TRACES` names it, too). WORDS: only traces with one of these in their names. Everything repeats exactly.
//!
//! The constants of `advise/range.rs` were chosen with the traces of the group `tuned`, and are judged by those of `judged`.
//! `bench/run.py advisor` runs it, keeps the figures and makes the tables of docs/traces/advice-results.md.

#[path = "../advisor_sweep/traces.rs"]
#[allow(dead_code, reason = "the sweep needs more of it")]
mod traces;
mod window;

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use forebay_trace::Error;
use forebay_trace::record::Record;
use forebay_trace::workload::compaction::Compaction;
use forebay_trace::workload::loops::Loops;
use forebay_trace::workload::{Settings, Workload};

/// A trace, and whether constants were chosen with it.
struct Load {
    name: String,
    is_tuned: bool,
    records: Vec<Record>,
}

/// With these the constants were chosen.
const TUNED: [&str; 7] =
    ["pgbench", "Financial1, 50 k", "P3", "netsys-0", "netsys-2", "netsys-4", "prxy_0 reads"];
/// Requests of a window are about a twelfth of the trace's, and no fewer than this.
const WINDOW_MIN: usize = 5_000;
const WINDOWS_MAX: usize = 12;

fn main() -> Result<(), Error> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let folder = match words.first().is_some_and(|word| std::path::Path::new(word).is_dir()) {
        true => Some(words.remove(0).into()),
        false => std::env::var_os("FOREBAY_TRACES"),
    };
    let mut loads = loads(folder.as_deref().map(std::path::Path::new))?;
    loads.retain(|load| {
        words.is_empty() || words.iter().any(|word| load.name.contains(word.as_str()))
    });
    let mut windows = Vec::new();
    for load in &loads {
        let count = (load.records.len() / WINDOW_MIN).clamp(2, WINDOWS_MAX);
        let requests = load.records.len() / count;
        eprintln!("{}: {count} windows of {requests} requests", load.name);
        let parts: Vec<&[Record]> = load.records.chunks_exact(requests).collect();
        windows.extend(parts.windows(2).enumerate().map(|(at, both)| (load, at, both[0], both[1])));
    }
    let (waiting, found) = (Mutex::new(windows.iter().enumerate()), Mutex::new(Vec::new()));
    let next = || waiting.lock().expect("nobody panics with it").next();
    let work = || {
        while let Some((number, &(load, at, window, after))) = next() {
            let rows = window::rows(load, at, (window, after));
            eprintln!("{} of {}: {} {at}", number + 1, windows.len(), load.name);
            found.lock().expect("nobody panics with it").push((number, rows));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().expect("nobody panicked with it");
    found.sort_by_key(|(number, _)| *number);
    let rows = found.into_iter().map(|(_, rows)| rows).collect::<Result<Vec<_>, Error>>()?;
    println!("{}", serde_json::json!(rows.concat()));
    Ok(())
}

/// The recordings and the shared traces, then what is made up.
fn loads(folder: Option<&std::path::Path>) -> Result<Vec<Load>, Error> {
    let mut loads = Vec::new();
    for trace in traces::all(folder) {
        let is_tuned = TUNED.contains(&trace.name);
        loads.push(Load { name: trace.name.to_owned(), is_tuned, records: trace.read()? });
    }
    for seed in 1..=6 {
        let settings =
            Settings { disk_bytes: 256 << 20, requests: 24_000, interval_ns_mean: 1_000_000, seed };
        let records = Workload::new(settings).collect();
        loads.push(Load { name: format!("mixed {seed}"), is_tuned: seed % 2 == 1, records });
        let loops = Loops {
            lens: vec![600 * seed, 1100, 300],
            rounds: 3,
            broken_percent: 5,
            scan_percent: 5,
            hot_len: 100 * seed,
            hot_percent: 10,
            uses: 150_000,
            seed,
        };
        loads.push(Load {
            name: format!("loops {seed}"),
            is_tuned: seed % 2 == 1,
            records: loops.records(),
        });
        let compaction = Compaction {
            file_len: 64,
            level_1: 2,
            fanout: 4,
            levels: 3,
            lookup_percent: 10 * seed,
            reuses: seed % 4 < 2,
            uses: 80_000,
            seed,
        };
        loads.push(Load {
            name: format!("compaction {seed}"),
            is_tuned: seed % 2 == 1,
            records: compaction.records(),
        });
    }
    Ok(loads)
}
