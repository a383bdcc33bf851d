//! The trace that a command reads, maybe several times, and what is wrong or doubtful in it, which is told at the end.

use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Result, ensure};
use forebay_trace::formats::{Counts, Guess, Options, Reader};
use forebay_trace::record::Record;
use forebay_trace::{Error, results};
use serde::Serialize;

use super::super::output::{STANDARD, show};
use super::super::table::count;
use crate::cli::trace::{TraceInput, TraceReading};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Input<'a> {
    file: &'a Path,
    options: Options,
    /// Of the reading that found most.
    bad: Arc<Mutex<Bad>>,
    /// What its numbers are taken for.
    is_told: Arc<AtomicBool>,
    /// Requests, once it was read to its end.
    requests: Arc<OnceLock<u64>>,
}

/// Records that make no sense and were passed over, and what is doubtful of the others.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Bad {
    bad: u64,
    /// What is wrong with the first, and where it is.
    first_bad: Option<String>,
    /// What is doubtful of the trace.
    warnings: Vec<String>,
}

/// A trace being read.
#[derive(Debug)]
pub(super) struct Reading {
    reader: Reader,
    bad: Arc<Mutex<Bad>>,
    requests: Arc<OnceLock<u64>>,
    has_ended: bool,
}

/// A file to read, which may be standard input.
pub(in crate::command) fn of_standard(file: &Path) -> &Path {
    if file == Path::new(STANDARD) { Path::new("/dev/stdin") } else { file }
}

impl<'a> Input<'a> {
    pub fn of(input: &'a TraceInput) -> Input<'a> {
        Input::new(&input.file, &input.reading)
    }

    pub fn new(file: &'a Path, reading: &TraceReading) -> Input<'a> {
        let options = Options {
            format: reading.format,
            time_unit: reading.time_unit,
            len_unit: reading.length_unit,
            device: reading.device,
            skip_bad: reading.skip_bad.map_or(0, |most| most.unwrap_or(u64::MAX)),
        };
        Input {
            file: of_standard(file),
            options,
            bad: Arc::default(),
            is_told: Arc::default(),
            requests: Arc::default(),
        }
    }

    /// For a command that reads it more than once.
    ///
    /// # Errors
    /// It is something that can be read once.
    pub fn again(self) -> Result<Input<'a>> {
        let kind = std::fs::metadata(self.file).map(|data| data.file_type());
        let is_passing =
            |kind: FileType| kind.is_fifo() || kind.is_socket() || kind.is_char_device();
        ensure!(
            !kind.is_ok_and(is_passing),
            "{0} is a pipe or a terminal, which can be read once, and this command reads the trace more than once: write it to a file \
             first, for example with 'forebay trace convert {0} FILE.fbt'",
            self.file.display()
        );
        Ok(self)
    }

    /// Reads it from the beginning.
    ///
    /// # Errors
    /// The file cannot be read, or is of no known format.
    pub fn open(&self) -> Result<Reading, Error> {
        let reader = Reader::open(self.file, &self.options)?;
        if !self.is_told.swap(true, Ordering::Relaxed) {
            self.tell(reader.guess());
        }
        let (bad, requests) = (Arc::clone(&self.bad), Arc::clone(&self.requests));
        Ok(Reading { reader, bad, requests, has_ended: false })
    }

    /// Says what its numbers are taken for where nothing tells it.
    fn tell(&self, guess: Guess) {
        let time = guess.time_unit.map(|unit| format!("times for {unit} (--time-unit)"));
        let len =
            guess.len_unit.map(|unit| format!("lengths for units of {unit} bytes (--length-unit)"));
        let taken: Vec<String> = time.into_iter().chain(len).collect();
        if !taken.is_empty() {
            let (file, taken) = (self.file.display(), taken.join(", "));
            super::super::last_words::say(&format!(
                "{file}: its format does not tell: takes {taken}"
            ));
        }
    }

    /// What it is called in a report.
    pub fn name(&self) -> String {
        self.file
            .file_name()
            .map_or(self.file.as_os_str(), OsStr::new)
            .to_string_lossy()
            .into_owned()
    }

    /// What was passed over by those who have read it.
    pub fn bad(&self) -> Bad {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Bad {
    /// Tells of it on standard error, if there is anything to tell.
    pub fn tell(&self) {
        self.warnings.iter().for_each(|warning| super::super::last_words::say(warning));
        if let Some(first) = &self.first_bad {
            let number = count(self.bad);
            super::super::last_words::say(&format!(
                "{number} bad records passed over; the first: {first}"
            ));
        }
    }

    /// The same of several traces.
    pub fn of_all<'a>(inputs: impl IntoIterator<Item = &'a Input<'a>>) -> Bad {
        let all = inputs.into_iter().map(Input::bad);
        all.reduce(|sum, one| Bad {
            bad: sum.bad + one.bad,
            first_bad: sum.first_bad.or(one.first_bad),
            warnings: [sum.warnings, one.warnings].concat(),
        })
        .unwrap_or_default()
    }

    /// Prints what a command found, an object, with what it passed over.
    pub fn show_json(&self, found: impl Serialize) -> Result<()> {
        #[derive(Serialize)]
        struct Both<'a, T> {
            #[serde(flatten)]
            found: T,
            #[serde(flatten)]
            bad: &'a Bad,
        }
        show(format_args!("{}\n", serde_json::to_string(&Both { found, bad: self })?))
    }

    /// Notes it with the results of a replay.
    pub fn note(self, run: &mut results::Run) {
        run.bad = self.bad;
        run.first_bad = self.first_bad;
        run.warnings.extend(self.warnings);
    }
}

impl Reading {
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}

impl Iterator for Reading {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        let next = self.reader.next();
        if next.is_some() || std::mem::replace(&mut self.has_ended, true) {
            return next;
        }
        let found = self.reader.counts().records;
        let before = *self.requests.get_or_init(|| found);
        (found != before).then(|| {
            Err(Error::trace_changed(format_args!("it had {before} requests, and then {found}")))
        })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Counts { bad, first_bad, .. } = self.reader.counts();
        let mut most = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        let warnings = self.reader.warnings();
        if (*bad, warnings.len()) > (most.bad, most.warnings.len()) {
            *most = Bad { bad: *bad, first_bad: first_bad.clone(), warnings };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_shrinks_between_two_readings_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        let lines = |n: u64| (0..n).map(|n| format!("1,R,0,4096,{n}\n")).collect::<String>();
        std::fs::write(&file, lines(5)).unwrap();
        let reading = TraceReading {
            format: None,
            time_unit: None,
            length_unit: None,
            device: None,
            skip_bad: None,
        };
        let input = Input::new(&file, &reading);
        for _ in 0..2 {
            assert!(input.open().unwrap().all(|record| record.is_ok()));
        }
        std::fs::write(&file, lines(3)).unwrap();
        let errors: Vec<Error> = input.open().unwrap().filter_map(Result::err).take(9).collect();
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.to_string().contains("it had 5 requests, and then 3"), "{error}");
    }
}
