//! `forebay demo`: the same I/O without cache, with a cold cache and with a warm one.
//!
//! ```text
//!   replay ──NBD, unix socket──► shard thread ──► model:san (five 15,000 rpm disks, RAID 5) ──► sparse file
//! ```
//! Everything is real but the time that primary storage takes, which the model decides. Two daemons are
//! made, one after the other: one without cache, one with RAM over flash that sees the I/O twice.
//!
//! The built-in workload ([`forebay_trace::workload`]) is replayed with a number of requests
//! outstanding; a given trace by its own clock, scaled so that the demonstration fits in its time and
//! the modelled SAN can bear it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_backends::{OpenOptions, Uri};
use forebay_core::ids::Nanos;
use forebay_io::clock;
use forebay_io::reactor::Reactor;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::{Record, Summary};
use forebay_trace::replay::{self, Outcome, Pace, Progress};
use forebay_trace::workload::{self, Workload};

use super::client;
use super::table::{Table, count, percent, time};
use super::trace::progress_bar;
use crate::cli::DemoArgs;
use crate::config::values::{Address, Flash, Mode, Name, Reactor as ReactorChoice, Size};
use crate::config::{CONNECTIONS_MAX, DaemonSpec, DiskOptions, ListenerSpec};
use crate::daemon::Daemon;
use crate::daemon::api::DiskStats;
use crate::shard::DiskHandle;

/// Size of the disk for the built-in workload: its hot area is 64 MiB, its loop 128 MiB.
const DISK_BYTES: u64 = 1 << 30;
const RAM_BYTES: u64 = 128 << 20;
const FLASH_BYTES: u64 = 512 << 20;
/// Requests of the built-in workload, and how many of them are outstanding.
const REQUESTS: u64 = 12_000;
const QUEUE_DEPTH: u32 = 8;
/// A given trace takes this long, and asks for no more than the SAN can bear.
const TRACE_TIME: Duration = Duration::from_secs(25);
const TRACE_REQUESTS_PER_SECOND: u64 = 250;
/// No replay takes longer than this.
const REPLAY_TIME_MAX: Duration = Duration::from_secs(38);

/// The I/O to replay, and how it is described.
struct Work {
    records: Vec<Record>,
    summary: Summary,
    pace: Pace,
    disk_bytes: u64,
    description: String,
}

/// What one replay showed.
#[derive(serde::Serialize)]
struct Run {
    name: &'static str,
    outcome: Outcome,
    reads: u64,
    read_hits: u64,
    /// Reads and writes that primary storage had to do.
    backend_ios: u64,
}

/// Shows the gain.
pub(crate) fn demo(args: DemoArgs) -> Result<()> {
    let work = match &args.trace {
        Some(path) => from_trace(path)?,
        None => built_in()?,
    };
    let folder = tempfile::Builder::new()
        .prefix("forebay-demo-")
        .tempdir()
        .context("cannot make a temporary folder; set TMPDIR to a place with 1 GiB")?;
    remove_on_signal(folder.path())?;
    println!("Forebay's demonstration: {}", work.description);
    println!(
        "Primary storage is a modelled SAN (five 15,000 rpm disks, RAID 5), the disk has {}.\n",
        rounded(work.disk_bytes)
    );
    let image = folder.path().join("disk.raw");
    let mut runs = Vec::new();
    make_image(&image, work.disk_bytes)?;
    let server = Server::start(folder.path(), "pass-through")?;
    runs.push(server.replay("without cache", &work)?);
    server.stop()?;
    let server = Server::start(folder.path(), "write-through")?;
    runs.push(server.replay("cold cache", &work)?);
    runs.push(server.replay("warm cache", &work)?);
    server.stop()?;
    print!("{}", report(&runs));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&runs)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed: u64 = runs.iter().map(|run| run.outcome.errors).sum();
    ensure!(failed == 0, "{failed} requests failed");
    Ok(())
}

