//! What the reactor asks of io_uring.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::super::shared::{Freed, Shared, Target};
use super::super::spin::Spin;
use super::super::{Completion, Driver, Lookout, ReactorKind, SocketId, Waker};
use super::{EVENT, Line, OF_A_FILE_MAX, Submitted, Uring, WAKER};
use crate::arena::Arena;
use crate::clock::{nanos_after, now_nanos};

/// How long `stop` waits for what is in flight.
const STOP_NS_MAX: u64 = 5_000_000_000;

impl Driver for Uring {
    fn kind(&self) -> ReactorKind {
        ReactorKind::Uring
    }

    fn waker(&self) -> &Waker {
        &self.waker
    }

    fn on_arena(&mut self, key: usize, arena: &Arena) {
        self.registered.add_arena(key, arena);
    }

    fn on_release(&mut self, arena: usize, part: Range<u64>) -> io::Result<()> {
        self.registered.release(&self.ring, arena, part)
    }

    fn on_file(&mut self, key: usize, file: &Arc<OwnedFd>) -> io::Result<()> {
        self.registered.add_file(&self.ring, key, file.as_raw_fd());
        self.lines.register(key, file, || Ok(Line::default()))
    }

    fn on_socket(&mut self, key: usize, socket: &OwnedFd) -> io::Result<()> {
        // On a non-blocking socket some kernels end an operation with EAGAIN instead of waiting.
        rustix::io::ioctl_fionbio(socket, false)?;
        self.registered.add_socket(&self.ring, key, socket.as_raw_fd());
        if self.messages.len() <= key {
            self.messages.resize_with(key + 1, || None);
        }
        // SAFETY: all zeroes is a valid `Message`: null pointers and lengths of zero.
        self.messages[key].get_or_insert_with(|| Box::new(unsafe { std::mem::zeroed() }));
        Ok(())
    }

    fn on_event(&mut self, key: usize, event: &OwnedFd) -> io::Result<()> {
        self.watch(key, event.as_raw_fd());
        Ok(())
    }

    fn on_event_removed(&mut self, shared: &mut Shared, key: usize) {
        // One that failed is not polled any more, and gone.
        if shared.events.is_held(key) {
            self.cancel_entry(EVENT | key as u64);
        }
    }

    fn forget(&mut self, freed: &Freed) {
        match freed {
            Freed::Event(..) => {}
            Freed::Arena(key, _) => self.registered.remove_arena(&self.ring, *key),
            Freed::File(key, _) => {
                self.registered.remove_file(&self.ring, *key);
                self.lines.forget(*key);
            }
            Freed::Socket(key, _) => self.registered.remove_socket(&self.ring, *key),
        }
    }

    fn start(&mut self, shared: &mut Shared, key: usize) {
        if let Target::File(id) = shared.ops[key].target {
            let line = self.lines.of(id.0 as usize);
            if line.under_way == OF_A_FILE_MAX {
                return line.waiting.push_back(key);
            }
            line.under_way += 1;
        }
        self.give(shared, key);
    }

    fn cancel(&mut self, _shared: &mut Shared, _socket: SocketId, key: usize) {
        self.cancel_entry(key as u64);
    }

    fn wait(
        &mut self,
        shared: &mut Shared,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
        lookout: &mut dyn Lookout,
    ) -> io::Result<()> {
        let deadline = match timeout {
            None => u64::MAX,
            Some(Duration::ZERO) => 0,
            Some(timeout) => nanos_after(timeout),
        };
        self.enable()?;
        let before = completions.len();
        loop {
            self.arm_waker();
            self.push_backlog()?;
            let mut submitted = Submitted::Taken;
            if deadline == 0 || self.has_completions() {
                if self.needs_submit() {
                    submitted = self.submit(None)?;
                }
            } else {
                submitted = self.sleep(deadline, lookout)?;
            }
            let is_woken = self.reap(shared, completions);
            let is_over = || deadline != u64::MAX && now_nanos() >= deadline;
            if completions.len() > before || is_woken || submitted == Submitted::Ended || is_over()
            {
                return Ok(());
            }
        }
    }

    fn stop(&mut self, shared: &mut Shared) -> bool {
        if !self.is_enabled {
            // Nothing was ever submitted.
            return true;
        }
        // Not given to the ring, so there is nothing to wait for.
        self.expected -= self.backlog.len();
        self.backlog.clear();
        self.lines.all().for_each(|line| line.waiting.clear());
        let keys: Vec<u64> = shared.ops.iter().map(|(key, _)| key as u64).collect();
        let events = shared.events.keys().map(|key| EVENT | key as u64);
        let events: Vec<u64> = events.collect();
        for user_data in keys.into_iter().chain(events).chain([WAKER]) {
            self.cancel_entry(user_data);
        }
        let deadline = now_nanos() + STOP_NS_MAX;
        let mut dropped = Vec::new();
        while self.expected > 0 && now_nanos() < deadline {
            if self.push_backlog().is_err() || self.submit(Some(deadline)).is_err() {
                return false;
            }
            self.reap(shared, &mut dropped);
            dropped.clear();
        }
        if self.expected > 0 {
            return false;
        }
        // The kernel takes a closed ring apart later; files are to be free, with their locks, when this
        // returns. Without success they become free a moment later.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
        true
    }

    fn spin(&mut self) -> Option<&mut Spin> {
        Some(&mut self.spin)
    }
}
