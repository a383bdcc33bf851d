//! `forebay config`: what was changed while Forebay ran, and the configuration file that it is written into.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::output::show;
use super::{client, reload};
use crate::cli::disk::ControlArgs;
use crate::cli::{ConfigCommand, SaveArgs};
use crate::config::{file, saved};
use crate::daemon::api::{Change, ConfigInfo, Reloaded};

/// Under this name the kernel has the ACL of a file, of this size at most.
const ACL: &str = "system.posix_acl_access";
const ACL_MAX: usize = 64 << 10;

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
    keep_acl(&path, new.as_file()).context("its ACL cannot be kept")?;
    new.as_file().set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
    new.as_file().sync_all()?;
    new.persist(&path)?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// A new file has the ACL of the file at `path`, and not that of its folder.
fn keep_acl(path: &Path, new: &File) -> io::Result<()> {
    let mut acl = Vec::with_capacity(ACL_MAX);
    let has_acl = match rustix::fs::getxattr(path, ACL, spare_capacity(&mut acl)) {
        Ok(_) => true,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Err(error) => return Err(error.into()),
    };
    let kept = match has_acl {
        true => rustix::fs::fsetxattr(new, ACL, &acl, XattrFlags::empty()),
        false => rustix::fs::fremovexattr(new, ACL),
    };
    match kept {
        Err(Errno::NODATA | Errno::OPNOTSUPP) if !has_acl => Ok(()),
        kept => Ok(kept?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// An ACL as the kernel has it: the owner, user `id`, the group and the others may do this.
    fn acl(id: u32) -> Vec<u8> {
        let nobody = u32::MAX;
        let entries =
            [(1, 6, nobody), (2, 4, id), (4, 0, nobody), (16, 4, nobody), (32, 0, nobody)];
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, may, id) in entries {
            acl.extend(u16::to_le_bytes(tag));
            acl.extend(u16::to_le_bytes(may));
            acl.extend(u32::to_le_bytes(id));
        }
        acl
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_acl_and_gets_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [with, without] = ["with", "without"].map(|name| folder.path().join(name));
        for path in [&with, &without] {
            fs::write(path, "before").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
        }
        let set = |path: &Path, name: &str, id| {
            rustix::fs::setxattr(path, name, &acl(id), XattrFlags::empty())
        };
        match set(&with, ACL, 7) {
            // The file system of the test has none.
            Err(Errno::OPNOTSUPP) => return,
            set => set.unwrap(),
        }
        set(folder.path(), "system.posix_acl_default", 8).unwrap();
        let acl_of = |path: &Path| {
            let mut acl = Vec::with_capacity(ACL_MAX);
            rustix::fs::getxattr(path, ACL, spare_capacity(&mut acl)).map(|_| acl)
        };
        for (path, expect) in [(&with, Ok(acl(7))), (&without, Err(Errno::NODATA))] {
            replace(path, "after").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "after");
            assert_eq!(acl_of(path), expect, "{}", path.display());
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o640);
        }
    }

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
