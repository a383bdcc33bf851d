//! What it takes to open a disk of the configuration and to hand it to its shard: at the start, and when a disk that was
//! refused is to be served after all.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_backends::Uri;
use forebay_frontends::{nbd, scsi, vhost_user};
use forebay_host::events::{EventSender, Severity};
use forebay_host::fence::{Refused, is_in_use};
use forebay_host::folders;
use forebay_host::journal::JournalPlace;
use forebay_host::pool::SharedPool;
use forebay_host::pool::owner::PoolHandle;
use forebay_host::population::{self, Population, Wanted};
use forebay_host::shell::quoted;
use forebay_shard::{DiskHandle, Missing, ShardSender};
use rustix::fs::OFlags;

use super::advice::Keeper;
use super::api::RefusedDisk;
use super::control::lock;
use super::flash::{self, Flash};
use super::opening::{self, Opened};
use super::questions::{About, Questions, Silence};
use super::reservations::Kept;
use super::served::ServedDisk;
use super::shards::Shards;
use crate::config::values::Name;
use crate::config::{DaemonSpec, DiskSpec, Sharing, VhostUserSpec};

/// See the module.
#[derive(Debug)]
pub(super) struct Opener {
    /// As it is in force.
    spec: Mutex<Arc<DaemonSpec>>,
    pub(super) flash: Arc<Flash>,
    state: Option<PathBuf>,
    pub(super) shards: Shards,
    population: Population,
    events: EventSender,
    /// Those to storage and flash that may hang.
    pub(super) questions: Questions,
}

/// A disk on its shard, and what its frontends have to know.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) name: Name,
    pub(super) disk: Arc<ServedDisk>,
    pub(super) handle: DiskHandle,
    pub(super) export: nbd::Export,
    pub(super) unit: (scsi::Export, Option<Kept>),
    pub(super) device: Option<(VhostUserSpec, vhost_user::Export)>,
}

/// A disk, and all others as they are with it.
pub(super) type Among<'a> = (&'a DiskSpec, &'a [DiskSpec]);

/// A disk as it is opened among all of them: none gets more flash for its cache than they bring.
pub(super) fn limited((disk, disks): Among<'_>) -> DiskSpec {
    let limit = flash::limit(disk, disks);
    DiskSpec { flash_sharing: Sharing { limit, ..disk.flash_sharing }, ..disk.clone() }
}

impl Opener {
    pub(super) fn new(
        spec: Arc<DaemonSpec>,
        flash: Arc<Flash>,
        state: Option<PathBuf>,
        shards: Vec<ShardSender>,
        population: Population,
        events: EventSender,
    ) -> Opener {
        let (spec, shards) = (Mutex::new(spec), Shards::new(shards));
        let questions = flash.questions.clone();
        Opener { spec, flash, state, shards, population, events, questions }
    }

    /// The configuration that is in force.
    pub(super) fn spec(&self) -> Arc<DaemonSpec> {
        lock(&self.spec).clone()
    }

    /// Another configuration is in force from now on.
    pub(super) fn change_spec(&self, spec: DaemonSpec) {
        *lock(&self.spec) = Arc::new(spec);
    }

    /// The state folder.
    pub(super) fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// The pool of a disk, where it has one; may wait for it.
    ///
    /// # Errors
    /// Another process has it, or it cannot be opened.
    pub(super) fn pool(&self, disk: &DiskSpec) -> Result<Option<(SharedPool, PoolHandle)>> {
        self.flash.of(disk, &self.spec().disks)
    }

    /// Opens a disk; may wait for primary storage and flash.
    ///
    /// # Errors
    /// It cannot be served; [`refusal`] tells whether others can.
    pub(super) fn open(&self, disk: &DiskSpec) -> Result<Opened> {
        self.open_among(disk, &self.spec().disks)
    }

