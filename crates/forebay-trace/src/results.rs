//! What replays measured, as a file (docs/traces/reports.md): one run or several, in JSON.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::record::Summary;
use crate::replay::{Outcome, Pace};

/// What the file calls itself.
const SCHEMA: &str = "forebay-replay";
/// Changes when a field changes its meaning or goes; not when one is added.
const VERSION: u64 = 1;

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    schema: String,
    version: u64,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

/// One replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What people call it.
    pub name: String,
    /// The trace.
    pub trace: String,
    /// The target's URI.
    pub target: String,
    /// The configuration behind the target in words, where the command made it.
    #[serde(default)]
    pub configuration: Option<String>,
    /// When it began, UTC.
    pub started: String,
    /// When requests were issued.
    pub pace: Pace,
    /// How often the trace was replayed in a row.
    pub passes: u32,
    /// The demand of the trace, once.
    pub asked: Summary,
    /// Records of the trace that made no sense and were passed over.
    #[serde(default)]
    pub bad: u64,
    /// The fault of the first.
    #[serde(default)]
    pub first_bad: Option<String>,
    /// Doubts about the trace, or the target.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The effect of a cache, where that is known.
    pub cache: Option<CacheUse>,
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Run {
    /// Whether its figures can be; of one that comes from outside.
    fn is_sound(&self) -> bool {
        self.outcome.is_sound() && self.asked.reads.checked_add(self.asked.writes).is_some()
    }

    /// The configuration that was measured. A target that the user named says it itself.
    pub fn measured(&self) -> &str {
        self.configuration.as_deref().unwrap_or(&self.target)
    }
}

/// The default name of a run on a target: the last part of the URI, `disk.raw` of
/// `file:/san/disk.raw`.
pub fn name_of_target(target: &str) -> String {
    let whole = target.trim_end_matches('/');
    let last = whole.rsplit(['/', '=']).next().filter(|last| !last.is_empty()).unwrap_or(whole);
    last.to_owned()
}

/// Doubts about runs, each once.
pub fn warnings(runs: &[Run]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for warning in runs.iter().flat_map(|run| &run.warnings) {
        if !all.contains(&warning.as_str()) {
            all.push(warning);
        }
    }
    all
}

/// Names that fit into a table. A run that is called as its whole target gets the last part of
/// it. Of runs with the same name, the second and further ones get their number.
pub fn short_names(runs: &mut [Run]) {
    for at in 0..runs.len() {
        if runs[at].name == runs[at].target {
            runs[at].name = name_of_target(&runs[at].target);
        }
        let is_taken = |name: &str| runs[..at].iter().any(|run| run.name == name);
        let plain = &runs[at].name;
        let numbered = (2..).map(|n| format!("{plain} ({n})"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        if let Some(free) = names.find(|name| !is_taken(name)) {
            runs[at].name = free;
        }
    }
}

/// The effect of a cache on a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Reads that it was asked for.
    pub reads: u64,
    /// Of those, the ones for which primary storage was not asked: RAM, flash or an earlier read in flight had the bytes.
    pub read_hits: u64,
    /// Reads and writes that primary storage had to do, destaging what was written included.
    pub backend_ios: u64,
}

impl CacheUse {
    /// Read hits of all reads.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.read_hits as f64 / self.reads as f64)
    }
}

