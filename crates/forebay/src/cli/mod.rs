//! The command line: what can be typed, as data. What it does is in [`crate::command`].
//!
//! Exit codes: 0 done; 1 it failed, the reason is on standard error; 2 what was typed, here or in the
//! configuration file, cannot work.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::DiskOptions;
use crate::config::iscsi::IscsiOptions;
use crate::config::values::{Name, Reactor, Since};
use crate::messages::reference::Page;
pub use top::{SortBy, TopArgs};

pub mod disk;
pub mod image;
pub mod pool;
pub mod top;
pub mod trace;

/// A host-side storage accelerator: RAM and local flash in front of slow shared storage.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    propagate_version = true,
    hide_possible_values = true,
    after_help = "\
Examples:
  forebay demo      # shows the gain on a modelled SAN, in under two minutes
  forebay run file:/san/db.raw --ram 256MiB --nbd unix:/run/forebay/db.sock
  forebay stats db --watch
  forebay top

Exit codes:
  0  done
  1  failed, the reason is on standard error
  2  the command line or the configuration file is wrong: change it

Sizes: 512, 8KiB, 1.5GiB. Times: 500ms, 30s, 2min. FOREBAY_LOG=debug logs more."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve one disk in the foreground, without a configuration file
    Run(Box<RunArgs>),
    /// Serve several disks as a configuration file says
    Serve(ServeArgs),
    /// Have a running daemon take over what its configuration file says by now
    Reload(ReloadArgs),
    /// Show what a running disk does: hit ratio, latencies, counters, states
    Stats(StatsArgs),
    /// Follow all running disks in a full screen: IOPS, hits, latencies, states
    Top(TopArgs),
    /// Show what happened: events of running disks, newest last
    Events(EventsArgs),
    /// Check whether this host has what Forebay needs, and what to do
    Doctor(DoctorArgs),
    /// Collect what support needs into one file, without data or secrets
    SupportBundle(BundleArgs),
    /// Show and change running disks: state, mode, flush, pause, detach
    #[command(subcommand)]
    Disk(disk::DiskCommand),
    /// Show what was changed while Forebay ran, and write it into the configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look into flash pools: what is in them, and whether they are sound; empty one
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Look at an image that nobody uses, and repair it from its destage journal
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Work with block I/O traces: simulate a cache, replay
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Show the gain: the same I/O without cache, with a cold cache and with a warm one
    Demo(DemoArgs),
    /// Print completions for a shell
    Completion(CompletionArgs),
    /// Print the manual page
    Man,
    /// Print a page of the reference
    #[command(hide = true)]
    Reference(ReferenceArgs),
}

/// `forebay run`.
#[derive(Debug, Args)]
#[command(after_help = "\
BACKEND is primary storage, as a URI:
  file:/san/db.raw                        a file
  block:/dev/sdb                          a block device
  nbd://HOST[:PORT]/EXPORT                an NBD export over TCP
  nbd+unix:///EXPORT?socket=PATH          an NBD export over a unix socket
  mem:1GiB                                memory, for tests
  model:san?iops=900&inner=file:/x        a SAN model over a backend, for tests
  fault:rule=error,op=read&inner=file:/x  faults over a backend, for tests

Examples:
  forebay run file:/san/db.raw --name db --ram 256MiB --flash /nvme/pool:4GiB \\
      --block-size 8KiB --nbd unix:/run/forebay/db.sock
  forebay run 'nbd+unix:///?socket=/run/slow.sock' --ram 1GiB \\
      --nbd 127.0.0.1:10809
  forebay run mem:1GiB --mode pass-through --nbd 127.0.0.1:0
  forebay run file:/san/db.raw --ram 1GiB --iscsi 10.0.0.1:3260
  forebay run file:/san/db.raw --ram 1GiB --vhost-user /run/forebay/db.vhost

It prints 'ready' when clients can attach. SIGTERM, SIGHUP or Ctrl-C ends it in order, within 30 \
seconds: it finishes what is in flight, flushes primary storage and removes the sockets. To end \
it at once, send the same signal again a second or more later, or another one.

The control socket is NAME.control.sock in the user's folder: /run/forebay for root and \
for whom that folder belongs to, $XDG_RUNTIME_DIR/forebay for other users, /tmp/forebay-UID where that is not set. Other commands \
look for it there, or at their own --control PATH. Only the same user and root may use it.

