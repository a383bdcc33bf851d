//! The command line of `forebay trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use forebay_trace::formats::{Format, TimeUnit};
use forebay_trace::mrc::Sample;
use forebay_trace::policy;
use forebay_trace::simulate::SimulatedPolicy;

use crate::config::values::{GridOffset, Name, Size, Span, Words};

mod advise;
mod replay;
mod simulate;

pub use advise::{AdviseArgs, LatencyArgs, Reservation};
pub use replay::{AbArgs, CompareArgs, How, ReplayArgs};
pub use simulate::{SimulateArgs, WhatIfArgs};

/// The commands on traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the requests of a running disk, or write its latest ones
    Record(RecordArgs),
    /// Show what a cache, or a whole configuration, would have done for a trace
    Simulate(Box<SimulateArgs>),
    /// Replay a trace on a target and measure it
    Replay(ReplayArgs),
    /// Compare the results of replays
    Compare(CompareArgs),
    /// Replay a trace without cache, with a cold and with a warm one
    Ab(AbArgs),
    /// Write a trace in another format
    Convert(ConvertArgs),
    /// Show the requests of a trace in histograms, as vscsiStats counts them
    Histogram(HistogramArgs),
    /// Show which share of a trace's requests a cache of each size would miss
    Mrc(MrcArgs),
    /// Describe a trace: its length, requests, alignment, working set, reuse and hottest regions
    Info(InfoArgs),
    /// Say which cache the disks of traces should have, if any
    Advise(AdviseArgs),
}

/// The trace to read, and how.
#[derive(Debug, Args)]
pub struct TraceInput {
    /// The trace ('-': standard input)
    pub file: PathBuf,
    /// How to read it.
    #[command(flatten)]
    pub reading: TraceReading,
}

/// How to read a trace.
#[derive(Debug, Args)]
pub struct TraceReading {
    /// Format of the trace, for example vscsi1 or blkparse [default: found by its content]
    #[arg(long, visible_alias = "from", value_name = "NAME", help_heading = "Trace",
          value_parser = formats())]
    pub format: Option<Format>,
    /// Unit of the time column of SSDsim, MQSim and DiskSim text: ns, us, ms or s [default: by its look]
    #[arg(long, value_name = "UNIT", help_heading = "Trace", value_parser = time_units())]
    pub time_unit: Option<TimeUnit>,
    /// Bytes that the length column of such text counts [default: 512]
    #[arg(long, value_name = "BYTES", help_heading = "Trace")]
    pub length_unit: Option<u32>,
    /// Only the requests of this device of the trace
    #[arg(long, value_name = "N", help_heading = "Trace")]
    pub device: Option<u32>,
    /// Pass over records that make no sense, instead of ending at the first; with N: over so many at most
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Trace"
    )]
    pub skip_bad: Option<Option<u64>>,
}

/// The formats that are read.
fn formats() -> Words<Format> {
    Words::new(Format::ALL.map(|(_, name)| name))
}

/// Those that are written.
fn written_formats() -> Words<Format> {
    let written = Format::ALL.into_iter().filter(|(format, _)| format.is_written());
    Words::new(written.map(|(_, name)| name))
}

fn time_units() -> Words<TimeUnit> {
    Words::new(TimeUnit::ALL.map(|(_, name)| name))
}

/// The policies that a simulation takes.
fn policies() -> Words<SimulatedPolicy> {
    Words::new(policy::ONLINE.map(|kind| kind.name()).into_iter().chain(["belady"]))
}

/// `forebay trace record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each disk has a flight recorder with its last reads and writes, as many as fit into --recorder \
of 'forebay run'. --last writes those to the file. Without it the command records what comes \
from now on, until --duration or Ctrl-C. It records requests, not data. A disk never waits for a \
recording. If the recording falls behind, it loses requests and counts them.

Examples:
  forebay trace record db --last -o incident.fbt
  forebay trace record db --duration 30m -o db.fbt
  forebay trace record db -o db.vscsi2 --json")]
