//! `forebay disk`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

mod advise;

pub use advise::DiskAdviseArgs;

use crate::config::DiskOptions;
use crate::config::values::{Name, Size, Span};

/// The commands of `forebay disk`.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Name the disks that run here
    List(ListArgs),
    /// Show how a disk is: mode, dirty data, destaging, write log, state
    #[command(after_help = "\
With --origin, the command shows each setting: what is in force, and what waits for a restart. It also says where the \
setting comes from: a default, the configuration file, the command line, or a change by command.

Examples:
  forebay disk show db
  forebay disk show db --origin
  forebay disk show db --json | jq .log")]
    Show(ShowArgs),
    /// Show the requests of a disk in sixteen histograms, as vscsiStats counts them
    Histogram(HistogramArgs),
    /// Show which share of the requests so far a cache of each size would miss
    Mrc(MrcArgs),
    /// Say which cache the disk should have, from its latest requests, and check later what came of it
    Advise(DiskAdviseArgs),
    /// Wait until everything written so far is on primary storage
    #[command(after_help = "\
The disk destages by itself. This command waits for it and shows on standard error how far it \
is: a bar on a terminal, else a line every ten seconds. In a mode without log it flushes primary \
storage. Ctrl-C and --timeout end the waiting, nothing else.

Examples:
  forebay disk flush db
  forebay disk flush db --timeout 5m --json")]
    Flush(FlushArgs),
    /// Change settings of a running disk, with the guest at work
    Set(Box<SetArgs>),
    /// Take changes of a disk back: it is as the configuration file says
    Reset(ResetArgs),
    /// Add a disk to a running daemon, and serve it
    Add(Box<AddArgs>),
    /// Destage everything, end the disk, and serve it no more after a restart either
    #[command(after_help = "\
First detach every client. Primary storage has everything afterwards. 'forebay disk detach' ends a \
disk until the next start. 'forebay disk reset' brings a disk of the configuration file back.

Ctrl-C ends this command, and the detach goes on.

Example:
  forebay disk remove db")]
    Remove(EndArgs),
    /// Pause destaging; writes go on until the write log is full
    #[command(after_help = "\
Example:
  forebay disk pause db")]
    Pause(NamedArgs),
    /// Go on with destaging, or cancel a detach
    #[command(after_help = "\
Example:
  forebay disk resume db")]
    Resume(NamedArgs),
    /// Hold destaging, so that a snapshot of primary storage is a whole image
    #[command(after_help = "\
The disk finishes what it is writing to primary storage, flushes it and begins nothing new. Then \
primary storage alone is a crash-consistent image, as old as this command says: no file system \
on it needs a destage journal or the write log. The guest goes on; its writes wait only when \
the log is full. Destaging goes on when the time is over, or with --end.

--end fails when primary storage did not stand still until then: the time was over, the mode \
changed, or the write log failed. Then take the snapshot again. One command at a time holds \
destaging. Each hold has a number. --end --hold NUMBER ends no other.

Examples:
  forebay disk quiesce db
  forebay disk quiesce db --for 2m && take-the-snapshot &&
    forebay disk quiesce db --end")]
    Quiesce(QuiesceArgs),
    /// Empty the cache in RAM and on flash, with the guest at work
    #[command(after_help = "\
Dirty data stay in the write log. Use it when somebody else changed primary storage while the \
disk was served, or to measure with a cold cache.

Example:
  forebay disk drop-cache db")]
    DropCache(NamedArgs),
    /// Grow the disk to the size of primary storage, with the guest at work
    #[command(after_help = "\
First make primary storage longer: 'truncate -s', 'qemu-img resize' or 'lvextend'. Restart an \
NBD server, because Forebay sees its new size when it connects again. The cache stays. Virtual \
machines over vhost-user and iSCSI initiators see the new size at once. NBD clients see it when \
they connect again. A disk cannot become shorter.

Example:
  truncate -s +10G /san/db.raw && forebay disk resize db")]
    Resize(NamedArgs),
    /// Move a disk to another shard thread, with the guest at work
    #[command(after_help = "\
