//! `forebay image`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands of `forebay image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Say whether an image that nobody uses is whole, and how old it is
    #[command(after_help = "\
It changes nothing. It needs the folder of the image, and neither flash nor a daemon. It fails if \
the image is torn: then a window of '--destage-order journaled' was in place in part when the \
host died, and 'forebay image repair' puts the rest in place. It also fails if no sidecar says that \
--journal names the journal of the image.

Example:
  forebay image check /san/db.raw")]
    Check(ImageArgs),
    /// Put in place what the destage journal of an image has
    #[command(after_help = "\
Use it when the host or its flash is gone. If the disk can start with its flash, let it start: a \
start does the same. Without its flash the image is as old as this command says. To do it twice \
does no harm.

It refuses an image that was written much earlier or later than its journal, such as one from a \
backup. It refuses a copy of an image whose journal is not beside it, and a journal that no sidecar \
names. --force skips these checks.

Examples:
  forebay image repair /san/db.raw
  forebay image repair nbd://san/db --journal nbd://san/db-journal")]
    Repair(RepairArgs),
}

/// `forebay image check`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// The image: a file, or a URI as for 'forebay run'
    pub image: String,
    /// The destage journal, a file or a URI [default: where the sidecar of the image says]
    #[arg(long, value_name = "URI")]
    pub journal: Option<String>,
    /// The state folder, which has the sidecars of block devices and NBD exports [default: as 'forebay run']
    #[arg(long, value_name = "PATH")]
    pub state_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay image repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The image.
    #[command(flatten)]
    pub common: ImageArgs,
    /// Do it although the image may not be the one that the journal is of
    #[arg(long)]
    pub force: bool,
}
