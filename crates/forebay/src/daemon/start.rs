//! The disks of a start: opened side by side, then found by clients.
//!
//! ```text
//!   all ─► asked whether storage and flash answer ─► opened, some at a time ─┬─ open ──► its shard ─► clients find it
//!             └─ do not: refused, tried again later                          └─ takes long ─► served when it is open
//! ```
//! What is wrong with one disk, or hangs, keeps no other from its clients for long.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::control::{ControlState, lock};
use super::opener::{Opener, Ready};
use super::opening::Opened;
use super::questions::{START_MAX, Silence};
use super::refused::Opening;
use super::{opener, questions, refused, systemd};
use crate::config::{DaemonSpec, DiskSpec};

/// Disks that are opened at a time at the start. Each waits most of the time, for primary storage and for flash.
const OPENED_AT_A_TIME: usize = 16;
/// Time that each of them has at least, once another has hung for as long as a start waits.
const OPENING_MIN: Duration = Duration::from_secs(1);
/// Time that a start waits for all of its openings, and then for the first of its disks.
const OPENINGS_MAX: Duration = Duration::from_secs(240);

/// A start that waits for the names of hosts asks systemd for time this often. Messages of many disks at once would leave no
/// room for the one that it is ready.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Opens every disk, then lets clients find those that can be served.
///
/// # Errors
/// None can, or something is wrong that is not the matter of one disk.
pub(super) async fn serve_disks(control: &Arc<ControlState>) -> Result<()> {
    let opener = &control.opener;
    let mut found = Found::default();
    let mut late = Vec::new();
    let spec = opener.spec();
    // Who has one disk waits for it.
    let is_alone = spec.disks.len() == 1;
    let (each, all) = match is_alone {
        true => (Duration::MAX, Duration::MAX),
        false => (opening_max(&spec.disks), OPENINGS_MAX),
    };
    let patience = Arc::new(Patience { each, all, ..Patience::default() });
    let begun = Instant::now();
    let mut coming = spec.disks.iter().enumerate().zip(answers(opener, &spec, is_alone));
    let mut opening = VecDeque::with_capacity(OPENED_AT_A_TIME);
    loop {
        for ((index, disk), answers) in coming.by_ref().take(OPENED_AT_A_TIME - opening.len()) {
            let (opener, of, patience) = (opener.clone(), disk.clone(), patience.clone());
            let opened = tokio::spawn(async move {
                answers.await?.map_err(refused::silent)?;
                let begins = begun.elapsed();
                let left = patience.with_next(begins);
                let opened = refused::open_at_start(&opener, &of, left).await?;
                patience.note(matches!(opened, Opening::Late(_)), begun.elapsed() - begins);
                anyhow::Ok(opened)
            });
            opening.push_back((index, disk, opened));
        }
        let Some((index, disk, opened)) = opening.pop_front() else { break };
        // What is wrong with one disk, or with its shard, keeps no other from its clients.
        let opened = opened.await.unwrap_or_else(|panicked| Err(panicked.into()));
        systemd::starting(index + 1, spec.disks.len());
        match opened {
            Ok(Opening::Done(opened)) => found.take(control, disk, Ok(*opened)).await,
            Ok(Opening::Late(disk)) => late.push(*disk),
            Err(error) => found.take(control, disk, Err(error)).await,
        }
    }
    if let Some(reason) =
        found.first_refusal.as_ref().filter(|_| found.ready.is_empty() && late.is_empty())
    {
        let sources = spec.sources.as_ref().filter(|sources| !sources.changes.is_empty());
        // Nobody can take them back from a daemon that does not run.
        let kept = sources.and_then(|sources| sources.kept.as_ref()).map_or(String::new(), |path| {
            let path = path.display();
            format!("\nchanges that were made while Forebay ran count, too; to start without them, move {path} away")
        });
        bail!("{reason}{kept}");
    }
    late.iter().for_each(|disk| disk.refuse(control));
    let is_any_found = !found.ready.is_empty() || found.first_refusal.is_some();
    attach_disks(control, found.ready, !late.is_empty()).await?;
    let mut coming: JoinSet<()> =
        late.into_iter().map(|disk| disk.follow(control.clone())).collect();
    if !is_any_found {
        // Nobody has to wait for others yet: who starts after this one would find nothing.
        systemd::attaching();
        let first = async { while control.served() == 0 && coming.join_next().await.is_some() {} };
        let _ = timeout(OPENINGS_MAX, first).await;
    }
    coming.detach_all();
    Ok(())
}

/// How long a start waits for openings. Slow disks have the time that they need, and many that hang do not cost it theirs each.
#[derive(Default)]
struct Patience {
    /// For one, as long as none has hung.
    each: Duration,
    /// For all together.
    all: Duration,
    known: Mutex<Known>,
}

/// What openings have shown.
#[derive(Clone, Copy, Default)]
struct Known {
    /// One has hung for as long as it was waited for.
    is_any_late: bool,
    /// What those took that opened.
    longest: Duration,
}

impl Patience {
    /// With an opening that begins so long after the start has begun.
    fn with_next(&self, begins: Duration) -> Duration {
        let Known { is_any_late, longest } = *lock(&self.known);
        let needed = if is_any_late { longest.saturating_mul(2) } else { self.each };
        needed.min(self.each).min(self.all.saturating_sub(begins)).max(OPENING_MIN)
    }

