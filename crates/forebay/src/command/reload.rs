//! `forebay reload`: a daemon reads its configuration file again.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::client;
use super::output::show;
use crate::cli::ReloadArgs;
use crate::daemon::api::{Change, Reloaded};

/// Asks a daemon, and tells what came of it.
pub(crate) fn reload(args: &ReloadArgs) -> Result<()> {
    client::block_on(async {
        let control = match &args.config {
            Some(file) => client::of_file(file).await?,
            None => client::with_file(args.control.as_deref()).await?,
        };
        let path = format!("/v1/reload?dry_run={}", args.dry_run);
        // New disks are opened, which may wait for storage.
        let reloaded: Reloaded = client::tell_patiently(&control, &path).await?;
        tell(&reloaded, args.json, text(&reloaded))
    })
}

/// Prints what came of a change, and fails when not all of it could be made.
pub(super) fn tell(reloaded: &Reloaded, json: bool, text: String) -> Result<()> {
    let shown = match json {
        true => show(serde_json::to_string(reloaded)? + "\n"),
        false => show(text),
    };
    let failed = reloaded.changes.iter().filter(|change| change.error.is_some()).count();
    ensure!(failed == 0, "{failed} of {} changes could not be made", reloaded.changes.len());
    shown
}

fn text(reloaded: &Reloaded) -> String {
    let Reloaded { file, dry_run, changes, overridden } = reloaded;
    let file = file.as_deref().unwrap_or("the configuration");
    let mut out = match (changes.is_empty(), dry_run) {
        (true, _) if overridden.is_empty() => format!("{file} says what is in force\n"),
        (true, _) => format!("{file} changes nothing\n"),
        (false, true) => format!("{file} would change this:\n"),
        (false, false) => format!("{file} was read again:\n"),
    };
    out += &list(changes);
    if !overridden.is_empty() {
        out += "what was changed while Forebay ran counts more than the file:\n";
    }
    for it in overridden {
        let _ = writeln!(out, "  disk '{}': {}; to take it back: {}", it.disk, it.text, it.reset);
    }
    out
}

/// A line for each change, and one for why it was not made.
pub(super) fn list(changes: &[Change]) -> String {
    let mut out = String::new();
    for change in changes {
        let of = change.disk.as_ref().map_or("daemon".to_owned(), |disk| format!("disk '{disk}'"));
        let _ = writeln!(out, "  {of}: {}", change.text);
        if let Some(error) = &change.error {
            let _ = writeln!(out, "    NOT DONE: {error}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::api::Overridden;

    #[test]
    fn a_file_that_changes_override_does_not_say_what_is_in_force() {
        let file = Some("/etc/f.toml".to_owned());
        let (changes, overridden) = (Vec::new(), Vec::new());
        let mut reloaded = Reloaded { file, dry_run: false, changes, overridden };
        assert_eq!(text(&reloaded), "/etc/f.toml says what is in force\n");
        reloaded.overridden.push(Overridden {
            disk: "db".to_owned(),
            text: "ram is 2MiB, and the file says 1MiB".to_owned(),
            reset: "forebay disk reset db ram".to_owned(),
        });
        let told = text(&reloaded);
        assert!(!told.contains("in force") && told.contains("forebay disk reset db ram"), "{told}");
    }
}
