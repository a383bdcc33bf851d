//! A disk on a shard, as everybody outside has it: each operation is one method, and one closure that the shard runs
//! (`mailbox.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::config::{BackendTraits, Mode, Tuning};
use forebay_core::engine::Growth;
use forebay_core::observer::Observer;
use forebay_core::stats::Latency;
use forebay_frontends::client::{DiskId, Newcomer, Port};
use forebay_host::population::Wanted;
use forebay_io::mailbox::SendError;
use tokio::sync::oneshot;

use crate::disk::{FlashUse, Heritage, Missing};
use crate::mailbox::{Command, Home, Visit};
use crate::{DiskFigures, DiskStatus, Drained, Dropped, EndedHold, Gone};

/// Time that a client waits for room in the mailbox.
pub const HAND_OVER_MAX: Duration = Duration::from_secs(10);
/// Time that a disk's growth waits for requests at its old end.
const GROW_MAX: Duration = Duration::from_secs(10);
/// Time that clients are held for a disk to owe them nothing.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// Time that clients have to take their last answers, and to be gone, when their disk is opened no more.
const LEAVE_MAX: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];
/// Destaging is held so long after each look whether primary storage stands still.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// How often both look.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A RAM cache has another size.
#[derive(Debug)]
pub struct Resized {
    /// The memory that it waits for, to be given to it.
    pub wanted: Option<Wanted>,
    /// Bytes of metadata that the cache needs with it.
    pub metadata_bytes: u64,
}

/// A disk on a shard.
#[derive(Clone, Debug)]
pub struct DiskHandle {
    pub(super) home: Home,
    pub(super) id: DiskId,
    pub(super) size: Arc<AtomicU64>,
    pub(super) is_open: Arc<AtomicBool>,
    /// How often the RAM cache got another size: who was to give memory before gives no more.
    pub(super) resizes: Arc<AtomicU64>,
}

impl DiskHandle {
    /// The disk, for its clients.
    pub fn id(&self) -> DiskId {
        self.id
    }