    /// An opening was waited for so long, and has opened its disk unless it `is_late`.
    fn note(&self, is_late: bool, took: Duration) {
        let mut known = lock(&self.known);
        if is_late {
            known.is_any_late = true;
        } else {
            known.longest = known.longest.max(took);
        }
    }
}

/// What came of opening them.
#[derive(Default)]
struct Found {
    /// Those that are on their shards.
    ready: Vec<Ready>,
    /// Why the first one is not served.
    first_refusal: Option<String>,
}

impl Found {
    /// Hands a disk to its shard, or refuses it.
    async fn take(&mut self, control: &ControlState, disk: &DiskSpec, opened: Result<Opened>) {
        let taken = match opened {
            Ok(opened) => control.opener.hand_over(disk, opened).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(taken) => self.ready.push(taken),
            Err(error) => {
                control.refuse(disk, &error);
                // Nobody decides through a daemon that does not run.
                let reason = opener::reason(&error);
                self.first_refusal.get_or_insert(format!("disk '{}': {reason}", disk.name));
            }
        }
    }
}

/// Time that the opening of one of several disks may take at the start. It may write a torn image again, and reads what the cache
/// and the log have. Those that take longer, or hang, are served when they are open. systemd gives a start more than that.
fn opening_max(disks: &[DiskSpec]) -> Duration {
    let flash = disks.iter().filter_map(|disk| disk.flash.as_ref());
    let to_read = Duration::from_secs(flash.map(|flash| flash.bytes >> 32).sum());
    (Duration::from_secs(60) + to_read).min(OPENINGS_MAX)
}

/// Asks the storage and flash of all disks at once whether they answer: many that hang keep no other from being opened for
/// longer than one.
fn answers(
    opener: &Arc<Opener>,
    spec: &DaemonSpec,
    is_alone: bool,
) -> std::vec::IntoIter<JoinHandle<Result<(), Silence>>> {
    let room = Arc::new(Semaphore::new(questions::AT_ONCE));
    let asked = spec.disks.iter().map(|disk| {
        let (opener, of, room) = (opener.clone(), disk.clone(), room.clone());
        tokio::spawn(async move {
            if is_alone {
                return Ok(());
            }
            // Flash that has not answered in time is not waited for once more.
            if opener.flash.is_silent(&of) && of.unplaced.is_none() {
                return Err(Silence::Late);
            }
            let _room = room.acquire().await;
            opener.wait_for_answers(&of, START_MAX).await
        })
    });
    asked.collect::<Vec<_>>().into_iter()
}

/// Lets clients find disks that were opened.
///
/// # Errors
/// They find none anywhere, and no more come.
async fn attach_disks(control: &ControlState, ready: Vec<Ready>, more_come: bool) -> Result<()> {
    systemd::attaching();
    control.frontends.look_up(&control.opener.spec()).await;
    let mut missing = Vec::new();
    let mut is_found = more_come;
    let mut told = Instant::now();
    for disk in ready {
        if told.elapsed() >= TOLD_EVERY {
            systemd::attaching();
            told = Instant::now();
        }
        let name = disk.name.clone();
        match control.serve(disk).await {
            Ok(()) => is_found = true,
            Err(error) => {
                is_found |= control.is_found(&name.0);
                missing.push((name, error));
            }
        }
    }
    if !is_found && !missing.is_empty() {
        // A start that nobody can use is none.
        return Err(missing.swap_remove(0).1);
    }
    for (name, error) in missing {
        refused::not_everywhere(control, &name.0, &error);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn patience() -> Patience {
        Patience { each: seconds(60), all: OPENINGS_MAX, ..Patience::default() }
    }

    #[test]
    fn slow_disks_have_their_time_and_many_that_hang_do_not_cost_theirs_each() {
        let slow = patience();
        for (begins, took) in [(0, 5), (5, 50), (55, 20)] {
            assert_eq!(slow.with_next(seconds(begins)), seconds(60), "none of them hangs");
            slow.note(false, seconds(took));
        }
        slow.note(true, seconds(60));
        assert_eq!(slow.with_next(seconds(75)), seconds(60), "another needed 50 s");

        let hung = patience();
        hung.note(false, seconds(3));
        hung.note(true, seconds(60));
        assert_eq!(hung.with_next(seconds(60)), seconds(6));
        hung.note(true, seconds(6));
        assert_eq!(
            hung.with_next(seconds(66)),
            seconds(6),
            "one that hangs gives the next no more"
        );

        let only = patience();
        only.note(true, seconds(60));
        assert_eq!(only.with_next(seconds(60)), OPENING_MIN);
    }

    #[test]
    fn a_start_waits_for_all_of_them_together_for_four_minutes_and_an_only_disk_for_ever() {
        let slow = patience();
        assert_eq!(slow.with_next(seconds(180)), seconds(60));
        assert_eq!(slow.with_next(seconds(200)), seconds(40));
        assert_eq!(slow.with_next(seconds(500)), OPENING_MIN);
        let alone = Patience { each: Duration::MAX, all: Duration::MAX, ..Patience::default() };
        assert!(alone.with_next(seconds(1)) > seconds(1 << 40));
    }
}
