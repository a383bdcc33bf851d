//! A disk at work is opened again with settings that its engine cannot take over, beneath its clients.
//!
//! ```text
//!   clients wait ─ nothing is owed to them ─► ended in order ─► opened as it is to be ─► its shard: clients go on
//!        │ not within 10 s                                         │ it cannot be
//!        ▼                                                         ▼
//!   clients go on                                              opened as it was, again and again until it can be
//! ```
//! It is an end and a start of this one disk: what either leaves and finds is what a daemon's leaves and finds, so its write
//! log goes on, and so does what is cached on flash where block size and place stay. To leave its pool its log is emptied
//! first, while clients go on.
//!
//! **Invariant:** whatever fails, no client gets an error by it. A disk that cannot be opened has its clients wait.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use forebay_backends::Probe;
use forebay_core::config::Mode;
use forebay_core::engine::ConfigError;
use forebay_host::events::Severity;
use forebay_host::fence::is_in_use;
use forebay_host::population::{Kept, Wanted};
use forebay_shard::Drained;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::api::DiskInfo;
use super::control::ControlState;
use super::ending::{self, Left};
use super::opener::{Among, Ready};
use super::opening::Opened;
use super::served::ServedDisk;
use super::settings::Keeping;
use super::{advice, opener, refused};
use crate::config::DiskSpec;
use crate::config::difference::{self, is_same_pool};
use crate::config::settings::Setting;

mod check;
mod modified;

/// Time that a log has to be destaged, for its disk to leave the pool.
const DESTAGE_MAX: Duration = Duration::from_secs(10);
/// How often that is looked at, and whether what is in use is free.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Time that whoever looks at primary storage has to let go of it.
const IN_USE_MAX: Duration = Duration::from_secs(2);
/// Time that a disk has to end: its clients are waited for, a log may be destaged.
const END_MAX: Duration = Duration::from_secs(35);
/// Time that it has to be opened, before others have their turn; unit tests wait for that.
pub(super) const OPEN_MAX: Duration =
    Duration::from_millis(if cfg!(test) { 2_000 } else { 20_000 });
/// What is told when that is over.
pub(super) const TAKES_LONG: &str = "its storage or its flash takes long to answer";
/// Pause before a disk whose clients wait is tried again.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A disk of a daemon with these `disks` is to be as it is `asked` for, as far as opening it again brings that about, with
/// these `settings` otherwise. Where a command asks for that, this is `kept`.
///
/// # Errors
/// It is as before, or its clients wait until it can be opened.
pub(super) async fn reopen(
    state: &Arc<ControlState>,
    disks: &mut [DiskSpec],
    at: usize,
    (asked, settings): (&DiskSpec, &[Setting]),
    kept: &Keeping,
) -> Result<()> {
    let _one = state.opening_turn().await?;
    let (before, mut after) = (disks[at].clone(), disks[at].clone());
    after.take_over_opened_again(asked);
    let of_before = disks.to_vec();
    let found = state.find(&before.name.0);
    if found.is_err() {
        kept.keep().await?;
    }
    disks[at] = after.clone();
    // One that is refused has them when it is opened.
    let Ok(served) = found else { return Ok(()) };
    let _its_size = state.turns.resizing.lock().await;
    let ended = served.clone();
    let done = match ended.hold_flash().await {
        Err(error) => Err(error),
        Ok(_held) => {
            let what = difference::in_words(settings);
            // Of smaller blocks it knows more.
            let finer = (before.block_size / after.block_size).max(1);
            let _memory = state.opener.keep_memory(needed_at_once(&served, finer));
            let reopening = Reopening { what, _memory, ..Reopening::of(state, &served) };
            reopening.carry_out((&before, &of_before), (&after, disks), kept).await
        }
    };
    if done.is_err() {
        disks[at] = before;
    }
    done
}

/// Memory that an opening needs at once, with metadata of so many times as many blocks. RAM caches can wait.
fn needed_at_once(served: &ServedDisk, finer: u64) -> u64 {
    let DiskInfo { memory_bytes, ram_bytes, metadata_bytes, .. } = served.info();
    memory_bytes - ram_bytes + metadata_bytes * finer
}

/// Notes that primary storage has become longer while a disk ended: opened again, the disk is as long as that.
///
/// # Errors
/// That cannot be seen, or noted.
async fn note_growth(served: &Arc<ServedDisk>) -> Result<()> {
    if !served.is_looked_at() {
        return Ok(());
    }
    let look = served.look(Probe::look_anew).await;
    let look = look.context("cannot see how long primary storage is")?;
    // A size that it cannot have is none that it gets by being opened.
    if look.size <= served.handle.size() {
        return Ok(());
    }
    match served.handle.measure(Some(look.size)).await {
        Err(error) if error.is::<ConfigError>() => return Ok(()),
        measured => measured?,
    };
    let noting = served.clone();
    tokio::task::spawn_blocking(move || noting.grow_place(look)).await?
}

