//! The command line of `forebay trace advise`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args};
use forebay_trace::advise::{Known, Latency};

use super::{PageArg, TraceReading};
use crate::config::values::{Size, Span, ValueError};

/// `forebay trace advise`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["ram", "flash"]).required(true).multiple(true), after_help = "\
Each file is the trace of one disk. Several disks share RAM and flash so that the sum of all \
latencies is least. A disk keeps what it reserves, needed or not, and the others share the rest.

Forebay simulates every cache in blocks of 4 KiB to 64 KiB. It advises the cheapest cache among \
those that are nearly as fast as the fastest. It advises none where reads do not come back, or \
are too many to fit. It gives no advice from less than 100 reads. Latencies come from a model \
(docs/traces/advise.md). Those of primary storage come from the trace, where it has them.

Examples:
  forebay trace advise vm.vscsi --ram 4GiB --flash 200GiB
  forebay trace advise db.fbt web.fbt mail.fbt --ram 64GiB --flash 1TiB \\
      --backend-latency 3ms
  forebay trace advise db.fbt web.fbt --ram 64GiB --flash 1TiB \\
      --reserve-ram db.fbt=16GiB --reserve-flash web.fbt=200GiB
  forebay trace advise rack.blktrace.zst --device 3 --flash 1TiB --json
  forebay trace advise vm.fbt --flash 200GiB --html advice.html")]
pub struct AdviseArgs {
    /// The traces
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to read them.
    #[command(flatten)]
    pub reading: TraceReading,
    /// RAM for cached data, of all disks together [default: none]
    #[arg(long, value_name = "SIZE")]
    pub ram: Option<Size>,
    /// Flash, of all disks together [default: none]
    #[arg(long, value_name = "SIZE")]
    pub flash: Option<Size>,
    /// RAM that the disk of this trace keeps at least; may be given for several disks [default: none]
    #[arg(long, value_name = "FILE=SIZE")]
    pub reserve_ram: Vec<Reservation>,
    /// Flash that the disk of this trace keeps at least, with its write log [default: none]
    #[arg(long, value_name = "FILE=SIZE")]
    pub reserve_flash: Vec<Reservation>,
    /// Latencies.
    #[command(flatten)]
    pub latencies: LatencyArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A report.
    #[command(flatten)]
    pub page: PageArg,
}

/// What a disk keeps of what several share: its trace, as it is given or by its name, and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The trace.
    pub trace: PathBuf,
    /// How much.
    pub bytes: u64,
}

impl FromStr for Reservation {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Reservation, ValueError> {
        let Some((trace, size)) = text.rsplit_once('=').filter(|(trace, _)| !trace.is_empty())
        else {
            let why = format!("'{text}' is no reservation: write FILE=SIZE, such as db.fbt=16GiB");
            return Err(ValueError(why));
        };
        let Size(bytes) = size.parse()?;
        Ok(Reservation { trace: trace.into(), bytes })
    }
}

/// Latencies that are told instead of measured.
#[derive(Debug, Args)]
pub struct LatencyArgs {
    /// Mean latency of a read of primary storage [default: the trace's or the disk's own, else 5ms]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub backend_latency: Option<Span>,
    /// Mean latency of a write to primary storage [default: the trace's or the disk's own, else that of
    /// reads]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub backend_write_latency: Option<Span>,
    /// Mean latency of a hit in RAM [default: the disk's own, else 11us]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub ram_latency: Option<Span>,
    /// Mean latency of a hit on flash [default: the disk's own, else 89us more than a hit in RAM]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub flash_latency: Option<Span>,
    /// Mean latency of a durable write to flash [default: the disk's own, else 83us more than a hit
    /// in RAM]
    #[arg(long, value_name = "TIME", help_heading = "Latencies")]
    pub flash_write_latency: Option<Span>,
}

impl LatencyArgs {
    /// What is told.
    pub fn known(&self) -> Known {
        let of =
            |span: Option<Span>| span.map(|Span(time)| Latency::of_mean(time.as_nanos() as f64));
        Known {
            ram: of(self.ram_latency),
            flash: of(self.flash_latency),
            flash_write: of(self.flash_write_latency),
            backend: of(self.backend_latency),
            backend_write: of(self.backend_write_latency),
        }
    }
}
