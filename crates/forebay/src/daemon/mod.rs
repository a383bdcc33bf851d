//! The daemon: shards, listeners and the control socket of one [`DaemonSpec`], from start to end.
//!
//! Start-up is a list of named steps. Each step yields a value that undoes it when dropped (a socket
//! is removed, a thread joined, a lock let go), so a step that fails undoes all before it, in reverse:
//!
//! | step | undone by dropping |
//! |---|---|
//! | bind the control socket | [`unix::UnixSocket`] |
//! | open, lock and prepare pools (`flash.rs`) | `FlashGuard`; a file that was made for it, and has no disk yet, goes |
//! | start the shards | [`ShardHandle`] |
//! | open the HTTP port, if it can be had (`http.rs`) | its server |
//! | open primary storage, judge whether it is what the disk left, recover the log, take memory, hand the disk to its shard (`start.rs`, `opener.rs`) | the shard |
//! | bind listeners, portals and the sockets of vhost-user devices (`frontends.rs`) | [`listener::Listener`], [`vhost_user::VhostUser`] |
//!
//! A disk that must not be served, or that another process uses, is left out; the others are served. When what was wrong is
//! put right it is opened and attached then (`refused.rs`), with nothing else disturbed.
//!
//! The end, [`Daemon::shut_down`]: listeners close, disks finish what is in flight and flush primary
//! storage within `shut_down::DRAIN_TIME_MAX`, pools note how they were left, shards end, sockets go. Where everything is then, and
//! whether it is safe, says `ending.rs`.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_host::events::{EventSender, Severity};
use forebay_host::folders;
use forebay_host::pool::LOCK_WAIT;
use forebay_host::population::Population;
use forebay_io::reactor::ReactorKind;
use forebay_shard::{DiskHandle, ShardHandle};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod advice;
pub mod api;
mod background;
mod change;
pub mod control;
mod devices;
mod dry_run;
mod ending;
mod event_log;
mod figures;
mod flash;
mod frontends;
mod history;
mod http;
pub mod inherited;
pub mod iscsi;
mod kept;
mod left_behind;
pub mod listener;
pub(crate) mod metrics;
mod move_shard;
mod names;
mod observed;
mod opener;
mod opening;
mod pdu_log;
mod placement;
mod places;
mod pools;
pub(crate) mod preflight;
mod questions;
mod quiesce;
mod raw;
mod refused;
mod reload;
mod reopen;
mod reservations;
mod served;
mod settings;
mod shards;
mod sharing;
mod shut_down;
mod start;
mod systemd;
pub mod unix;
mod unlisted;
pub mod vhost_user;
mod watch;
mod while_starting;

use crate::config::DaemonSpec;
use crate::config::sources::another;
use crate::config::values::Access;
use api::DaemonInfo;
use control::ControlState;
use flash::{Flash, FlashGuard};
use frontends::Frontends;
use inherited::Inherited;
use opener::Opener;
use questions::START_MAX;
use unix::UnixSocket;
use watch::Watch;

/// A running daemon. Dropped, it ends in this order: nobody comes in, then disks end, then locks and sockets go.
#[derive(Debug)]
pub struct Daemon {
    shards: Vec<ShardHandle>,
    control: Arc<ControlState>,
    /// Answers at the control socket.
    answering: JoinHandle<()>,
    /// Counts what came of kept advices.
    following: JoinHandle<()>,
    /// Shows systemd that the daemon is alive.
    alive: JoinHandle<()>,
    /// Ends that when it is dropped.
    control_end: Option<oneshot::Sender<()>>,
    events: EventSender,
    /// Tells of the owners of pools that fail.
    flash_failed: UnboundedReceiver<PathBuf>,
    _flash: FlashGuard,
    /// Its threads were told to end.
    has_ended: bool,
    /// Keeps others from its file of changes.
    _changes: Option<File>,
    _socket: UnixSocket,
}

