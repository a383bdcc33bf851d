//! Threads for the I/O of one file, which epoll cannot wait for. Each file has its own, so that a device
//! that hangs does not take them from another one. The first one starts with the pool, the others with
//! the first job for which none is free.
//!
//! **Invariant:** a job's memory and descriptor are kept by the operation it belongs to, which ends only
//! after the job's outcome was collected.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::Waker;
use super::super::call::Call;

/// Threads of a file: enough outstanding I/O for a flash device, few enough not to be noticed.
pub(super) const THREADS_MAX: usize = 32;

/// One blocking system call.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: usize,
    pub(super) fd: RawFd,
    pub(super) call: Call,
}

// SAFETY: the piece is memory of an arena that the job's operation keeps alive until its outcome was collected
// (see the module); only the kernel follows the pointer.
unsafe impl Send for Job {}
// SAFETY: nothing follows the pointer through a shared reference.
unsafe impl Sync for Job {}

/// An operation's key and how its job went.
pub(super) type Outcome = (usize, io::Result<usize>);

/// Where the pools of a reactor put what has ended.
#[derive(Debug)]
pub(super) struct Outcomes {
    ended: Mutex<Vec<Outcome>>,
    /// Signalled after outcomes.
    waker: Waker,
}

impl Outcomes {
    pub(super) fn new(waker: Waker) -> Outcomes {
        Outcomes { ended: Mutex::new(Vec::new()), waker }
    }

    /// Appends what has ended since the last signal, which is consumed.
    ///
    /// # Errors
    /// The kernel's, where the waker does not work.
    pub(super) fn collect(&self, outcomes: &mut Vec<Outcome>) -> io::Result<()> {
        self.waker.consume()?;
        outcomes.append(&mut lock(&self.ended));
        Ok(())
    }

    fn push(&self, outcome: Outcome) {
        lock(&self.ended).push(outcome);
        self.waker.wake();
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    common: Arc<Common>,
}

#[derive(Debug)]
struct Common {
    state: Mutex<State>,
    /// A job waits, or the pool closes.
    has_work: Condvar,
    /// A thread became idle.
    is_idle: Condvar,
    outcomes: Arc<Outcomes>,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Job>,
    running: usize,
    threads: usize,
    is_closed: bool,
}

impl Pool {
    /// Starts the first thread.
    ///
    /// # Errors
    /// The kernel's, when it gives no thread.
    pub(super) fn new(outcomes: Arc<Outcomes>) -> io::Result<Pool> {
        let state = State { waiting: VecDeque::new(), running: 0, threads: 0, is_closed: false };
        let common = Arc::new(Common {
            state: Mutex::new(state),
            has_work: Condvar::new(),
            is_idle: Condvar::new(),
            outcomes,
        });
        let pool = Pool { common };
        pool.start_thread(&mut lock(&pool.common.state))?;
        Ok(pool)
    }

    /// Queues a job.
    pub(super) fn start(&self, job: Job) {
        let mut state = lock(&self.common.state);
        state.waiting.push_back(job);
        let free = state.threads - state.running;
        if state.waiting.len() > free && state.threads < THREADS_MAX {
            // Without one more, those that there are do it later.
            let _ = self.start_thread(&mut state);
        }
        drop(state);
        self.common.has_work.notify_one();
    }

    fn start_thread(&self, state: &mut State) -> io::Result<()> {
        let common = Arc::clone(&self.common);
        crate::thread::start(&format!("forebay-io-{}", state.threads), move || common.work())?;
        state.threads += 1;
        Ok(())
    }

    /// Drops waiting jobs and waits for running ones. False when one did not end in time.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        let mut state = lock(&self.common.state);
        state.waiting.clear();
        let waited = self
            .common
            .is_idle
            .wait_timeout_while(state, patience, |state| state.running > 0)
            .unwrap_or_else(PoisonError::into_inner);
        waited.0.running == 0
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        lock(&self.common.state).threads
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.common.state).is_closed = true;
        self.common.has_work.notify_all();
    }
}

impl Common {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.running += 1;
                drop(state);
                let result = job.call.run(job.fd);
                // Before the outcome is told: what follows from it finds this thread free.
                lock(&self.state).running -= 1;
                self.is_idle.notify_all();
                self.outcomes.push((job.key, result));
                state = lock(&self.state);
            } else if state.is_closed {
                return;
            } else {
                state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// No thread panics while it holds one of these locks, so that poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
