//! `forebay` as a process: what it serves, what it refuses, how it ends.

#![allow(missing_docs, clippy::disallowed_methods)]

#[path = "../common/mod.rs"]
mod common;
mod ending;

use common::{Client, Folder, Forebay, forebay};
use rustix::process::Signal;

fn start(folder: &Folder, more: &[&str]) -> Forebay {
    let (backend, nbd) = (folder.text("file:", "disk.raw"), folder.text("unix:", "nbd.sock"));
    let control = folder.text("", "control.sock");
    let mut args = vec!["run", &backend, "--name", "db", "--ram", "1MiB", "--nbd", &nbd];
    args.extend(["--control", &control]);
    args.extend(more);
    Forebay::start(&args)
}

#[test]
fn what_is_written_is_read_again_and_is_on_primary_storage() {
    for reactor in ["auto", "epoll"] {
        let folder = Folder::new();
        folder.image("disk.raw", 16 << 20);
        let flash = folder.text("", "flash") + ":4MiB";
        let more = ["--flash", &flash, "--flash-admission", "always", "--reactor", reactor];
        let server = start(&folder, &more);
        let mut client = Client::attach(&folder.path("nbd.sock"), "db");
        assert_eq!(client.size, 16 << 20);
        let piece = |n: u64| vec![n as u8 + 1; 12 << 10];
        for n in 0..200u64 {
            client.write(n * 40 * 1024 + 512, &piece(n));
        }
        for _ in 0..3 {
            for n in 0..200u64 {
                assert_eq!(client.read(n * 40 * 1024 + 512, 12 << 10), piece(n), "piece {n}");
            }
        }
        let (code, error) = server.terminate();
        assert_eq!(code, Some(0), "{error}");
        let image = std::fs::read(folder.path("disk.raw")).unwrap();
        for n in 0..200 {
            let start = n * 40 * 1024 + 512;
            assert_eq!(image[start..start + (12 << 10)], piece(n as u64));
        }
    }
}