A shard is a thread that serves some of the disks. It uses one CPU at most. Move a disk away when \
its shard is busy and another one is not. 'forebay top' shows how busy the busiest shard is. On a \
terminal of 126 columns it shows the shard of each disk, too.

Clients wait for a moment and get no error. The write log and the cache on flash stay. Over an \
export or a block device the cache stays with 'backend-exclusive' alone, as over a restart. The cache \
in RAM and the flight recorder begin empty. Disks of one iSCSI target go together. At the next start Forebay spreads the \
disks again.

Examples:
  forebay disk move-shard db
  forebay disk move-shard db --to 1 --json")]
    MoveShard(MoveShardArgs),
    /// Destage everything, then end the disk and remove it from its pool
    #[command(after_help = "\
First detach every client. None may attach meanwhile. Afterwards primary storage has everything, \
and the pool knows nothing of the disk. If that fails, the command says what is left, and where. \
'forebay disk open' or a restart has the disk served again. 'forebay disk remove' forgets it.

Ctrl-C ends this command, and the detach goes on. 'forebay disk resume' cancels it. So does a \
change of mode, or a pause of destaging.

Example:
  forebay disk detach db")]
    Detach(EndArgs),
    /// Decide about the write log of a refused disk: use it, or discard it
    #[command(after_help = "\
Forebay refuses a disk when primary storage changed while its write log holds data, or when part \
of the log is gone. Look at both sides, copy them, and decide. Without a choice this command \
only shows both sides.

A daemon that still runs carries out the choice, and serves the disk at once. When no daemon \
uses the pool, say with --pool where the pool is. Then start the disk.

Examples:
  forebay disk resolve db
  forebay disk resolve db --use-log
  forebay disk resolve db --discard-log 1.3GiB
  forebay disk resolve db --pool /nvme/pool --use-log
  forebay disk resolve db --pool /nvme/pool --discard-reservations")]
    Resolve(ResolveArgs),
    /// Try again to serve a disk that was refused
    #[command(after_help = "\
