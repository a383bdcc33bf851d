//! `forebay disk` and `forebay pool`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

mod advise;

pub use advise::DiskAdviseArgs;

use crate::config::values::{Mode, Name, Size, Span};

/// The commands of `forebay disk`.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Name the disks that run here
    List(ListArgs),
    /// Show how a disk is: mode, dirty data, destaging, write log, state
    Show(NamedArgs),
    /// Show what a disk is asked, as vscsiStats counts it: sixteen histograms
    Histogram(HistogramArgs),
    /// Show which share of its uses a cache of each size would miss, from what the disk was asked so far
    Mrc(MrcArgs),
    /// Say which cache the disk should have, from what it was asked lately, and hold it to that
    Advise(DiskAdviseArgs),
    /// Wait until everything written so far is on primary storage
    #[command(after_help = "\
The disk destages by itself; this waits for it and shows how far it is, on standard error: a bar on a terminal, else a line
every ten seconds. In a mode without log primary storage is flushed. Ctrl-C or --timeout end the waiting, nothing else.

Examples:
  forebay disk flush db
  forebay disk flush db --timeout 5m --json")]
    Flush(FlushArgs),
    /// Change settings of a running disk
    Set(SetArgs),
    /// Destage nothing until resumed; writes go on until the write log is full
    Pause(NamedArgs),
    /// Go on with destaging
    Resume(NamedArgs),
    /// Drop what is cached in RAM and on flash, with the guest at work
    #[command(after_help = "\
What is dirty stays in the write log. Use it when somebody else has changed primary storage while the disk is served, or to
measure with a cold cache.

Example:
  forebay disk drop-cache db")]
    DropCache(NamedArgs),
    /// Let the disk have the size that primary storage has by now, with the guest at work
    #[command(after_help = "\
Make primary storage longer first (truncate -s, qemu-img resize, lvextend; an NBD server has to be
connected to again, which a restart of it does), then this. What is cached stays. Virtual machines
over vhost-user and iSCSI initiators are told; NBD clients see the new size when they connect again.
A disk does not become shorter.

Example:
  truncate -s +10G /san/db.raw && forebay disk resize db")]
    Resize(NamedArgs),
    /// Destage everything, then serve the disk no more and forget it
    #[command(after_help = "\
No client may be attached, nor attach meanwhile. Primary storage has everything then, and the pool knows nothing of the disk;
when that is not so in the end, the command fails and says what is left where.

Ctrl-C ends this command, not the detach. A disk that is being detached goes back into service with 'forebay disk resume', or
when its mode is set or its destaging paused.

Example:
  forebay disk detach db")]
    Detach(NamedArgs),
    /// Decide about the write log of a disk that was refused: use it, or discard it
    #[command(after_help = "\
A disk is refused when primary storage was changed while its write log holds data, or when part of
the log is gone. Look at both sides, copy them, and decide. Without a choice nothing is changed.

While the daemon that refused the disk serves others, it decides, and serves the disk at once. When
no daemon has the pool, --pool says where that is, and the disk can be started then.

Examples:
  forebay disk resolve db
  forebay disk resolve db --use-log
  forebay disk resolve db --discard-log 1.3GiB
  forebay disk resolve db --pool /nvme/pool --use-log
  forebay disk resolve db --pool /nvme/pool --discard-reservations")]
    Resolve(ResolveArgs),
    /// Try again to serve a disk that was refused, once what was wrong is put right
    #[command(after_help = "\
For a disk that 'disk list' shows as NOT SERVED because another process used its primary storage, for instance. One whose write
log was refused needs 'disk resolve'. A disk that is served, but not everywhere, because a socket could not be had, gets what is
missing. The other disks of the daemon are not disturbed.

Example:
  forebay disk open db")]
    Open(NamedArgs),
}

