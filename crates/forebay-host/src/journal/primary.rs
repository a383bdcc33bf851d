//! Primary storage while a journal is put in place: beside its disk's own I/O.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use forebay_backends::{Blocking, Probe};
use forebay_core::geometry::ByteRange;
use forebay_core::journal::Medium;
use rustix::fs::Advice;

use crate::fence::StartNote;

/// Primary storage as [`Medium`].
#[derive(Debug)]
pub enum Primary<'a> {
    /// A file or device, and who is told of writes.
    File(File, Option<&'a StartNote>),
    /// An export, over a connection of its own.
    Export(Box<Blocking>),
}

impl Primary<'_> {
    /// What a probe looks at. Whoever has the probe has its lock. `is_unanswered`: a former process may have left requests
    /// there.
    ///
    /// # Errors
    /// The kernel's, or the server's.
    pub fn of<'a>(
        probe: &Probe,
        note: Option<&'a StartNote>,
        is_unanswered: bool,
    ) -> io::Result<Primary<'a>> {
        match (probe.open_at(), probe.export(is_unanswered)?) {
            (_, Some(export)) => Ok(Primary::Export(Box::new(export))),
            (path, None) => {
                let path = path.ok_or(io::ErrorKind::Unsupported)?;
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                // Parts of pages are written: what this host read before another one wrote must not go around them.
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
                Ok(Primary::File(file, note))
            }
        }
    }

    /// Waits until what a dead process has sent can change it no more. The lock of a file waits for that.
    pub fn settle(&mut self) {
        if let Primary::Export(export) = self {
            export.settle();
        }
    }

    /// It is about to be changed.
    fn begin(&mut self) {
        if let Primary::File(_, Some(note)) = self {
            note.note_write();
        }
        // Blocks that are written in part are read first: what a dead process has sent has to be in them.
        self.settle();
    }
}

impl Medium for Primary<'_> {
    type Error = io::Error;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Primary::File(file, _) => file.read_exact_at(bytes, at),
            Primary::Export(export) => export.read(at, bytes),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.begin();
        match self {
            Primary::File(file, _) => file.write_all_at(bytes, at),
            Primary::Export(export) => export.write(at, bytes),
        }
    }

    fn zero(&mut self, range: ByteRange) -> io::Result<()> {
        const PIECE: u64 = 1 << 20;
        self.begin();
        if let Primary::Export(export) = self {
            return export.zero(range);
        }
        let zeroes = vec![0; PIECE.min(range.len()) as usize];
        let mut at = range.start;
        while at < range.end {
            let len = PIECE.min(range.end - at);
            self.write(at, &zeroes[..len as usize])?;
            at += len;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Primary::File(file, _) => file.sync_all()?,
            Primary::Export(export) => export.flush()?,
        }
        if let Primary::File(_, Some(note)) = self {
            note.note_flush();
        }
        Ok(())
    }
}
