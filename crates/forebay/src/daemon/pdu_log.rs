//! The file that PDUs are logged to.
//!
//! ```text
//! session on its shard ──line──► bounded queue ──► thread ──time, line──► file
//! ```
//! A shard never waits for the file: lines beyond [`QUEUE_MAX`] are left out, and how many is said in the next one.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_frontends::iscsi::pdu_log::Lines;

use forebay_host::date::utc;

/// Lines that may wait.
const QUEUE_MAX: usize = 16 << 10;
/// Time that the last lines have to get into the file.
const END_MAX: Duration = Duration::from_secs(1);

/// A log of PDUs. Its thread ends when nobody has it any more, which waits until every line is in the file: a second at most,
/// since nobody knows what the file is.
#[derive(Debug)]
pub(super) struct PduFile {
    /// Until it ends.
    lines: Option<SyncSender<(u64, String)>>,
    left_out: Arc<AtomicU64>,
    /// The thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl PduFile {
    /// Appends to the file at `path`, which only its owner may read.
    ///
    /// # Errors
    /// It cannot be opened, or there is no thread.
    pub(super) fn open(path: &Path) -> Result<Arc<PduFile>> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot log PDUs to {}", path.display()))?;
        let (lines, receiver) = sync_channel(QUEUE_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let missing = left_out.clone();
        let (end, ended) = sync_channel(1);
        std::thread::Builder::new()
            .name("iscsi-log".to_owned())
            .spawn(move || {
                write(BufWriter::new(file), &receiver, &missing);
                let _ = end.send(());
            })
            .context("no thread for the log of PDUs")?;
        Ok(Arc::new(PduFile { lines: Some(lines), left_out, ended: Mutex::new(ended) }))
    }
}

impl Drop for PduFile {
    fn drop(&mut self) {
        self.lines = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(END_MAX);
    }
}

impl Lines for PduFile {
    fn line(&self, line: String) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = now.map_or(0, |now| now.as_millis() as u64);
        if self.lines.as_ref().is_none_or(|lines| lines.try_send((millis, line)).is_err()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes lines as they come, and to the medium whenever there is none.
fn write(mut file: impl Write, lines: &Receiver<(u64, String)>, left_out: &AtomicU64) {
    while let Ok(first) = lines.recv() {
        let more = std::iter::from_fn(|| lines.try_recv().ok());
        for (millis, line) in std::iter::once(first).chain(more) {
            let missing = left_out.swap(0, Ordering::Relaxed);
            if missing > 0 {
                let _ = writeln!(file, "{} {missing} lines are missing", utc(millis));
            }
            let _ = writeln!(file, "{} {line}", utc(millis));
        }
        // A full disk costs the log, nothing else.
        let _ = file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_end_has_every_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pdus");
        for round in 1..=20 {
            let log = PduFile::open(&path).unwrap();
            for line in 0..100 {
                log.line(format!("{round} {line}"));
            }
            drop(log);
            let written = std::fs::read_to_string(&path).unwrap();
            assert_eq!(written.lines().count(), round * 100);
            assert!(written.ends_with(&format!(" {round} 99\n")));
        }
    }
}