impl Results {
    /// Of these runs.
    pub fn new(runs: Vec<Run>) -> Results {
        Results { schema: SCHEMA.to_owned(), version: VERSION, runs }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is something else, of another version, or has figures that cannot be.
    pub fn open(path: &Path) -> Result<Results, Error> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| Error::io(format!("cannot read {name}"), e))?;
        Results::parse(&bytes).map_err(|error| error.in_file(&name))
    }

    fn parse(bytes: &[u8]) -> Result<Results, Error> {
        let refuse = |what: String| Err(Error::new(ErrorKind::UnknownFormat, what));
        let what_to_do = "'forebay trace replay --json FILE' writes such files";
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
            return refuse(format!("it is not JSON, so not the results of a replay; {what_to_do}"));
        };
        if value.get("schema").and_then(|schema| schema.as_str()) != Some(SCHEMA) {
            return refuse(format!(
                "it is not the results of a replay (\"schema\" is not \"{SCHEMA}\"); {what_to_do}"
            ));
        }
        match value.get("version").and_then(|version| version.as_u64()) {
            Some(VERSION) => {}
            version => {
                let version = version.map_or("unknown".to_owned(), |version| version.to_string());
                return refuse(format!(
                    "results of version {version}, but this Forebay reads {VERSION}: replay again, or use the Forebay that wrote it"
                ));
            }
        }
        match serde_json::from_value::<Results>(value) {
            Ok(results) if results.runs.is_empty() => refuse("it has no runs".to_owned()),
            Ok(results) => match results.runs.iter().find(|run| !run.is_sound()) {
                Some(run) => refuse(format!(
                    "it is damaged: the run '{}' has figures that cannot be; {what_to_do}",
                    run.name
                )),
                None => Ok(results),
            },
            Err(error) => refuse(format!("it is damaged: {error}; {what_to_do}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Part, SLICES_MAX, Slice, Verified};

    #[test]
    fn what_is_written_is_read_again() {
        let run =
            Run { name: "a".to_owned(), pace: Pace::Dependent { speed: None }, ..Run::default() };
        let results =
            Results::new(vec![run.clone(), Run { pace: Pace::Closed { queue_depth: 3 }, ..run }]);
        let text = serde_json::to_string(&results).unwrap();
        assert!(
            text.starts_with(r#"{"schema":"forebay-replay","version":1,"runs":[{"name":"a","#),
            "{text}"
        );
        assert_eq!(Results::parse(text.as_bytes()).unwrap(), results);
    }

    /// A run whose figures are as they should be.
    fn sound() -> Run {
        let part =
            Part { count: 2, bytes: 8192, sum_ns: 30, max_ns: 20, buckets: vec![(10, 1), (20, 1)] };
        let slice =
            |n: u64| Slice { start_ns: n * 1000, reads: part.clone(), writes: part.clone() };
        let outcome = Outcome {
            slice_ns: 1000,
            slices: (0..3).map(slice).collect(),
            read_cdf: vec![(10, 0.0), (20, 1.0)],
            ..Outcome::default()
        };
        Run { outcome, ..Run::default() }
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        type Damage = fn(&mut Run);
        let cases: &[(&str, Damage)] = &[
            ("slices", |run| run.outcome.slices = vec![Slice::default(); SLICES_MAX + 1]),
            ("length of slices", |run| run.outcome.slice_ns = u64::MAX / 2),
            ("requests of a slice", |run| run.outcome.slices[1].writes.count = u64::MAX),
            ("requests drawn", |run| run.outcome.slices[1].reads.count = u64::MAX / 4),
            ("latencies", |run| run.outcome.slices[0].reads.sum_ns = u64::MAX),
            ("buckets", |run| run.outcome.slices[2].reads.buckets = vec![(1, u64::MAX), (2, 1)]),
            ("share", |run| run.outcome.read_cdf[0].1 = -1e300),
            ("share", |run| run.outcome.write_cdf = vec![(1, 1.5)]),
            ("mean", |run| run.outcome.reads.mean_ns = -1.0),
            ("rate", |run| run.outcome.iops = -1.0),
            ("requests", |run| {
                run.outcome.reads.count = u64::MAX;
                run.outcome.errors = 1;
            }),
            ("bytes", |run| {
                run.outcome.read_bytes = u64::MAX;
                run.outcome.written_bytes = 1;
            }),
            ("asked", |run| {
                run.asked.reads = u64::MAX;
                run.asked.writes = 1;
            }),
            ("verified", |run| {
                let verified = Verified { stale: u64::MAX, torn: 1, ..Verified::default() };
                run.outcome.verified = Some(verified);
            }),
        ];
        let parsed = |run: Run| {
            let text = serde_json::to_vec(&Results::new(vec![Run::default(), run])).unwrap();
            Results::parse(&text).map(drop)
        };
        assert!(parsed(sound()).is_ok());
        for (what, damage) in cases {
            let mut run = sound();
            run.name = "second".to_owned();
            damage(&mut run);
            let error = parsed(run).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::UnknownFormat);
            assert!(error.to_string().contains("'second' has figures that cannot be"), "{error}");
        }
    }

    #[test]
    fn runs_have_short_names_that_differ() {
        let of = |name: &str, target: &str| Run {
            name: name.to_owned(),
            target: target.to_owned(),
            ..Run::default()
        };
        let (file, san) = ("file:/srv/scratch/disk.raw", "model:san?inner=file:/a/disk.raw");
        let nbd = "nbd+unix:///?socket=/run/x.sock";
        let mut runs = vec![of(file, file), of(san, san), of(nbd, nbd), of("told", "mem:4MiB")];
        runs.extend([of("told", file), of("mem:4MiB", "mem:4MiB"), of("nbd://h:1/", "nbd://h:1/")]);
        short_names(&mut runs);
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        let expect = ["disk.raw", "disk.raw (2)", "x.sock", "told", "told (2)", "mem:4MiB", "h:1"];
        assert_eq!(names, expect);
    }

    #[test]
    fn what_is_something_else_is_refused_in_words() {
        let empty = serde_json::to_string(&Results::new(Vec::new())).unwrap();
        let cases = [
            ("", "not JSON"),
            ("[1]", "not the results of a replay"),
            (r#"{"schema":"fio","version":1}"#, "not the results of a replay"),
            (r#"{"schema":"forebay-replay","version":2,"runs":7}"#, "results of version 2"),
            (r#"{"schema":"forebay-replay","runs":[]}"#, "results of version unknown"),
            (r#"{"schema":"forebay-replay","version":1,"runs":[{"name":"a"}]}"#, "missing field"),
            (&empty, "no runs"),
        ];
        for (text, expect) in cases {
            let error = Results::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownFormat);
            assert!(error.to_string().contains(expect), "{text}: {error}");
        }
    }
}
