//! Holes of a file, found on a thread of their own. The file system may have to read metadata (or
//! ask a server), and the shard must not wait for it.
//!
//! A range that cannot be found out counts as allocated. The thread ends when its backend lets go
//! of it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_core::action::{Extent, ExtentState};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::IoId;
use forebay_io::file::{FileExtent, extents};
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
    /// Starts the thread with a descriptor of its own.
    pub(super) fn start(file: OwnedFd, waker: Waker) -> io::Result<ExtentsThread> {
        let (questions, asked) = channel::<(IoId, ByteRange)>();
        let (answer, answers) = channel();
        std::thread::Builder::new().name("extents".to_owned()).spawn(move || {
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

fn find(file: &OwnedFd, range: ByteRange) -> Vec<Extent> {
    let unknown = FileExtent { offset: range.start, len: range.len(), is_data: true };
    extents(file.as_fd(), range.start, range.len(), EXTENTS_MAX)
        .unwrap_or_else(|_| vec![unknown])
        .into_iter()
        .map(|extent| Extent {
            len: extent.len,
            state: if extent.is_data { ExtentState::Allocated } else { ExtentState::Hole },
        })
        .collect()
}
