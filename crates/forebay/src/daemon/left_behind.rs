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
use forebay_host::pool::report::{self, DiskReport, Placed};
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
                state.report(disk.as_deref(), Severity::Error, &text);
            }
        });
    }
}

/// Those in a pool that is open, each with what is to be told of it, and under whose name.
fn find(opener: &Opener, open: &OpenPool) -> Vec<(Option<String>, String)> {
    let (placed, _) = report::placed(&pool::lock(&open.pool));
    let spec = opener.spec();
    let may_be_left =
        placed.into_iter().filter(|disk| is_left(&spec, opener.state(), (&open.path, disk)));
    let left = may_be_left.filter_map(|disk| {
        let holds = match resolve::undestaged(&open.pool, &disk.name)? {
            Dirty { error: None, bytes, .. } => {
                format!("holds {} of writes that {} does not have", rounded(bytes), disk.uri)
            }
            Dirty { error: Some(why), .. } => {
                format!(
                    "cannot be read, and may hold writes that {} does not have: {why}",
                    disk.uri
                )
            }
        };
        // A disk that is listed by now, by a reload, is another's to tell of.
        let spec = opener.spec();
        let is_listed = is_known(&spec, &open.path, (&disk.name, &disk.uri));
        (!is_listed).then(|| describe(&spec, &open.path, &disk.name, &holds))
    });
    left.collect()
}

/// What is to be told of one whose log in a pool `holds` something, and under whose name: of nobody where another disk has
/// the name by now.
fn describe(spec: &DaemonSpec, pool: &Path, name: &str, holds: &str) -> (Option<String>, String) {
    let has_another = spec.disks.iter().any(|disk| disk.name.0 == name);
    let (what, again) = match has_another {
        // A command that has the name acts on that one.
        true => (
            format!("a disk '{name}' that is not the one of that name now"),
            "List it again as it was, with this flash, once the other one has another name"
                .to_owned(),
        ),
        false => (
            "this disk".to_owned(),
            format!(
                "List the disk again as it was, with this flash, after 'forebay disk reset {name}' where it was removed by command"
            ),
        ),
    };
    let text = format!(
        "no configuration lists {what}, and its write log in the pool {} {holds}. Primary storage alone is older. {again}; detach \
         it when it is not wanted any more. To decide without that, stop the daemon: forebay disk resolve {name} --pool {}",
        pool.display(),
        quoted(pool)
    );
    ((!has_another).then(|| name.to_owned()), text)
}

/// What is wrong with a disk of a pool that is open, if it is one of these; `state` is the state folder.
pub(super) fn fault(
    spec: &DaemonSpec,
    state: Option<&Path>,
    (pool, placed): (&Path, &Placed),
    disk: &DiskReport,
) -> Option<String> {
    let is_dirty = disk.dirty_records > 0 || disk.error.is_some();
    let is_told = is_dirty && spec.file().is_some() && is_left(spec, state, (pool, placed));
    is_told.then(|| "no configuration lists it, and its write log is not destaged".to_owned())
}

/// True of a disk of a pool that no configuration has, and that did not go on elsewhere.
fn is_left(spec: &DaemonSpec, state: Option<&Path>, (pool, disk): (&Path, &Placed)) -> bool {
    disk.has_log && !is_known(spec, pool, (&disk.name, &disk.uri)) && !disk.is_of_the_past(state)
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
    use forebay_core::ids::Uuid;
    use forebay_host::pool::report::SessionState;

    use super::*;
    use crate::config::file::parse;

    fn disk(name: &str, image: &str, pool: &str) -> String {
        format!(
            "[[disk]]\nname = '{name}'\nbackend = 'file:/{image}'\nflash = '{pool}:16MiB'\nnbd = ['unix:/{name}']\n"
        )
    }

    #[test]
    fn a_disk_is_left_behind_that_no_configuration_leads_to() {
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
    #[test]
    fn nothing_is_told_under_the_name_of_a_disk_that_has_taken_the_one_of_another() {
        let pool = Path::new("/flash");
        let of = |listed: &str| {
            let spec = parse(listed, "test".parse().unwrap()).unwrap();
            describe(&spec, pool, "db", "holds 4 KiB")
        };
        let (name, text) = of(&disk("web", "web", "/flash"));
        assert_eq!(name.as_deref(), Some("db"));
        assert!(text.contains("lists this disk") && text.contains("disk reset db"), "{text}");
        let taken = [disk("web", "web", "/flash"), disk("db", "new", "/elsewhere")].concat();
        let (name, text) = of(&taken);
        assert_eq!(name, None);
        assert!(text.contains("a disk 'db' that is not the one of that name now"), "{text}");
        assert!(!text.contains("reset") && text.contains("resolve db --pool /flash"), "{text}");
    }

    #[test]
    fn a_disk_that_went_on_elsewhere_has_left_nothing_behind() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("forebay.toml");
        let listed =
            format!("state-dir = '{}'\n{}", state.path().display(), disk("web", "web", "/flash"));
        std::fs::write(&file, listed).unwrap();
        let spec = crate::config::file::load(&file).unwrap();
        let placed = Placed {
            name: "db".to_owned(),
            uri: "file:/db".to_owned(),
            disk: Uuid([7; 16]),
            identity: Uuid([8; 16]),
            opened: 1,
            has_log: true,
            has_reservations: false,
        };
        let report = DiskReport {
            name: "db".to_owned(),
            uuid: placed.disk.to_string(),
            backend: placed.uri.clone(),
            size: 1 << 20,
            mode: "write-back".to_owned(),
            session: SessionState::RunningOrCrashed,
            opened: 1,
            closed: 0,
            generation: 1,
            generation_pending: 2,
            flushes_deferred: false,
            evidence: None,
            log_segments: 1,
            dirty_records: 1,
            dirty_bytes: 4096,
            staged_records: 0,
            staging_fault: None,
            error: None,
            faults: Vec::new(),
            ring: None,
        };
        let told = || fault(&spec, Some(state.path()), (Path::new("/flash"), &placed), &report);
        assert!(told().is_some());
        let detached = state.path().join(format!("{}.detached", placed.identity));
        std::fs::write(detached, format!("{}\n", placed.disk)).unwrap();
        assert_eq!(told(), None);
    }
}