pub struct RecordArgs {
    /// The disk
    pub disk: Name,
    /// The file to write; until the recording has ended, it is FILE.part
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Record for this time [default: until Ctrl-C]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Span>,
    /// Write what the flight recorder has by now
    #[arg(long, conflicts_with = "duration")]
    pub last: bool,
    /// Format to write [default: by the file's name]
    #[arg(long, value_name = "NAME", value_parser = written_formats())]
    pub to: Option<Format>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon [default: found by the disk's name]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// The page that a command may write.
#[derive(Debug, Args)]
pub struct PageArg {
    /// Write a report to FILE ('-': to standard output): a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `forebay trace convert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Forebay knows the format of a file by its content. The file may be compressed with zstd, gzip or \
xz. It also writes the formats with a +:
  fbt+                     Forebay's own: a few bytes per request, checked
  vscsi1+, vscsi2+         vscsiStats, binary
  vscsi-csv+               vscsiStats -e
  msr+                     MSR Cambridge CSV
  spc                      SPC, UMass repository
  ssdsim, mqsim, disksim   text of five columns
  arc                      the ARC paper's .lis
  blktrace, blkparse       the Linux block layer's
  fio2+, fio3+             fio's I/O log
  alibaba, tencent         block traces of their clouds

The name of the output says its format: .fbt, .vscsi, .vscsi2, .msr, .iolog (fio3), .fio2. With \
.zst, .gz or .xz behind, the output is compressed.

Examples:
  forebay trace convert vm.vscsi vm.fbt
  forebay trace convert --device 1 rack.blkparse.zst disk1.csv.gz \\
      --to vscsi-csv
  ssh host cat vm.vscsi | forebay trace convert - vm.fbt")]
pub struct ConvertArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// The file to write ('-': standard output); it is replaced
    pub output: PathBuf,
    /// Format to write [default: by the file's name]
    #[arg(long, value_name = "NAME", value_parser = written_formats())]
    pub to: Option<Format>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay trace histogram`.
#[derive(Debug, Args)]
#[command(after_help = "\
For each device it prints the sixteen histograms of vscsiStats, of all requests, reads and \
writes:
  - length
  - distance from the request before (1: sequential)
  - distance from the closest of the last 16 requests
  - latency
  - outstanding requests
  - time since the request before

A request that equals the bound of a bucket counts in it.

Examples:
  forebay trace histogram vm.vscsi
  forebay trace histogram rack.blktrace --device 0 --csv > disk0.csv
  forebay trace histogram vm.fbt --html histograms.html")]
pub struct HistogramArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// Print CSV in the layout of 'vscsiStats -p all -c'
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}

/// `forebay trace mrc`.
#[derive(Debug, Args)]
#[command(
    mut_arg("file", |it| it.help("The trace ('-': standard input; a pipe only for LRU)")),
    after_help = "\
A miss ratio counts pieces of 4 KiB, read or written, as 'forebay trace simulate' does. The \
curve of LRU comes from reuse distances. Curves of other policies come from small caches that \
see a sample of the blocks. With --sample exact, each figure is that of 'forebay trace simulate \
--cache-size'.

Examples:
  forebay trace mrc vm.vscsi
  forebay trace mrc vm.fbt --policy lru,auto,belady --block-size 4KiB,64KiB
  forebay trace mrc vm.fbt --cache-size 512MiB,1GiB,2GiB --sample exact --json
  forebay trace mrc vm.fbt --policy lru,auto --html curves.html"
)]
pub struct MrcArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// Eviction policies, as 'forebay trace simulate' has them
    #[arg(long, value_name = "POLICIES", default_value = "lru", value_delimiter = ',',
          value_parser = policies())]
    pub policy: Vec<SimulatedPolicy>,
    /// Cache blocks, powers of two from 512 to 1MiB
    #[arg(long, value_name = "SIZES", default_value = "8KiB", value_delimiter = ',')]
    pub block_size: Vec<Size>,
    /// Sizes of the cache [default: up to what the trace touches]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub cache_size: Vec<Size>,
    /// How much to look at: auto (8192 blocks for LRU, 32768 for others), a share of the blocks such as 0.01, or exact
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub sample: Sample,
    /// Byte offset of the grid of cache blocks, or auto: found from the first requests, as 'forebay run' does
    #[arg(long, value_name = "BYTES", default_value = "auto")]
    pub grid_offset: GridOffset,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}

/// `forebay trace info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay trace info vm.vscsi
  forebay trace info rack.blktrace.zst --device 0 --json
  forebay trace info vm.fbt --html vm.html")]
pub struct InfoArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// Find every reuse distance, in memory that grows with what the trace touches [default: those of 8192 blocks]
    #[arg(long)]
    pub exact: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}
