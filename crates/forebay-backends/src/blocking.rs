//! A backend that is used from one place, blocking: at the start of a disk, for a repair, for a look beside a disk's I/O.
//!
//! Ranges need not be whole logical blocks: around what is written the rest of its blocks is read first.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::action::{IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::journal::Medium;
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::clock::now_nanos;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use crate::backend::{Backend, BackendEvent, BackendIo, Context, Properties, TokenRange};

/// Longest range that is read or written at once.
const MEMORY: u64 = 1 << 20;
/// Longest sleep between two looks at the backend's deadlines.
const NAP_MAX: Duration = Duration::from_millis(100);
/// Time that a read or a write has.
const PATIENCE: Nanos = Nanos::from_millis(30_000);
/// The same for a flush, a discard and zeroes, which may have much to do.
const PATIENCE_LONG: Nanos = Nanos::from_millis(300_000);

/// See the module.
pub struct Blocking {
    backend: Box<dyn Backend>,
    reactor: Reactor,
    memory: Arc<Arena>,
    arena: ArenaId,
    ios: u64,
    /// It changes nothing before this time.
    held_until: Nanos,
    /// Zeroes cannot be written without their bytes.
    zeroes_by_writing: bool,
    /// The session ended: what was not flushed may be gone, and no later flush tells. Nothing ends well any more.
    is_lost: bool,
}

impl std::fmt::Debug for Blocking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocking").field("properties", self.backend.properties()).finish()
    }
}