Use it for a disk that 'forebay disk list' shows as NOT SERVED, when its trouble is over: \
another process used its primary storage, for instance. A disk with a refused write log needs \
'forebay disk resolve'. A disk that is served, but not at all of its addresses, gets the missing \
ones. One that was detached is served again. Other disks of the daemon go on.

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
pub struct NamedArgs {
    /// The disk
    pub disk: Name,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// A command that ends a disk.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// The disk
    pub disk: Name,
    /// End it although its image was removed, replaced, renamed or cut short (what is open may be the last copy), it cannot be opened again, or a hypervisor is connected that does not use it now
    #[arg(long)]
    pub force: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk histogram`.
#[derive(Debug, Args)]
#[command(after_help = "\
Forebay counts from --start to --stop, because counting costs each request some time. --reset \
begins anew. The figures are those of 'forebay trace histogram' for a recording of the same \
requests. For requests before --start, use 'forebay trace record DISK --last', then 'forebay \
trace histogram'.

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
Each disk keeps a miss-ratio curve of LRU, in every mode. It comes from a sample of the blocks, \
in 1 MiB of memory. It is what 'forebay trace mrc' finds in a recording of all requests since \
the start, with the block size of the disk. 'forebay disk show' has it in short.

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
    /// Wait no longer than this; then the exit code is 1 [default: as long as it takes]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk move-shard`.
#[derive(Debug, Args)]
pub struct MoveShardArgs {
    /// The disk
    pub disk: Name,
    /// The shard, counted from 0 [default: the one that is least busy, of the others]
    #[arg(long, value_name = "SHARD")]
    pub to: Option<usize>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk quiesce`.
#[derive(Debug, Args)]
pub struct QuiesceArgs {
    /// The disk
    pub disk: Name,
    /// Hold destaging for so long, 10m at most
    #[arg(long = "for", value_name = "TIME", default_value = "30s", conflicts_with = "end")]
    pub span: Span,
    /// Wait no longer than this until primary storage stands still; then the exit code is 1
    #[arg(long, value_name = "TIME", default_value = "30s", conflicts_with = "end")]
    pub timeout: Span,
    /// Go on with destaging
    #[arg(long)]
    pub end: bool,
    /// With --end: end this hold, as the command that began it says, and no other
    #[arg(long, value_name = "NUMBER", requires = "end")]
    pub hold: Option<u64>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The disk
    pub disk: Name,
    /// Show the settings, and where each comes from
    #[arg(long)]
    pub origin: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk set`.
#[derive(Debug, Args)]
#[command(after_help = "\
The options are those of 'forebay run'. A change is kept in the state folder, counts more than the configuration \
file, and is in force after a restart. 'forebay config save' writes it into the file, 'forebay disk reset' \
takes it back. A daemon of 'forebay run' keeps it until it ends.

For another block size, flash or write log, and some more, the disk is opened again beneath its clients. They wait for some \
tenths of a second, and RAM begins empty. --dry-run says when that is so, and what is dropped. The command says which \
settings wait for a restart. A change from write-back first \
drains the log, with the guest at work. 'forebay disk show' says how far it is. If destaging is paused, it goes on.

Examples:
  forebay disk set db --mode write-back
  forebay disk set db --mode write-through --wait --timeout 10m
  forebay disk set db --block-size 16KiB --dry-run
  forebay disk set db --flash /dev/nvme1n1:64GiB      # to another device")]
pub struct SetArgs {
    /// The disk
    pub disk: Name,
    /// What it is to be.
    #[command(flatten)]
    pub settings: DiskOptions,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// With --mode: wait until the disk is in that mode, as 'disk flush' does
    #[arg(long, requires = "mode", conflicts_with = "dry_run")]
    pub wait: bool,
    /// With --wait: no longer than this; then the exit code is 1 [default: as long as it takes]
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Span>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk reset`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without KEYS it takes back everything that was changed of the disk, its removal as well.

Examples:
  forebay disk reset db
  forebay disk reset db policy max-destage-rate --dry-run")]
pub struct ResetArgs {
    /// The disk
    pub disk: Name,
    /// Settings, by their keys in the configuration file [default: all that were changed]
    pub keys: Vec<String>,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk add`.
#[derive(Debug, Args)]
#[command(after_help = "\
The options are those of 'forebay run'. The disk is opened and served. If that fails, nothing is changed. It is kept \
in the state folder, and is served after a restart. 'forebay config save' writes it into the configuration file.

Clients find it at its own addresses, at each [[nbd]] and [[iscsi]] that has all disks.

Examples:
  forebay disk add web file:/san/web.raw --nbd unix:/run/forebay/web.sock
  forebay disk add web file:/san/web.raw --flash /nvme/pool:8GiB --dry-run")]
pub struct AddArgs {
    /// Name of the disk
    pub disk: Name,
    /// URI of primary storage, as for 'forebay run'
    pub backend: String,
    /// What it is to be.
    #[command(flatten)]
    pub settings: DiskOptions,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay disk resolve`.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// The disk
    pub disk: Name,
    /// The flash that has its write log, as in --flash [default: the daemon that refused the disk knows it]
    #[arg(long, value_name = "PATH")]
    pub pool: Option<PathBuf>,
    /// Use the log: Forebay writes what it holds over primary storage
    #[arg(long, conflicts_with = "discard_log")]
    pub use_log: bool,
    /// Give up what is in the log; AMOUNT is how much, as this command shows it
    #[arg(long, value_name = "AMOUNT")]
    pub discard_log: Option<String>,
    /// Give up the persistent reservations of SCSI initiators that the pool stores for the disk
    #[arg(long, conflicts_with_all = ["use_log", "discard_log"])]
    pub discard_reservations: bool,
    /// The state folder of its daemon, with --pool [default: as 'forebay run']
    #[arg(long, value_name = "PATH", requires = "pool")]
    pub state_dir: Option<PathBuf>,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}