/// Options of all of them.
#[derive(Debug, Args)]
pub struct ControlArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon [default: found by the disk's name]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// `forebay disk list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  forebay disk list")]
pub struct ListArgs {
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// A command about one disk.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay disk show db
  forebay disk show db --json | jq .log
  forebay disk pause db")]
pub struct NamedArgs {
    /// The disk
    pub disk: Name,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk histogram`.
#[derive(Debug, Args)]
#[command(after_help = "\
They are counted from --start to --stop, since that costs each request some time; --reset begins anew. What they count is what
'forebay trace histogram' counts in a recording of the same requests, and so are --csv and --json. For requests of before
--start: 'forebay trace record DISK --last', then 'forebay trace histogram'.

Examples:
  forebay disk histogram db --start
  forebay disk histogram db
  forebay disk histogram db --csv > db.csv
  forebay disk histogram db --stop")]
pub struct HistogramArgs {
    /// The disk
    pub disk: Name,
    /// Begin to count
    #[arg(long, group = "change")]
    pub start: bool,
    /// Begin to count anew
    #[arg(long, group = "change")]
    pub reset: bool,
    /// Count no more, and forget what was counted
    #[arg(long, group = "change")]
    pub stop: bool,
    /// Print CSV in the layout of 'vscsiStats -p all -c'
    #[arg(long, conflicts_with_all = ["json", "change"])]
    pub csv: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk mrc`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each disk keeps a miss-ratio curve of LRU, in every mode, from a sample of its blocks in 1 MiB of memory: what 'forebay
trace mrc --block-size' that of the disk finds in a recording of all requests since the start. 'disk show' has it in short.

Examples:
  forebay disk mrc db
  forebay disk mrc db --cache-size 1GiB,2GiB,4GiB --json")]
pub struct MrcArgs {
    /// The disk
    pub disk: Name,
    /// Sizes of the cache [default: up to what the disk touched]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub cache_size: Vec<Size>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk flush`.
#[derive(Debug, Args)]
pub struct FlushArgs {
    /// The disk
    pub disk: Name,
    /// Wait no longer than this; the exit code is 1 then [default: as long as it takes]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk set`.
#[derive(Debug, Args)]
#[command(after_help = "\
A change from write-back drains the log first, with the guest at work; 'disk show' tells how far it is. If destaging is
paused, it goes on. The next start has the mode of its command line or file again.

Examples:
  forebay disk set db --mode write-through
  forebay disk set db --mode write-back")]
pub struct SetArgs {
    /// The disk
    pub disk: Name,
    /// Use of the cache
    #[arg(long)]
    pub mode: Mode,
    /// Wait until the disk is in that mode, as 'disk flush' does
    #[arg(long)]
    pub wait: bool,
    /// With --wait: no longer than this; the exit code is 1 then [default: as long as it takes]
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Span>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk resolve`.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// The disk
    pub disk: Name,
    /// The flash that has its write log, the path of --flash [default: the daemon that refused the disk is asked]
    #[arg(long, value_name = "PATH")]
    pub pool: Option<PathBuf>,
    /// Take primary storage as it is, and let the log, as far as it goes, be written over it
    #[arg(long, conflicts_with = "discard_log")]
    pub use_log: bool,
    /// Give up what is in the log: AMOUNT is how much, as it is shown
    #[arg(long, value_name = "AMOUNT")]
    pub discard_log: Option<String>,
    /// Give up the persistent reservations of SCSI initiators that are stored for it
    #[arg(long, conflicts_with_all = ["use_log", "discard_log"])]
    pub discard_reservations: bool,
    /// The state folder of its daemon, with --pool [default: as 'forebay run']
    #[arg(long, value_name = "PATH", requires = "pool")]
    pub state_dir: Option<PathBuf>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// The commands of `forebay pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show what is in a flash pool, in use or not: disks, dirty data, generations, health
    Show(PoolShowArgs),
    /// Verify all checksums of a flash pool that nobody uses
    Check(PoolArgs),
}

/// `forebay pool show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed. A pool that nobody uses is read; while a daemon uses it, that one is asked: its control socket is looked for
as by 'forebay stats', or is at --control.

Examples:
  forebay pool show /nvme/pool
  forebay pool show /nvme/pool --json | jq .disks[].dirty_bytes")]
pub struct PoolShowArgs {
    /// The file or block device
    pub path: PathBuf,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay pool check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed. Stop the daemon that uses the pool first; 'forebay pool show' works meanwhile.

Example:
  forebay pool check /nvme/pool")]
pub struct PoolArgs {
    /// The file or block device
    pub path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
