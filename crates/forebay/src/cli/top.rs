//! `forebay top`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::config::values::Span;

/// Shortest and longest pause between two looks.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];

/// `forebay top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: IOPS, hit ratio and mean latencies of the last interval. GUEST is what guests wait for. \
FLASH is an I/O of cache or write log on flash. PRIMARY is an I/O on primary storage. USED% is \
how full the cache is. DIRTY is what primary storage does not have yet. A wider terminal shows \
more.

Keys: Up, Down, PageUp, PageDown, Home and End select a disk. Enter shows it alone, Esc goes back. \
s sorts by the next column, r reverses the order. / filters by name. q quits.

Without a terminal it prints one table and ends, as with --once.

Examples:
  forebay top
  forebay top --sort primary --interval 5s
  forebay top --once --sort dirty

It finds control sockets as 'forebay stats' does.")]
pub struct TopArgs {
    /// Sort by this column: name, iops, hits, guest, flash, primary, used, dirty or state
    #[arg(long, value_name = "COLUMN", default_value = "iops")]
    pub sort: SortBy,
    /// Pause between two looks, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Span,
    /// Print what the disks do in one interval, and end
    #[arg(long)]
    pub once: bool,
    /// Control socket of the daemon [default: every one in the user's folder]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

fn interval(text: &str) -> Result<Span, String> {
    let interval: Span = text.parse().map_err(|error| format!("{error}"))?;
    match (INTERVALS[0]..=INTERVALS[1]).contains(&interval.0) {
        true => Ok(interval),
        false => Err(format!("{text} is no interval; 100ms to 1h are allowed")),
    }
}

/// What disks are sorted by: the largest first, names in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Name.
    Name,
    /// Requests per second.
    Iops,
    /// Hit ratio.
    Hits,
    /// What the guest waits for.
    Guest,
    /// An I/O on flash.
    Flash,
    /// An I/O on primary storage.
    Primary,
    /// How full the cache is.
    Used,
    /// Dirty bytes.
    Dirty,
    /// Those first that are not as they should be.
    State,
}

impl SortBy {
    /// The next one; after the last one the first.
    pub fn next(self) -> SortBy {
        let all = SortBy::value_variants();
        let place = all.iter().position(|it| *it == self).unwrap_or(0);
        all[(place + 1) % all.len()]
    }
}

impl fmt::Display for SortBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |word| f.write_str(word.get_name()))
    }
}
