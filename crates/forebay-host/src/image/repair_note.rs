//! The note of a repair: the time that an image had before the first write. It lies beside the image.
//!
//! ```text
//!   note ─► windows in place ─► retired ─► time of the image as it was, durable ─► note removed
//! ```
//! A repair that dies leaves the note, and the next one of the same journal goes on with that time. The time tells the image
//! from a backup, and by it the disk knows the image again. A note whose image was written at another time than its repair does
//! not count: somebody else wrote, and the disk must see that. The note is the file `IMAGE.forebay.repair`, three lines of text:
//!
//! ```text
//! Forebay repair 1
//! journal SIXTEEN HEXADECIMAL DIGITS: its nonce
//! modified SECONDS since 1970, and NANOSECONDS
//! ```
//! It is replaced as a whole, as the sidecar is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_core::flash_pool::fence::Timestamp;

use super::APART_MAX;
use crate::fence::{remove, replace};
use crate::journal::keep_time;

/// See the module.
#[derive(Debug)]
pub(super) struct RepairNote {
    path: PathBuf,
    nonce: u64,
    /// When the image was modified, before any repair.
    pub(super) modified: Timestamp,
    /// A repair that has not come to its end wrote it.
    pub(super) is_left: bool,
}

impl RepairNote {
    /// The note that a repair of the journal of this nonce has left beside the sidecar, or a new one of an image that was
    /// `modified` then.
    ///
    /// # Errors
    /// What is there cannot be read.
    pub(super) fn of(sidecar: &Path, nonce: u64, modified: Timestamp) -> Result<RepairNote> {
        let mut path = sidecar.as_os_str().to_owned();
        path.push(".repair");
        let new = RepairNote { path: path.into(), nonce, modified, is_left: false };
        let cannot = || {
            format!(
                "cannot read {}, which an earlier repair has left. Without it the image counts as modified by that repair",
                new.path.display()
            )
        };
        let read = || Ok((fs::read_to_string(&new.path)?, fs::metadata(&new.path)?));
        let (text, metadata) = match read() {
            Ok(left) => left,
            Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => return Ok(new),
            Err(error) => return Err(error).with_context(cannot),
        };
        let (noted, before) =
            decode(&text).context("it is no note of a repair").with_context(cannot)?;
        if noted != nonce {
            // The disk was served since.
            return Ok(new);
        }
        // Both times are of one file system, and its one clock.
        let (from, nanos) = (metadata.mtime(), metadata.mtime_nsec() as u32);
        let until = from.saturating_add(APART_MAX.as_secs() as i64);
        let is_by_repair = (from, nanos) <= modified && modified <= (until, nanos);
        let modified = if is_by_repair { before } else { modified };
        Ok(RepairNote { modified, is_left: true, ..new })
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn write(&self) -> io::Result<()> {
        let RepairNote { nonce, modified: (seconds, nanos), .. } = self;
        let text = format!("Forebay repair 1\njournal {nonce:016x}\nmodified {seconds} {nanos}\n");
        replace(&self.path, text.as_bytes()).map(drop)
    }

    /// Gives the image its time back, and removes the note, both durably.
    ///
    /// # Errors
    /// The file system's; the note is still there then, or not needed any more.
    pub(super) fn restore(&self, image: &Path) -> Result<()> {
        keep_time(image, self.modified)?;
        File::open(image)?.sync_all()?;
        remove(&self.path)?;
        Ok(())
    }
}

fn decode(text: &str) -> Option<(u64, Timestamp)> {
    let mut lines = text.lines();
    let is_one = lines.next() == Some("Forebay repair 1");
    let nonce = lines.next()?.strip_prefix("journal ")?;
    let (seconds, nanos) = lines.next()?.strip_prefix("modified ")?.split_once(' ')?;
    let time = (seconds.parse().ok()?, nanos.parse().ok()?);
    let nonce = u64::from_str_radix(nonce, 16).ok()?;
    (is_one && lines.next().is_none()).then_some((nonce, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_repair_that_died_counts_for_its_journal_only() {
        let folder = tempfile::tempdir().unwrap();
        let sidecar = folder.path().join("db.raw.forebay");
        let of = |nonce, modified| RepairNote::of(&sidecar, nonce, modified).unwrap().modified;
        RepairNote::of(&sidecar, 0xab, (-5, 7)).unwrap().write().unwrap();
        let there = fs::metadata(folder.path().join("db.raw.forebay.repair")).unwrap();
        let during = |seconds: i64| (there.mtime() + seconds, there.mtime_nsec() as u32);
        let now = during(60);
        assert_eq!((of(0xab, now), of(0xac, now)), ((-5, 7), now));
        for (written, is_by_repair) in [(-1, false), (0, true), (600, true), (601, false)] {
            let time = during(written);
            assert_eq!(of(0xab, time) == (-5, 7), is_by_repair, "{written}");
            assert!(is_by_repair || of(0xab, time) == time, "somebody else wrote to the image");
        }
        let image = folder.path().join("db.raw");
        fs::write(&image, "").unwrap();
        RepairNote::of(&sidecar, 0xab, now).unwrap().restore(&image).unwrap();
        assert_eq!(of(0xab, now), now, "it is gone");
        fs::write(folder.path().join("db.raw.forebay.repair"), "Forebay repair 1\n").unwrap();
        let error = RepairNote::of(&sidecar, 0xab, (9, 9)).unwrap_err().to_string();
        assert!(error.contains("db.raw.forebay.repair"), "{error}");
    }
}
