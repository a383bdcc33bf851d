//! What systemd is told (`sd_notify`), when it started this process; otherwise nothing is told to anybody.
//!
//! | when | message |
//! |---|---|
//! | a disk is opened at the start | STATUS, and more time for the start |
//! | disks are attached at the start, which takes long | more time for the start |
//! | clients can attach | READY, STATUS |
//! | a disk ends, is refused or is served after all | STATUS |
//! | SIGHUP, before and after | RELOADING, READY |
//! | shards and control plane turn, three times within `WatchdogSec=` | WATCHDOG |
//! | the end begins | STOPPING, and the time that it may take |
//!
//! **The watchdog** proves that each shard takes its turns: it asks every one over its mailbox, which a shard answers between
//! two turns. It runs on the control plane's own thread. Primary storage or flash that hangs keeps no shard from its turns, so
//! it does not end the daemon.
//!
//! A thread of its own sends the messages, and alone waits when systemd does not read them. When many wait, those are left out
//! that others follow: never that it is ready, reloads or stops. The end waits a second at most until the last ones are sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_host::events::{EventSender, Severity};
use forebay_shard::ShardSender;
use sd_notify::NotifyState;

use super::control::ControlState;

/// Time that the opening of one disk more gives a start. `TimeoutStartSec=` in the unit is as long.
const OPENING_TIME_MAX: Duration = Duration::from_secs(300);
/// Signs of life that a shard gives within the time of the watchdog, so that one that comes late is none that is missing.
const SIGNS: u32 = 3;

/// So many messages wait for systemd before some are left out.
const WAITING_MAX: usize = 64;
/// Time that the last messages have at the end.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// What the thread is to do.
enum Wish {
    Tell(String),
    /// To say that everything before was told.
    Answer(SyncSender<()>),
}

/// The way to the thread that sends.
struct Queue {
    wishes: Sender<Wish>,
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    fn add(&self, wish: Wish) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.wishes.send(wish);
    }
}

/// None when nobody would hear it.
fn queue() -> Option<&'static Queue> {
    static QUEUE: OnceLock<Option<Queue>> = OnceLock::new();
    QUEUE.get_or_init(start_thread).as_ref()
}

/// Tells what others follow.
fn tell(states: &[NotifyState<'_>]) {
    if queue().is_some_and(|queue| queue.waiting.load(Ordering::Relaxed) < WAITING_MAX) {
        tell_at_any_rate(states);
    }
}

fn tell_at_any_rate(states: &[NotifyState<'_>]) {
    if let Some(queue) = queue() {
        let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
        queue.add(Wish::Tell(lines.join("\n")));
    }
}

/// Waits until everything was told, as the process ends behind this.
pub(super) fn settle() {
    let (answer, told) = sync_channel(1);
    if let Some(queue) = queue() {
        queue.add(Wish::Answer(answer));
        let _ = told.recv_timeout(LAST_WORDS_MAX);
    }
}

fn start_thread() -> Option<Queue> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (wishes, coming) = channel::<Wish>();
    let waiting = Arc::new(AtomicUsize::new(0));
    let of_thread = waiting.clone();
    let send = move || {
        for wish in coming {
            match wish {
                Wish::Tell(message) => {
                    if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
                        tracing::debug!("systemd was not told {message:?}: {error}");
                    }
                }
                Wish::Answer(answer) => _ = answer.try_send(()),
            }
            of_thread.fetch_sub(1, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("systemd".to_owned()).spawn(send).ok()?;
    Some(Queue { wishes, waiting })
}

/// So many of the disks are open by now.
pub(super) fn starting(open: usize, disks: usize) {
    tell(&[
        NotifyState::Status(&format!("{open} of {disks} disks open")),
        more_time(OPENING_TIME_MAX),
    ]);
}

/// Disks that are open are attached, which takes long only where no name server answers.
pub(super) fn attaching() {
    tell(&[more_time(OPENING_TIME_MAX)]);
}

/// Clients can attach; or a reload is over.
pub(super) fn ready(control: &ControlState) {
    tell_at_any_rate(&[NotifyState::Ready, NotifyState::Status(&status(control))]);
}

/// Disks have come or gone.
pub(super) fn disks_changed(control: &ControlState) {
    tell(&[NotifyState::Status(&status(control))]);
}

/// The configuration is read again.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell_at_any_rate(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!("there is no monotonic clock: {error}"),
    }
}

/// The end begins, and takes so long at most.
pub(super) fn stopping(time_max: Duration) {
    let status = NotifyState::Status("ending: finishing what is in flight");
    tell_at_any_rate(&[NotifyState::Stopping, status, more_time(time_max)]);
}

fn more_time(time: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
}

/// What `systemctl status` shows.
fn status(control: &ControlState) -> String {
    let (disks, served) = (control.opener.spec().disks.len(), control.served());
    let refused: Vec<String> = control.refused().into_iter().map(|disk| disk.name).collect();
    in_words(disks, served, &refused)
}

fn in_words(disks: usize, served: usize, refused: &[String]) -> String {
    match (disks, refused) {
        (0, _) => {
            "no disk is configured: add a [[disk]] to the configuration file, then 'forebay reload'"
                .into()
        }
        (_, []) => format!("{served} of {disks} disks served"),
        (_, refused) => {
            format!("{served} of {disks} disks served; NOT SERVED: {}", refused.join(", "))
        }
    }
}

/// Feeds the watchdog for as long as all shards turn.
pub(super) async fn feed_watchdog(shards: Vec<ShardSender>, events: EventSender) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    loop {
        for (index, shard) in shards.iter().enumerate() {
            await_turn(index, shard, limit, &events).await;
        }
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(limit / SIGNS).await;
    }
}

/// Waits until a shard has taken a turn, and reports one that does not. A shard that has ended is somebody else's matter.
async fn await_turn(index: usize, shard: &ShardSender, limit: Duration, events: &EventSender) {
    let turn = shard.turn();
    tokio::pin!(turn);
    if tokio::time::timeout(limit / SIGNS, &mut turn).await.is_err() {
        let text = format!(
            "shard {index} takes no turn: something keeps its thread. When that lasts, systemd ends Forebay and starts it again"
        );
        events.report(None, Severity::Error, text);
        let _ = turn.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_counts_disks_and_names_those_that_are_not_served() {
        let refused = ["db".to_owned(), "web".to_owned()];
        assert_eq!(in_words(500, 500, &[]), "500 of 500 disks served");
        assert_eq!(in_words(3, 1, &refused), "1 of 3 disks served; NOT SERVED: db, web");
        assert!(in_words(0, 0, &[]).starts_with("no disk is configured: add"));
    }
}