impl Daemon {
    /// Starts everything; clients can attach when this returns. Sockets that listen already are used in place of new ones.
    ///
    /// # Errors
    /// The step that failed, and why; everything before it is undone. Or no disk can be served.
    pub async fn start(spec: DaemonSpec, inherited: Inherited) -> Result<Daemon> {
        allow_many_files();
        let (spec, changes, trouble) = lock_changes(spec).await?;
        let spec = Arc::new(spec);
        let socket_path = match &spec.control {
            Some(path) => path.clone(),
            None => folders::default_socket(&spec.name.0)?,
        };
        let (socket, control_listener) =
            UnixSocket::bind(&socket_path, &Access::default(), &inherited)
                .with_context(|| format!("'{}' has no control socket", spec.name))?;
        let starting = while_starting::answer(control_listener.try_clone()?, &spec, &socket_path)?;
        let (log, events) = event_log::start(&spec).await?;
        trouble.into_iter().for_each(|text| events.report(None, Severity::Warning, text));
        let inherited = inherited.keep_asked(&spec, &events).await?;
        let (flash, flash_failed) = Flash::new(events.clone());
        let flash = Arc::new(flash);
        let flash_guard = FlashGuard(flash.clone());
        let (mut placed, mut news) = open_flash(&flash, &spec).await?;
        if placed.disks.iter().all(|disk| flash.is_silent(disk)) {
            // No other disk waits, and a process that was killed may hold it for a while.
            flash.questions.settle(LOCK_WAIT).await;
            (placed, news) = open_flash(&flash, &spec).await?;
        }
        let spec = placed;
        news.into_iter().for_each(|text| events.report(None, Severity::Warning, text));
        let state = spec.state_dir.clone().or_else(folders::state_folder);
        let shards = (0..spec.shards)
            .map(|index| ShardHandle::start(index, spec.shards, spec.reactor.0, events.clone()))
            .collect::<Result<Vec<ShardHandle>>>()?;
        let senders: Vec<_> = shards.iter().map(ShardHandle::sender).collect();
        let alive = systemd::feed_watchdog(senders.clone(), events.clone());
        let population = Population::start(events.clone())?;
        let opener = Opener::new(spec.clone(), flash, state, senders, population, events.clone());
        let frontends = Frontends::new(Arc::new(inherited), events.clone());
        let about = about(&spec, &socket_path, &shards);
        let (opener, frontends) = (Arc::new(opener), Arc::new(frontends));
        let watch = Watch::start(events.clone()).context("no thread to watch primary storage")?;
        let control =
            ControlState::new(about, opener.clone(), frontends, watch, (log, events.clone()));
        let control = Arc::new(control);
        http::open(&control).await;
        start::serve_disks(&control).await?;
        drop(starting);
        let sources = spec.sources.clone();
        let settle = move || sources.map_or(Ok(()), |sources| sources.settle());
        if let Err(error) = tokio::task::spawn_blocking(settle).await? {
            events.report(None, Severity::Warning, format!("{error:#}"));
        }
        let (control_end, control_ends) = oneshot::channel();
        let answering = control::serve_control(control_listener, control.clone(), control_ends)?;
        let following = tokio::spawn(background::look_after(control.clone(), events.clone()));
        control.frontends.open();
        left_behind::tell(&control);
        Ok(Daemon {
            shards,
            control,
            answering,
            following,
            alive: tokio::spawn(alive),
            control_end: Some(control_end),
            events,
            flash_failed,
            _flash: flash_guard,
            has_ended: false,
            _changes: changes,
            _socket: socket,
        })
    }

    /// Tells systemd that it is ready. Who hears of that finds in the log what was found on the way.
    pub async fn tell_ready(&self) {
        self.control.events.settle(&self.events).await;
        systemd::ready(&self.control);
    }

    /// What it is and serves.
    pub fn info(&self) -> DaemonInfo {
        self.control.info()
    }

    /// Its disks, in the order of its configuration.
    pub fn disks(&self) -> Vec<DiskHandle> {
        self.control.disks().iter().map(|disk| disk.handle.clone()).collect()
    }

    /// Reads the configuration file again, while everything goes on (`reload.rs`). Events tell what comes of it.
    pub fn reload(&self) {
        let control = self.control.clone();
        tokio::spawn(async move { reload::reload(&control, false).await });
    }

