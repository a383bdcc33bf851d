//! The loop of a shard.

use std::time::Duration;

use forebay_core::ids::Nanos;
use forebay_io::clock;
use forebay_io::mailbox::Receiver;
use forebay_io::reactor::{Completion, Reactor};
use tokio::sync::oneshot;

use super::disk::Disk;
use super::{Command, DiskHandle, Drained, token};
use crate::daemon::events::EventSender;

/// A reactor and the disks that live on it.
pub(crate) struct Shard {
    reactor: Reactor,
    mailbox: Receiver<Command>,
    /// By number. A number is never used twice.
    disks: Vec<Disk>,
    completions: Vec<Completion>,
    draining: Option<oneshot::Sender<Vec<Drained>>>,
    detaching: Vec<(u32, oneshot::Sender<Result<Drained, String>>)>,
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
            detaching: Vec::new(),
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
            self.answer_detached();
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
            Command::Add(new, sender, answer) => {
                let number = self.disks.len() as u32;
                let events = self.events.clone();
                let handle = DiskHandle { sender, number };
                let added = match Disk::attach(*new, number, now, &mut self.reactor, events, handle)
                {
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
            Command::Leased(disk, leased) => {
                if let Some(disk) = self.disks.get_mut(disk as usize) {
                    disk.leased(now, leased);
                }
            }
            Command::Voided(disk, known) => {
                if let Some(disk) = self.disks.get_mut(disk as usize) {
                    disk.voided(now, known);
                }
            }
            Command::SetMode(disk, mode, answer) => {
                if let Some(disk) = self.disks.get_mut(disk as usize) {
                    let _ = answer.send(disk.set_mode(now, mode));
                }
            }
            Command::Pause(disk, pause, answer) => {
                if let Some(disk) = self.disks.get_mut(disk as usize) {
                    disk.pause(now, pause);
                    let _ = answer.send(());
                }
            }
            Command::DropCache(disk, answer) => {
                if let Some(disk) = self.disks.get_mut(disk as usize) {
                    let _ = answer.send(disk.drop_cache());
                }
            }
            Command::Detach(number, answer) => {
                if let Some(disk) = self.disks.get_mut(number as usize) {
                    match disk.detach(now) {
                        Ok(()) => self.detaching.push((number, answer)),
                        Err(why) => drop(answer.send(Err(why))),
                    }
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

    /// Answers those who wait for a disk's end.
    fn answer_detached(&mut self) {
        let disks = &self.disks;
        let is_done = |number: u32| disks[number as usize].drained();
        for (number, answer) in
            self.detaching.extract_if(.., |(number, _)| is_done(*number).is_some())
        {
            let _ = answer.send(Ok(disks[number as usize].drained().expect("it is done")));
        }
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
