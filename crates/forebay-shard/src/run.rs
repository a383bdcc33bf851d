//! The loop of a shard.
//!
//! A *turn* is made of rounds. In a round the engine of every disk that is awake (`roster.rs`) proceeds with all that it was told, its actions are carried
//! out, what there is to send is sent, the engines hear that slot memory is free again, and waiting clients try.
//! Another round follows while there is something to do, because a backend may answer at once; but a turn
//! ends after [`ROUNDS_MAX`], and after [`TURN_MAX`], so that other disks hear of their I/O; and for a disk that wrote to its
//! log after that round, so that the kernel hears of it before the destager goes on. The shard does not wait then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use forebay_core::ids::Nanos;
use forebay_frontends::client::{Context, DiskId, Newcomer, Permission};
use forebay_host::events::{EventSender, Severity};
use forebay_io::clock;
use forebay_io::mailbox::{Receiver, Sender};
use forebay_io::reactor::{Completion, Lookout, Reactor};
use tokio::sync::oneshot;

use super::client::Clients;
use super::disk::ShardDisk;
use super::disk::carry_out::Execution;
use super::mailbox::{self, Command, Home, Leaver, Visit};
use super::return_path::ReturnPath;
use super::roster::Roster;
use super::time::ShardTime;
use super::token::{Class, DISKS_MAX};
use super::{DiskHandle, Drained, NewDisk, token};

/// Rounds of a turn at most.
const ROUNDS_MAX: u32 = 16;
/// Time after which a turn has no further round.
const TURN_MAX: Nanos = Nanos::from_millis(1);

const SHARD_ENDS: &str = "the shard is ending";

/// A reactor and the disks that live on it.
pub(crate) struct Shard {
    reactor: Reactor,
    mailbox: Receiver<Command>,
    disks: Roster,
    clients: Clients,
    completions: Vec<Completion>,
    time: ShardTime,
    /// The disks whose clients are to leave for another shard, and clients that have come meanwhile: these follow.
    leaving: Vec<DiskId>,
    late: Vec<Command>,
    draining: Option<oneshot::Sender<Vec<Drained>>>,
    events: EventSender,
}

fn clock() -> Nanos {
    Nanos(clock::now_nanos())
}