/// Where everything is of a disk that has ended, or why that cannot be noted.
pub(super) type Noted = Result<Left>;

/// An opening that takes long.
pub(super) struct LateOpening {
    /// With these settings.
    of: DiskSpec,
    opening: JoinHandle<Result<Opened>>,
}

impl std::fmt::Debug for LateOpening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LateOpening").field("of", &self.of.name).finish_non_exhaustive()
    }
}

fn cannot_be_opened(why: &anyhow::Error) -> String {
    format!(
        "the disk cannot be opened again, and its clients wait: {why:#}; it is tried again every second"
    )
}

/// What it takes, with the disk as it is served.
pub(super) struct Reopening<'a> {
    state: &'a Arc<ControlState>,
    served: Arc<ServedDisk>,
    /// What changes.
    what: String,
    /// It needs this again of what it gives back. Its RAM cache can wait.
    _memory: Kept,
}

impl<'a> Reopening<'a> {
    /// Of a disk as it is served, which does not change by it.
    pub(super) fn of(state: &'a Arc<ControlState>, served: &Arc<ServedDisk>) -> Reopening<'a> {
        let _memory = state.opener.keep_memory(needed_at_once(served, 1));
        Reopening { state, served: served.clone(), what: String::new(), _memory }
    }

    async fn carry_out(&self, before: Among<'_>, after: Among<'_>, kept: &Keeping) -> Result<()> {
        let is_made_anew = self.check(before.0, after).await?;
        let leaves_pool =
            before.0.flash.is_some() && (is_made_anew || !is_same_pool(before.0, after.0));
        if leaves_pool {
            self.served.handle.check_leave().await?;
        }
        if leaves_pool && let Err(why) = self.empty_log(before.0).await {
            self.take_mode_back(before.0).await;
            return Err(why);
        }
        if leaves_pool && let Err(why) = self.check_flush().await {
            self.take_mode_back(before.0).await;
            return Err(why);
        }
        advice::settle(&self.served).await;
        self.check_unmodified(leaves_pool).await?;
        let began = Instant::now();
        let noted = self.end_beneath(before, leaves_pool).await?;
        let opened = async {
            self.let_go(noted?, leaves_pool).await?;
            // It is open nowhere, and the log that it has left is empty: a start may open it here or there.
            kept.keep().await?;
            self.open(after).await
        };
        let Err(why) = opened.await else {
            let text = format!(
                "the disk was opened again: {}; its clients waited for {} ms",
                self.what,
                began.elapsed().as_millis()
            );
            self.report(Severity::Info, &text);
            return Ok(());
        };
        let why = opener::reason(&why);
        if let Err(error) = kept.take_back().await {
            self.report(Severity::Error, &format!("{error:#}"));
        }
        match self.open_as_before(before).await {
            Ok(()) => bail!("{why}; the disk goes on as it was"),
            Err(waits) => bail!("{why}; {waits}"),
        }
    }

    /// Ends it beneath its clients, and notes how. One that takes long ends later, and is opened as it was then.
    async fn end_beneath(&self, before: Among<'_>, leaves_pool: bool) -> Result<Noted> {
        let handle = self.served.handle.clone();
        let ending = async move { handle.end_beneath(leaves_pool).await };
        let mut ending = tokio::spawn(self.ended(ending));
        if let Ok(ended) = timeout(END_MAX, &mut ending).await {
            let ended = ended.map_err(anyhow::Error::from).flatten();
            if leaves_pool && ended.is_err() {
                self.take_mode_back(before.0).await;
            }
            return ended;
        }
        let ended = async move { ending.await? };
        Err(self.open_once_ended(ended, before, leaves_pool))
    }

    /// Opens it as it was, on a task of its own, once it has `ended` and that was noted, which takes long. Why its clients wait.
    pub(super) fn open_once_ended(
        &self,
        ended: impl Future<Output = Result<Noted>> + Send + 'static,
        before: Among<'_>,
        leaves_pool: bool,
    ) -> anyhow::Error {
        let text = "the disk was to be opened again and does not end: primary storage or its flash hangs. Its clients wait \
                    until it has ended, and it goes on as it was then";
        self.report(Severity::Error, text);
        self.listed().note_unopened(Some(text.to_owned()));
        let (state, served) = (self.state.clone(), self.served.clone());
        let (disk, disks) = (before.0.clone(), before.1.to_vec());
        tokio::spawn(async move {
            let reopening = Reopening::of(&state, &served);
            // One that did not end lets its clients go on.
            let Ok(noted) = ended.await else {
                reopening.listed().note_unopened(None);
                if leaves_pool {
                    reopening.take_mode_back(&disk).await;
                }
                return;
            };
            reopening.tell_unnoted(noted);
            reopening.open_some_time((&disk, &disks)).await;
        });
        anyhow!(text)
    }

    /// Opens it as it was and where it was, now or as soon as that can be.
    ///
    /// # Errors
    /// Its clients wait, in these words.
    pub(super) async fn open_as_before(&self, before: Among<'_>) -> Result<()> {
        match self.open(before).await {
            Ok(()) => Ok(()),
            // Whose clients it has are closed, and the next start opens it.
            Err(_) if self.state.is_ending() => bail!("the daemon is ending"),
            Err(error) => {
                let text = cannot_be_opened(&error);
                self.report(Severity::Error, &text);
                self.listed().note_unopened(Some(text.clone()));
                let (state, served) = (self.state.clone(), self.served.clone());
                let (disk, disks) = (before.0.clone(), before.1.to_vec());
                tokio::spawn(async move {
                    let reopening = Reopening::of(&state, &served);
                    reopening.open_some_time((&disk, &disks)).await;
                });
                bail!(text)
            }
        }
    }

    /// Has the log destaged, and written to no more, while clients go on.
    async fn empty_log(&self, before: &DiskSpec) -> Result<()> {
        if before.write_log.is_none() {
            return Ok(());
        }
        let handle = &self.served.handle;
        handle.set_mode(Mode::WriteThrough).await?;
        let give_up = Instant::now() + DESTAGE_MAX;
        while handle.stats().await?.engine.mode_actual.logs() {
            ensure!(
                Instant::now() < give_up,
                "its write log is not destaged within {} s, as it has to be before the disk leaves its pool: first \
                 give 'forebay disk set {} --mode write-through --wait'",
                DESTAGE_MAX.as_secs(),
                before.name
            );
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// It does not leave its pool after all.
    async fn take_mode_back(&self, before: &DiskSpec) {
        if let Err(error) = self.served.handle.set_mode(before.mode.0).await {
            self.report(
                Severity::Warning,
                &format!("it is not in mode {} again: {error:#}", before.mode),
            );
        }
    }

    /// Waits until it has ended, and notes how.
    ///
    /// # Errors
    /// It goes on.
    pub(super) fn ended<F: Future<Output = Result<Drained>> + Send + 'static>(
        &self,
        ending: F,
    ) -> impl Future<Output = Result<Noted>> + Send + use<F> {
        let (state, served) = (self.state.clone(), self.served.clone());
        async move {
            let drained = ending.await?;
            Ok(Reopening::of(&state, &served).leave(drained).await)
        }
    }

    /// Tells that it could not be noted how it has ended: it is opened as after a crash.
    pub(super) fn tell_unnoted(&self, noted: Noted) {
        if let Err(error) = noted {
            self.report(Severity::Warning, &format!("{error:#}"));
        }
    }

    /// Notes how it has ended; where everything is.
    async fn leave(&self, drained: Drained) -> Noted {
        let left = ending::left(&drained);
        if let Left::NotSafe(why) = &left {
            self.report(Severity::Error, why);
        }
        self.state.note_quiet(&self.served, &drained);
        if let Err(error) = note_growth(&self.served).await {
            self.report(Severity::Warning, &format!("{error:#}"));
        }
        let served = self.served.clone();
        let noted = tokio::task::spawn_blocking(move || served.leave(&drained)).await?;
        if let Some(warning) = noted.context("how it was left cannot be noted")? {
            self.report(Severity::Warning, &warning);
        }
        Ok(left)
    }

    /// Lets go of the flash that it has left.
    async fn let_go(&self, left: Left, leaves_pool: bool) -> Result<()> {
        if leaves_pool {
            ensure!(left == Left::OnPrimaryStorage, "its log is not empty");
            self.state.close_flash_but_of(self.served.name()).await;
        }
        Ok(())
    }

    /// Opens it in the place of the one that has ended.
    async fn open(&self, disk: Among<'_>) -> Result<()> {
        let opened = self.open_up(disk).await?;
        self.serve(self.hand_over(self.served.info.shard, disk.0, opened).await?);
        Ok(())
    }

    /// The one that has taken its place is served from now on, and gets the memory that it waits for.
    pub(super) fn serve(&self, (ready, wanted): (Ready, Option<Wanted>)) {
        ready.disk.history().go_on_from(&mut self.served.history());
        self.state.opener.give_memory(wanted);
        if ready.disk.info.size > self.served.info.size {
            tokio::task::spawn_blocking(self.state.tell_size(&ready.disk));
        }
        self.state.serve_again(ready);
    }

    /// Opens it, for a shard to take it. An opening that took too long so far goes on, if it is one of the same settings.
    ///
    /// # Errors
    /// It cannot be opened, or not in time.
    pub(super) async fn open_up(&self, disk: Among<'_>) -> Result<Opened> {
        let mut late = self.served.late_opening.lock().await;
        let mut opening = match late.take() {
            Some(LateOpening { of, opening }) if of == *disk.0 => opening,
            Some(other) if !other.opening.is_finished() => {
                *late = Some(other);
                bail!(TAKES_LONG)
            }
            Some(other) => {
                let opened = other.opening.await;
                // It lets go of all that it has, and may wait for that.
                tokio::task::spawn_blocking(move || drop(opened)).await?;
                self.begin_to_open(disk)
            }
            None => self.begin_to_open(disk),
        };
        match timeout(OPEN_MAX, &mut opening).await {
            Ok(opened) => opened.map_err(anyhow::Error::from).flatten(),
            Err(_) => {
                *late = Some(LateOpening { of: disk.0.clone(), opening });
                bail!(TAKES_LONG)
            }
        }
    }

    async fn open_when_free(&self, (disk, disks): Among<'_>) -> Result<Opened> {
        ensure!(!self.state.is_ending(), "the daemon is ending");
        let (disk, disks) = (disk.clone(), disks.to_vec());
        let open = || {
            let (disk, disks) = (disk.clone(), disks.clone());
            refused::blocking(self.state, move |opener| opener.open_among(&disk, &disks))
        };
        self.when_free(open).await
    }

    /// Does something with storage or flash that somebody may still use for a moment.
    async fn when_free<T, F>(&self, work: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let give_up = Instant::now() + IN_USE_MAX;
        loop {
            match work().await {
                Err(error) if is_in_use(&error) && Instant::now() < give_up => {
                    sleep(LOOK_AGAIN).await;
                }
                done => return done,
            }
        }
    }

    /// Hands it to this shard, in the place of the one that has ended; to be [served](Self::serve) once its clients are there.
    pub(super) async fn hand_over(
        &self,
        shard: usize,
        disk: &DiskSpec,
        opened: Opened,
    ) -> Result<(Ready, Option<Wanted>)> {
        let opener = &self.state.opener;
        let handed = opener.hand_over_to(shard, disk, opened, Some(&self.served)).await?;
        self.take_modified_over(&handed.0.disk);
        Ok(handed)
    }

    /// The disk as others find it: that of another shard, whose clients did not come, as long as it is not open here again.
    fn listed(&self) -> Arc<ServedDisk> {
        self.state.as_it_is(&self.served)
    }

    fn report(&self, severity: Severity, text: &str) {
        self.state.report(Some(self.served.name()), severity, text);
    }

    /// Tries to open a disk whose clients wait, until it can be; somebody may decide about it between two tries, or end it.
    /// While its storage hangs others have their turns.
    async fn open_some_time(&self, before: Among<'_>) {
        loop {
            let is_opening = self.note_clients_wait().await;
            sleep(TRY_AGAIN).await;
            if is_opening {
                continue;
            }
            let Ok(_one) = self.state.opening_turn().await else { continue };
            // One that was detached is listed until another one of its name is.
            if self.state.listed(&self.served).is_none_or(|it| it.ended().is_some()) {
                return;
            }
            // Somebody decides about it, which takes long.
            if self.state.is_at_work(self.served.name()) {
                continue;
            }
            self.listed().note_clients_wait(false);
            let Err(why) = self.open(before).await else {
                let text = "the disk is open again, and its clients go on";
                return self.report(Severity::Info, text);
            };
            self.listed().note_unopened(Some(cannot_be_opened(&why)));
            // Whoever has the next turn finds it so.
            self.note_clients_wait().await;
        }
    }

    /// Notes whether nobody is opening it; true while an opening goes on that takes long.
    async fn note_clients_wait(&self) -> bool {
        let late = self.served.late_opening.lock().await;
        self.listed().note_clients_wait(late.is_none());
        late.as_ref().is_some_and(|late| !late.opening.is_finished())
    }

    /// Opens it on a task of its own, which nobody has to wait for.
    fn begin_to_open(&self, (disk, disks): Among<'_>) -> JoinHandle<Result<Opened>> {
        let (state, served) = (self.state.clone(), self.served.clone());
        let (disk, disks) = (disk.clone(), disks.to_vec());
        tokio::spawn(
            async move { Reopening::of(&state, &served).open_when_free((&disk, &disks)).await },
        )
    }
}