    /// The same of one of `disks`, which have to have room in its pool together.
    ///
    /// # Errors
    /// As of [`Opener::open`].
    pub(super) fn open_among(&self, disk: &DiskSpec, disks: &[DiskSpec]) -> Result<Opened> {
        let asked = limited((disk, disks));
        opening::open(&asked, self.flash.of(disk, disks)?, self.state())
    }

    /// What a look at the storage and flash of a disk asks.
    pub(super) fn about_storage(disk: &DiskSpec) -> About {
        About::Storage(disk.backend.clone(), disk.flash.as_ref().map(|flash| flash.path.clone()))
    }

    /// Waits until primary storage of a disk that is a file or device, its sidecar, its journal and its flash answer at all, so
    /// that it is not opened in vain, with others waiting for that.
    ///
    /// # Errors
    /// They do not in time.
    pub(super) async fn wait_for_answers(
        self: &Arc<Self>,
        disk: &DiskSpec,
        patience: Duration,
    ) -> Result<(), Silence> {
        let (opener, of) = (self.clone(), disk.clone());
        let look = move || opener.look(&of);
        self.questions.ask(Opener::about_storage(disk), patience, look).await
    }

    /// The same for several at once: so long for all of them.
    pub(super) async fn wait_for_each(
        self: &Arc<Self>,
        disks: Vec<DiskSpec>,
        patience: Duration,
    ) -> Vec<(DiskSpec, Result<(), Silence>)> {
        let of = disks.into_iter().map(|disk| {
            let about = Opener::about_storage(&disk);
            (disk, about)
        });
        let look = |disk: &DiskSpec| {
            let (opener, of) = (self.clone(), disk.clone());
            move || opener.look(&of)
        };
        self.questions.ask_each(of, patience, look).await
    }

    fn look(&self, disk: &DiskSpec) {
        let uri = disk.backend.parse::<Uri>();
        let image = uri.as_ref().ok().and_then(Uri::path);
        let sidecar = image.map(|image| image.with_added_extension("forebay"));
        let flash = disk.flash.as_ref().map(|flash| flash.path.as_path());
        let journal = disk.write_log.as_ref().and_then(|log| log.journal.as_ref());
        let journal = journal.and_then(|at| JournalPlace::at(at).ok());
        let journal = journal.as_ref().and_then(JournalPlace::path);
        for path in image.into_iter().chain(sidecar.as_deref()).chain(flash).chain(journal) {
            // What it says is looked at when the disk is opened.
            let _ = read_begin(path);
        }
        self.flash.wait_for(disk);
    }

    /// Hands a disk that was opened to its shard.
    ///
    /// # Errors
    /// The shard cannot take it.
    pub(super) async fn hand_over(&self, disk: &DiskSpec, opened: Opened) -> Result<Ready> {
        let shard = self.shards.for_disk(&self.spec(), &disk.name);
        let (ready, wanted) = self.hand_over_to(shard, disk, opened, None).await?;
        self.give_memory(wanted);
        Ok(ready)
    }

    /// Hands a disk over to a shard, in the place of one that has `ended` beneath its clients. What memory it waits for:
    /// that is to be given to it once its clients have gone over.
    ///
    /// # Errors
    /// The shard cannot take it; the clients wait on.
    pub(super) async fn hand_over_to(
        &self,
        shard: usize,
        disk: &DiskSpec,
        mut opened: Opened,
        ended: Option<&ServedDisk>,
    ) -> Result<(Ready, Option<Wanted>)> {
        for (severity, text) in &opened.notes {
            self.events.report(Some(&disk.name.0), *severity, text.clone());
        }
        let info = opened.info(disk, shard);
        let export = opened.export(disk);
        let unit = (opened.unit(disk), opened.reservations());
        let device = disk.vhost_user.clone();
        let device = device.map(|spec| (spec.clone(), opened.device(disk, spec.queues)));
        let (place, probe) = (opened.take_place(), opened.probe());
        let state = self.state.clone();
        let keep = move || (Keeper::open(probe.as_ref(), state.as_deref()), probe);
        let (advice, probe) = tokio::task::spawn_blocking(keep).await?;
        if let Some(trouble) = advice.trouble() {
            self.events.report(Some(&disk.name.0), Severity::Warning, trouble);
        }
        let memory = opened.wait_for_memory();
        let new = (&disk.name, opened.into_new_disk(disk));
        let of_before = ended.map(|ended| &ended.handle);
        let handed_over = self.shards.hand_over(shard, &self.spec(), new, of_before).await;
        let (handle, resizes) = handed_over.context("its shard cannot take it")?;
        let name = disk.name.0.as_str().into();
        let missing = |(memory, place)| Missing { disk: name, memory, place, resizes };
        let wanted = memory.map(missing).map(|missing| handle.wants_memory(missing));
        let on_host = (place, disk.flash.as_ref().map(|flash| flash.path.clone()));
        let served = ServedDisk::new(info, handle.clone(), Arc::new(advice), on_host, probe);
        let (name, disk) = (disk.name.clone(), Arc::new(served));
        Ok((Ready { name, disk, handle, export, unit, device }, wanted))
    }