A hypervisor of another user may attach with --nbd 'unix:PATH?mode=0660&group=kvm'.")]
pub struct RunArgs {
    /// URI of primary storage
    pub backend: String,
    /// Name of the disk: its NBD export and its control socket [default: from BACKEND]
    #[arg(long)]
    pub name: Option<Name>,
    /// Settings of the disk.
    #[command(flatten)]
    pub disk: DiskOptions,
    /// The disk as an iSCSI target.
    #[command(flatten)]
    pub iscsi: IscsiOptions,
    /// Settings of the daemon.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Settings of the whole daemon on the command line.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Shard threads, 1 to 64; one disk lives on one shard [default: one per disk, at most one per CPU]
    #[arg(long, value_name = "N", help_heading = "Daemon")]
    pub shards: Option<usize>,
    /// Kernel interface: auto, io_uring or epoll
    #[arg(long, value_name = "KIND", default_value = "auto", help_heading = "Daemon")]
    pub reactor: Reactor,
    /// Control socket [default: NAME.control.sock in the user's folder, see below]
    #[arg(long, value_name = "PATH", help_heading = "Daemon")]
    pub control: Option<PathBuf>,
    /// Folder where Forebay notes which disk a block device or NBD export belongs to [default: /var/lib/forebay for root, $XDG_STATE_HOME/forebay or ~/.local/state/forebay]
    #[arg(long, value_name = "PATH", help_heading = "Daemon")]
    pub state_dir: Option<PathBuf>,
    /// Print the start-up summary as one line of JSON
    #[arg(long, help_heading = "Daemon")]
    pub json: bool,
}