impl Blocking {
    /// Attaches a backend to a reactor of its own. `is_unanswered`: a former process may have left requests behind that can
    /// still be carried out, so that changes wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(mut backend: Box<dyn Backend>, is_unanswered: bool) -> io::Result<Blocking> {
        let held = if is_unanswered { backend.hold_changes() } else { None };
        let mut reactor = Reactor::new(16, None)?;
        let memory = Arc::new(Arena::new(MEMORY as usize)?);
        let arena = reactor.add_arena(memory.clone())?;
        let mut events = Vec::new();
        let now = Nanos(now_nanos());
        let mut cx = Context { now, reactor: &mut reactor, events: &mut events };
        backend.attach(&mut cx, TokenRange { base: 0 })?;
        let held_until = now.plus(held.unwrap_or_default());
        Ok(Blocking {
            backend,
            reactor,
            memory,
            arena,
            ios: 0,
            held_until,
            zeroes_by_writing: false,
            is_lost: false,
        })
    }

    /// What it is and can do.
    pub fn properties(&self) -> &Properties {
        self.backend.properties()
    }

    /// Waits until nothing that a former process has left behind can change it any more.
    pub fn settle(&mut self) {
        let left = self.held_until.since(Nanos(now_nanos()));
        if left > Nanos(0) {
            std::thread::sleep(Duration::from_nanos(left.0));
        }
    }

    /// Bytes of whole logical blocks around a range.
    fn around(&self, range: ByteRange) -> ByteRange {
        let block = u64::from(self.properties().logical_block);
        ByteRange::new(range.start / block * block, range.end.next_multiple_of(block))
    }

    /// Carries out one I/O.
    fn carry_out(&mut self, range: ByteRange, op: IoOp) -> io::Result<()> {
        match self.end_of(range, op)? {
            IoStatus::Ok => Ok(()),
            status => Err(io::Error::other(status.to_string())),
        }
    }

    /// Starts one I/O and waits for its end.
    fn end_of(&mut self, range: ByteRange, op: IoOp) -> io::Result<IoStatus> {
        self.ios += 1;
        let id = IoId(self.ios);
        let io = BackendIo { id, range, op, arena: self.arena };
        let patience = match op {
            IoOp::Read { .. } | IoOp::Write { .. } => PATIENCE,
            IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents
            | IoOp::Progress { .. } => PATIENCE_LONG,
        };
        let give_up = Nanos(now_nanos()).max(self.held_until).plus(patience);
        let mut completions: Vec<Completion> = Vec::new();
        let mut events = Vec::new();
        self.with(&mut events, |backend, cx| backend.submit(cx, io));
        loop {
            let mut ended = None;
            for event in events.drain(..) {
                match event {
                    BackendEvent::Done { id: done, status } if done == id => ended = Some(status),
                    BackendEvent::SessionLost => self.is_lost = true,
                    BackendEvent::Done { .. }
                    | BackendEvent::Extents { .. }
                    | BackendEvent::SessionRestored => {}
                }
            }
            if self.is_lost {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if let Some(status) = ended {
                return Ok(status);
            }
            if Nanos(now_nanos()) > give_up {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.reactor.wait(Some(NAP_MAX), &mut completions)?;
            for completion in completions.drain(..) {
                self.with(&mut events, |backend, cx| backend.on_completion(cx, completion));
            }
            self.with(&mut events, |backend, cx| backend.on_wake(cx));
        }
    }

    fn with(
        &mut self,
        events: &mut Vec<BackendEvent>,
        act: impl FnOnce(&mut dyn Backend, &mut Context<'_>),
    ) {
        let now = Nanos(now_nanos());
        act(&mut *self.backend, &mut Context { now, reactor: &mut self.reactor, events });
    }

    /// Reads whole blocks to the begin of the memory.
    fn fill(&mut self, blocks: ByteRange) -> io::Result<()> {
        let memory = Span { offset: 0, len: blocks.len() as u32 };
        self.carry_out(blocks, IoOp::Read { memory })
    }
}

/// Pieces of a range that memory has room for, with the blocks around them.
fn pieces(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    const PIECE: u64 = MEMORY - 2 * 4096;
    let starts = (range.start..range.end).step_by(PIECE as usize);
    starts.map(move |start| ByteRange::new(start, range.end.min(start + PIECE)))
}

impl Medium for Blocking {
    type Error = io::Error;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        for piece in pieces(ByteRange::at(at, bytes.len() as u64)) {
            let blocks = self.around(piece);
            self.fill(blocks)?;
            let to = (piece.start - at) as usize..(piece.end - at) as usize;
            self.memory.read_at(piece.start - blocks.start, &mut bytes[to]);
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        for piece in pieces(ByteRange::at(at, bytes.len() as u64)) {
            let blocks = self.around(piece);
            if blocks != piece {
                self.fill(blocks)?;
            }
            let from = (piece.start - at) as usize..(piece.end - at) as usize;
            self.memory.write_at(piece.start - blocks.start, &bytes[from]);
            let memory = Span { offset: 0, len: blocks.len() as u32 };
            self.carry_out(blocks, IoOp::Write { memory, durable: false })?;
        }
        Ok(())
    }

    fn zero(&mut self, range: ByteRange) -> io::Result<()> {
        let can = self.properties().write_zeroes && !self.zeroes_by_writing;
        if can && self.around(range) == range {
            let op = IoOp::WriteZeroes { may_unmap: true, fast_only: false };
            match self.end_of(range, op)? {
                IoStatus::Ok => return Ok(()),
                IoStatus::Unsupported => self.zeroes_by_writing = true,
                status => return Err(io::Error::other(status.to_string())),
            }
        }
        let zeroes = vec![0; MEMORY.min(range.len()) as usize];
        for piece in pieces(range) {
            self.write(piece.start, &zeroes[..piece.len() as usize])?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.carry_out(ByteRange::default(), IoOp::Flush)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut events = Vec::new();
        self.with(&mut events, |backend, cx| backend.detach(cx));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, open};

    /// Of a million bytes, in blocks of so many.
    fn of(uri: &str) -> Blocking {
        let backend = open(&uri.parse().expect("a URI"), OpenOptions::default()).expect("it opens");
        Blocking::new(backend, false).expect("a reactor")
    }

    #[test]
    fn what_is_written_is_read_wherever_it_begins_and_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image.raw");
        std::fs::write(&path, vec![7; 4 << 20]).expect("a file");
        for uri in ["mem:4MiB".to_owned(), format!("file:{}", path.display())] {
            let mut there = of(&uri);
            there.zero(ByteRange::new(0, 4 << 20)).expect("zeroes");
            let bytes: Vec<u8> = (0..2_500_000_u32).map(|n| (n % 251) as u8).collect();
            for at in [0, 4096, 1000, 1 << 20] {
                there.write(at, &bytes).expect("a write");
                there.flush().expect("a flush");
                let mut found = vec![0; bytes.len()];
                there.read(at, &mut found).expect("a read");
                assert!(found == bytes, "{uri}, from {at}");
            }
            let mut edges = [9; 3];
            there.zero(ByteRange::new(2000, 1_500_001)).expect("zeroes");
            there.read(1_500_000, &mut edges).expect("a read");
            assert_eq!(edges[0], 0, "{uri}");
            assert_ne!(edges[1..], [0, 0], "{uri}");
        }
    }

    #[test]
    fn what_is_beyond_its_end_is_an_error() {
        let mut there = of("mem:1MiB");
        assert!(there.read(1 << 20, &mut [0; 512]).is_err());
        assert!(there.write((1 << 20) - 512, &[0; 1024]).is_err());
    }
}
