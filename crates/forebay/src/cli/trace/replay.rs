//! The command line of `forebay trace replay`.

use std::path::PathBuf;

use clap::Args;
use forebay_backends::Uri;

use super::TraceInput;
use crate::config::values::Span;

/// `forebay trace replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Replay writes to the target: what was on it is lost where the trace writes. A target that is not known to be
empty (all of it holes or zeroes, and it says so) is refused unless --overwrite consents; a block device
does not say so. A trace that only reads is replayed on anything.

When requests are issued:
  (nothing), --speed X          at the trace's own times, whether or not earlier ones have ended; how late is reported
  --dependent [--speed X]       when those have ended that had ended before it in the trace, after the guest's own time
  --as-fast-as-possible         as soon as fewer than --queue-depth are outstanding
  --dependent --as-fast-as-possible   as --dependent, without the guest's own time
--dependent needs a trace with latencies.

--verify writes sectors that tell their address and version, checks each read against what it may find, and at
the end reads all that was written again. It takes 80 bytes of memory for each 4 KiB page written.

Ctrl-C issues nothing more and reports what was measured; a second one ends at once.

Examples:
  truncate -s 100G /tmp/scratch.raw
  forebay trace replay vm.vscsi --target file:/tmp/scratch.raw --speed 2 --verify
  forebay trace replay vm.fbt --target 'nbd+unix:///?socket=/run/forebay/db.sock&connections=4' \\
      --as-fast-as-possible --queue-depth 32 --duration 60s --json out.json")]
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
    /// Write to a target that holds data, or does not tell whether it does
    #[arg(long)]
    pub overwrite: bool,
    /// Check that reads bring back what was written
    #[arg(long)]
    pub verify: bool,
    /// What to call this run in reports [default: the target]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write the figures to FILE as JSON ('-': to standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
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
    /// Replay the trace so many times in a row
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub passes: u32,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Span>,
    /// Fold addresses beyond the target's end back into it
    #[arg(long)]
    pub wrap: bool,
}
