//! Changes, merged with a configuration file and written into it.

use super::*;
use crate::config::file;
use crate::config::saved::with_changes;
use crate::config::values::Size;
use crate::config::{DaemonSpec, DiskOptions, sources};

mod units;

const FILE: &str = r#"
# The database.
[[disk]]
name = "db"
backend = "mem:1MiB"
policy = "lru"          # as measured
nbd = ["unix:/run/db"]

[[disk]]                # named after its image
backend = "file:/san/web.raw"
nbd = ["unix:/run/web"]
"#;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn table(text: &str) -> Table {
    toml::from_str(text).unwrap()
}

/// The configuration that `FILE` and `more` are with the changes, by way of a state folder.
fn with(changes: &Changes, text: &str) -> DaemonSpec {
    let folder = tempfile::tempdir().unwrap();
    let (path, state) = (folder.path().join("f.toml"), folder.path().join("state"));
    changes.store(&state.join("f.changes.toml")).unwrap();
    fs::write(&path, format!("state-dir = \"{}\"\n{text}", state.display())).unwrap();
    file::load(&path).unwrap()
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_place_although_there_are_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, state) = (folder.path().join("f.toml"), folder.path().join("state"));
    let mut changes = Changes::default();
    let text = format!("state-dir = \"{}\"\n{FILE}", state.display());
    fs::write(&path, &text).unwrap();
    changes.set(&name("db"), &table("policy = \"auto\""));
    changes.store(&state.join("f.changes.toml")).unwrap();
    let before = file::load(&path).unwrap();
    let wrong = |more: &str| {
        fs::write(&path, format!("{text}{more}\n")).unwrap();
        format!("{:#}", file::load_again(&path, &before).unwrap_err())
    };
    let line = text.lines().count() + 1;
    let error = wrong("ram = \"5 apples\"");
    assert!(error.contains(&format!("line {line}, column 7 (ram): ")), "{error}");
    let error = wrong("block-size = \"5KiB\"");
    assert!(error.contains("power of two") && !error.contains("changes"), "{error}");
}

#[test]
fn what_the_file_says_in_vain_is_listed_with_the_way_back() {
    let mut changes = Changes::default();
    changes.set(&name("db"), &table("policy = \"fifo\"\nram = \"2MiB\""));
    changes.remove(&name("web"), true);
    let spec = with(&changes, FILE);
    let told = spec.sources.unwrap().overridden();
    let told: Vec<_> =
        told.iter().map(|it| format!("{}: {} ({})", it.disk, it.text, it.reset)).collect();
    assert_eq!(
        told,
        [
            "web: the file has it, and it was removed (forebay disk reset web)",
            "db: policy is fifo, and the file says lru (forebay disk reset db policy)",
            "db: ram is 2MiB, and the file has no ram (forebay disk reset db ram)",
        ]
    );
    assert_eq!(with(&Changes::default(), FILE).sources.unwrap().overridden(), []);
}

/// Saved into the file, changes say what they said before: the same disks, addresses and units.
fn check_saved(changes: &Changes, text: &str) -> String {
    let saved = with_changes(text, changes).unwrap();
    let (before, after) = (with(changes, text), file::parse(&saved, name("f")).unwrap());
    assert_eq!(after.disks, before.disks, "{saved}");
    assert_eq!(after.listeners, before.listeners, "{saved}");
    assert_eq!(after.targets, before.targets, "{saved}");
    assert_eq!(after.pools, before.pools, "{saved}");
    let mut left = changes.clone();
    left.settle(&table(&saved));
    assert!(left.is_empty(), "{left:?}\n{saved}");
    saved
}

#[test]
fn a_change_counts_more_than_the_file_and_is_taken_back() {
    let mut changes = Changes::default();
    changes.set(&name("db"), &table("policy = \"fifo\"\nram = \"2MiB\""));
    changes.set(&name("web"), &table("ram = \"3MiB\""));
    let spec = with(&changes, FILE);
    assert_eq!((spec.disks[0].ram_bytes, spec.disks[1].ram_bytes), (2 << 20, 3 << 20));
    assert_eq!(spec.disks[0].policy.to_string(), "fifo");
    assert!(changes.reset(&name("db"), &["policy".to_owned()]));
    assert!(!changes.reset(&name("db"), &["policy".to_owned()]));
    assert_eq!(with(&changes, FILE).disks[0].policy.to_string(), "lru");
    assert!(changes.reset(&name("db"), &[]) && changes.reset(&name("web"), &[]));
    assert!(changes.is_empty());
}