/// `forebay serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example configuration:
  shards = 2

  [[disk]]
  name = \"db\"
  backend = \"file:/san/db.raw\"
  ram = \"256MiB\"
  flash = \"/nvme/pool:4GiB\"
  nbd = [\"unix:/run/forebay/db.sock\"]

  [[nbd]]
  listen = \"127.0.0.1:10809\"      # serves every disk by its name

The keys of [[disk]] are the options of 'forebay run'.

'forebay reload' and SIGHUP take over what the file says by then: disks that are new or gone, modes, \
addresses. Every other disk goes on. An event says what waits for a restart. SIGTERM or Ctrl-C ends it, as 'forebay run'.

Examples:
  forebay serve --config /etc/forebay.toml
  forebay serve --config /etc/forebay.toml --check --json")]
pub struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Check the configuration and what it names (images, flash, sockets, addresses, memory) and exit
    #[arg(long)]
    pub check: bool,
    /// Print the start-up summary, or what --check found, as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
It opens and serves new disks, and detaches those that are not listed any more. It changes settings that \
disks take over at work, opens a disk again for others, and lets clients find disks at new addresses. Every other disk goes on. A disk that has clients stays. The \
rest of the file is in force after a restart; the command names it. SIGHUP does the same. A change by \
command counts more than the file: 'forebay config changes' shows it.

It finds the daemon that has a configuration file among the sockets of the user's folder. With --config it finds the one that \
has this file, there or at the control socket that the file names.

Examples:
  forebay reload --dry-run      # what would change
  forebay reload
  forebay reload --config /etc/forebay/forebay.toml")]
pub struct ReloadArgs {
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The configuration file of the daemon
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    pub config: Option<PathBuf>,
    /// Control socket of the daemon [default: that of the one daemon that has a file]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// The commands of `forebay config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show what was changed while Forebay ran, as the configuration file would say it
    #[command(after_help = "\
Example:
  forebay config changes")]
    Changes(disk::ControlArgs),
    /// Write what was changed while Forebay ran into the configuration file
    Save(SaveArgs),
}

/// `forebay config save`.
#[derive(Debug, Args)]
#[command(after_help = "\
It keeps comments, order, owner and rights of the file. It writes as the user that runs it, who must have the right \
to. Then the daemon reads the file again.

Examples:
  sudo forebay config save
  forebay config save --dry-run | diff /etc/forebay/forebay.toml -")]
pub struct SaveArgs {
    /// Print what the file would be, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: disk::ControlArgs,
}

/// `forebay stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay stats                 # every disk that runs here
  forebay stats db --watch      # one disk, once a second, until q or Ctrl-C
  forebay stats db --history    # minute by minute: why was it slow an hour ago?
  forebay stats db --json | jq .

It looks for control sockets in the user's folder: /run/forebay for root and \
for whom that folder belongs to, $XDG_RUNTIME_DIR/forebay for other users, /tmp/forebay-UID where that is not set. For a daemon \
of another user, or one that was started with --control PATH, give the same --control PATH.")]
pub struct StatsArgs {
    /// The disk [default: all]
    pub disk: Option<Name>,
    /// Show again every second what happened in between, in a full screen where there is a terminal
    #[arg(long)]
    pub watch: bool,
    /// Show what each minute of the last four hours brought, and what requests waited for
    #[arg(long, conflicts_with = "watch")]
    pub history: bool,
    /// Print JSON, one line each time
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon [default: found by the disk's name in the user's folder, see below]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// `forebay events`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay events db --json
  forebay events --since 2h
  forebay events --follow --since 2026-01-31T12:00:00Z    # until Ctrl-C

Events of earlier runs are in it: a daemon keeps them in NAME.events of its state folder. A \
warning or an error that comes again within a minute is one event with a count. When no daemon \
answers, this command shows the events that the state folder has.

It finds control sockets as 'forebay stats' does.")]
pub struct EventsArgs {
    /// The disk [default: all]
    pub disk: Option<Name>,
    /// Only events since then: a time ago, such as 30min or 2h, or a time in UTC
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Show what happens from now on as well, until Ctrl-C, also when the daemon restarts
    #[arg(long)]
    pub follow: bool,
    /// Print JSON, one line per event
    #[arg(long)]
    pub json: bool,
    /// State folder whose events are shown when no daemon answers [default: as 'forebay run']
    #[arg(long, value_name = "PATH")]
    pub state_dir: Option<PathBuf>,
    /// Control socket of the daemon [default: found by the disk's name in the user's folder, see below]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// `forebay doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is ok, warning or BAD. The exit code is 1 when a check is BAD. To time the flushes of a \
pool that is a file, it writes a small file without a name beside it.

Limits are those of the daemon, when it runs, and else those of the shell.

Examples:
  forebay doctor
  forebay doctor --config /etc/forebay/forebay.toml
  forebay doctor --json")]
pub struct DoctorArgs {
    /// Check what this configuration file names, too
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay support-bundle`.
#[derive(Debug, Args)]
#[command(after_help = "\
It holds versions, what 'forebay doctor' found, the configuration without comments and secrets, and \
of each daemon that answers: its disks, statistics, events and limits. It holds no data of a guest. \
Names of disks, paths and addresses are in it: look into it before you give it away.

Examples:
  forebay support-bundle
  forebay support-bundle --config /etc/db.toml --output /tmp/db.tar.gz")]
pub struct BundleArgs {
    /// The file to write [default: forebay-support-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The configuration file [default: /etc/forebay/forebay.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Control socket of the daemon [default: all in the user's folder]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// `forebay demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
It makes a disk image behind a modelled SAN, in a temporary folder. The SAN is five 15,000 rpm \
disks in RAID 5. It replays the same I/O on the image three times, through NBD: a stretch of a \
PostgreSQL server's trace, which Forebay carries, or of your trace. It needs about 1 GiB of RAM. \
It removes what it made.

Examples:
  forebay demo
  forebay demo --trace vm.vscsi")]
pub struct DemoArgs {
    /// Replay a stretch of this trace, scaled in time, instead of PostgreSQL's
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Requests to replay, 250 a second [default: 6250]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub requests: Option<u64>,
    /// Also write the figures to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A report.
    #[command(flatten)]
    pub page: trace::PageArg,
}

/// `forebay completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  forebay completion bash > /etc/bash_completion.d/forebay")]
pub struct CompletionArgs {
    /// The shell: bash, elvish, fish, powershell or zsh
    pub shell: clap_complete::Shell,
}

/// `forebay reference`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  forebay reference schema > configuration.schema.json")]
pub struct ReferenceArgs {
    /// The page: cli, configuration, schema, statistics, metrics, states, events or errors
    pub page: Page,
}

#[cfg(test)]
mod tests;