    /// Leaves so many bytes to a disk that is opened again, while other RAM caches get memory.
    pub(super) fn keep_memory(&self, bytes: u64) -> population::Kept {
        self.population.keep(bytes)
    }

    /// Gives a disk the memory that its RAM cache waits for.
    pub(super) fn give_memory(&self, wanted: Option<Wanted>) {
        if let Some(wanted) = wanted {
            self.population.give(wanted);
        }
    }

    /// Gives a disk at work a RAM cache of `bytes`.
    ///
    /// # Errors
    /// It cannot have that at work; it goes on as before.
    pub(super) async fn resize_ram(&self, disk: &ServedDisk, bytes: u64) -> Result<()> {
        if let Some(wanted) = disk.resize_ram(bytes).await? {
            self.population.give(wanted);
        }
        Ok(())
    }

    /// A disk as one that is not served.
    pub(super) fn refused(
        &self,
        disk: &DiskSpec,
        reason: String,
        is_tried_again: bool,
    ) -> RefusedDisk {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let placed = disk.flash.as_ref().filter(|_| disk.unplaced.is_none());
        let pool = placed.map(|flash| absolute(&flash.path).display().to_string());
        let control = self.spec().control.as_deref().map_or(String::new(), folders::option_for);
        let reason = through_daemon(reason, disk, &control);
        let (name, backend) = (disk.name.to_string(), disk.backend.clone());
        RefusedDisk { name, backend, reason, pool, is_tried_again }
    }
}

/// A page in memory where direct I/O can reach it.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Reads the first page, past the page cache where that works: memory answers for a device that hangs.
fn read_begin(path: &Path) -> std::io::Result<usize> {
    let mut file = File::open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    let mut page = Page([0; 4096]);
    let is_direct = rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).is_ok();
    match file.read(&mut page.0) {
        Err(_) if is_direct => {
            rustix::fs::fcntl_setfl(&file, flags)?;
            file.read(&mut page.0)
        }
        read => read,
    }
}

/// A reason as whoever asks this daemon needs it: it decides about its own disk itself, and keeps others from the pool.
fn through_daemon(reason: String, disk: &DiskSpec, control: &str) -> String {
    let Some(flash) = &disk.flash else { return reason };
    let command = format!("forebay disk resolve {}", disk.name);
    let instead = format!("{command}{control}");
    reason.replace(&format!("{command} --pool {}", quoted(&flash.path)), &instead)
}

/// Why a disk is not served, in words.
pub(super) fn reason(error: &anyhow::Error) -> String {
    refusal(error).unwrap_or_else(|| format!("{error:#}"))
}

/// Why a disk must not be served before somebody has decided or put something right; `None`: it could not be opened, and perhaps
/// can be in a while.
pub(super) fn refusal(error: &anyhow::Error) -> Option<String> {
    if let Some(refused) = error.chain().find_map(|cause| cause.downcast_ref::<Refused>()) {
        return Some(refused.to_string());
    }
    is_in_use(error).then(|| format!("{error:#}"))
}