/// The clients' view of the shard; a macro, because the clients are borrowed beside it.
macro_rules! context {
    ($shard:ident, $now:expr) => {
        Context { now: $now, reactor: &mut $shard.reactor, disks: &mut $shard.disks }
    };
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
            disks: Roster::default(),
            clients: Clients::new(),
            completions: Vec::with_capacity(256),
            time: ShardTime::new(clock()),
            leaving: Vec::new(),
            late: Vec::new(),
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
            let deadline = self.next_deadline();
            let timeout = self.time.wait(clock(), deadline);
            self.reactor.wait_looking(timeout, &mut self.completions, &mut self.clients)?;
            self.clients.has_work();
            if self.reactor.was_woken() {
                self.disks.wake_all();
            }
            let now = self.time.waited(clock());
            for completion in self.completions.drain(..) {
                let Some((class, disk, index)) = token::split(completion.token) else { continue };
                if class == Class::Client {
                    self.clients.on_completion(&mut context!(self, now), index, completion);
                } else if let Some(disk) = self.disks.find_numbered(disk) {
                    disk.on_completion(now, &mut self.reactor, class, index, completion);
                }
            }
            while let Some(command) = self.mailbox.receive() {
                if self.obey(now, command) == Next::End {
                    return Ok(());
                }
            }
            self.turn(now);
            self.disks.each_awake(0, ShardDisk::answer);
            self.disks.sleep();
            if self.draining.is_some() && self.answer_drained() {
                return Ok(());
            }
        }
    }

    /// When there is something to do at the latest.
    fn next_deadline(&self) -> Nanos {
        match self.clients.is_flushed() {
            true => self.disks.next_deadline().min(self.clients.next_deadline()),
            false => Nanos(0),
        }
    }

    /// Everything that is to be done now; see the module.
    fn turn(&mut self, now: Nanos) {
        self.disks.wake_due(now);
        let mut free_until = None;
        let mut begun = self.begin_turns(now, 0, &mut free_until);
        self.clients.tick(&mut context!(self, now));
        for at in 0..self.disks.awake() {
            let disk = self.disks.disk(self.disks.awake_at(at));
            if disk.gives_clients_up(now) {
                let id = disk.id();
                self.clients.give_up(&mut context!(self, now), id);
            }
        }
        for _ in 0..ROUNDS_MAX {
            begun = self.begin_turns(now, begun, &mut free_until);
            for at in 0..begun {
                let place = self.disks.awake_at(at);
                if self.disks.disk(place).goes_on() {
                    self.run_actions(now, place);
                }
            }
            self.tell_news(now);
            if !self.clients.is_flushed() {
                self.clients.flush(&mut context!(self, now));
                // Read again: what was sent, was sent after the turn began.
                let now = self.time.now(clock());
                self.disks.each_awake(0, |disk| disk.sent(now));
            }
            self.clients.resume(&mut context!(self, now));
            if self.clients.is_flushed() && !self.disks.iter_awake().any(ShardDisk::goes_on) {
                break;
            }
            if self.time.now(clock()) >= now.plus(TURN_MAX) {
                break;
            }
        }
        for at in 0..self.disks.awake() {
            self.end_turn(now, self.disks.awake_at(at));
        }
    }

    /// Wakes the clients of disks of which one client has news for the others.
    fn tell_news(&mut self, now: Nanos) {
        for at in 0..self.disks.awake() {
            let disk = self.disks.disk(self.disks.awake_at(at));
            if std::mem::take(&mut disk.port.has_news) {
                let id = disk.id();
                self.clients.wake(&mut context!(self, now), id);
            }
        }
    }

    /// Disks that woke after the first `begun` begin their turn; how many have begun it.
    /// Memory of those that have ended goes back until then.
    fn begin_turns(&mut self, now: Nanos, begun: usize, free_until: &mut Option<Instant>) -> usize {
        let Shard { disks, reactor, .. } = self;
        disks.each_awake(begun, |disk| match disk.is_done() {
            true => disk.free_some(free_until),
            false => disk.begin_turn(now, reactor),
        });
        self.disks.awake()
    }

    fn end_turn(&mut self, now: Nanos, place: usize) {
        let disk = self.disks.disk(place);
        if disk.is_done() {
            return;
        }
        // Only who ends asks for it: there may be thousands of clients.
        let clients = match disk.is_ending() && !disk.ends_beneath() {
            true => self.clients.count_of(disk.id()),
            false => 0,
        };
        if disk.end_turn(now, &mut self.reactor, clients) {
            self.drain(now, place);
        }
    }

    /// Lets a disk's engine proceed and carries out what it asks for.
    fn run_actions(&mut self, now: Nanos, place: usize) {
        let actions = self.disks.disk(place).proceed(now);
        self.disks.disk(place).expect_replies(&actions);
        let Shard { reactor, disks, clients, .. } = self;
        actions.carry_out(&mut Execution { now, reactor, disks, place, clients });
        self.disks.disk(place).carried_out(actions);
    }

    /// Whether a disk is here, and clients may come.
    fn takes_clients(&self, id: DiskId) -> bool {
        self.disks.look(id).is_some_and(ShardDisk::takes_clients)
    }

    /// Takes a client over, unless what it needs ends.
    fn connect(&mut self, now: Nanos, mut new: Box<dyn Newcomer>, guard: Box<dyn Send>) {
        if !new.meet(&|id| self.takes_clients(id)) {
            return;
        }
        // Clients that share several disks have to know of all that they use before one of these may end.
        if let disks @ [_, _, ..] = new.disks() {
            for disk in disks {
                self.clients.wake(&mut context!(self, now), *disk);
            }
        }
        self.let_in(now, new, guard);
    }

    fn let_in(&mut self, now: Nanos, new: Box<dyn Newcomer>, guard: Box<dyn Send>) {
        if let Err(error) = self.clients.add(&mut context!(self, now), new, guard) {
            let text = format!("a client was dropped: {error}");
            self.events.report(None, Severity::Warning, text);
        }
    }

    /// Ends a disk, and its clients.
    fn drain(&mut self, now: Nanos, place: usize) {
        let disk = self.disks.disk(place);
        let (id, has_told) = (disk.id(), disk.is_ending() && !disk.ends_beneath());
        if !has_told {
            self.clients.close(&mut context!(self, now), id);
        }
        self.disks.disk(place).drain(now);
    }

    /// Attaches a disk; with the handle of another one it takes its place. `sender`: of this shard's mailbox.
    fn attach(
        &mut self,
        now: Nanos,
        new: NewDisk,
        handle: &DiskHandle,
        sender: Sender<Command>,
    ) -> Result<(), String> {
        let number = self.disks.take_number().ok_or_else(|| {
            format!("the shard was given {DISKS_MAX} disks since the start, and can tell no more of them apart: restart Forebay")
        })?;
        let path = ReturnPath { sender, number };
        let (events, reactor) = (self.events.clone(), &mut self.reactor);
        let attached = ShardDisk::attach(new, now, reactor, events, (handle, path));
        self.disks.add(attached.map_err(|error| error.to_string())?, number);
        Ok(())
    }

    /// A disk takes the place of one that has ended beneath its clients, here or on another shard. The resizes of its RAM cache
    /// until then.
    fn replace(
        &mut self,
        now: Nanos,
        handle: &DiskHandle,
        mut new: NewDisk,
        sender: Sender<Command>,
    ) -> Result<u64, String> {
        let before = self.disks.look(handle.id);
        if let Some(before) = before {
            before.heritage()?;
            new.access = before.access();
        }
        let size = new.engine.config().backend.size;
        if size < handle.size.load(Ordering::Relaxed) {
            return Err("primary storage became shorter".to_owned());
        }
        let is_here = before.is_some();
        self.attach(now, new, handle, sender)?;
        if let (false, Some(disk)) = (is_here, self.disks.find(handle.id)) {
            disk.await_clients();
        }
        handle.size.store(size, Ordering::Relaxed);
        Ok(handle.resizes.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Has clients leave for another shard, where others have taken the place of these disks; false while they have not all
    /// left. Then they go over in one message, the disks are gone from here, and whatever else comes for them follows.
    ///
    /// # Errors
    /// A disk has not ended beneath its clients, or the shard is ending.
    fn leave(
        &mut self,
        now: Nanos,
        disks: &[DiskHandle],
        to: &Sender<Command>,
    ) -> Result<bool, String> {
        if self.draining.is_some() {
            return Err(SHARD_ENDS.to_owned());
        }
        for disk in disks {
            let here = self.disks.look(disk.id);
            here.ok_or("the disk is not on this shard")?.heritage()?;
        }
        // Those that come from now on would keep it from its end.
        self.leaving = disks.iter().map(|disk| disk.id).collect();
        if !self.clients.leave(&mut context!(self, now), &self.leaving) {
            return Ok(false);
        }
        let ids = std::mem::take(&mut self.leaving);
        let here = ids.iter().filter_map(|id| Some((*id, self.disks.look(*id)?.access())));
        let arriving: Vec<_> = here.collect();
        to.answer(Command::Arrive(arriving, self.clients.take_out(&ids)));
        for late in self.late.drain(..) {
            to.answer(late);
        }
        for disk in disks {
            self.disks.move_to(disk, to.clone());
            disk.home.move_to(to.clone());
        }
        Ok(true)
    }

    /// Closes the clients of a disk that has ended beneath them, whose place no other one takes; whether they have gone.
    ///
    /// # Errors
    /// It has not ended, or is not here.
    fn dismiss(&mut self, now: Nanos, id: DiskId, late: bool) -> Result<bool, String> {
        let disk = self.disks.find(id).ok_or("the disk is not on this shard")?;
        if disk.ends_beneath() || !disk.is_done() {
            disk.give_up_place()?;
            self.clients.close(&mut context!(self, now), id);
        } else if late {
            self.clients.give_up(&mut context!(self, now), id);
        }
        Ok(self.clients.count_of(id) == 0)
    }

    /// Clients come from another shard, and their disks go on.
    fn arrive(&mut self, now: Nanos, disks: Vec<(DiskId, Permission)>, clients: Vec<Leaver>) {
        for (id, access) in disks {
            if let Some(disk) = self.disks.find(id) {
                disk.welcome_clients(access);
            }
        }
        // They know the disks that they share. A shard may have been told to end meanwhile, and its disks have.
        for (client, guard) in clients {
            if client.disks().iter().all(|disk| self.takes_clients(*disk)) {
                self.let_in(now, Box::new(client), guard);
            }
        }
    }

    /// Where the disk of a command has gone that was here.
    fn moved_to(&self, command: &Command) -> Option<Sender<Command>> {
        let moved = match command {
            // Of the disks that it may use some have ended, wherever they were.
            Command::Connect(new, _) => {
                match new.disks().iter().any(|disk| self.takes_clients(*disk)) {
                    true => None,
                    false => new.disks().iter().find_map(|disk| self.disks.moved_to(*disk)),
                }
            }
            Command::Wake(disk) | Command::Disk(disk, _) | Command::Dismiss { disk, .. } => {
                self.disks.moved_to(*disk)
            }
            Command::Add(..)
            | Command::Replace(..)
            | Command::Leave(..)
            | Command::Arrive(..)
            | Command::Forget(..)
            | Command::Asked(..)
            | Command::Turn(..)
            | Command::Drain(..)
            | Command::Ended(..)
            | Command::Stop => None,
        };
        moved.cloned()
    }

    fn obey(&mut self, now: Nanos, command: Command) -> Next {
        if let Some(shard) = self.moved_to(&command) {
            shard.answer(command);
            return Next::Go;
        }
        match command {
            Command::Add(_, _, answer) if self.draining.is_some() => {
                let _ = answer.send(Err(SHARD_ENDS.to_owned()));
            }
            Command::Replace(_, _, _, answer) if self.draining.is_some() => {
                let _ = answer.send(Err(SHARD_ENDS.to_owned()));
            }
            Command::Add(new, sender, answer) => {
                let size = Arc::new(AtomicU64::new(new.engine.config().backend.size));
                let is_open = Arc::new(AtomicBool::new(true));
                let (id, home) = (mailbox::next_id(), Home::new(sender.clone()));
                let handle = DiskHandle { home, id, size, is_open, resizes: Arc::default() };
                let added = self.attach(now, *new, &handle, sender).map(|()| handle);
                let _ = answer.send(added);
            }
            Command::Replace(handle, new, sender, answer) => {
                let _ = answer.send(self.replace(now, &handle, *new, sender));
            }
            Command::Leave(disks, to, answer) => {
                let _ = answer.send(self.leave(now, &disks, &to));
            }
            Command::Arrive(disks, clients) => self.arrive(now, disks, clients),
            Command::Forget(disk, shard) => self.disks.move_to(&disk, shard),
            Command::Connect(client, guard)
                if client.disks().iter().any(|disk| self.leaving.contains(disk)) =>
            {
                self.late.push(Command::Connect(client, guard));
            }
            Command::Connect(client, guard) => self.connect(now, client, guard),
            Command::Dismiss { disk, late, answer } => {
                let _ = answer.send(self.dismiss(now, disk, late));
            }
            Command::Wake(disk) => self.clients.wake(&mut context!(self, now), disk),
            Command::Disk(id, operation) => {
                if let Some(disk) = self.disks.find(id) {
                    operation(&mut Visit { now, disk, all_clients: &self.clients });
                }
            }
            Command::Asked(number, operation) => {
                if let Some(disk) = self.disks.find_numbered(number) {
                    operation(&mut Visit { now, disk, all_clients: &self.clients });
                }
            }
            Command::Turn(answer) => {
                let _ = answer.send(clock::thread_cpu_time());
            }
            Command::Drain(answer) => {
                for place in self.disks.places() {
                    self.disks.disk(place).end_with_daemon();
                    self.drain(now, place);
                }
                self.draining = Some(answer);
            }
            Command::Ended(answer) => {
                let _ = answer.send(self.disks.ended());
            }
            Command::Stop => return Next::End,
        }
        Next::Go
    }

    /// Answers the drain when every disk is done.
    fn answer_drained(&mut self) -> bool {
        let Some(drained) = self.disks.drained() else { return false };
        if let Some(answer) = self.draining.take() {
            let _ = answer.send(drained);
        }
        true
    }
}

#[cfg(test)]
mod tests;