#[test]
fn disks_come_and_go_and_come_back() {
    let mut changes = Changes::default();
    changes.add(&name("new"), &table("backend = \"mem:2MiB\"\nnbd = [\"unix:/run/new\"]"));
    changes.remove(&name("db"), true);
    let names = |changes: &Changes| -> Vec<String> {
        with(changes, FILE).disks.iter().map(|disk| disk.name.to_string()).collect()
    };
    assert_eq!(names(&changes), ["web", "new"]);
    assert!(changes.reset(&name("db"), &[]));
    assert_eq!(names(&changes), ["db", "web", "new"]);
    changes.remove(&name("new"), false);
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn changes_of_a_disk_that_the_file_does_not_have_wait() {
    let mut changes = Changes::default();
    changes.set(&name("other"), &table("ram = \"2MiB\""));
    let spec = with(&changes, FILE);
    assert_eq!(spec.disks.len(), 2);
    assert_eq!(spec.sources.unwrap().waiting(), [name("other")]);
}

#[test]
fn a_disk_that_is_added_has_nothing_of_a_former_one_of_its_name() {
    let mut changes = Changes::default();
    changes.set(&name("new"), &table("backend-exclusive = true\nram = \"2MiB\""));
    let new = "backend = \"mem:2MiB\"\nnbd = [\"unix:/run/new\"]";
    changes.add(&name("new"), &table(new));
    assert_eq!(changes.of(&name("new")).unwrap(), &table(&format!("name = \"new\"\n{new}")));
}

#[test]
fn what_the_file_says_as_well_is_no_change() {
    let mut changes = Changes::default();
    changes.set(&name("db"), &table("policy = \"lru\"\nram = \"2MiB\""));
    changes.remove(&name("gone"), true);
    changes.settle(&table(FILE));
    assert_eq!(changes.of(&name("db")).unwrap(), &table("name = \"db\"\nram = \"2MiB\""));
    assert!(changes.removed().is_empty());
}

#[test]
fn a_file_of_changes_that_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.changes.toml");
    assert_eq!(Changes::load(&path).unwrap(), Changes::default());
    for text in ["bogus = 1", "[[disk]]\nram = \"1MiB\"", "removed = [\"a/b\"]", "\u{0}"] {
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", Changes::load(&path).unwrap_err());
        assert!(
            error.contains("f.changes.toml") && error.contains("move that file away"),
            "{error}"
        );
    }
    let mut changes = Changes::default();
    changes.remove(&name("db"), true);
    changes.store(&path).unwrap();
    assert_eq!(Changes::load(&path).unwrap(), changes);
    Changes::default().store(&path).unwrap();
    assert!(!path.exists(), "without changes there is no file");
}

#[test]
fn a_setting_that_no_disk_has_is_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let (path, state) = (folder.path().join("f.toml"), folder.path().join("state"));
    let mut changes = Changes::default();
    changes.set(&name("db"), &table("ramm = \"1MiB\""));
    changes.store(&state.join("f.changes.toml")).unwrap();
    fs::write(&path, format!("state-dir = \"{}\"\n{FILE}", state.display())).unwrap();
    let error = format!("{:#}", file::load(&path).unwrap_err());
    assert!(error.contains("is `ram` meant?") && error.contains("f.changes.toml"), "{error}");
}

#[test]
fn options_are_the_settings_that_were_given() {
    assert!(sources::settings(&DiskOptions::default()).unwrap().is_empty());
    let given: DiskOptions =
        toml::from_str("ram = \"2MiB\"\nread-only = true\nnbd = [\"unix:/run/a?mode=0660\"]")
            .unwrap();
    let settings = sources::settings(&given).unwrap();
    assert_eq!(settings.len(), 3);
    assert_eq!(settings["ram"].as_str(), Some(Size(2 << 20).to_string().as_str()));
    let again: DiskOptions = serde::Deserialize::deserialize(settings).unwrap();
    assert_eq!(again, given);
}