/// The built-in workload.
fn built_in() -> Result<Work> {
    let settings = workload::Settings {
        disk_bytes: DISK_BYTES,
        requests: REQUESTS,
        interval_ns_mean: 1_000_000,
        seed: 1,
    };
    let records: Vec<Record> = Workload::new(settings).collect();
    let summary = Summary::of(records.iter().copied().map(Ok))?;
    let description = format!(
        "{} requests of a made-up workload (a hot set, a loop, a scan, random; {} reads, {} writes), \
         {QUEUE_DEPTH} outstanding",
        count(REQUESTS),
        percent(summary.reads, REQUESTS),
        percent(summary.writes, REQUESTS)
    );
    let pace = Pace::Closed { queue_depth: QUEUE_DEPTH };
    Ok(Work { records, summary, pace, disk_bytes: DISK_BYTES, description })
}

/// As much of a trace as the SAN can bear in the time, scaled to take just that.
fn from_trace(path: &Path) -> Result<Work> {
    let all: Vec<Record> =
        Reader::open(path, &Options::default())?.collect::<Result<_, forebay_trace::Error>>()?;
    ensure!(!all.is_empty(), "the trace {} has no reads or writes", path.display());
    let total = all.len();
    let fits = (TRACE_TIME.as_secs() * TRACE_REQUESTS_PER_SECOND) as usize;
    let records = all[..total.min(fits)].to_vec();
    let summary = Summary::of(records.iter().copied().map(Ok))?;
    let speed = summary.duration_ns as f64 / TRACE_TIME.as_nanos() as f64;
    let (pace, how) = match summary.duration_ns {
        0 => (
            Pace::Closed { queue_depth: QUEUE_DEPTH },
            "it has no times: as fast as possible".to_owned(),
        ),
        _ => {
            let times = if speed >= 1.0 { speed } else { 1.0 / speed };
            let word = if speed >= 1.0 { "faster" } else { "slower" };
            let seconds = TRACE_TIME.as_secs();
            (
                Pace::Clock { speed },
                format!("{times:.1} times {word} than recorded, to fit into {seconds}s"),
            )
        }
    };
    let description = format!(
        "the first {} of {} requests of {}, {how}",
        count(records.len() as u64),
        count(total as u64),
        path.display()
    );
    let disk_bytes = summary.span_bytes.next_multiple_of(1 << 20);
    Ok(Work { records, summary, pace, disk_bytes, description })
}

fn make_image(path: &Path, bytes: u64) -> Result<()> {
    let file = std::fs::File::create(path)?;
    file.set_len(bytes).with_context(|| format!("cannot make a disk image of {}", rounded(bytes)))
}

/// Ctrl-C must not leave the disk image behind.
fn remove_on_signal(folder: &Path) -> Result<()> {
    let folder = folder.to_owned();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let wait = client::block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            Ok(())
        });
        if wait.is_ok() {
            let _ = std::fs::remove_dir_all(&folder);
            std::process::exit(1);
        }
    })?;
    Ok(())
}

/// A daemon of its own thread, with one disk.
struct Server {
    disk: DiskHandle,
    uri: String,
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Result<()>>,
}

