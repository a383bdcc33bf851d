//! Wakes a reactor from another thread: an eventfd, and a flag that saves the system call when it was
//! signalled already.
//!
//! The waking thread first publishes its news, then swaps the flag to true. It writes to the
//! eventfd only if the flag was false. The reactor, once it has read the eventfd, swaps the flag
//! to false, and only then looks for news. So a wake-up that found the flag true happened before
//! that swap, and its news are seen.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a reactor's `wait` from another thread. Cheap to clone; waking twice is waking once.
#[derive(Clone, Debug)]
pub struct Waker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    event: OwnedFd,
    is_signalled: AtomicBool,
    /// A signal was read, and nobody has asked.
    has_news: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        // Not non-blocking: io_uring would end a read of it with EAGAIN. A write to it cannot block, as the
        // flag keeps the counter at one.
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Waker {
            inner: Arc::new(Inner {
                event,
                is_signalled: AtomicBool::new(false),
                has_news: AtomicBool::new(false),
            }),
        })
    }

    /// True when both wake the same reactor.
    pub(crate) fn wakes_whom(&self, other: &Waker) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Makes the reactor's current or next `wait` return.
    pub fn wake(&self) {
        if self.inner.is_signalled.swap(true, Ordering::AcqRel) {
            return;
        }
        while let Err(error) = rustix::io::write(&self.inner.event, &1_u64.to_ne_bytes()) {
            assert!(error == rustix::io::Errno::INTR, "cannot signal a reactor: {error}");
        }
    }

    /// The reactor has read the eventfd.
    pub(super) fn is_consumed(&self) {
        self.inner.has_news.store(true, Ordering::Relaxed);
        self.inner.is_signalled.swap(false, Ordering::AcqRel);
    }

    /// Reads the eventfd, which is known to be readable.
    pub(super) fn consume(&self) -> io::Result<()> {
        let mut count = [0; 8];
        while let Err(error) = rustix::io::read(&self.inner.event, &mut count) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        self.is_consumed();
        Ok(())
    }

    /// Whether the eventfd was read since this was asked last.
    pub(super) fn take_news(&self) -> bool {
        self.inner.has_news.load(Ordering::Relaxed)
            && self.inner.has_news.swap(false, Ordering::Relaxed)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.inner.event.as_raw_fd()
    }
}