#[test]
fn a_saved_file_keeps_its_comments_and_its_order() {
    let mut changes = Changes::default();
    changes.set(&name("db"), &table("policy = \"fifo\"\nram = \"2MiB\""));
    changes.add(&name("new"), &table("backend = \"mem:2MiB\"\nnbd = [\"unix:/run/new\"]"));
    let saved = check_saved(&changes, FILE);
    assert!(saved.starts_with("\n# The database.\n"), "{saved}");
    assert!(saved.contains("policy = \"fifo\"          # as measured\n"), "{saved}");
    assert!(saved.contains("[[disk]]                # named after its image\n"), "{saved}");
    assert!(
        saved.contains("[[disk]]\nname = \"new\"\n") || saved.contains("name = \"new\""),
        "{saved}"
    );
}

#[test]
fn a_saved_file_leaves_every_logical_unit_its_number() {
    let units = |more: &str| {
        let disk = |name: &str| format!("[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\n");
        let target = "[[iscsi]]\nlisten = [\"127.0.0.1:3260\"]\ntarget = \"iqn.2026-01.org:t\"\n";
        format!("{}{}{}{target}{more}", disk("a"), disk("b"), disk("c"))
    };
    let mut changes = Changes::default();
    changes.remove(&name("a"), true);
    changes.add(&name("d"), &table("backend = \"mem:1MiB\"\nnbd = [\"unix:/run/d\"]"));
    let numbers = |saved: &str| -> Vec<(u16, String)> {
        let spec = file::parse(saved, name("f")).unwrap();
        spec.targets[0].luns.iter().map(|(lun, unit)| (*lun, unit.to_string())).collect()
    };
    let expect = |units: &[(u16, &str)]| -> Vec<(u16, String)> {
        units.iter().map(|(lun, unit)| (*lun, (*unit).to_owned())).collect()
    };
    let nbd = "[[nbd]]\nlisten = \"127.0.0.1:10809\"\ndisks = [\"a\", \"d2\"]\n".replace("d2", "b");
    let all = check_saved(&changes, &(units("") + &nbd));
    assert_eq!(numbers(&all), expect(&[(1, "b"), (2, "c"), (3, "d")]));
    let some = check_saved(&changes, &(units("disks = [\"b\", \"a\", \"c\"]\n") + &nbd));
    assert_eq!(numbers(&some), expect(&[(0, "b"), (2, "c")]));
    let said = check_saved(&changes, &(units("luns = { 5 = \"a\", 7 = \"c\" }\n") + &nbd));
    assert_eq!(numbers(&said), expect(&[(7, "c")]));
    // Addresses that served this disk alone go with it.
    for alone in ["luns = { 5 = \"a\" }\n", "disks = [\"a\"]\n"] {
        let nbd = "[[nbd]]\nlisten = \"127.0.0.1:10809\"\n[[nbd]]\nlisten = \"127.0.0.1:10810\"\ndisks = [\"a\"]\n";
        let saved = check_saved(&changes, &(units(alone) + nbd));
        assert!(saved.contains("10809"), "{saved}");
        assert!(!saved.contains("[[iscsi]]") && !saved.contains("10810"), "{saved}");
    }
}

#[test]
fn devices_that_came_and_went_are_counted_on_those_of_the_file() {
    let pool =
        |devices: &str| format!("{FILE}[[pool]]\nname = \"fast\" # both\ndevices = {devices}\n");
    let devices = |changes: &Changes, text: &str| -> Vec<String> {
        let pools = with(changes, text).pools;
        pools[0].devices.iter().map(|path| path.display().to_string()).collect()
    };
    let (fast, mut changes) = (name("fast"), Changes::default());
    changes.add_device(&fast, Path::new("/c"));
    changes.drain_device(&fast, Path::new("/a"));
    assert_eq!(devices(&changes, &pool("['/a', '/b']")), ["/b", "/c"]);
    // What the file says of others counts, and who came is not twice there.
    assert_eq!(devices(&changes, &pool("['/a', '/c', '/d']")), ["/c", "/d"]);
    let saved = check_saved(&changes, &pool("['/a', '/b']"));
    assert!(saved.contains("name = \"fast\" # both\ndevices = [\"/b\", \"/c\"]"), "{saved}");
    // Both are taken back.
    changes.add_device(&fast, Path::new("/a"));
    changes.drain_device(&fast, Path::new("/c"));
    assert!(changes.is_nothing(), "{changes:?}");
    changes.settle(&table(&pool("['/a', '/b']")));
    assert!(changes.is_empty(), "{changes:?}");
    changes.add_device(&fast, Path::new("/c"));
    assert_eq!(changes.waiting_pools(&table(FILE)), [fast]);
    assert!(with(&changes, FILE).pools.is_empty());
    let inline = format!("pool = [{{ name = 'fast', devices = ['/a'] }}]\n{FILE}");
    let error = with_changes(&inline, &changes).unwrap_err().to_string();
    assert!(error.contains("use a [[pool]] table"), "{error}");
}

