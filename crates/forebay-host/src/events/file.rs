//! The file that keeps events over a restart: `STATE/NAME.events`, a line of JSON for each event.
//!
//! Bounded: when it has [`BYTES_MAX`], it becomes `NAME.events.1` in place of the one before. It needs no flush: what the
//! kernel has outlives the process, and a host that dies may take the last lines along.
//!
//! What is read back is not trusted. A line that is torn, or is no event, or has a number out of order, is left out. The file
//! of another daemon with the same name and state folder, which runs, is left alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{EventLine, on_one_line};

/// A file has no more bytes, but for its last line.
const BYTES_MAX: u64 = 1 << 20;
/// No event has a higher number: JSON in other programs knows no larger ones.
const NUMBER_MAX: u64 = 1 << 53;

/// The file of a daemon, and what it had.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
    len: u64,
    lines: Vec<EventLine>,
    /// The last line could not be written.
    is_failing: bool,
}

impl EventFile {
    /// Opens the file of the daemon called `name`; makes it, and the folder, when they are missing.
    ///
    /// # Errors
    /// The kernel's, or another daemon uses it.
    pub fn open(state: &Path, name: &str) -> io::Result<EventFile> {
        fs::create_dir_all(state)?;
        let path = EventFile::path(state, name);
        let mut lines = Vec::new();
        if let Ok(file) = open_to_read(&before(&path)) {
            read(file, &mut lines);
        }
        let mut file = open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another daemon of this name uses it")
            }
            other => other.into(),
        })?;
        let mut len = file.metadata()?.len();
        read(file.try_clone()?, &mut lines);
        if len > 0 && !ends_line(&mut file)? {
            // The line that was being written as the host or the disk died.
            file.write_all(b"\n")?;
            len += 1;
        }
        Ok(EventFile { path, file, len, lines, is_failing: false })
    }

    /// Where the file of the daemon called `name` is.
    pub fn path(state: &Path, name: &str) -> PathBuf {
        state.join(format!("{name}.events"))
    }

    /// The events that daemons have left in the folder `state`, oldest first. Their files stay as they are.
    pub fn left_in(state: &Path) -> Vec<EventLine> {
        let mut all = Vec::new();
        for entry in fs::read_dir(state).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|it| it != "events") {
                continue;
            }
            let mut lines = Vec::new();
            for file in [before(&path), path] {
                if let Ok(file) = open_to_read(&file) {
                    read(file, &mut lines);
                }
            }
            all.extend(lines);
        }
        all.sort_by_key(|line| line.time_ms);
        all
    }

    /// What it had, oldest first; once.
    pub(super) fn take_lines(&mut self) -> Vec<EventLine> {
        std::mem::take(&mut self.lines)
    }

    /// Adds an event. Where that fails, the log has it all the same, and is told so once.
    pub(super) fn append(&mut self, line: &EventLine) {
        let written = self.write(line);
        let was_failing = std::mem::replace(&mut self.is_failing, written.is_err());
        if let (Err(error), false) = (written, was_failing) {
            tracing::warn!(
                "events are not kept over a restart, {} cannot be written: {error}. Make room there, or give another --state-dir",
                self.path.display()
            );
        }
    }

    fn write(&mut self, line: &EventLine) -> io::Result<()> {
        if self.len >= BYTES_MAX {
            match fs::rename(&self.path, before(&self.path)) {
                // It was renamed the last time, and no new one could be made then; or somebody has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            let next = open(&self.path)?;
            flock(&next, FlockOperation::NonBlockingLockExclusive)?;
            (self.file, self.len) = (next, 0);
        }
        // What was written of the line before it ends here.
        let mut text = if self.is_failing { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        // One call: who reads meanwhile finds whole lines.
        self.file.write_all(&text)?;
        self.len += text.len() as u64;
        Ok(())
    }
}

/// The file that was full.
fn before(path: &Path) -> PathBuf {
    path.with_added_extension("1")
}

/// A regular file, and no link to one; made when it is missing.
fn open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true).append(true).create(true).mode(0o640))
}

/// The same, for who may not write it.
fn open_to_read(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true))
}

fn open_as(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = options.custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn ends_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Adds the events of a file to `lines`, as far as they are whole and in order.
fn read(file: File, lines: &mut Vec<EventLine>) {
    let mut file = BufReader::new(file.take(2 * BYTES_MAX));
    let mut text = Vec::new();
    loop {
        text.clear();
        match file.read_until(b'\n', &mut text) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Ok(mut line) = serde_json::from_slice::<EventLine>(&text) else { continue };
        let last = lines.last().map_or(0, |line| line.number);
        if line.number > last && line.number < NUMBER_MAX {
            line.text = on_one_line(&line.text);
            line.disk = line.disk.as_deref().map(on_one_line);
            lines.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EventKind, Severity};
    use super::*;

    #[test]
    fn a_line_that_was_cut_short_spoils_none_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let line = |number, text: &str| {
            let kind = EventKind { severity: Severity::Info, code: None };
            EventLine { number, ..EventLine::new(0, None, kind, text) }
        };
        let mut file = EventFile::open(folder.path(), "db").unwrap();
        file.append(&line(1, "first"));
        // There was no room for the rest.
        file.file.write_all(b"{\"number\":2,").unwrap();
        file.is_failing = true;
        file.append(&line(3, "third"));
        file.append(&line(4, "fourth"));
        drop(file);
        let mut again = EventFile::open(folder.path(), "db").unwrap();
        let texts: Vec<String> = again.take_lines().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["first", "third", "fourth"]);
    }
}
