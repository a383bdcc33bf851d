//! Two files, and what the second changes.

use super::*;
use crate::config::file;

fn spec(text: &str) -> DaemonSpec {
    file::parse(text, "test".parse().unwrap()).unwrap()
}

fn disk(name: &str, more: &str) -> String {
    format!(
        "[[disk]]\nname = \"{name}\"\nbackend = \"file:/san/{name}\"\nnbd = [\"unix:/run/{name}\"]\n{more}\n"
    )
}

fn check(old: &str, new: &str, expect: &[&str]) {
    let told = differences(&spec(old), &spec(new)).into_iter().map(|difference| {
        let of = difference.disk().map_or("-".to_owned(), ToString::to_string);
        let keys = match &difference {
            Difference::AtNextStart(_, keys) => format!(" {}", keys.join(",")),
            Difference::Changed(_, settings) | Difference::OpenedAgain(_, settings, _) => {
                let each = settings.iter().map(|(key, value)| format!("{key}={value}"));
                format!(" {}", each.collect::<Vec<_>>().join(","))
            }
            _ => String::new(),
        };
        format!("{of} {}{keys}", difference.kind())
    });
    assert_eq!(told.collect::<Vec<_>>(), expect, "{old}\n{new}");
}

#[test]
fn the_number_of_shards_is_told_where_it_was_given() {
    let (a, b) = (disk("a", ""), disk("b", ""));
    let of_two = DaemonSpec { shards: 2, ..spec(&a) };
    // Another disk was there at the start, and is in no file any more.
    assert_eq!(differences(&of_two, &spec(&a)), []);
    check(&format!("shards = 2\n{a}"), &a, &["- at-next-start shards"]);
    check(&a, &format!("shards = 3\n{a}{b}"), &["b added", "- at-next-start shards"]);
}

#[test]
fn each_difference_between_two_configurations_is_named() {
    let (a, b) = (disk("a", ""), disk("b", ""));
    check(&a, &disk("a", "# a comment"), &[]);
    check(&a, &disk("a", "block-size = \"4KiB\""), &["a opened-again block-size=4KiB"]);
    let two = disk("a", "block-size = \"4KiB\"\npolicy = \"lru\"");
    check(&a, &two, &["a opened-again block-size=4KiB,policy=lru"]);
    check(&a, &disk("a", "mode = \"write-around\""), &["a changed mode=write-around"]);
    check(&a, &disk("a", "ram = \"1MiB\""), &["a changed ram=1MiB"]);
    check(&a, &disk("a", "ram = \"0\""), &["a opened-again ram=0"]);
    check(&disk("a", "ram = \"0\""), &a, &["a opened-again ram=1GiB"]);
    let written_back = disk("a", "mode = \"write-back\"\nflash = \"/f:64MiB\"");
    let opened = "a opened-again mode=write-back,flash=/f:64MiB,write-log=16MiB";
    check(&a, &written_back, &[opened]);
    let larger = written_back.replace("64MiB", "80MiB") + "raw-anyway = true";
    let opened = "a opened-again flash=/f:80MiB,write-log=20MiB";
    check(&written_back, &larger, &[opened, "a at-next-start raw-anyway"]);
    // What is only in memory would be lost.
    let in_memory = |more: &str| disk("a", more).replace("file:/san/a", "model:san?inner=mem:1MiB");
    let block = "block-size = \"4KiB\"";
    check(&in_memory(""), &in_memory(block), &["a at-next-start block-size"]);
    let through =
        disk("a", "mode = \"write-through\"\nflash = \"/f:64MiB\"\nwrite-log = \"16MiB\"");
    check(&written_back, &through, &["a changed mode=write-through"]);
    check(&through, &written_back, &["a changed mode=write-back"]);
    let slow = written_back.clone() + "max-destage-rate = \"1MiB\"";
    check(&written_back, &slow, &["a changed max-destage-rate=1MiB"]);
    check(&slow, &written_back, &["a changed max-destage-rate=none"]);
    check(&(a.clone() + &b), &(b.clone() + &disk("c", "")), &["c added", "a removed"]);
    check(&a, &format!("shards = 1\nreactor = \"epoll\"\n{a}"), &["- at-next-start reactor"]);
    let moved = a.replace("/run/a", "/run/other");
    check(&a, &moved, &["- listeners"]);
}

