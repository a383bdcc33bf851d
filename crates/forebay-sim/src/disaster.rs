//! Disasters, which hit everything at once: a lost session, a dead process, a dead host, dead or
//! rotten flash.

use forebay_core::action::{IoOp, Target};
use forebay_core::ids::Nanos;
use forebay_core::stats::LogState;
use forebay_core::status::IoStatus;

use crate::device::{Effect, changes};
use crate::epochs::Trust;
use crate::planted::Planted;
use crate::pool::StagedGroup;
use crate::rng::Rng;
use crate::setup;
use crate::warm;
use crate::world::{Event, InFlight, World};

/// What ends while I/Os are in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The session with primary storage, or with the journal.
    Session,
    /// The process.
    Process,
    /// The host: its power fails.
    Host,
}

impl World<'_> {
    pub(crate) fn on_disaster(&mut self) {
        if self.crashes_left > 0 {
            return self.crash_again();
        }
        if self.chance.chance(80) {
            return self.end_in_order();
        }
        if self.setup.log_dies {
            return match self.pool.device.dead || self.pool.device.rots {
                // Not while everything has to come to its end.
                _ if self.clients.made >= self.setup.load.requests => {}
                false => self.let_log_die(),
                true if self.is_saving() => {}
                true => self.crash_and_revive(),
            };
        }
        self.hold_at_times();
        if let Some(journal) = &mut self.journal
            && self.chance.chance(150)
        {
            // Until the next such disaster, or the end.
            journal.device.dead = !journal.device.dead;
            return self.log.line(self.now, || "the journal dies, or is back".into());
        }
        let has_log = self.setup.config.write_log.is_some();
        if has_log && self.chance.chance(100) {
            self.log.line(self.now, || "primary storage dies, crashes begin".into());
            self.coverage.crash_loops += 1;
            self.backend.dead = true;
            if let Some(journal) = &mut self.journal {
                journal.device.dead = self.chance.chance(500);
            }
            self.crashes_left = self.chance.between(2, 20);
            if self.chance.chance(500) {
                return self.crash_again();
            }
            // It takes with it what is volatile, and a moment passes before the first crash.
            self.lose_session();
            return self.plan_crash();
        }
        match self.rng.below(8) {
            0..=2 => self.lose_session(),
            3 | 4 => self.crash(false),
            5 => self.crash(true),
            6 => {
                self.log.line(self.now, || "flash dies".into());
                self.flash.dead = true;
                self.ring.device.dead = self.chance.chance(500);
            }
            // Runs with flash of another size tell wrong bytes from old ones: none are wrong there.
            _ if self.engine.flash_size() > 0 && self.setup.flash_changes == 0 => {
                for _ in 0..self.rng.between(1, 200) {
                    self.flash.rot_anywhere();
                }
            }
            _ => {}
        }
    }

    /// The log's flash is gone, perhaps with what else is on it, until the process or the host has died.
    fn let_log_die(&mut self) {
        if self.setup.log_rots {
            self.log.line(self.now, || "the log's flash returns wrong bytes".into());
            self.pool.device.rots = true;
            return;
        }
        self.log.line(self.now, || "the log's flash dies".into());
        self.pool.device.dead = true;
        if self.chance.chance(500) {
            (self.flash.dead, self.ring.device.dead) = (true, true);
        }
    }

    /// A crash, and the log's flash is back if it was gone.
    pub(crate) fn crash_and_revive(&mut self) {
        let log = self.engine.log_statistics(self.now).expect("there is a log");
        self.coverage.logs_lost += u64::from(log.state == LogState::Lost);
        self.coverage.logs_died += 1;
        let host = self.chance.chance(500);
        self.crash(host);
    }

    /// Ends in order in the middle of everything, as far as that comes in a while, and starts again. Perhaps power fails in between.
    pub(crate) fn end_in_order(&mut self) {
        self.log.line(self.now, || "ends in order".into());
        self.coverage.ends_in_order += 1;
        (self.is_ending, self.clients.are_away) = (true, true);
        self.engine.shut_down(self.now, &mut self.actions);
        let settles =
            |world: &World<'_>| world.engine.destages_at_end() || world.engine.settles_at_end();
        if !self.comes_in_time(|world| world.engine.is_idle() && !settles(world)) {
            let is_away = Rng::new(self.setup.seed ^ self.events).chance(500);
            self.engine.stop_destaging(self.now, is_away, &mut self.actions);
        }
        if self.comes_in_time(|world| world.engine.is_idle()) {
            self.send();
            let flushed = !self.engine.mode().logs() && self.chance.chance(700);
            if flushed {
                self.backend.flush_all();
            }
            self.engine.close_ring(self.now, flushed, &mut self.actions);
            let is_closed = self.comes_in_time(|world| world.engine.is_ring_closed());
            if is_closed && self.engine.log_statistics(self.now).is_some_and(|log| log.is_durable) {
                self.pool.log_end = self.engine.log_end().expect("there is a log");
                self.coverage.ends_noted += 1;
            }
            self.former.has_ended = self.engine.is_idle();
        }
        let power = self.chance.chance(300);
        self.crash(power);
        (self.is_ending, self.clients.are_away) = (false, false);
    }

    /// Whether it comes to this within some time.
    fn comes_in_time(&mut self, is_so: impl Fn(&World<'_>) -> bool) -> bool {
        let until = self.now.plus(Nanos(self.chance.skewed(10_000_000_000)));
        self.carry_out();
        while !is_so(self) {
            if self.now >= until || !self.step() {
                return false;
            }
            self.carry_out();
        }
        true
    }

    /// One more crash while primary storage is dead; after the last one it is back.
    fn crash_again(&mut self) {
        self.crashes_left -= 1;
        let host = self.chance.chance(200);
        self.crash(host);
        if self.crashes_left == 0 {
            self.backend.dead = false;
            if let Some(journal) = &mut self.journal {
                journal.device.dead = false;
            }
        } else {
            self.plan_crash();
        }
    }

    fn plan_crash(&mut self) {
        let pause = self.chance.between(1, 20 * self.setup.load.pause_max.0);
        self.queue.plan(self.now.plus(Nanos(pause)), Event::Disaster);
    }

    /// Primary storage forgets what is volatile; I/Os in flight fail, or are done again on a new session.
    pub(crate) fn lose_session(&mut self) {
        self.log.line(self.now, || "session lost".into());
        self.coverage.sessions_lost += 1;
        self.carry_out();
        self.land_some(Target::Backend, End::Session);
        // Beside a log, what is lost is lost: flushes say so, and no destaging brings it back.
        let logs = self.engine.mode().logs();
        let trust = if logs { self.epochs.trust } else { Trust::Nothing };
        self.lose(true);
        self.epochs.trust = trust;
        self.check_prefix_when_flushed();
        self.epochs.trust = trust.min(Trust::Words);
        self.engine.on_session_lost(self.now, &mut self.actions);
        self.check_prefix();
        self.lose_journal_session();
        for (&number, in_flight) in &mut self.ios {
            if in_flight.target != Target::Backend {
                continue;
            }
            in_flight.attempt += 1;
            let pending = &mut in_flight.pending;
            let again = self.rng.chance(500);
            let mut soon = Nanos(self.rng.between(1, 1_000_000));
            if again {
                let (data, checksums) =
                    (std::mem::take(&mut pending.data), std::mem::take(&mut pending.checksums));
                let (mut retried, timing) = self.backend.issue(pending.io, data, checksums);
                if pending.executed && retried.status == IoStatus::Unsupported {
                    // What it could do before the session was lost it can do now.
                    retried.status = IoStatus::IoError;
                }
                *pending = retried;
                soon = timing.complete;
                let execute = self.now.plus(timing.execute);
                self.queue.plan(execute, Event::Execute(number, in_flight.attempt));
            } else {
                pending.status = IoStatus::IoError;
                if !pending.executed {
                    pending.effect = Effect::Prefix(0);
                }
            }
            self.queue.plan(self.now.plus(soon), Event::Complete(number, in_flight.attempt));
        }
    }

    /// The journal may be on the same storage, or have a session of its own that is lost.
    fn lose_journal_session(&mut self) {
        if self.journal.is_none() || !self.chance.chance(500) {
            return;
        }
        self.log.line(self.now, || "session of the journal lost".into());
        self.land_some(Target::Journal, End::Session);
        if let Some(journal) = &mut self.journal {
            journal.device.lose(true);
        }
        for in_flight in self.ios.values_mut().filter(|io| io.target == Target::Journal) {
            let pending = &mut in_flight.pending;
            pending.status = IoStatus::IoError;
            if !pending.executed {
                pending.effect = Effect::Prefix(0);
            }
        }
        self.engine.on_journal_session_lost(self.now, &mut self.actions);
    }

    /// Some of the I/Os in flight on a device take effect, wholly or in part.
    fn land_some(&mut self, target: Target, end: End) {
        // Others of a process may do so later.
        let leaves = end == End::Process && self.former.is_unanswered && target == Target::Backend;
        let host = end == End::Host;
        for (&number, in_flight) in &mut self.ios {
            let pending = &mut in_flight.pending;
            let lands = in_flight.target == target && !pending.executed;
            let lands = lands && !(leaves && changes(&pending.io) && self.chance.chance(700));
            if lands && pending.io.op != IoOp::Flush && self.rng.chance(500) {
                if self.rng.chance(300) {
                    pending.effect =
                        Effect::Prefix(self.rng.below(pending.io.range.len() / 512 + 1));
                }
                if host && let IoOp::Write { durable, .. } = &mut pending.io.op {
                    // It is durable when it ends: before that any of its sectors may be there, and any may not.
                    *durable = false;
                }
                match target {
                    Target::Backend => self.backend.execute(number, pending),
                    Target::Flash => self.flash.execute(number, pending),
                    Target::Log => self.pool.device.execute(number, pending),
                    Target::Ring => self.ring.device.execute(number, pending),
                    Target::Journal => {
                        let journal = self.journal.as_mut().expect("it has one");
                        journal.device.execute(number, pending);
                    }
                }
            }
        }
    }

    /// The process dies, perhaps with its host, and starts again.
    pub(crate) fn crash(&mut self, host: bool) {
        self.log.line(self.now, || format!("crash, host dies: {host}"));
        self.coverage.crashes += 1;
        self.coverage.hosts_lost += u64::from(host);
        self.pool.leases = 0;
        match self.rng.chance(500) {
            true => self.carry_out(),
            false => self.carry_out_once(),
        }
        self.end_former();
        self.forgive_an_unnoted_loss();
        let end = if host { End::Host } else { End::Process };
        self.land_some(Target::Backend, end);
        self.land_some(Target::Log, end);
        self.land_some(Target::Flash, end);
        self.land_some(Target::Ring, end);
        self.land_some(Target::Journal, end);
        self.coverage.note_engine(&self.engine);
        let mut left = Vec::new();
        for (number, in_flight) in std::mem::take(&mut self.ios) {
            if in_flight.target == Target::Backend && in_flight.pending.executed {
                self.backend.complete(number, &in_flight.pending);
            } else if in_flight.target == Target::Backend {
                left.push((number, in_flight.pending));
                continue;
            }
            if in_flight.target == Target::Journal && in_flight.pending.executed {
                let journal = self.journal.as_mut().expect("it has one");
                journal.device.complete(number, &in_flight.pending);
            }
        }
        self.check_prefix();
        let staged = if host { Vec::new() } else { self.staged_groups() };
        self.clients.forget_all(&mut self.oracle);
        let logged = self.setup.config.write_log.is_some();
        let trust = if self.engine.mode().logs() { self.epochs.trust } else { Trust::Nothing };
        match host {
            true => self.backend.settle(),
            false => left.into_iter().for_each(|(number, pending)| self.leave(number, pending)),
        }
        if host {
            self.pool.device.lose_power();
            self.flash_loses_power();
            match logged {
                true => drop(self.backend.lose(true)),
                false => self.lose(true),
            }
            if let Some(journal) = &mut self.journal {
                journal.device.lose(true);
            }
            self.check_prefix_when_flushed();
            self.epochs.trust = Trust::Nothing;
        }
        self.oracle.new_life();
        if logged {
            self.pool.rot_a_summary(&mut self.chance);
            self.rot_a_note();
        }
        self.begin_anew(staged, host, trust);
    }

    /// A process that ends before it could note that primary storage lost something leaves nobody who knows it.
    fn forgive_an_unnoted_loss(&mut self) {
        let is_note = |it: &InFlight| matches!(it.pending.io.op, IoOp::Progress { .. });
        let is_on_its_way = self.ios.values().any(is_note);
        let log = self.engine.log_statistics(self.now);
        let has_failed = self.pool.has_note_failed || log.is_some_and(|log| log.failure.is_some());
        let is_asked = self.engine.wants_to_proceed() || is_on_its_way;
        if self.epochs.trust == Trust::Words && (is_asked || has_failed) {
            self.epochs.trust = Trust::Nothing;
        }
    }

    /// A start that finds the newer note of progress damaged has to do with the older one. The log still has all that this misses,
    /// or guests have written past it. At an end, or of a log that failed, such a start may refuse it.
    fn rot_a_note(&mut self) {
        let mut chance = Rng::new(self.setup.seed ^ self.events);
        let has_failed = self.log_statistics().failure.is_some();
        let lives = !self.is_ending && !self.clients.are_away;
        let device = &mut self.pool.device;
        if !has_failed && lives && chance.chance(400) && self.planted == Planted::Nothing {
            self.coverage.notes_rotten += u64::from(device.progress != device.progress_before);
            device.progress = device.progress_before;
            self.epochs.trust = Trust::Nothing;
        }
    }

    /// The process has ended in order: its staged groups are needed no more, unless the log could
    /// not be made durable.
    pub(crate) fn start_again(&mut self, is_durable: bool) {
        self.log.line(self.now, || format!("start, everything is durable: {is_durable}"));
        self.coverage.note_engine(&self.engine);
        let staged = if is_durable { Vec::new() } else { self.staged_groups() };
        if is_durable {
            self.pool.log_end = self.engine.log_end().expect("there is a log");
        }
        self.clients.forget_all(&mut self.oracle);
        self.oracle.new_life();
        self.begin_anew(staged, false, Trust::Nothing);
    }

    /// A new engine on what the one before left.
    fn begin_anew(&mut self, mut staged: Vec<StagedGroup>, host: bool, trust: Trust) {
        self.replace_revoked(&mut staged);
        // A start has both copies say the same.
        self.pool.device.progress_before = self.pool.device.progress;
        self.pool.has_note_failed = false;
        let repaired = self.coverage.windows_repaired;
        self.queue.retain(|event| match event {
            Event::Clients | Event::Disaster | Event::Mode | Event::Visit => true,
            Event::Tune | Event::Resize | Event::ResizeFlash | Event::DropCache => true,
            Event::Execute(..) | Event::Complete(..) | Event::Release(_) => false,
            Event::Lease | Event::Renewal(_) | Event::Staging => false,
            Event::Void | Event::Revoke | Event::Compared(..) => false,
            Event::RevokeJournal | Event::Late(_) | Event::Memory(..) => false,
            Event::PowerLoss | Event::Resume | Event::Settled | Event::Death => false,
            Event::Land(_) => true,
        });
        self.actions.clear();
        // Another cache than before: a ring of the former one is not to be believed.
        let keeps_cache = self.setup.ring_tears || self.setup.cold_starts > 0;
        if !keeps_cache
            && self.rng.chance(500)
            && (self.setup.config.ring.is_none() || self.chance.chance(300))
        {
            setup::cache(&mut self.rng, &mut self.setup.config);
            warm::ring(&mut self.chance, &mut self.setup.config);
        }
        (self.flash.dead, self.ring.device.dead) = (false, false);
        (self.pool.device.dead, self.pool.device.rots) = (false, false);
        if self.setup.config.write_log.is_some() {
            if self.recover_in_the_end(staged, host) {
                self.compare_after_power_loss(trust == Trust::Order);
            }
        } else {
            self.make_engine(None);
        }
        self.begin_memory();
        self.begin_unsettled();
        if trust.min(self.epochs.trust) != Trust::Nothing {
            self.check_order();
        }
        self.engine.begin(self.now, &mut self.actions);
        let has_repaired = self.coverage.windows_repaired > repaired;
        if has_repaired && self.clients.made < self.setup.load.requests && self.chance.chance(300) {
            // While the first flush is under way, or just after it.
            let soon = self.chance.skewed(1_000_000);
            self.queue.plan(self.now.plus(Nanos(soon)), Event::PowerLoss);
        }
    }
}
