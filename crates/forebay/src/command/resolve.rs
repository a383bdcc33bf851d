//! `forebay disk resolve`: decides about the log or the reservations of a disk that was refused, with its pool and primary
//! storage locked.

use std::io::Write as _;

use anyhow::Result;

use crate::cli::disk::ResolveArgs;
use crate::daemon::fence::resolve::{self, Sides};
use crate::daemon::place::state_folder;

/// Shows both sides, or carries out what was decided.
pub(super) fn resolve(args: &ResolveArgs) -> Result<()> {
    if args.discard_reservations {
        return discard_reservations(args);
    }
    let state = args.state_dir.clone().or_else(state_folder);
    let sides = Sides::open(&args.pool, &args.disk.0, state.as_deref())?;
    let shown = serde_json::to_value(sides.shown())?;
    let (text, decided) = match (&args.discard_log, args.use_log) {
        (Some(amount), _) => {
            sides.discard_log(amount)?;
            ("the log was discarded: the disk can be started", "discard-log")
        }
        (None, true) => {
            sides.use_log()?;
            ("the log goes on when the disk is started", "use-log")
        }
        (None, false) if args.json => ("", "nothing"),
        (None, false) => {
            print(&sides.describe())?;
            return Ok(());
        }
    };
    if args.json {
        let mut shown = shown;
        shown["decided"] = decided.into();
        return print(&format!("{shown}\n"));
    }
    print(&format!("disk {}: {text}\n", args.disk))
}

fn discard_reservations(args: &ResolveArgs) -> Result<()> {
    resolve::discard_reservations(&args.pool, &args.disk.0)?;
    if args.json {
        let shown = serde_json::json!({
            "disk": args.disk.0,
            "pool": args.pool.display().to_string(),
            "decided": "discard-reservations",
        });
        return print(&format!("{shown}\n"));
    }
    print(&format!("disk {}: its persistent reservations are given up\n", args.disk))
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
