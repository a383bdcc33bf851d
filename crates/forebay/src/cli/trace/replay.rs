//! The command lines of `forebay trace replay`, `compare` and `ab`.

use std::path::PathBuf;

use clap::Args;
use forebay_backends::Uri;

use super::{PageArg, TraceInput};
use crate::config::values::{Name, Span};

/// `forebay trace replay`.
#[derive(Debug, Args)]
#[command(
    mut_arg("file", |it| it.help("The trace ('-': standard input, a file redirected and no pipe)")),
    after_help = "\
Replay overwrites data of the target where the trace writes. It refuses a target that may hold \
data, unless you give --overwrite. A target is known to be empty if it reports itself as holes \
or zeroes. A block device does not report that. A trace that only reads is replayed on any \
target.

When requests are issued:
  (nothing), --speed X      at the trace's own times, whether or not earlier
                            ones have ended; how late is reported
  --dependent [--speed X]   when those have ended that had ended before it in
                            the trace, and after the guest's own time between
                            (needs a trace with latencies)
  --as-fast-as-possible     as soon as fewer than --queue-depth are outstanding
  both of these             as --dependent, without the guest's own time

A read of a hole in a sparse file needs no storage, so results of such a file differ from run to \
run. --prefill first writes all that the trace touches, with data that does not compress, and \
flushes it. Without --prefill a warning says how much of the data that is read first is holes.

--verify writes sectors that carry their address and version. It checks each read, and in the \
end reads everything again that it wrote. It takes 80 bytes of memory for each 4 KiB page \
written.

Ctrl-C ends the replay and reports what was measured. A second one ends it at once.

Examples:
  truncate -s 100G /tmp/scratch.raw
  forebay trace replay vm.vscsi --target file:/tmp/scratch.raw --prefill
  forebay trace replay vm.fbt --as-fast-as-possible --queue-depth 32 \\
      --target 'nbd+unix:///?socket=/run/forebay/db.sock&connections=4' \\
      --duration 60s --json out.json --html out.html"
)]
pub struct ReplayArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// URI of the target, as the BACKEND of 'forebay run'
    #[arg(long, value_name = "URI")]
    pub target: Uri,
    /// When, and how much.
    #[command(flatten)]
    pub how: How,
    /// Write to a target that holds data, or may hold data
    #[arg(long)]
    pub overwrite: bool,
    /// Check that reads bring back what was written
    #[arg(long)]
    pub verify: bool,
    /// What to call this run in reports [default: the last part of the target]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write the figures to FILE as JSON ('-': to standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}

/// `forebay trace compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
It compares each replay with the first. An interval (95 %) says where the ratio of two figures \
lies, as far as chance within the replays goes. It comes from a block bootstrap over slices of \
time, because latencies in a row are alike.

Examples:
  forebay trace compare without.json with.json --html report.html
  forebay trace compare ab.json      # the three runs of 'forebay trace ab'")]
pub struct CompareArgs {
    /// Results of 'forebay trace replay --json' or 'forebay trace ab --json'
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}

/// `forebay trace ab`.
#[derive(Debug, Args)]
#[command(
    mut_arg("file", |it| it.help("The trace ('-': standard input, a file redirected and no pipe)")),
    after_help = "\
It replays the same requests three times. First on the backend itself, then through a disk with \
an empty cache, and once more with the cache as it is by then. The disk is as the configuration file \
says, but in front of --backend. It is served to nobody else: listeners and targets of the file \
stay closed. Forebay destages everything between replays, and detaches the disk in the end. Do \
not name a backend that somebody uses.

--prefill writes all that the trace touches before the first replay, so that no replay reads \
holes. If the trace or --prefill writes, it refuses a backend that may hold data, unless you \
give --overwrite. A backend that belongs to another disk is refused in the same way: that disk \
would lose its cache on flash.

Examples:
  forebay trace ab vm.fbt --backend file:/san/scratch.raw --prefill \\
      --config with.toml --html ab.html
  forebay trace ab vm.fbt --backend 'model:san?inner=mem:64GiB' \\
      --config with.toml --disk db --speed 4 --json ab.json"
)]
pub struct AbArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// URI of primary storage
    #[arg(long, value_name = "URI")]
    pub backend: Uri,
    /// Configuration file, as for 'forebay serve'; its disk needs no address
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The disk of the configuration file [default: its only one]
    #[arg(long, value_name = "NAME")]
    pub disk: Option<Name>,
    /// When, and how much.
    #[command(flatten)]
    pub how: How,
    /// Use a backend that holds data, may hold data, or belongs to a disk
    #[arg(long)]
    pub overwrite: bool,
    /// Write the figures to FILE as JSON ('-': to standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}

/// When requests of a replay are issued, and which.
#[derive(Debug, Args)]
pub struct How {
    /// Speed of the replay: 1 as recorded, 2 twice as fast, 0.5 half as fast
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        conflicts_with = "as_fast_as_possible"
    )]
    pub speed: f64,
    /// Ignore the trace's timing: keep a number of I/Os outstanding
    #[arg(long)]
    pub as_fast_as_possible: bool,
    /// A request waits for those that had ended before it in the trace
    #[arg(long)]
    pub dependent: bool,
    /// I/Os outstanding at a time [default: 32 with --as-fast-as-possible]
    #[arg(long, value_name = "N", requires = "as_fast_as_possible", conflicts_with = "dependent")]
    pub queue_depth: Option<u32>,
    /// Number of times to replay the trace in a row
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub passes: u32,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Span>,
    /// Fold addresses beyond the target's end back into it
    #[arg(long)]
    pub wrap: bool,
    /// Write all that the trace touches before the replay begins, so that its reads find data and not holes
    #[arg(long)]
    pub prefill: bool,
}
