//! What may wait for a file system, a server or a device, on a thread of its own: the shard must not wait.
//!
//! The thread starts with the first question. When its backend lets go of it, it ends after the question at hand, and discards
//! nothing more. So long it keeps what it was given open.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use forebay_core::action::Extent;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::IoId;
use forebay_io::reactor::Waker;

use super::extents;

/// What is asked.
#[derive(Debug)]
pub(super) enum Question {
    /// Where are its holes?
    Extents,
    /// Of a block device: its bytes are needed no more. That is advice: what did not begin in time is left out, since
    /// whoever writes there waits for it.
    Discard { until: Instant },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    Extents(Vec<Extent>),
    Discarded(io::Result<()>),
}

/// See the module. Dropping it ends the thread after the question at hand.
#[derive(Debug)]
pub(super) struct FileThread {
    questions: Sender<(IoId, Question, ByteRange)>,
    answers: Receiver<(IoId, Answer)>,
}

impl FileThread {
    /// Starts the thread. Nobody else uses the position of `file`.
    pub(super) fn start(file: impl AsFd + Send + 'static, waker: Waker) -> io::Result<FileThread> {
        let (questions, asked) = channel::<(IoId, Question, ByteRange)>();
        let (answer, answers) = channel();
        forebay_io::thread::start("file", move || {
            for (id, question, range) in asked {
                let found = match question {
                    Question::Extents => Answer::Extents(extents::find(file.as_fd(), range)),
                    Question::Discard { until } if until < Instant::now() => {
                        Answer::Discarded(Ok(()))
                    }
                    Question::Discard { .. } => {
                        let done =
                            forebay_io::file::discard(file.as_fd(), range.start, range.len());
                        Answer::Discarded(done)
                    }
                };
                if answer.send((id, found)).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(FileThread { questions, answers })
    }

    /// Asks; the answer comes with a wake-up of the reactor, after those to earlier questions.
    pub(super) fn ask(&self, id: IoId, question: Question, range: ByteRange) {
        self.questions.send((id, question, range)).expect("the thread runs as long as its backend");
    }

    /// The next answer that has come.
    pub(super) fn answer(&self) -> Option<(IoId, Answer)> {
        self.answers.try_recv().ok()
    }
}
