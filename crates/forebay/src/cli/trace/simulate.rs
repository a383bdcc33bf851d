//! The command line of `forebay trace simulate`.

use clap::{ArgGroup, Args};
use forebay_backends::model::ModelConfig;
use forebay_trace::simulate::SimulatedPolicy;

use super::{PageArg, TraceInput, policies};
use crate::config::values::{
    Admission, Barrier, Bypass, DestageOrder, DriveWrites, Endurance, FlashSize, GridOffset, Mode,
    Size, Span, Switch,
};

/// `forebay trace simulate`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").args(["cache_size", "ram", "flash", "mode"]).required(true).multiple(true),
    after_help = "\
With --cache-size it counts what one cache of that size would have hit, without write modes or \
time. It counts as published figures do: a write of 512 bytes makes all of its 4 KiB valid. The \
engine fetches the rest only when that pays, and may hit less (docs/traces/simulate.md).

With --mode, --ram or --flash it runs the engine itself, as 'forebay run' with these options, \
over modelled devices in virtual time. It shows:
  - where reads are answered from
  - latencies with and without Forebay
  - what primary storage does
  - how full the write log gets
  - what is written to flash

'forebay run' takes the policies auto, s3fifo, lru and fifo. The others are for comparison. \
Requests come on the trace's clock. Without times, or with --queue-depth, a number of them is \
outstanding. Primary storage has the latency of --backend-latency, or that of the trace, and \
takes any number of requests at a time. '--backend model:san' is an array of five disks. \
'model:san?latency=3ms&iops=5000' is a device with a limit.

'forebay trace convert --help' lists the formats of traces.

Examples:
  forebay trace simulate vm.vscsi --cache-size 512MiB --policy lru --json
  forebay trace simulate vm.vscsi --ram 1GiB --flash 8GiB --html vm.html
  forebay trace simulate vm.fbt --mode write-back --flash 8GiB \\
      --write-log 1GiB --destage-order window --flash-endurance 600TB \\
      --backend 'model:san?latency=3ms&iops=5000'",
    mut_arg("file", |it| it.help("The trace ('-': standard input; a pipe only with --cache-size)"))
)]
pub struct SimulateArgs {
    /// The trace.
    #[command(flatten)]
    pub input: TraceInput,
    /// Size of a cache whose hits are counted, and nothing else
    #[arg(long, value_name = "SIZE", conflicts_with = "html")]
    pub cache_size: Option<Size>,
    /// Cache block, a power of two from 4KiB to 1MiB; 'forebay run' has the same default
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    pub block_size: Size,
    /// Eviction policy: auto, s3fifo, lru, fifo, clock, sieve, arc, lirs, wtinylfu, or with --cache-size belady (the offline optimum)
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policies())]
    pub policy: SimulatedPolicy,
    /// Byte offset of the grid of cache blocks, or auto: found from the first requests, as 'forebay run' does
    #[arg(long, value_name = "BYTES", default_value = "auto")]
    pub grid_offset: GridOffset,
    /// A whole configuration.
    #[command(flatten)]
    pub what_if: WhatIfArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A report, of a whole configuration.
    #[command(flatten)]
    pub page: PageArg,
}

/// A whole configuration, and what it is tried on.
#[derive(Debug, Args)]
#[group(id = "whole", conflicts_with = "cache_size")]
pub struct WhatIfArgs {
    /// Use of the cache, as of 'forebay run' [default: write-through]
    #[arg(long, value_name = "MODE", help_heading = "Configuration")]
    pub mode: Option<Mode>,
    /// RAM for cached data; 0 for none [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Configuration")]
    pub ram: Option<Size>,
    /// Flash for cached data and the write log: SIZE, or PATH:SIZE as for 'forebay run' [default: none]
    #[arg(long, value_name = "SIZE", help_heading = "Configuration")]
    pub flash: Option<FlashSize>,
    /// Part of the flash for the write log [default: a quarter, in write-back and write-only]
    #[arg(long, value_name = "SIZE", help_heading = "Configuration")]
    pub write_log: Option<Size>,
    /// Order of destaging: strict, journaled, window or throughput [default: journaled]
    #[arg(long, value_name = "ORDER", help_heading = "Configuration")]
    pub destage_order: Option<DestageOrder>,
    /// Flush primary storage between flush epochs (flush) or not (none) [default: none]
    #[arg(long, value_name = "flush|none", help_heading = "Configuration")]
    pub destage_barrier: Option<Barrier>,
    /// Most bytes per second that are destaged; 0 for no limit [default: 0]
    #[arg(long, value_name = "SIZE", help_heading = "Configuration")]
    pub max_destage_rate: Option<Size>,
    /// Blocks that go to flash: always, or by history (when flash is full, only those used again) [default: always]
    #[arg(long, value_name = "WHICH", help_heading = "Configuration")]
    pub flash_admission: Option<Admission>,
    /// Drive writes per day that the flash may take: as they run short, fewer new blocks go there; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", help_heading = "Configuration")]
    pub flash_dwpd: Option<DriveWrites>,
    /// Sequential streams that are not cached: auto (those that do not come back in time), those longer than SIZE, or off [default: auto]
    #[arg(long, value_name = "auto|SIZE|off", help_heading = "Configuration")]
    pub bypass_sequential: Option<Bypass>,
    /// Writes are durable when they are answered (off), or after a flush (on); no trace has flushes
    /// [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Configuration")]
    pub write_cache: Option<Switch>,
    /// Requests that are outstanding at a time, instead of the trace's clock [default: 32 without times]
    #[arg(long, value_name = "N", help_heading = "Configuration",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queue_depth: Option<u32>,
    /// Primary storage: model:san, with options as of 'forebay run' but without inner
    #[arg(long, value_name = "MODEL", help_heading = "Devices",
          conflicts_with_all = ["backend_latency", "backend_write_latency"])]
    pub backend: Option<ModelConfig>,
    /// Mean latency of a read of primary storage [default: the trace's own, else 5ms]
    #[arg(long, value_name = "TIME", help_heading = "Devices")]
    pub backend_latency: Option<Span>,
    /// Mean latency of a write to primary storage [default: the trace's own, else that of reads]
    #[arg(long, value_name = "TIME", help_heading = "Devices")]
    pub backend_write_latency: Option<Span>,
    /// Latency of a hit in RAM, which every request takes besides its I/Os [default: 11us, as measured]
    #[arg(long, value_name = "TIME", help_heading = "Devices")]
    pub ram_latency: Option<Span>,
    /// Mean latency of a hit on flash [default: 89us more than a hit in RAM]
    #[arg(long, value_name = "TIME", help_heading = "Devices")]
    pub flash_latency: Option<Span>,
    /// Mean latency of a durable write to flash [default: 83us more than a hit in RAM]
    #[arg(long, value_name = "TIME", help_heading = "Devices")]
    pub flash_write_latency: Option<Span>,
    /// Bytes that the flash takes in its life, as its data sheet says, such as 600TB; the report then says how long it lasts
    #[arg(long, value_name = "TBW", help_heading = "Devices")]
    pub flash_endurance: Option<Endurance>,
}
