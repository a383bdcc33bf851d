//! `forebay image`: an image without its daemon and its flash.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use forebay_backends::size::rounded;
use forebay_host::date::utc;
use forebay_host::folders::state_folder;
use forebay_host::image::{self, ImageReport, ImageState, JournalReport};
use forebay_host::shell::quoted;

use crate::cli::image::{ImageArgs, ImageCommand};

/// Carries out a command.
pub(crate) fn image(command: ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Check(args) => {
            let state = state_of(&args);
            let report = image::check(&args.image, args.journal.as_deref(), state.as_deref());
            let report = report.with_context(|| format!("cannot check {}", args.image))?;
            let shown = print(&report, &args);
            match report.state {
                ImageState::Torn => bail!(
                    "{} is torn. Start its disk with its flash, or repair it:\n  {}",
                    args.image,
                    repair(&args)
                ),
                ImageState::Unknown => bail!(
                    "no sidecar says that the journal belongs to {}: nobody knows whether it is whole. If the journal \
                     does:\n  {} --force",
                    args.image,
                    repair(&args)
                ),
                ImageState::Alone | ImageState::InPlace | ImageState::Repaired => shown,
            }
        }
        ImageCommand::Repair(args) => {
            let (image, journal) = (&args.common.image, args.common.journal.as_deref());
            let state = state_of(&args.common);
            let report = image::repair(image, journal, args.force, state.as_deref());
            let report = report.with_context(|| format!("cannot repair {image}"))?;
            print(&report, &args.common)
        }
    }
}

/// The command that repairs what was looked at.
fn repair(args: &ImageArgs) -> String {
    let mut command = format!("forebay image repair {}", quoted(&args.image));
    if let Some(journal) = &args.journal {
        let _ = write!(command, " --journal {}", quoted(journal));
    }
    if let Some(state) = &args.state_dir {
        let _ = write!(command, " --state-dir {}", quoted(state));
    }
    command
}

fn state_of(args: &ImageArgs) -> Option<PathBuf> {
    args.state_dir.clone().or_else(state_folder)
}

fn print(report: &ImageReport, args: &ImageArgs) -> Result<()> {
    let text = match args.json {
        true => serde_json::to_string(report)? + "\n",
        false => describe(report),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn describe(report: &ImageReport) -> String {
    let state = match report.state {
        ImageState::Alone => "no destage journal belongs to it",
        ImageState::InPlace => "whole: all that its destage journal has is in place",
        ImageState::Torn => "torn: a window may be in place in part",
        ImageState::Unknown => "not known: no sidecar says that the destage journal is its own",
        ImageState::Repaired => "whole: the windows of its destage journal are in place now",
    };
    let mut text = format!("{}\n  state    {state}\n", report.image);
    if let (Some(disk), Some(host), Some(left)) = (&report.disk, &report.host, report.left) {
        let _ = writeln!(text, "  disk     {disk}, served last on {host}, left {left}");
    }
    if let Some(journal) = &report.journal {
        text += &of_journal(journal);
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "  warning  {warning}");
    }
    text
}

fn of_journal(journal: &JournalReport) -> String {
    let allocated = journal.allocated_bytes.map(|bytes| format!(", {}", rounded(bytes)));
    let mut text = format!("  journal  {}{}\n", journal.place, allocated.unwrap_or_default());
    if let Some(as_of) = journal.as_of {
        let date = utc(as_of.saturating_mul(1000));
        let (windows, bytes) = (journal.windows, rounded(journal.bytes));
        let _ = writeln!(text, "  windows  {windows} ({bytes}), the newest written at {date}");
    }
    if journal.torn > 0 {
        let _ = writeln!(text, "  torn     {} records, of which nothing is in place", journal.torn);
    }
    if let Some(doubt) = &journal.doubt {
        let _ = writeln!(text, "  doubt    {doubt}");
    }
    text
}
