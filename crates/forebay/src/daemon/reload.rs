//! SIGHUP to `forebay serve`: the configuration file is read again. What is served goes on as it is.
//!
//! Disks that were refused are opened if what was wrong has been put right. An event says what a restart would change: new
//! disks and other settings wait for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use forebay_host::events::Severity;

use super::control::ControlState;
use super::refused;
use crate::config::values::Name;
use crate::config::{self, DaemonSpec};

/// See the module.
pub(super) async fn reload(state: Arc<ControlState>, config: PathBuf) {
    let (file, read) = (config.display().to_string(), config.clone());
    let read = tokio::task::spawn_blocking(move || load(&read)).await;
    let (severity, text) = match read.map_err(anyhow::Error::from).flatten() {
        Err(error) => {
            let text = format!("SIGHUP: nothing changes, and a restart would fail: {error:#}");
            (Severity::Error, text)
        }
        Ok(spec) => match differences(state.opener.spec(), &spec) {
            changes if changes.is_empty() => {
                (Severity::Info, format!("SIGHUP: {file} says what was read at the start"))
            }
            changes => {
                let text = format!(
                    "SIGHUP: {file} was changed. Nothing of that is in force before a restart: {}",
                    changes.join("; ")
                );
                (Severity::Warning, text)
            }
        },
    };
    state.report(None, severity, &text);
    for disk in state.refused() {
        // An event tells whether it is served now, or why not.
        let _ = refused::serve(&state, &disk.name, None).await;
    }
}

fn load(path: &Path) -> Result<DaemonSpec> {
    let spec = config::file::load(path)?;
    config::iscsi::check_secrets(&spec.targets)?;
    Ok(spec)
}

/// What is otherwise in `new`, in words.
fn differences(old: &DaemonSpec, new: &DaemonSpec) -> Vec<String> {
    let mut found = Vec::new();
    let in_old = |name: &Name| old.disks.iter().find(|disk| disk.name == *name);
    for disk in &new.disks {
        match in_old(&disk.name) {
            None => found.push(format!("disk '{}' is new", disk.name)),
            Some(before) if before != disk => {
                found.push(format!("disk '{}' has other settings", disk.name));
            }
            Some(_) => {}
        }
    }
    let is_gone = |name: &Name| new.disks.iter().all(|disk| disk.name != *name);
    let gone = old.disks.iter().filter(|disk| is_gone(&disk.name));
    found.extend(gone.map(|disk| format!("disk '{}' is not listed any more", disk.name)));
    let settings = [
        ("NBD listeners", old.listeners != new.listeners),
        ("iSCSI targets", old.targets != new.targets),
        ("shards", old.shards != new.shards),
        ("reactor", old.reactor != new.reactor),
        ("name", old.name != new.name),
        ("control", old.control != new.control),
        ("state-dir", old.state_dir != new.state_dir),
    ];
    let others = settings.iter().filter(|(_, is_other)| *is_other);
    found.extend(others.map(|(what, _)| format!("other {what}")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> DaemonSpec {
        config::file::parse(text, "test".parse().unwrap()).unwrap()
    }

    #[test]
    fn each_difference_between_two_configurations_is_named() {
        let disk = |name: &str, more: &str| {
            format!(
                "[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nnbd = [\"unix:/run/{name}\"]\n{more}\n"
            )
        };
        let check = |old: String, new: String, expect: &[&str]| {
            assert_eq!(differences(&spec(&old), &spec(&new)), expect);
        };
        check(disk("a", ""), disk("a", "# a comment"), &[]);
        check(disk("a", ""), disk("a", "ram = \"1MiB\""), &["disk 'a' has other settings"]);
        check(
            disk("a", "") + &disk("b", ""),
            disk("a", "") + &disk("c", ""),
            &["disk 'c' is new", "disk 'b' is not listed any more", "other NBD listeners"],
        );
        check(
            disk("a", ""),
            "state-dir = \"/x\"\n".to_owned() + &disk("a", ""),
            &["other state-dir"],
        );
    }
}