#[test]
fn a_device_that_the_file_has_by_another_path_is_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let (device, link) = (folder.path().join("a"), folder.path().join("link"));
    std::fs::write(&device, "").unwrap();
    std::os::unix::fs::symlink(&device, &link).unwrap();
    let fast = name("fast");
    let text = |path: &Path| {
        format!("{FILE}[[pool]]\nname = \"fast\"\ndevices = ['{}', '/b']\n", path.display())
    };
    for (of_file, of_change) in [(&link, &device), (&device, &link)] {
        let (mut added, mut drained) = (Changes::default(), Changes::default());
        added.add_device(&fast, of_change);
        added.settle(&table(&text(of_file)));
        assert!(added.is_empty(), "{added:?}");
        drained.drain_device(&fast, of_change);
        drained.settle(&table(&text(of_file)));
        assert_eq!(with(&drained, &text(of_file)).pools[0].devices, [Path::new("/b")]);
        drained.add_device(&fast, of_file);
        drained.settle(&table(&text(of_file)));
        assert!(drained.is_empty(), "{drained:?}");
    }
}

/// Without its settings a disk that is to be read-only would be writable.
#[test]
fn a_setting_that_a_file_cannot_have_is_an_error_and_not_no_settings() {
    let given = DiskOptions { read_only: true, iops_limit: Some(u64::MAX), ..Default::default() };
    assert!(sources::settings(&given).is_err());
    assert!(sources::Sources::of_command(&name("a"), "mem:1MiB", &given).is_err());
}

#[test]
fn what_a_change_leaves_idle_of_the_file_or_of_an_earlier_change_goes() {
    let back = "\n[[disk]]\nname = \"back\"\nbackend = \"mem:64MiB\"\nmode = \"write-back\"\n\
                flash = \"/dev/shm/flash:64MiB\"\nnbd = [\"unix:/run/back\"]\n";
    let deferred =
        "flush-semantics = \"deferred\"\naccept-data-loss = true\nmax-dirty-age = \"5s\"\n";
    let journaled = "destage-journal = \"file:/san/journal\"\n";
    let (honest, strict) = ("flush-semantics = \"honest\"\n", "destage-order = \"strict\"\n");
    for (said, change) in [(deferred, honest), (journaled, strict)] {
        let (file, bare) = (format!("{FILE}{back}{said}"), format!("{FILE}{back}"));
        let mut of_file = Changes::default();
        of_file.set(&name("back"), &table(change));
        let mut of_change = Changes::default();
        of_change.set(&name("back"), &table(said));
        of_change.set(&name("back"), &table(change));
        for (changes, text) in [(&of_file, &file), (&of_change, &bare)] {
            let log = with(changes, text).disks[2].write_log.clone().unwrap();
            assert!(!log.flush.0 && !log.accepts_data_loss && log.journal.is_none(), "{log:?}");
            check_saved(changes, text);
        }
        let idle = said.replace("flush-semantics = \"deferred\"\n", "");
        assert!(file::parse(&format!("{bare}{change}{idle}"), name("f")).is_err(), "given at once");
    }
}

#[test]
fn a_limit_that_the_file_has_is_lifted_with_0() {
    let file = format!(
        "{FILE}flash = \"/dev/shm/flash:64MiB\"\nmode = \"write-back\"\nflash-dwpd = \"1\"\n\
         max-destage-rate = \"1MiB\"\niops-limit = 10\nbandwidth-limit = \"1MiB\"\n"
    );
    let mut changes = Changes::default();
    let all =
        "flash-dwpd = \"0\"\nmax-destage-rate = \"0\"\niops-limit = 0\nbandwidth-limit = \"0\"";
    let limits = |spec: &DaemonSpec| {
        let disk = &spec.disks[1];
        let rate = disk.write_log.as_ref().and_then(|log| log.rate_max);
        [
            disk.flash_dwpd.is_some(),
            rate.is_some(),
            disk.iops_limit.is_some(),
            disk.bandwidth_limit.is_some(),
        ]
    };
    assert_eq!(limits(&with(&changes, &file)), [true; 4]);
    changes.set(&name("web"), &table(all));
    assert_eq!(limits(&with(&changes, &file)), [false; 4]);
}