impl Server {
    /// Serves the image in `folder` in a mode.
    fn start(folder: &Path, mode: &str) -> Result<Server> {
        let spec = spec(folder, mode)?;
        let socket = folder.join("nbd.sock");
        let uri = format!("nbd+unix:///demo?socket={}", socket.display());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (started, starts) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("daemon".to_owned()).spawn(move || {
            client::block_on(async {
                let daemon = match Daemon::start(spec).await {
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
        Ok(Server { disk, uri, stop, thread })
    }

    /// Replays the work as a client would.
    fn replay(&self, name: &'static str, work: &Work) -> Result<Run> {
        let uri: Uri = self.uri.parse()?;
        let mut target = forebay_backends::open(&uri, OpenOptions::default())?;
        let mut reactor = Reactor::new(1024, None)?;
        let before = self.stats()?;
        let bar = progress_bar(work.records.len() as u64, name);
        let settings = replay::Settings {
            pace: work.pace,
            duration_ns: Some(REPLAY_TIME_MAX.as_nanos() as u64),
            ..replay::Settings::default()
        };
        let outcome = replay::replay(
            work.records.iter().copied().map(Ok),
            &work.summary,
            target.as_mut(),
            &mut reactor,
            &settings,
            &|| Nanos(clock::now_nanos()),
            &mut |progress: &Progress| bar.set_position(progress.ended),
        )?;
        bar.finish();
        let after = self.stats()?;
        let (b, a) = (before.engine.counters, after.engine.counters);
        Ok(Run {
            name,
            outcome,
            reads: a.reads - b.reads,
            read_hits: a.read_hits_ram + a.read_hits_flash - b.read_hits_ram - b.read_hits_flash,
            backend_ios: a.backend_reads + a.backend_writes - b.backend_reads - b.backend_writes,
        })
    }

    fn stats(&self) -> Result<DiskStats> {
        client::block_on(async { Ok(self.disk.stats().await?) })
    }

    fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow::anyhow!("the daemon panicked"))?
    }
}

/// One disk behind the modelled SAN, served on a socket in `folder`.
fn spec(folder: &Path, mode: &str) -> Result<DaemonSpec> {
    let name = Name("demo".to_owned());
    let mode: Mode = mode.parse()?;
    let flash = Flash { path: folder.join("flash"), bytes: FLASH_BYTES };
    let options = DiskOptions {
        mode: Some(mode),
        ram: mode.0.caches().then_some(Size(RAM_BYTES)),
        flash: mode.0.caches().then_some(flash),
        ..DiskOptions::default()
    };
    let backend = format!("model:san?inner=file:{}", folder.join("disk.raw").display());
    Ok(DaemonSpec {
        disks: vec![options.resolve(name.clone(), backend)],
        listeners: vec![ListenerSpec {
            address: Address::Unix(folder.join("nbd.sock")),
            disks: vec![name.clone()],
            connections_max: CONNECTIONS_MAX,
        }],
        name,
        shards: 1,
        reactor: ReactorChoice(None),
        control: Some(folder.join("control.sock")),
    })
}

/// The table, and what to try next.
fn report(runs: &[Run]) -> String {
    let mut table = Table::new(&[
        "",
        "read mean",
        "p50",
        "p99",
        "write mean",
        "p50",
        "p99",
        "IOPS",
        "hit ratio",
        "I/Os spared",
    ]);
    let unhelped = runs[0].backend_ios;
    for run in runs {
        let (reads, writes) = (&run.outcome.reads, &run.outcome.writes);
        let spared = match run.name == runs[0].name {
            true => "-".to_owned(),
            false => {
                let spared = unhelped.saturating_sub(run.backend_ios);
                format!("{} ({})", count(spared), percent(spared, unhelped))
            }
        };
        table.row(vec![
            run.name.to_owned(),
            time(reads.mean_ns as u64),
            time(reads.p50_ns),
            time(reads.p99_ns),
            time(writes.mean_ns as u64),
            time(writes.p50_ns),
            time(writes.p99_ns),
            format!("{:.0}", run.outcome.iops),
            percent(run.read_hits, run.reads),
            spared,
        ]);
    }
    let mut text = format!("\n{}\n", table.text(0));
    if runs.iter().any(|run| run.outcome.is_cut_short) {
        let seconds = REPLAY_TIME_MAX.as_secs();
        text +=
            &format!("A replay was ended after {seconds}s; its figures are of fewer requests.\n\n");
    }
    text += "\
What to try next:
  forebay demo --trace FILE                  your own I/O (vscsiStats, MSR, SSDsim, …)
  forebay run file:/path/disk.raw --ram 1GiB --nbd unix:/tmp/disk.sock
                                             a disk of yours; it prints how to attach
  forebay trace simulate FILE --cache-size 512MiB
                                             what a cache would gain, without any I/O
";
    text
}
