//! `forebay config`: what was changed while Forebay ran, and the configuration file that it is written into.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

use super::output::show;
use super::{client, reload};
use crate::cli::disk::ControlArgs;
use crate::cli::{ConfigCommand, SaveArgs};
use crate::config::{file, saved};
use crate::daemon::api::{Change, ConfigInfo, Reloaded};

/// Carries out a command.
pub(crate) fn config(command: ConfigCommand) -> Result<()> {
    client::block_on(async {
        match command {
            ConfigCommand::Changes(args) => changes(&args).await,
            ConfigCommand::Save(args) => save(&args).await,
        }
    })
}

async fn changes(args: &ControlArgs) -> Result<()> {
    let control = client::with_file(args.control.as_deref()).await?;
    let info: ConfigInfo = client::ask(&control, "/v1/config").await?;
    if args.json {
        return show(serde_json::to_string(&info)? + "\n");
    }
    match info.changes.is_empty() {
        true => show("nothing was changed while Forebay ran\n"),
        false => show(info.changes.text()?),
    }
}

async fn save(args: &SaveArgs) -> Result<()> {
    let control = client::with_file(args.common.control.as_deref()).await?;
    let info: ConfigInfo = client::ask(&control, "/v1/config").await?;
    let path = info.file.context("this daemon has no configuration file")?;
    if info.changes.is_empty() && !args.dry_run {
        let text = "nothing was changed while Forebay ran\n".to_owned();
        let (file, changes, overridden) = (Some(path), Vec::new(), Vec::new());
        let nothing = Reloaded { file, dry_run: false, changes, overridden };
        return reload::tell(&nothing, args.common.json, text);
    }
    let path = Path::new(&path);
    let cannot = || format!("the configuration file {} cannot be saved", path.display());
    let text = file::text_of(path).with_context(cannot)?;
    let new = saved::with_changes(&text, &info.changes).with_context(cannot)?;
    let name = "test".parse()?;
    file::parse(&new, name).context("the file could not be read any more").with_context(cannot)?;
    if args.dry_run {
        let text = match args.common.json {
            true => would_say(&path.display().to_string(), &new) + "\n",
            false => new,
        };
        return show(text);
    }
    replace(path, &new).with_context(cannot)?;
    let reloaded: Reloaded = client::tell_patiently(&control, "/v1/reload").await?;
    let left: ConfigInfo = client::ask(&control, "/v1/config").await?;
    ensure!(
        left.changes.is_empty(),
        "{} was written, and does not say everything: 'forebay config changes' shows the rest",
        path.display()
    );
    let text = format!("{} says everything that was changed while Forebay ran\n", path.display());
    reload::tell(&reloaded, args.common.json, text + &reload::list(&reloaded.changes))
}

/// What a dry run tells programs: what `config save` tells them, and the text that the file would have.
fn would_say(path: &str, text: &str) -> String {
    let changes: [Change; 0] = [];
    serde_json::json!({ "file": path, "dry_run": true, "changes": changes, "text": text })
        .to_string()
}

/// Replaces a file durably; it keeps its owner and its rights.
fn replace(path: &Path, text: &str) -> Result<()> {
    let path = fs::canonicalize(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let before = fs::metadata(&path)?;
    let mut new = NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    let (user, group) = (before.uid(), before.gid());
    let is_same = new.as_file().metadata().is_ok_and(|it| (it.uid(), it.gid()) == (user, group));
    if !is_same {
        std::os::unix::fs::fchown(new.as_file(), Some(user), Some(group))?;
    }
    new.as_file().set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
    new.as_file().sync_all()?;
    new.persist(&path)?;
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_dry_run_tells_programs_the_text_as_json() {
        let told: Value =
            serde_json::from_str(&would_say("/etc/f.toml", "ram = \"1MiB\"\n")).unwrap();
        assert_eq!((&told["dry_run"], &told["text"]), (&true.into(), &"ram = \"1MiB\"\n".into()));
        // Whoever reads what a change answers can read it as well.
        let reloaded: Reloaded = serde_json::from_value(told).unwrap();
        assert_eq!(reloaded.file.as_deref(), Some("/etc/f.toml"));
    }
}
