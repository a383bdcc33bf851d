//! Disks that no configuration lists any more, and whose write logs in a pool hold what primary storage does not have.
//!
//! A reload detaches a disk that its file does not list. Where the daemon ends before everything is destaged, the next start
//! has no reason to open that disk: its guest's writes are on flash, and primary storage is older. Nothing else says so then.
//!
//! **Limits.** Flash is looked at that a disk of the configuration uses. What runs without a configuration file serves one disk
//! of a pool on purpose, and tells of no other.

use std::path::Path;
use std::sync::Arc;

use forebay_backends::size::rounded;
use forebay_host::events::Severity;
use forebay_host::fence::resolve;
use forebay_host::pool;
use forebay_host::pool::Dirty;
use forebay_host::pool::report::{self, DiskReport};
use forebay_host::shell::quoted;

use super::control::ControlState;
use super::flash::OpenPool;
use super::opener::Opener;
use crate::config::DaemonSpec;

/// Tells of those in the pools that are open. It reads their logs, and may wait for flash: nobody waits for it.
pub(super) fn tell(state: &Arc<ControlState>) {
    if state.opener.spec().file().is_none() {
        return;
    }
    for open in state.opener.flash.pools() {
        let state = state.clone();
        tokio::task::spawn_blocking(move || {
            for (disk, text) in find(&state.opener, &open) {
                state.report(Some(&disk), Severity::Error, &text);
            }
        });
    }
}

/// Those in a pool that is open, each with what is to be told of it.
fn find(opener: &Opener, open: &OpenPool) -> Vec<(String, String)> {
    let (placed, _) = report::placed(&pool::lock(&open.pool));
    let spec = opener.spec();
    let may_be_left = placed.into_iter().filter(|disk| {
        disk.has_log
            && !is_known(&spec, &open.path, (&disk.name, &disk.uri))
            && !disk.is_of_the_past(opener.state())
    });
    let left = may_be_left.filter_map(|disk| {
        let holds = match resolve::undestaged(&open.pool, &disk.name)? {
            Dirty { error: None, bytes, .. } => {
                format!("holds {} of writes that {} does not have", rounded(bytes), disk.uri)
            }
            Dirty { error: Some(why), .. } => {
                format!("cannot be read, and may hold writes that {} does not have: {why}", disk.uri)
            }
        };
        // A disk that is listed by now, by a reload, is another's to tell of.
        let is_listed = is_known(&opener.spec(), &open.path, (&disk.name, &disk.uri));
        (!is_listed).then(|| {
            let text = format!(
                "no configuration lists this disk, and its write log in the pool {0} {holds}. Primary storage alone is older. \
                 List the disk again as it was, with this flash, after 'forebay disk reset {1}' where it was removed by command; \
                 detach it when it is not wanted any more. To decide without that, stop the daemon: forebay disk resolve {1} \
                 --pool {2}",
                open.path.display(),
                disk.name,
                quoted(&open.path)
            );
            (disk.name, text)
        })
    });
    left.collect()
}

/// What is wrong with a disk of a pool that is open, if it is one of these.
pub(super) fn fault(spec: &DaemonSpec, pool: &Path, disk: &DiskReport) -> Option<String> {
    let is_dirty = disk.dirty_records > 0 || disk.error.is_some();
    let is_known = spec.file().is_none() || is_known(spec, pool, (&disk.name, &disk.backend));
    let is_left = is_dirty && !is_known;
    is_left.then(|| "no configuration lists it, and its write log is not destaged".to_owned())
}

/// True of a disk of a pool that the configuration has: it is served, or is refused in words of its own. Another disk on the
/// same primary storage is refused because of it.
fn is_known(spec: &DaemonSpec, pool: &Path, (name, uri): (&str, &str)) -> bool {
    spec.disks.iter().any(|disk| {
        // One without a place may be on any device of its pool.
        let is_here =
            disk.unplaced.is_some() || disk.flash.as_ref().is_some_and(|flash| flash.path == pool);
        disk.name.0 == name && is_here || disk.backend == uri
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse;

    #[test]
    fn a_disk_is_left_behind_that_no_configuration_leads_to() {
        let disk = |name: &str, image: &str, pool: &str| {
            format!(
                "[[disk]]\nname = '{name}'\nbackend = 'file:/{image}'\nflash = '{pool}:16MiB'\nnbd = ['unix:/{name}']\n"
            )
        };
        let check = |disks: &[String], expect: bool| {
            let spec = parse(&disks.concat(), "test".parse().unwrap()).unwrap();
            let is_left = !is_known(&spec, Path::new("/flash"), ("db", "file:/db"));
            assert_eq!(is_left, expect, "{disks:?}");
        };
        let other = disk("web", "web", "/flash");
        check(std::slice::from_ref(&other), true);
        check(&[other.clone(), disk("db", "db", "/flash")], false);
        // Its record refuses these, in words of its own.
        check(&[other.clone(), disk("db", "new", "/flash")], false);
        check(&[other.clone(), disk("new", "db", "/flash")], false);
        check(&[other.clone(), disk("db", "db", "/elsewhere")], false);
        // This one is another disk that has taken its name.
        check(&[other, disk("db", "new", "/elsewhere")], true);
    }
}
