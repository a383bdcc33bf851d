//! `forebay pool`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::disk::ControlArgs;

/// The commands of `forebay pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Name the flash pools that daemons use
    List(PoolListArgs),
    /// Show what is in a flash pool, in use or not: disks, dirty data, generations, health
    Show(PoolShowArgs),
    /// Give a pool of several devices another device
    AddDevice(PoolAddDeviceArgs),
    /// Move all disks off a flash device, with the guests at work
    #[command(visible_alias = "drain-device")]
    Drain(PoolDrainArgs),
    /// Verify all checksums of a flash pool that nobody uses
    Check(PoolArgs),
}

/// `forebay pool list`.
#[derive(Debug, Args)]
#[command(after_help = "\
It asks every daemon whose control socket is in the user's folder, or the one at --control.

Examples:
  forebay pool list
  forebay pool list --json | jq .path")]
pub struct PoolListArgs {
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay pool show`.
#[derive(Debug, Args)]
#[command(after_help = "\
It changes nothing. It reads a pool that nobody uses. While a daemon uses the pool, it asks the \
daemon. It finds the control socket as 'forebay stats' does, or at --control.

Examples:
  forebay pool show /nvme/pool
  forebay pool show /nvme/pool --json | jq .disks[].dirty_bytes")]
pub struct PoolShowArgs {
    /// The file or block device
    pub path: PathBuf,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay pool add-device`.
#[derive(Debug, Args)]
#[command(after_help = "\
The pool is a [[pool]] of the configuration file. Disks that are new get the device where most is left. Others stay where \
they are. The change is kept over a restart; 'forebay config save' writes it into the file.

Examples:
  forebay pool add-device fast /dev/nvme2n1 --dry-run
  forebay pool add-device fast /dev/nvme2n1")]
pub struct PoolAddDeviceArgs {
    /// Name of the pool
    pub pool: String,
    /// A block device without data, or a file
    pub device: PathBuf,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay pool drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
One disk moves after the other: its write log is emptied, with the guest at work, and its cache begins empty. A disk that \
cannot be moved stays, and the command says why. When the last disk has gone, nobody has the device open any more: it may be \
pulled out.

Without --to, the disks go to the other devices of the pool, and the pool loses the device. With --to, each disk is \
changed as by 'forebay disk set --flash'.

Examples:
  forebay pool drain /dev/nvme0n1 --dry-run
  forebay pool drain /dev/nvme0n1
  forebay pool drain /dev/nvme0n1 --to /dev/nvme1n1")]
pub struct PoolDrainArgs {
    /// The file or block device that is in use
    pub path: PathBuf,
    /// Where the disks go, when the device is not that of a configured pool: flash that has room for them, or a blank block device
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Options of all.
    #[command(flatten)]
    pub common: ControlArgs,
}

/// `forebay pool check`.
#[derive(Debug, Args)]
#[command(after_help = "\
It changes nothing. Stop the daemon that uses the pool first. 'forebay pool show' works while it \
runs.

Example:
  forebay pool check /nvme/pool")]
pub struct PoolArgs {
    /// The file or block device
    pub path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