#[test]
fn logical_units_come_with_their_disks_and_nothing_else_of_a_target_changes() {
    let (a, b) = (disk("a", ""), disk("b", ""));
    let target = |luns: &str, more: &str| {
        format!(
            "[[iscsi]]\nlisten = [\"127.0.0.1:3260\"]\ntarget = \"iqn.2026-01.org:t\"\n{more}\n[iscsi.luns]\n{luns}\n"
        )
    };
    let one = a.clone() + &target("0 = \"a\"", "");
    let two = a.clone() + &b + &target("0 = \"a\"\n1 = \"b\"", "");
    check(&one, &two, &["b added"]);
    check(&two, &one, &["b removed"]);
    check(&one, &(a.clone() + &target("4 = \"a\"", "")), &["- at-next-start iscsi"]);
    check(&one, &a, &["- at-next-start iscsi"]);
    // Its pool has its name and its reservations.
    let on = |flash: &str, more: &str| {
        disk("a", &format!("flash = \"{flash}\"\n{more}")) + &target("0 = \"a\"", "")
    };
    check(&on("/f:64MiB", ""), &on("/g:64MiB", ""), &["a at-next-start flash"]);
    check(&on("/f:64MiB", ""), &on("/f:80MiB", ""), &["a opened-again flash=/f:80MiB"]);
    let force = in_force(&spec(&two), &spec(&one));
    assert_eq!(force.targets[0].luns.len(), 1, "the unit of a disk that goes is not offered again");
    assert_eq!(in_force(&spec(&one), &spec(&two)).targets, spec(&two).targets);
    // A disk between them would take the number of the one behind it.
    let between = a.clone() + &disk("c", "") + &b + &target("0 = \"a\"\n1 = \"c\"\n2 = \"b\"", "");
    assert_eq!(in_force(&spec(&two), &spec(&between)).targets, spec(&two).targets);
    check(&two, &between, &["c added", "- at-next-start iscsi"]);
}

#[test]
fn what_a_daemon_has_taken_over_has_disks_as_they_were_opened_and_those_that_still_go() {
    let (a, b) = (disk("a", ""), disk("b", ""));
    let old = spec(&(a.clone() + &b));
    let new = spec(&(disk("a", "block-size = \"4KiB\"") + &disk("c", "")));
    let force = in_force(&old, &new);
    let names: Vec<&str> = force.disks.iter().map(|disk| disk.name.0.as_str()).collect();
    assert_eq!(names, ["a", "c", "b"]);
    assert_eq!(force.disks[0], old.disks[0]);
    assert_eq!(force.listeners.len(), 3);
    // The file once more: what is in force differs from it in the same settings, and in what still goes.
    let again = differences(&force, &new);
    assert_eq!(again.iter().map(Difference::kind).collect::<Vec<_>>(), ["removed", "opened-again"]);
    let gone = without(&force, "b");
    assert_eq!((gone.disks.len(), gone.listeners.len()), (2, 2));
    assert_eq!(differences(&gone, &new).len(), 1);
}

#[test]
fn a_disk_that_still_goes_is_found_where_it_was_and_no_other_with_it() {
    let disk = |name| format!("[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\n");
    let at = |place, disks| format!("[[nbd]]\nlisten = \"unix:/{place}\"\ndisks = {disks}\n");
    let (two, three) = (disk("a") + &disk("b"), disk("a") + &disk("b") + &disk("c"));
    let old = spec(&(three + &at("x", "[\"a\", \"c\"]") + &at("y", "[\"b\", \"c\"]")));
    // Clients are attached to c. The others change places, and nobody else is at the one of a.
    let new = spec(&(two + &at("y", "[\"a\", \"b\"]")));
    let force = in_force(&old, &new);
    let found: Vec<(String, Vec<&str>)> = force
        .listeners
        .iter()
        .map(|it| (it.place(), it.disks.iter().map(|name| name.0.as_str()).collect()))
        .collect();
    assert_eq!(found, [("/y".into(), vec!["a", "b", "c"]), ("/x".into(), vec!["c"])]);
    assert_eq!(without(&force, "c").listeners, new.listeners);
}