/// What `forebay stats` says of a disk, as JSON, or its error.
fn stats(control: &str, disk: &str) -> Result<serde_json::Value, String> {
    let output = forebay(&["stats", disk, "--json", "--control", control]);
    serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_disk_that_cannot_be_had_at_one_address_is_served_at_the_others_and_there_later() {
    let folder = Folder::new();
    folder.image("disk.raw", 1 << 20);
    let (backend, other) = (folder.text("file:", "disk.raw"), folder.text("", "other.sock"));
    let nbd = ["--ram", "1MiB", "--nbd", "127.0.0.1:0"];
    let holds = Forebay::start(&[&["run", &backend, "--control", &other], &nbd[..]].concat());
    let config = format!(
        "control = \"{control}\"\n\
         [[disk]]\nname = \"a\"\nbackend = \"mem:1MiB\"\nram = \"1MiB\"\n\
         [[disk]]\nname = \"b\"\nbackend = \"{backend}\"\nram = \"1MiB\"\nnbd = [\"unix:{own}\"]\n\
         [[nbd]]\nlisten = \"unix:{both}\"\n",
        control = folder.path("control.sock").display(),
        own = folder.path("own.sock").display(),
        both = folder.path("both.sock").display(),
    );
    std::fs::write(folder.path("forebay.toml"), config).unwrap();
    let server = Forebay::start(&["serve", "--config", &folder.text("", "forebay.toml")]);
    assert!(server.summary.contains("disk b: NOT SERVED"), "{}", server.summary);
    assert_eq!(holds.terminate().0, Some(0));
    let own = folder.path("own.sock");
    std::fs::create_dir(&own).unwrap();
    let control = folder.text("", "control.sock");
    let open = || {
        let output = forebay(&["disk", "open", "b", "--control", &control]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for _ in 0..2 {
        let (code, warning) = open();
        assert_eq!(code, Some(0), "{warning}");
        assert!(warning.contains("not everywhere") && warning.contains("own.sock"), "{warning}");
        let mut client = Client::attach(&folder.path("both.sock"), "b");
        assert_eq!(client.read(0, 512), [0; 512]);
    }
    std::fs::remove_dir(&own).unwrap();
    // The daemon may have been faster.
    let (code, error) = open();
    assert!(code == Some(0) || error.contains("there is nothing to open"), "{error}");
    assert_eq!(Client::attach(&own, "b").read(0, 512), [0; 512]);
    let (code, error) = open();
    assert_eq!(code, Some(1));
    assert!(error.contains("it is served: there is nothing to open"), "{error}");
    let (code, error) = server.terminate();
    assert_eq!(code, Some(0), "{error}");
    assert!(!own.exists());
}

#[test]
fn a_second_run_on_the_same_socket_backend_or_flash_is_refused() {
    let folder = Folder::new();
    folder.image("disk.raw", 16 << 20);
    let flash = folder.text("", "flash") + ":1MiB";
    let _server = start(&folder, &["--flash", &flash]);
    let (backend, nbd) = (folder.text("file:", "disk.raw"), folder.text("unix:", "nbd.sock"));
    let (control, other) = (folder.text("", "control.sock"), folder.text("", "other.sock"));
    let (ram, free) = (["--ram", "1MiB"], "127.0.0.1:0");
    let cases: [(Vec<&str>, &str); 4] = [
        (vec!["run", "mem:1MiB", "--control", &control, "--nbd", free], "control.sock is in use"),
        (vec!["run", "mem:1MiB", "--control", &other, "--nbd", &nbd], "nbd.sock is in use"),
        (
            vec!["run", "mem:1MiB", "--control", &other, "--flash", &flash, "--nbd", free],
            "flash: already in use by process ",
        ),
        (
            vec!["run", &backend, "--control", &other, "--nbd", free],
            "disk.raw: already in use by process ",
        ),
    ];
    for (mut args, expect) in cases {
        args.extend(ram);
        let output = forebay(&args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expect), "{error}");
        assert!(!folder.path("other.sock").exists(), "what was begun is undone");
    }
    let mut client = Client::attach(&folder.path("nbd.sock"), "db");
    assert_eq!(client.read(0, 512), [0; 512], "the first one goes on");
}

#[test]
fn after_kill_9_it_starts_again_on_everything_and_has_what_was_acknowledged() {
    let folder = Folder::new();
    folder.image("disk.raw", 16 << 20);
    let flash = folder.text("", "flash") + ":1MiB";
    for round in 0..3u8 {
        let server = start(&folder, &["--flash", &flash, "--flash-admission", "always"]);
        let mut client = Client::attach(&folder.path("nbd.sock"), "db");
        for before in 0..round {
            let offset = u64::from(before) * 64 * 1024;
            assert_eq!(client.read(offset, 64 << 10), vec![before + 1; 64 << 10]);
        }
        client.write(u64::from(round) * 64 * 1024, &vec![round + 1; 64 << 10]);
        server.signal(Signal::KILL);
        server.wait();
    }
}

#[test]
fn metadata_beyond_its_limit_is_refused_before_start() {
    let folder = Folder::new();
    let control = folder.text("", "control.sock");
    let limit = ["--ram", "32MiB", "--metadata-limit", "4KiB", "--nbd", "127.0.0.1:0"];
    let output = forebay(&[&["run", "mem:64MiB", "--control", &control], &limit[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("metadata") && error.contains("limit"), "{error}");
}

#[test]
fn a_configuration_file_serves_several_disks_on_several_shards() {
    let folder = Folder::new();
    let config = format!(
        "shards = 2\ncontrol = \"{control}\"\n\
         [[disk]]\nname = \"a\"\nbackend = \"mem:1MiB\"\nram = \"1MiB\"\nflash = \"{flash}:1MiB\"\n\
         [[disk]]\nname = \"b\"\nbackend = \"mem:2MiB\"\nram = \"1MiB\"\nflash = \"{flash}:1MiB\"\n\
         [[nbd]]\nlisten = \"unix:{nbd}\"\nconnections-max = 3\n",
        control = folder.path("control.sock").display(),
        flash = folder.path("flash").display(),
        nbd = folder.path("nbd.sock").display(),
    );
    std::fs::write(folder.path("forebay.toml"), config).unwrap();
    let config = folder.text("", "forebay.toml");
    let server = Forebay::start(&["serve", "--config", &config, "--json"]);
    let info: serde_json::Value = serde_json::from_str(&server.summary).unwrap();
    assert_eq!((&info["disks"][0]["shard"], &info["disks"][1]["shard"]), (&0.into(), &1.into()));
    let socket = folder.path("nbd.sock");
    let mut clients =
        [Client::attach(&socket, "a"), Client::attach(&socket, "b"), Client::attach(&socket, "")];
    assert_eq!(clients.each_ref().map(|client| client.size >> 20), [1, 2, 1]);
    clients[0].write(0, &[1; 4096]);
    clients[1].write(0, &[2; 4096]);
    assert_eq!(clients[2].read(0, 4096), [1; 4096], "the same disk on another connection");
    assert_eq!(clients[1].read(0, 4096), [2; 4096]);
    // A fourth client is closed at once; when one leaves, there is room again.
    let mut excess = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    assert_eq!(std::io::Read::read(&mut excess, &mut [0; 32]).unwrap_or(0), 0);
    let control = folder.text("", "control.sock");
    let output = forebay(&["stats", "--json", "--control", &control]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
    let (code, error) = server.terminate();
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn a_hostile_client_harms_only_itself() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let folder = Folder::new();
    folder.image("disk.raw", 16 << 20);
    let server = start(&folder, &[]);
    let socket = folder.path("nbd.sock");
    let mut client = Client::attach(&socket, "db");
    // Garbage instead of a handshake, a handshake begun and left, one stalled until the end.
    UnixStream::connect(&socket).unwrap().write_all(&[0xA5; 500]).unwrap();
    drop(UnixStream::connect(&socket).unwrap());
    let _stalled = UnixStream::connect(&socket).unwrap();
    // After the handshake: a length of 4 GiB, a write that never arrives, answers that nobody reads.
    let mut giant = Client::attach(&socket, "db");
    giant.send(1, 0, u32::MAX, &[]);
    assert!(giant.is_closed());
    let mut half = Client::attach(&socket, "db");
    half.send(1, 0, 1 << 20, &[1; 1000]);
    drop(half);
    let mut deaf = Client::attach(&socket, "db");
    for n in 0..64 {
        deaf.send(0, (n % 8) << 20, 1 << 20, &[]);
    }
    assert_eq!(client.read(0, 4096), [0; 4096], "nothing of the half write was written");
    client.write(0, &[3; 4096]);
    assert_eq!(client.read(0, 4096), [3; 4096]);
    // Far more connections than are allowed: the newest ones get the places of those that say nothing.
    let mut open: Vec<UnixStream> =
        (0..500).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let is_closed = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        loop {
            match stream.read(&mut [0; 512]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    };
    while open.len() > 128 {
        open.retain_mut(|stream| !is_closed(stream));
    }
    let mut newest = Client::attach(&socket, "db");
    assert_eq!(newest.read(0, 4096), [3; 4096]);
    drop(open);
    assert_eq!(client.read(0, 4096), [3; 4096]);
    drop(deaf);
    let (code, error) = server.terminate();
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn stats_show_the_disk_and_name_what_is_there_when_it_is_not() {
    let folder = Folder::new();
    folder.image("disk.raw", 16 << 20);
    let _server = start(&folder, &[]);
    let control = folder.text("", "control.sock");
    // The disk serves before its RAM is there.
    let ram = || stats(&control, "db").unwrap()["engine"]["ram"].take();
    while ram()["slots_ready"] != ram()["slots"] {}
    let mut client = Client::attach(&folder.path("nbd.sock"), "db");
    client.read(0, 4096);
    client.read(0, 4096);
    let output = forebay(&["stats", "db", "--control", &control]);
    let text = String::from_utf8(output.stdout).unwrap();
    for expect in ["hit ratio 50.0 %", "numBlocks", "vFlash:cacheHitPercentage", "write-through"] {
        assert!(text.contains(expect), "{expect}: {text}");
    }
    let output = forebay(&["stats", "web", "--control", &control]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no disk 'web'") && error.contains("running: db"), "{error}");
    let output = forebay(&["events", "--json", "--control", &control]);
    assert!(output.status.success());
}

#[test]
fn a_cache_without_room_is_served_with_a_warning() {
    let folder = Folder::new();
    let (nbd, control) = (folder.text("unix:", "nbd.sock"), folder.text("", "control.sock"));
    let start = |more: [&str; 2]| {
        let args = ["run", "mem:1MiB", "--name", "db", "--nbd", &nbd, "--control", &control];
        Forebay::start(&[&args[..], &more].concat()).terminate().1
    };
    let warned = start(["--ram", "0"]);
    assert!(warned.contains("disk 'db': nothing will be cached"), "{warned}");
    assert!(!start(["--mode", "pass-through"]).contains("nothing will be cached"));
    // As `trace advise` says it of a disk that only writes: a write log is all that is wanted.
    let flash = folder.text("", "pool") + ":64MiB";
    let with_log = |mode: &str| {
        let disk = ["run", "mem:1MiB", "--name", "db", "--nbd", &nbd, "--control", &control];
        let log = ["--ram", "0", "--flash", &flash, "--write-log", "64MiB", "--mode", mode];
        Forebay::start(&[&disk[..], &log].concat()).terminate().1
    };
    assert!(!with_log("write-only").contains("nothing will be cached"));
    let warned = with_log("write-back");
    assert!(warned.contains("or --mode write-only instead of write-back"), "{warned}");
    let warned = with_log("write-through");
    assert!(warned.contains("or --mode pass-through instead of write-through"), "{warned}");
}

#[test]
fn what_is_typed_wrong_exits_with_2_and_failures_with_1() {
    let folder = Folder::new();
    let control = folder.text("", "control.sock");
    let at = ["--nbd", "127.0.0.1:0", "--control", &control];
    let run = |args: &[&str]| forebay(&[&["run"], args, &at].concat()).status.code();
    assert_eq!(forebay(&["run"]).status.code(), Some(2));
    assert_eq!(run(&["http://x"]), Some(2));
    assert_eq!(run(&["/san/db.raw"]), Some(2));
    assert_eq!(run(&["mem:1MiB", "--block-size", "5000"]), Some(2));
    assert_eq!(run(&["mem:1MiB", "--grid-offset", "100"]), Some(2));
    assert_eq!(run(&["mem:1MiB", "--shards", "99"]), Some(2));
    assert_eq!(run(&["file:/nowhere/at/all"]), Some(1));
    let alone = forebay(&["run", "mem:1MiB", "--control", &control]);
    let error = String::from_utf8_lossy(&alone.stderr);
    assert_eq!(alone.status.code(), Some(2));
    assert!(error.contains("nobody could attach") && error.contains("--nbd unix:/"), "{error}");
    std::fs::write(folder.path("wrong.toml"), "[[disk]]\nbackend = \"mem:1MiB\"\nramm = 1")
        .unwrap();
    let (wrong, none) = (folder.text("", "wrong.toml"), folder.text("", "none.toml"));
    assert_eq!(forebay(&["serve", "--config", &wrong]).status.code(), Some(2));
    assert_eq!(forebay(&["serve", "--config", &none]).status.code(), Some(2));
    assert_eq!(forebay(&["stats", "--control", "/nowhere/at/all"]).status.code(), Some(1));
    assert_eq!(forebay(&["completion", "bash"]).status.code(), Some(0));
    let manual = forebay(&["man"]);
    let manual = String::from_utf8(manual.stdout).unwrap();
    for expect in ["FOREBAY RUN", "Exit codes", "fault:", "XDG_RUNTIME_DIR"] {
        assert!(manual.contains(expect), "{expect}");
    }
    assert!(!manual.contains("forebay\\-run(1)"), "there is no such page");
    // Examples are as they are typed, and each command says how it is called.
    for expect in [
        "\n.nh\n",
        "\n.SH EXAMPLES\n",
        "\n.nf\nforebay demo ",
        "\n.SS SYNOPSIS\n\\fBforebay trace info\\fR ",
    ] {
        assert!(manual.contains(expect), "{expect}");
    }
    assert!(!manual.contains("EXTRA"), "what follows are examples, or notes");
}

#[test]
fn a_check_says_in_words_and_in_json_what_is_fine_and_what_is_not() {
    let folder = Folder::new();
    let check = |config: &str, more: &[&str]| {
        let path = folder.text("", "check.toml");
        std::fs::write(&path, config).unwrap();
        let output = forebay(&[&["serve", "--config", &path, "--check"], more].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let disk = "[[disk]]\nname = 'db'\nbackend = 'mem:1MiB'\nram = '0'\n";
    let fine = format!("{disk}nbd = ['127.0.0.1:0']\n");
    let (code, text) = check(&fine, &[]);
    assert_eq!(code, Some(0));
    assert!(text.contains("is fine: 1 disk, 1 listener"), "{text}");
    assert!(text.contains("warning: disk 'db': nothing will be cached"), "{text}");
    let json = |config: &str| {
        let (code, text) = check(config, &["--json"]);
        (code, serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    let (code, found) = json(&fine);
    assert_eq!(
        (code, &found["is_fine"], &found["disks"][0]),
        (Some(0), &true.into(), &"db".into())
    );
    assert!(found["error"].is_null() && found["warnings"][0].as_str().unwrap().contains("cached"));
    for (more, says) in [("", "nobody could attach"), ("queues = 2\n", "vhost-user")] {
        let (code, found) = json(&format!("{disk}{more}"));
        assert_eq!((code, &found["is_fine"]), (Some(2), &false.into()), "{found}");
        assert!(found["error"].as_str().unwrap().contains(says), "{found}");
    }
    let output = forebay(&["run", "mem:1MiB", "--nbd", "127.0.0.1:0", "--queues", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--vhost-user"));
}