    /// Told when every disk has ended: was detached, or should have been.
    pub fn emptied(&self) -> Arc<tokio::sync::Notify> {
        self.control.end.emptied.clone()
    }

    /// Waits until a shard or the owner of a pool fails; a daemon that works never gets here.
    pub async fn failed(&mut self) -> String {
        type Wait<'a> = std::pin::Pin<Box<dyn Future<Output = String> + Send + 'a>>;
        let shards = self.shards.iter_mut().enumerate().map(|(index, shard)| -> Wait<'_> {
            Box::pin(async move { format!("shard {index} ended: {}", shard.failed().await) })
        });
        let flash: Wait<'_> = Box::pin(async {
            match self.flash_failed.recv().await {
                Some(path) => format!("the thread that owns the flash {} panicked", path.display()),
                None => std::future::pending().await,
            }
        });
        let mut waits: Vec<Wait<'_>> = shards.chain([flash]).collect();
        std::future::poll_fn(|cx| {
            for wait in &mut waits {
                if let std::task::Poll::Ready(why) = wait.as_mut().poll(cx) {
                    return std::task::Poll::Ready(why);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Reports an event of the daemon itself.
    pub fn report(&self, severity: Severity, text: String) {
        self.events.report(None, severity, text);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.control.frontends.abort();
        self.control.http.close();
        self.answering.abort();
        self.following.abort();
        self.alive.abort();
        if !self.has_ended {
            self.shards.clear();
            self.control.frontends.end_devices();
        }
    }
}

/// Keeps other daemons from the file of changes; what is wrong where another one has it.
///
/// # Errors
/// As [`Sources::lock`](crate::config::sources::Sources::lock).
async fn lock_changes(mut spec: DaemonSpec) -> Result<(DaemonSpec, Option<File>, Option<String>)> {
    let Some(mut sources) = spec.sources.take() else { return Ok((spec, None, None)) };
    let before = sources.kept.clone();
    let lock = move || sources.lock().map(|locked| (sources, locked));
    let (sources, locked) = tokio::task::spawn_blocking(lock).await??;
    if sources.kept.is_some() {
        // With what another daemon has changed before it ended.
        return Ok((sources.spec()?, locked, None));
    }
    let lost = before.filter(|_| sources.kept.is_none());
    let trouble = lost.map(|kept| format!("no change by command is kept: {}", another(&kept)));
    Ok((DaemonSpec { sources: Some(sources), ..spec }, locked, trouble))
}

/// Opens the flash of all disks, each at its place; what is to be told of that. Flash that hangs keeps none on other flash
/// waiting for long.
///
/// # Errors
/// Flash is not apart from other storage.
async fn open_flash(
    flash: &Arc<Flash>,
    spec: &Arc<DaemonSpec>,
) -> Result<(Arc<DaemonSpec>, Vec<String>)> {
    let (questions, of) = (&flash.questions, (**spec).clone());
    let placing = placement::place_in_time(questions, of, Vec::new(), flash.pools(), START_MAX);
    let (spec, news) = placing.await?;
    let spec = Arc::new(spec);
    preflight::check_flash_is_apart(questions, &spec, START_MAX).await?;
    flash.open(&spec, START_MAX).await;
    Ok((spec, news))
}

/// Threads for what may block: some are left for those whose storage answers.
pub const THREADS_MAX: usize = questions::OUT_MAX + 256;

/// Each connection is a file: as many as the administrator allows at all. A refusal costs connections, nothing else.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The daemon, without its disks and listeners.
fn about(spec: &DaemonSpec, control: &std::path::Path, shards: &[ShardHandle]) -> DaemonInfo {
    DaemonInfo {
        name: spec.name.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        reactor: match shards[0].kind {
            ReactorKind::Uring => "io_uring".to_owned(),
            ReactorKind::Epoll => "epoll".to_owned(),
        },
        reactor_fallback: shards[0].fallback_reason.clone(),
        shards: shards.len(),
        control: control.display().to_string(),
        http: None,
        disks: Vec::new(),
        listeners: Vec::new(),
        file: spec.file().map(|file| file.display().to_string()),
        refused: Vec::new(),
        detached: Vec::new(),
        starting: Vec::new(),
    }
}
