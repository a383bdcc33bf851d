//! Holes of a file, found on a thread of their own. The file system may have to read metadata (or
//! ask a server), and the shard must not wait for it.
//!
//! A range that cannot be found out counts as allocated, and so does what a file lost that somebody cut short: its reads
//! fail, and whoever skips its holes must not take that for one. The thread starts with the first question,
//! and ends when its backend lets go of it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_core::action::{Extent, ExtentState};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::IoId;
use forebay_io::file::{self, FileExtent};
use forebay_io::reactor::Waker;

use crate::backend::BackendEvent;

/// Extents of one answer, at most; the asker asks again from where they end.
const EXTENTS_MAX: usize = 1024;

/// See the module. Dropping it ends the thread after the question at hand.
#[derive(Debug)]
pub(super) struct ExtentsThread {
    questions: Sender<(IoId, ByteRange)>,
    answers: Receiver<(IoId, Vec<Extent>)>,
}

impl ExtentsThread {
    /// Starts the thread. Nobody else uses the position of `file`.
    pub(super) fn start(file: Arc<File>, waker: Waker) -> io::Result<ExtentsThread> {
        let (questions, asked) = channel::<(IoId, ByteRange)>();
        let (answer, answers) = channel();
        forebay_io::thread::start("extents", move || {
            for (id, range) in asked {
                if answer.send((id, find(&file, range))).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(ExtentsThread { questions, answers })
    }

    /// Asks; the answer comes with a wake-up of the reactor. The engine's table of requests bounds
    /// the queue.
    pub(super) fn ask(&self, id: IoId, range: ByteRange) {
        self.questions.send((id, range)).expect("the thread runs as long as its backend");
    }

    /// Appends the answers that have come.
    pub(super) fn collect(&self, events: &mut Vec<BackendEvent>) {
        let answers = self.answers.try_iter();
        events.extend(answers.map(|(id, extents)| BackendEvent::Extents { id, extents }));
    }
}

/// What is said of a range where nobody can find out.
pub(super) fn unknown(range: ByteRange) -> Vec<Extent> {
    vec![Extent { len: range.len(), state: ExtentState::Allocated }]
}

fn find(file: &File, range: ByteRange) -> Vec<Extent> {
    let state = |it: &FileExtent| match it.is_data {
        true => ExtentState::Allocated,
        false => ExtentState::Hole,
    };
    let Ok(size) = file::size(file.as_fd()) else { return unknown(range) };
    let there = size.clamp(range.start, range.end) - range.start;
    let Ok(found) = file::extents(file.as_fd(), range.start, there, EXTENTS_MAX) else {
        return unknown(range);
    };
    let extent = |it: &FileExtent| Extent { len: it.len, state: state(it) };
    let mut told: Vec<Extent> = found.iter().map(extent).collect();
    let is_all = told.iter().map(|it| it.len).sum::<u64>() == there;
    if is_all && there < range.len() {
        told.extend(unknown(ByteRange { start: range.start + there, end: range.end }));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_lost_that_was_cut_short_is_no_hole() {
        const MIB: u64 = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * MIB).unwrap();
        let found = |start, len| {
            let extents = find(&file, ByteRange::at(start, len)).into_iter();
            extents.map(|it| (it.len, it.state)).collect::<Vec<_>>()
        };
        let (hole, data) = (ExtentState::Hole, ExtentState::Allocated);
        assert_eq!(found(0, 2 * MIB), [(2 * MIB, hole)]);
        assert_eq!(found(MIB, 3 * MIB), [(MIB, hole), (2 * MIB, data)]);
        assert_eq!(found(3 * MIB, MIB), [(MIB, data)]);
    }
}
