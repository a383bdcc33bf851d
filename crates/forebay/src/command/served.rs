//! A disk that is served to this process alone, for commands that replay on it.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forebay_backends::Uri;
use forebay_backends::uri::NbdUri;
use forebay_core::stats::Counters;
use forebay_shard::{DiskHandle, DiskStatus};
use forebay_trace::record::Record;
use forebay_trace::results::{CacheUse, Run};

use super::progress::Progress;
use super::trace::replay::Job;
use super::{client, disk};
use crate::config::values::{Access, Address, Name};
use crate::config::{CONNECTIONS_MAX, DaemonSpec, ListenerSpec};
use crate::daemon::Daemon;
use crate::daemon::api::DiskStats;
use crate::daemon::inherited::Inherited;

/// Time that the disk has to be detached in.
const DETACH_TIME_MAX: Duration = Duration::from_secs(60);

/// A daemon on a thread of its own, with one disk.
pub(super) struct Served {
    name: Name,
    control: PathBuf,
    disk: DiskHandle,
    pub uri: Uri,
    /// How it is cached, in words.
    pub configuration: String,
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl Served {
    /// Does `work` with the one disk of `spec`, which is served on sockets in `folder` and nowhere else. Whatever comes of the work, the disk is
    /// detached in the end: primary storage has everything, and nothing beside it says that a disk was here.
    pub fn during<T>(
        spec: DaemonSpec,
        folder: &Path,
        work: impl FnOnce(&Served) -> Result<T>,
    ) -> Result<T> {
        let served = Served::start(spec, folder)?;
        let done = work(&served);
        let stopped = served.stop();
        let done = done?;
        stopped.map(|()| done)
    }

    fn start(mut spec: DaemonSpec, folder: &Path) -> Result<Served> {
        let (name, configuration) = (spec.disks[0].name.clone(), spec.disks[0].in_words());
        let socket = folder.join("nbd.sock");
        let uri = Uri::Nbd(NbdUri::at_socket(&name.0, &socket));
        spec.listeners = vec![ListenerSpec {
            address: Address::Unix(socket, Access::default()),
            disks: vec![name.clone()],
            connections_max: CONNECTIONS_MAX,
        }];
        spec.targets = Vec::new();
        spec.disks[0].vhost_user = None;
        let control = folder.join("control.sock");
        spec.control = Some(control.clone());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (started, starts) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("daemon".to_owned()).spawn(move || {
            client::block_on(async {
                let daemon = match Daemon::start(spec, Inherited::default()).await {
                    Ok(daemon) => daemon,
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return Ok(());
                    }
                };
                let _ = started.send(Ok(daemon.disks()[0].clone()));
                let _ = stopped.await;
                daemon.shut_down().await
            })
        })?;
        let disk = starts.recv().context("the daemon ended as it started")??;
        Ok(Served { name, control, disk, uri, configuration, stop, thread })
    }

    /// A replay, with what the cache did for it. In the end everything is on primary storage, so that the next replay
    /// has it for itself.
    pub fn measure(
        &self,
        job: &Job<'_>,
        records: impl Iterator<Item = Result<Record, forebay_trace::Error>>,
    ) -> Result<Run> {
        let before = self.stats()?.engine.counters;
        let run = job.run(records)?;
        self.destage()?;
        let after = self.stats()?.engine.counters;
        let writes = |of: &Counters| of.backend_writes + of.destage_writes + of.journal_writes;
        let ios = |of: &Counters| of.backend_reads + writes(of);
        let cache = CacheUse {
            reads: after.reads - before.reads,
            read_hits: after.read_hits() - before.read_hits(),
            backend_ios: ios(&after) - ios(&before),
        };
        Ok(Run { cache: Some(cache), ..run })
    }

    /// Empties the cache.
    pub fn drop_cache(&self) -> Result<()> {
        client::block_on(async { Ok(self.disk.drop_cache().await.map(drop)?) })
    }

    /// Waits until everything is on primary storage.
    fn destage(&self) -> Result<()> {
        client::block_on(async {
            let stats = async || Ok(DiskStats::from(self.disk.stats().await?));
            let mut progress = Progress::new(&stats().await?, false, Instant::now());
            disk::destaged(stats, &mut progress).await?;
            let is_flushed = self.disk.flush().await?;
            ensure!(is_flushed, "primary storage failed to flush what the replay wrote");
            Ok(())
        })
    }

    fn stats(&self) -> Result<DiskStatus> {
        client::block_on(async { Ok(self.disk.stats().await?) })
    }

    fn stop(self) -> Result<()> {
        let path = format!("/v1/disks/{}/detach", self.name);
        let detached = client::block_on(async {
            let detached = client::tell_patiently::<serde_json::Value>(&self.control, &path);
            tokio::time::timeout(DETACH_TIME_MAX, detached).await.with_context(|| {
                format!("it took longer than {}s to detach its disk", DETACH_TIME_MAX.as_secs())
            })?
        });
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow::anyhow!("the daemon panicked"))??;
        detached.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;

    #[test]
    fn nothing_is_left_beside_primary_storage_whatever_comes_of_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::File::create(path("disk.raw")).unwrap().set_len(4 << 20).unwrap();
        let config = format!(
            "state-dir = '{0}/state'\n[[disk]]\nname = 'db'\nbackend = 'file:{0}/disk.raw'\nmode = 'write-back'\n\
             flash = '{0}/pool:16MiB'\nwrite-log = '4MiB'\n",
            folder.path().display()
        );
        std::fs::write(path("with.toml"), config).unwrap();
        let sidecar = path("disk.raw.forebay");
        for fails in [false, true] {
            let spec = file::load_unattached(&path("with.toml")).unwrap();
            let done = Served::during(spec, folder.path(), |_| {
                assert!(sidecar.exists(), "it has flash");
                ensure!(!fails, "no good");
                Ok(7)
            });
            assert_eq!(done.map_err(|error| error.to_string()).ok(), (!fails).then_some(7));
            assert!(!sidecar.exists(), "{fails}");
        }
    }
}
