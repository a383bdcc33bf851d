//! The command line of `forebay disk advise`.

use clap::Args;

use super::ControlArgs;
use crate::cli::trace::{LatencyArgs, PageArg};
use crate::config::values::{Name, Size};

/// `forebay disk advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
What 'forebay trace advise' says of a trace, of a disk in any mode: from its flight recorder, which has its last requests, and
from the latencies that it measured. The disk's miss-ratio curve, of all requests since its start, tells whether the recording is
like the whole; where it is not, more is uncertain.

--keep keeps what is expected of the advised cache, in the state folder of the daemon. Once the disk is configured so and its cache
is full, or has seen as many reads as the advice is from, its reads count, over restarts, and 'disk show' and 'disk advise' tell what
came of it and why. A later --keep begins anew.

Examples:
  forebay disk advise db                                      with the RAM and flash that it has
  forebay disk advise db --ram 4GiB --flash 200GiB
  forebay disk advise db --flash 200GiB --keep
  forebay disk advise db --flash 200GiB --html advice.html
  forebay disk advise db --forget")]
pub struct DiskAdviseArgs {
    /// The disk
    pub disk: Name,
    /// RAM for cached data [default: what the disk has]
    #[arg(long, value_name = "SIZE")]
    pub ram: Option<Size>,
    /// Flash, for cached data and a write log [default: what the disk has]
    #[arg(long, value_name = "SIZE")]
    pub flash: Option<Size>,
    /// Latencies.
    #[command(flatten)]
    pub latencies: LatencyArgs,
    /// Keep what is expected, to hold it against what happens
    #[arg(long)]
    pub keep: bool,
    /// Advise nothing, and forget what was kept
    #[arg(long, conflicts_with_all = ["keep", "ram", "flash", "html"])]
    pub forget: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}
