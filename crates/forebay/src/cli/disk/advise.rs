//! The command line of `forebay disk advise`.

use clap::Args;

use super::ControlArgs;
use crate::cli::trace::{LatencyArgs, PageArg};
use crate::config::values::{Name, Size};

/// `forebay disk advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
It gives the advice of 'forebay trace advise' for a disk in any mode. It reads the disk's flight \
recorder, which has the last requests, and the latencies that the disk measured. The miss-ratio \
curve of all requests since the start says whether those are typical. If they are not, the \
advice is less certain.

With --keep the daemon keeps in its state folder what the advised cache should do. Configure the \
disk as advised. Its reads count as soon as the cache is full, or has seen as many reads as the \
advice is from. They count over restarts. 'forebay disk show' and 'forebay disk advise' say what \
came of the advice, and why. A later --keep begins anew.

Examples:
  forebay disk advise db      # with the RAM and flash that it has
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
    /// Keep what is expected, to compare it with what happens
    #[arg(long)]
    pub keep: bool,
    /// Give no advice, and forget the kept one
    #[arg(long, conflicts_with_all = ["keep", "ram", "flash", "html"])]
    pub forget: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}
