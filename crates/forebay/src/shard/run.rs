//! The loop of a shard.

use std::time::Duration;

use forebay_core::ids::Nanos;
use forebay_io::clock;
use forebay_io::mailbox::Receiver;
use forebay_io::reactor::{Completion, Reactor};
use tokio::sync::oneshot;

use super::disk::Disk;
use super::{Command, Drained, token};
use crate::daemon::events::EventSender;

/// A reactor and the disks that live on it.
pub(crate) struct Shard {
    reactor: Reactor,
    mailbox: Receiver<Command>,
    /// By number. A number is never used twice.
    disks: Vec<Disk>,
    completions: Vec<Completion>,
    draining: Option<oneshot::Sender<Vec<Drained>>>,
    events: EventSender,
}

/// Whether the loop goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    End,
}

impl Shard {
    pub(crate) fn new(reactor: Reactor, mailbox: Receiver<Command>, events: EventSender) -> Shard {
        Shard {
            reactor,
            mailbox,
            disks: Vec::new(),
            completions: Vec::with_capacity(256),
            draining: None,
            events,
        }
    }

    /// Serves until told to end.
    ///
    /// # Errors
    /// The reactor broke; nothing can be served any more.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        loop {
            let timeout = self.timeout();
            self.reactor.wait(timeout, &mut self.completions)?;
            let now = Nanos(clock::now_nanos());
            for completion in self.completions.drain(..) {
                let Some((class, disk, index)) = token::split(completion.token) else { continue };
                let disk = &mut self.disks[disk as usize];
                disk.on_completion(now, &mut self.reactor, class, index, completion);
            }
            while let Some(command) = self.mailbox.receive() {
                if self.obey(now, command) == Next::End {
                    return Ok(());
                }
            }
            for disk in &mut self.disks {
                disk.turn(now, &mut self.reactor);
            }
            if self.draining.is_some() && self.answer_drained() {
                return Ok(());
            }
        }
    }

    /// How long the reactor may sleep.
    fn timeout(&self) -> Option<Duration> {
        let deadline = self.disks.iter().map(Disk::next_deadline).min().unwrap_or(Nanos::NEVER);
        (deadline != Nanos::NEVER)
            .then(|| Duration::from_nanos(deadline.since(Nanos(clock::now_nanos())).0))
    }

    fn obey(&mut self, now: Nanos, command: Command) -> Next {
        match command {
            Command::Add(new, answer) => {
                let number = self.disks.len() as u32;
                let events = self.events.clone();
                let added = match Disk::attach(*new, number, now, &mut self.reactor, events) {
                    Ok(disk) => {
                        self.disks.push(disk);
                        Ok(number)
                    }
                    Err(error) => Err(error.to_string()),
                };
                let _ = answer.send(added);
            }
            Command::Connect(disk, client) => {
                if let Some(disk) = self.disks.get_mut(disk as usize) {
                    disk.connect(now, &mut self.reactor, *client);
                }
            }
            Command::Stats(disk, answer) => {
                if let Some(disk) = self.disks.get(disk as usize) {
                    let _ = answer.send(disk.stats());
                }
            }
            Command::Drain(answer) => {
                for disk in &mut self.disks {
                    disk.drain(now, &mut self.reactor);
                }
                self.draining = Some(answer);
            }
            Command::Stop => return Next::End,
        }
        Next::Go
    }

    /// Answers the drain when every disk is done.
    fn answer_drained(&mut self) -> bool {
        let drained: Option<Vec<Drained>> = self.disks.iter().map(Disk::drained).collect();
        let Some(drained) = drained else { return false };
        if let Some(answer) = self.draining.take() {
            let _ = answer.send(drained);
        }
        true
    }
}