#[test]
fn a_disk_that_moves_is_named_also_while_others_come_or_go() {
    let disk = |name, at| {
        format!("[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nnbd = [\"unix:/{at}\"]\n")
    };
    let kinds = |old: &[&String], new: &[&String]| {
        let text = |disks: &[&String]| disks.iter().map(|disk| disk.as_str()).collect::<String>();
        let found = differences(&spec(&text(old)), &spec(&text(new)));
        found.iter().map(Difference::kind).collect::<Vec<_>>()
    };
    let (a, moved, b) = (disk("a", "a"), disk("a", "x"), disk("b", "b"));
    assert_eq!(kinds(&[&a, &b], &[&moved]), ["removed", "listeners"]);
    assert_eq!(kinds(&[&a], &[&moved, &b]), ["added", "listeners"]);
    assert_eq!(kinds(&[&a, &b], &[&a]), ["removed"]);
    assert_eq!(kinds(&[&a], &[&a, &b]), ["added"]);
}

#[test]
fn who_listens_at_a_place_goes_on_as_it_is_and_a_restart_is_named() {
    let at = |mode: &str, limit: u32| {
        spec(&format!(
            "[[disk]]\nname = \"a\"\nbackend = \"mem:1MiB\"\n\
             [[nbd]]\nlisten = \"unix:/x{mode}\"\nconnections-max = {limit}\n"
        ))
    };
    let old = at("?mode=0600", 8);
    for (new, keys) in [
        (at("?mode=0660", 8), "mode and group of sockets"),
        (at("?mode=0600", 9), "connections-max"),
        (at("?mode=0660", 9), "mode and group of sockets, connections-max"),
    ] {
        let expect = format!("what is said of {keys} is in force after a restart");
        let told = |old: &DaemonSpec| {
            differences(old, &new).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(&old), [&*expect]);
        // The file once more says the same.
        assert_eq!(told(&in_force(&old, &new)), [&*expect]);
    }
}

#[test]
fn a_target_that_is_not_listed_any_more_stays_with_the_pools_of_its_units_until_a_restart() {
    let (a, b) = (disk("a", ""), disk("b", ""));
    let moved = disk("a", "flash = \"/f:64MiB\"");
    let target = |luns: &str| {
        let target = "listen = [\"127.0.0.1:3260\"]\ntarget = \"iqn.2026-01.org:t\"";
        format!("[[iscsi]]\n{target}\n[iscsi.luns]\n{luns}\n")
    };
    let both = format!("{a}{b}{}", target("0 = \"a\"\n1 = \"b\""));
    check(&both, &format!("{a}{b}"), &["- at-next-start iscsi"]);
    let waiting = ["a at-next-start flash", "- at-next-start iscsi"];
    check(&both, &format!("{moved}{b}"), &waiting);
    check(&both, &format!("{moved}{b}{}", target("1 = \"b\"")), &waiting);
    // With its disks it goes at once.
    check(&format!("{a}{b}{}", target("0 = \"a\"")), &b, &["a removed"]);
}

#[test]
fn a_cache_over_an_export_is_dropped_where_nothing_proves_that_the_export_is_as_it_was() {
    let left = |backend: &str, more: &str| {
        let disk = |setting: &str| {
            spec(&format!(
                "[[disk]]\nname = \"a\"\nbackend = \"{backend}\"\nflash = \"/nvme/pool:1GiB\"\nnbd = [\"unix:/run/a\"]\n{more}\n{setting}\n"
            ))
        };
        match &differences(&disk(""), &disk("recorder = \"1MiB\""))[..] {
            [Difference::OpenedAgain(_, _, left)] => *left,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(left("file:/san/a", ""), Left::Flash);
    for silent in ["nbd://san/a", "block:/dev/sdb"] {
        assert_eq!(left(silent, ""), Left::Nothing);
        assert_eq!(left(silent, "backend-exclusive = true"), Left::Flash);
    }
}