    /// Hands a client over to the disk's shard as soon as its mailbox has room; `guard` is dropped when it is gone.
    /// A thousand clients that come at once are more than a busy shard takes at once.
    ///
    /// # Errors
    /// [`Gone`], or no room within [`HAND_OVER_MAX`]: the client is dropped, and so closed.
    pub async fn hand_over(
        &self,
        client: Box<dyn Newcomer>,
        guard: Box<dyn Send>,
    ) -> Result<(), Gone> {
        let give_up = tokio::time::Instant::now() + HAND_OVER_MAX;
        let mut command = Command::Connect(client, guard);
        loop {
            command = match self.home.shard().send(command) {
                Ok(()) => return Ok(()),
                Err(SendError::Full(back)) if tokio::time::Instant::now() < give_up => back,
                Err(SendError::Full(_) | SendError::Closed(_)) => return Err(Gone),
            };
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Hands a client over at once, for which the mailbox always has room: whoever does that waits for each before the next.
    ///
    /// # Errors
    /// [`Gone`]: the client is dropped, and so closed.
    pub fn connect(&self, client: Box<dyn Newcomer>, guard: Box<dyn Send>) -> Result<(), Gone> {
        match self.home.shard().answer(Command::Connect(client, guard)) {
            true => Ok(()),
            false => Err(Gone),
        }
    }

    /// What its RAM cache wants, for whoever gives memory (`forebay_host::population`). That ends when the cache gets another
    /// size.
    pub fn wants_memory(&self, Missing { disk, memory, place, resizes }: Missing) -> Wanted {
        let (now, owner) = (self.resizes.clone(), self.clone());
        Wanted {
            disk,
            memory,
            place: place.start..place.end,
            is_wanted: Box::new(move || now.load(Ordering::Acquire) == resizes),
            tell: Box::new(move |end| owner.tell(move |on| on.disk.have_memory(resizes, end))),
        }
    }

    /// The disk goes on with a RAM cache of `bytes`: more is there at once, but for its memory; from less, what is used least
    /// leaves some time later.
    ///
    /// # Errors
    /// The disk cannot have that much, or is ending, or the shard has ended.
    pub async fn resize_ram(&self, bytes: u64) -> anyhow::Result<Resized> {
        let resized = self.ask(move |on| on.disk.resize_ram(on.now, bytes)).await?;
        let resized = resized.map_err(anyhow::Error::msg)?;
        // Another size may have come since: then it is not wanted any more.
        let wanted = resized.missing.map(|missing| self.wants_memory(missing));
        Ok(Resized { wanted, metadata_bytes: resized.metadata_bytes })
    }

    /// The disk goes on with a cache of `bytes` on flash, which lies in `parts` where that is more than it has. From less, the
    /// end leaves some time later ([`DiskHandle::flash_use`]). Bytes of metadata that its cache needs then.
    ///
    /// # Errors
    /// The disk cannot have that, or is ending, or the shard has ended.
    pub async fn resize_flash(
        &self,
        bytes: u64,
        parts: Option<Vec<(u64, u64)>>,
    ) -> anyhow::Result<u64> {
        let resized =
            self.ask(move |on| on.disk.resize_flash(on.now, bytes, parts.as_deref())).await?;
        resized.map_err(anyhow::Error::msg)
    }

    /// Whether the disk could have a cache of `bytes` on flash.
    ///
    /// # Errors
    /// Why not, or the shard has ended.
    pub async fn check_flash(&self, bytes: u64) -> anyhow::Result<()> {
        let checked = self.ask(move |on| on.disk.check_flash(bytes)).await?;
        checked.map_err(anyhow::Error::msg)
    }

    /// What the disk uses of flash for cached data.
    ///
    /// # Errors
    /// The shard has ended.
    pub async fn flash_use(&self) -> anyhow::Result<FlashUse> {
        Ok(self.ask(|on| on.disk.flash_use()).await?)
    }

    /// Something that the disk's clients have waited for has happened.
    pub fn wake(&self) {
        self.home.shard().answer(Command::Wake(self.id()));
    }

    /// Does something with the disk as its clients see it, on its shard: it must not take long.
    pub fn visit(&self, work: impl FnOnce(&mut Port) + Send + 'static) {
        self.tell(move |on| work(&mut on.disk.port));
    }

    /// Asks for a mode; the disk is in it some time later.
    ///
    /// # Errors
    /// What it lacks, or the shard has ended.
    pub async fn set_mode(&self, mode: Mode) -> anyhow::Result<()> {
        let changed = self.ask(move |on| on.disk.change_mode(on.now, mode)).await?;
        changed.map_err(anyhow::Error::msg)
    }

    /// The disk goes on with these settings, from the next request on; the policy some time later.
    ///
    /// # Errors
    /// What cannot be set so, or the disk is ending, or the shard has ended. Nothing has changed.
    pub async fn tune(&self, tuning: Tuning) -> anyhow::Result<()> {
        let changed = self.ask(move |on| on.disk.tune(on.now, tuning)).await?;
        changed.map_err(anyhow::Error::msg)
    }

    /// Stops destaging, or goes on.
    ///
    /// # Errors
    /// The disk is ending, or the shard has ended.
    pub async fn pause(&self, pause: bool) -> anyhow::Result<()> {
        let changed = self.ask(move |on| on.disk.change_pause(on.now, pause)).await?;
        changed.map_err(anyhow::Error::msg)
    }

    /// Holds destaging until primary storage stands still, and for `span` from then on. The number of the hold; `None`: it did
    /// not stand still within `patience`, and destaging goes on.
    ///
    /// # Errors
    /// Destaging is held already, or the hold was ended, the disk is ending, or the shard has ended.
    pub async fn quiesce(&self, span: Duration, patience: Duration) -> anyhow::Result<Option<u64>> {
        let give_up = tokio::time::Instant::now() + patience;
        let hold = self.ask(|on| on.disk.begin_hold(on.now, HOLD_MIN)).await?;
        let hold = hold.map_err(anyhow::Error::msg)?;
        // Whoever asked may leave meanwhile: no look holds for longer than it takes until the next.
        let spans = (HOLD_MIN, span);
        loop {
            let still = self.ask(move |on| on.disk.hold_still(on.now, spans, hold)).await?;
            if still.map_err(anyhow::Error::msg)? {
                return Ok(Some(hold));
            }
            if tokio::time::Instant::now() >= give_up {
                self.end_hold(Some(hold)).await?;
                return Ok(None);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Goes on with destaging after this hold, or whichever there is.
    ///
    /// # Errors
    /// The shard has ended.
    pub async fn end_hold(&self, hold: Option<u64>) -> anyhow::Result<EndedHold> {
        Ok(self.ask(move |on| on.disk.end_hold(on.now, hold)).await?)
    }

    /// How long primary storage is by now, in bytes, which the disk can be, too; `looked` is what was found by looking at
    /// it. `None`: somebody has to look.
    ///
    /// # Errors
    /// The disk cannot have that size, or the shard has ended.
    pub async fn measure(&self, looked: Option<u64>) -> anyhow::Result<Option<u64>> {
        Ok(self.ask(move |on| on.disk.measure(looked)).await??)
    }

    /// Lets the disk have `size` bytes, which primary storage was measured to have. Waits until nothing is in flight at the
    /// old end, ten seconds at most.
    ///
    /// # Errors
    /// It cannot have that size, its end is busy, or the shard has ended.
    pub async fn grow(&self, size: u64) -> anyhow::Result<()> {
        let give_up = tokio::time::Instant::now() + GROW_MAX;
        loop {
            if self.ask(move |on| on.disk.grow(on.now, size)).await?? == Growth::Done {
                self.size.fetch_max(size, Ordering::Relaxed);
                return Ok(());
            }
            let is_late = tokio::time::Instant::now() > give_up;
            anyhow::ensure!(!is_late, "requests at its end did not finish; try again");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// True when clients may come: it neither ends nor is being detached.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// True when both are of one disk.
    pub fn is(&self, other: &DiskHandle) -> bool {
        Arc::ptr_eq(&self.size, &other.size)
    }

    /// True when both are on the same shard.
    pub fn is_beside(&self, other: &DiskHandle) -> bool {
        self.home.shard().leads_where(&other.home.shard())
    }

    /// Flushes primary storage, for what is acknowledged without a log; false when it could not.
    ///
    /// # Errors
    /// The shard, or the disk, has ended.
    pub async fn flush(&self) -> Result<bool, Gone> {
        self.answered(|on, answer| on.disk.flush(on.now, answer)).await
    }

    /// True when acknowledged writes may be lost and no flush of a client has told so yet.
    ///
    /// # Errors
    /// The shard has ended.
    pub async fn has_untold_loss(&self) -> Result<bool, Gone> {
        self.ask(|on| on.disk.has_untold_loss()).await
    }

    /// Drops what is cached of the disk.
    ///
    /// # Errors
    /// The shard has ended.
    pub async fn drop_cache(&self) -> Result<Dropped, Gone> {
        self.answered(|on, answer| on.disk.drop_cache(on.now, answer)).await
    }

    /// Ends the disk beneath its clients, who wait for one that takes its place ([`ShardSender::replace`](crate::ShardSender::replace)). Before that
    /// waits until it owes them nothing, ten seconds at most. `leaves_pool`: it is to leave its pool, which takes a disk
    /// whose log is empty, in a mode without one.
    ///
    /// # Errors
    /// A client did not get its answers or did not send what it began; the log is not empty; the disk is ending, or is
    /// being opened again already; the shard has ended. Its clients go on then.
    pub async fn end_beneath(&self, leaves_pool: bool) -> anyhow::Result<Drained> {
        self.hold_clients().await?;
        let end =
            move |on: &mut Visit<'_>, answer| on.disk.end_beneath(on.now, leaves_pool, answer);
        let ended = self.answered(end).await.map_err(anyhow::Error::from);
        let ended = ended.and_then(|ended| ended.map_err(anyhow::Error::msg));
        if ended.is_err() {
            self.let_clients_go_on();
        }
        ended
    }

    /// Has its clients wait until it owes them nothing, ten seconds at most, and from then on.
    ///
    /// # Errors
    /// A client did not get its answers or did not send what it began; or the disk is ending, or is being opened again. Its
    /// clients go on then.
    pub async fn hold_clients(&self) -> anyhow::Result<()> {
        let held = self.wait_for_clients().await;
        if held.is_err() {
            self.let_clients_go_on();
        }
        held
    }

    /// Says why its clients wait, where the disk does not end beneath them or cannot be opened again; until it is.
    pub fn note_unopened(&self, why: Option<String>) {
        self.tell(move |on| on.disk.note_unopened(why));
    }

    /// Ends the clients of the disk, which has ended beneath them and is opened no more.
    ///
    /// # Errors
    /// It has not ended, the shard has, or they do not leave: that may be asked for again, and until then another disk may
    /// take its place.
    pub async fn dismiss_clients(&self) -> anyhow::Result<()> {
        self.dismiss_clients_within(LEAVE_MAX).await
    }

    /// The same, with as much time as each of these spans for what [`LEAVE_MAX`] is for.
    pub(crate) async fn dismiss_clients_within(&self, spans: [Duration; 2]) -> anyhow::Result<()> {
        let dismissed = self.wait_until_dismissed(spans).await;
        if dismissed.is_err() {
            self.tell(|on| on.disk.keep_place());
        }
        dismissed
    }

    async fn wait_until_dismissed(&self, spans: [Duration; 2]) -> anyhow::Result<()> {
        let [late, give_up] = spans.map(|span| tokio::time::Instant::now() + span);
        loop {
            let now = tokio::time::Instant::now();
            let (answer, receiver) = oneshot::channel();
            let dismiss = Command::Dismiss { disk: self.id(), late: now > late, answer };
            match self.home.shard().send(dismiss) {
                Ok(()) => {
                    let have_gone = receiver.await.map_err(|_| Gone)?;
                    if have_gone.map_err(anyhow::Error::msg)? {
                        return Ok(());
                    }
                }
                Err(SendError::Full(_)) => {}
                Err(SendError::Closed(_)) => return Err(Gone.into()),
            }
            anyhow::ensure!(now < give_up, "its clients do not leave; try again");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether it may leave its pool now, for which its log is emptied.
    ///
    /// # Errors
    /// Destaging is held or paused, or the shard has ended.
    pub async fn check_leave(&self) -> anyhow::Result<()> {
        self.ask(|on| on.disk.check_leave(on.now)).await?.map_err(anyhow::Error::msg)
    }

    /// Its clients wait no longer.
    pub fn let_clients_go_on(&self) {
        // There is always room for that.
        self.tell(|on| on.disk.let_clients_go_on());
    }

    async fn wait_for_clients(&self) -> anyhow::Result<()> {
        let give_up = tokio::time::Instant::now() + HOLD_MAX;
        loop {
            let held = self.ask(|on| {
                let is_sent = on.all_clients.is_flushed_for(on.disk.id());
                on.disk.hold_clients(on.now, is_sent)
            });
            if held.await?.map_err(anyhow::Error::msg)? {
                return Ok(());
            }
            let is_late = tokio::time::Instant::now() > give_up;
            anyhow::ensure!(!is_late, "requests of its clients did not finish; try again");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// What it leaves to the disk that takes its place.
    ///
    /// # Errors
    /// It has not ended beneath its clients, or the shard has ended.
    pub(super) async fn heritage(&self) -> anyhow::Result<Heritage> {
        self.ask(|on| on.disk.heritage()).await?.map_err(anyhow::Error::msg)
    }

    /// Destages everything and ends the disk; returns when it has ended.
    ///
    /// # Errors
    /// A client is attached, the write log is lost, the disk was told something else meanwhile, or the shard has ended.
    pub async fn detach(&self) -> anyhow::Result<Drained> {
        let detached = self.answered(|on, answer| on.disk.detach(on.now, on.clients(), answer));
        detached.await?.map_err(anyhow::Error::msg)
    }

    /// Nobody asks for the disk any more, which was detached: the shard lets go of its memory. `is_settled`: nobody has to hear
    /// once more how it ended.
    pub fn let_go(&self, is_settled: bool) {
        self.tell(move |on| on.disk.note_left(is_settled));
    }

    fn send(&self, command: Command) -> Result<(), Gone> {
        self.home.shard().send(command).map_err(|_| Gone)
    }

    /// Looks at what the disk observed of its requests, on its shard: `look` must not take long.
    ///
    /// # Errors
    /// The shard, or the disk, has ended.
    pub async fn observe<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Observer) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.ask(move |on| look(on.disk.port.engine.observer_mut())).await
    }

    /// What primary storage is, as the disk uses it.
    ///
    /// # Errors
    /// The shard, or the disk, has ended.
    pub async fn traits(&self) -> Result<BackendTraits, Gone> {
        self.ask(|on| on.disk.traits()).await
    }

    /// How the disk is.
    ///
    /// # Errors
    /// The shard, or the disk, has ended.
    pub async fn stats(&self) -> Result<DiskStatus, Gone> {
        self.ask(|on| on.disk.status(on.now, on.clients(), on.clients_waiting())).await
    }

    /// Asks how the disk is, with its latencies in coarse steps. The answer comes later, so that several disks can be asked in
    /// one turn of their shard. It never comes when the disk has ended.
    ///
    /// # Errors
    /// The shard has ended, or its mailbox is full.
    pub fn figures(&self) -> Result<oneshot::Receiver<Box<DiskFigures>>, Gone> {
        let (answer, receiver) = oneshot::channel();
        let operation = move |on: &mut Visit<'_>| {
            let status = on.disk.status(on.now, on.clients(), on.clients_waiting());
            let latencies = on.disk.port.engine.latencies().steps();
            let _ = answer.send(Box::new(DiskFigures { status, latencies }));
        };
        self.send(Command::Disk(self.id(), Box::new(operation)))?;
        Ok(receiver)
    }

    /// What its reads took, by slowest source: RAM, flash, primary storage.
    ///
    /// # Errors
    /// The shard, or the disk, has ended.
    pub async fn read_latencies(&self) -> Result<Box<[Latency; 3]>, Gone> {
        self.ask(|on| Box::new(on.disk.port.engine.latencies().read.clone())).await
    }

    /// Does something with the disk on its shard, between two turns; what comes of it.
    async fn ask<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Visit<'_>) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.answered(move |on, answer| drop(answer.send(operation(on)))).await
    }

    /// The same where the answer may come turns later; it never comes when the sender is dropped.
    async fn answered<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Visit<'_>, oneshot::Sender<T>) + Send + 'static,
    ) -> Result<T, Gone> {
        let (answer, receiver) = oneshot::channel();
        let operation = move |on: &mut Visit<'_>| operation(on, answer);
        self.send(Command::Disk(self.id(), Box::new(operation)))?;
        receiver.await.map_err(|_| Gone)
    }

    /// Does something with the disk that it has asked for itself: there is always room for that.
    fn tell(&self, operation: impl FnOnce(&mut Visit<'_>) + Send + 'static) {
        self.home.shard().answer(Command::Disk(self.id(), Box::new(operation)));
    }
}
