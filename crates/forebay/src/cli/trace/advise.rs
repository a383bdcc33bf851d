//! The command line of `forebay trace advise`.

use std::path::PathBuf;

use clap::Args;

use super::TraceReading;
use crate::config::values::{Size, Span};

/// `forebay trace advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each file is the trace of one disk; several disks share what there is. Every cache is simulated in blocks of 4 KiB to 64 KiB,
and of those that are nearly as fast as the fastest the cheapest is advised: for reads that are not read again, or too many to
fit, none. Latencies come from a model (docs/traces.md): those of primary storage from the trace, where it has them.

Examples:
  forebay trace advise vm.vscsi --ram 4GiB --flash 200GiB
  forebay trace advise db.fbt web.fbt mail.fbt --ram 64GiB --flash 1TiB --backend-latency 3ms
  forebay trace advise rack.blktrace.zst --device 3 --flash 1TiB --json")]
pub struct AdviseArgs {
    /// The traces
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to read them.
    #[command(flatten)]
    pub reading: TraceReading,
    /// RAM for cached data, of all disks together [default: none]
    #[arg(long, value_name = "SIZE", required_unless_present = "flash")]
    pub ram: Option<Size>,
    /// Flash, of all disks together [default: none]
    #[arg(long, value_name = "SIZE")]
    pub flash: Option<Size>,
    /// Mean latency of a read of primary storage [default: the trace's own, else 5ms]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub backend_latency: Option<Span>,
    /// Mean latency of a write to primary storage [default: the trace's own, else that of reads]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub backend_write_latency: Option<Span>,
    /// Mean latency of a hit in RAM [default: 11us, as measured]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub ram_latency: Option<Span>,
    /// Mean latency of a hit on flash [default: 100us]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub flash_latency: Option<Span>,
    /// Mean latency of a durable write to flash [default: 94us, as measured]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub flash_write_latency: Option<Span>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
