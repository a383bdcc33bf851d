//! How a process ends: what signals do, and what hangs.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::common::{Client, Folder, Forebay, forebay};
use super::stats;

#[test]
fn sigterm_answers_what_is_in_flight_closes_clients_and_removes_sockets() {
    let folder = Folder::new();
    folder.image("disk.raw", 16 << 20);
    let inner = folder.text("model:san?latency=300ms&inner=file:", "disk.raw");
    let (nbd, control) = (folder.text("unix:", "nbd.sock"), folder.text("", "control.sock"));
    let args =
        ["run", &inner, "--name", "db", "--ram", "1MiB", "--nbd", &nbd, "--control", &control];
    let server = Forebay::start(&args);
    let mut client = Client::attach(&folder.path("nbd.sock"), "db");
    client.write(0, &[7; 4096]);
    // The statistics show that the request has arrived. On a busy machine it may be answered before they do: once more.
    let cookie = loop {
        let cookie = client.send(1, 4096, 4096, &[8; 4096]);
        if in_flight(&control) {
            break cookie;
        }
        assert_eq!(client.receive(0).unwrap().0, cookie);
    };
    server.signal(Signal::TERM);
    assert_eq!(client.receive(0).unwrap().0, cookie);
    assert!(client.is_closed());
    let (code, error) = server.wait();
    assert_eq!(code, Some(0), "{error}");
    assert!(!folder.path("nbd.sock").exists() && !folder.path("control.sock").exists());
    assert_eq!(std::fs::read(folder.path("disk.raw")).unwrap()[4096..8192], [8; 4096]);
}

fn in_flight(control: &str) -> bool {
    let output = forebay(&["stats", "db", "--json", "--control", control]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    stats["requests_in_flight"] == 1
}

/// A server of whose disk one read will take very long.
fn slow_server(folder: &Folder) -> (Forebay, Client) {
    let (nbd, control) = (folder.text("unix:", "nbd.sock"), folder.text("", "control.sock"));
    let backend = "model:san?latency=20s&inner=mem:16MiB";
    let args =
        ["run", backend, "--name", "db", "--ram", "1MiB", "--nbd", &nbd, "--control", &control];
    let server = Forebay::start(&args);
    let mut client = Client::attach(&folder.path("nbd.sock"), "db");
    client.send(0, 0, 4096, &[]);
    while !in_flight(&control) {}
    server.signal(Signal::TERM);
    // The listener goes first: from then on another signal is the second.
    while folder.path("nbd.sock").exists() {}
    (server, client)
}

#[test]
fn another_signal_ends_it_at_once() {
    let folder = Folder::new();
    let (server, _client) = slow_server(&folder);
    server.signal(Signal::INT);
    let (code, error) = server.wait();
    assert_eq!(code, Some(1));
    assert!(error.contains("ended by SIGINT after SIGTERM"), "{error}");
    assert!(!folder.path("control.sock").exists());
}

#[test]
fn the_same_signal_ends_it_at_once_a_second_later() {
    let folder = Folder::new();
    let (mut server, _client) = slow_server(&folder);
    let began = std::time::Instant::now();
    while server.is_running() {
        server.signal(Signal::TERM);
        std::thread::yield_now();
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "long before the read's end");
    let (code, error) = server.wait();
    assert_eq!(code, Some(1));
    assert!(error.contains("ended by SIGTERM after SIGTERM"), "{error}");
}

#[test]
fn a_disk_that_hangs_keeps_a_disk_of_another_shard_from_nothing_when_they_end() {
    let folder = Folder::new();
    folder.image("well.raw", 1 << 20);
    let config = format!(
        "shards = 2\ncontrol = \"{control}\"\n\
         [[disk]]\nname = \"hung\"\nbackend = \"fault:rule=hang,op=read&inner=mem:1MiB\"\nram = \"1MiB\"\n\
         [[disk]]\nname = \"well\"\nbackend = \"file:{image}\"\nram = \"1MiB\"\n\
         [[nbd]]\nlisten = \"unix:{nbd}\"\n",
        control = folder.path("control.sock").display(),
        image = folder.path("well.raw").display(),
        nbd = folder.path("nbd.sock").display(),
    );
    std::fs::write(folder.path("forebay.toml"), config).unwrap();
    let server = Forebay::start(&["serve", "--config", &folder.text("", "forebay.toml")]);
    let control = folder.text("", "control.sock");
    let mut hung = Client::attach(&folder.path("nbd.sock"), "hung");
    let mut well = Client::attach(&folder.path("nbd.sock"), "well");
    hung.send(0, 0, 4096, &[]);
    well.write(0, &[7; 4096]);
    while stats(&control, "hung").unwrap()["requests_in_flight"] != 1 {}
    server.signal(Signal::TERM);
    let began = std::time::Instant::now();
    // One disk has ended, flushed, while the other still waits for its read.
    let ended = loop {
        if let Err(error) = stats(&control, "well") {
            break error;
        }
    };
    assert!(ended.contains("the shard of disk 'well' has ended"), "{ended}");
    assert_eq!(stats(&control, "hung").unwrap()["requests_in_flight"], 1);
    assert!(well.is_closed());
    let (code, error) = server.wait();
    assert_eq!(code, Some(1));
    assert!(error.contains("within 30s on disk hung;"), "{error}");
    assert!(began.elapsed() < std::time::Duration::from_secs(40), "within the limit");
    assert!(!folder.path("nbd.sock").exists() && !folder.path("control.sock").exists());
}

/// A pipe in the place of a file: who opens it waits, as on a file system that hangs.
fn hang(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Returns once somebody opens it, who then waits as long as the result is there.
fn hangs(path: &std::path::Path) -> std::fs::File {
    std::fs::OpenOptions::new().write(true).open(path).unwrap()
}

/// True when it ends long before a test is killed.
fn ends(process: Pid) -> bool {
    let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).unwrap();
    let patience = Timespec { tv_sec: 40, tv_nsec: 0 };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap() == 1
}

#[test]
fn an_opening_that_hangs_keeps_the_process_neither_from_serving_nor_from_ending() {
    let folder = Folder::new();
    folder.image("disk.raw", 1 << 20);
    let (backend, other) = (folder.text("file:", "disk.raw"), folder.text("", "other.sock"));
    let nbd = ["--ram", "1MiB", "--nbd", "127.0.0.1:0"];
    let holds = Forebay::start(&[&["run", &backend, "--control", &other], &nbd[..]].concat());
    let config = format!(
        "control = \"{control}\"\n\
         [[disk]]\nname = \"a\"\nbackend = \"mem:1MiB\"\nram = \"1MiB\"\n\
         [[disk]]\nname = \"b\"\nbackend = \"{backend}\"\nram = \"1MiB\"\n\
         [[nbd]]\nlisten = \"unix:{nbd}\"\n",
        control = folder.path("control.sock").display(),
        nbd = folder.path("nbd.sock").display(),
    );
    std::fs::write(folder.path("forebay.toml"), config).unwrap();
    let server = Forebay::start(&["serve", "--config", &folder.text("", "forebay.toml")]);
    assert!(server.summary.contains("disk b: NOT SERVED"), "{}", server.summary);
    assert_eq!(holds.terminate().0, Some(0));
    let sidecar = folder.path("disk.raw.forebay");
    let _ = std::fs::remove_file(&sidecar);
    hang(&sidecar);
    let control = folder.text("", "control.sock");
    let asks = control.clone();
    let opens = std::thread::spawn(move || forebay(&["disk", "open", "b", "--control", &asks]));
    let _hung = hangs(&sidecar);
    assert_eq!(stats(&control, "a").unwrap()["name"], "a");
    server.signal(Signal::TERM);
    assert!(ends(server.pid()));
    let (code, error) = server.wait();
    assert_eq!(code, Some(0), "{error}");
    assert!(!opens.join().unwrap().status.success());
}

#[test]
fn a_start_that_hangs_ends_with_a_signal() {
    let folder = Folder::new();
    folder.image("disk.raw", 1 << 20);
    let sidecar = folder.path("disk.raw.forebay");
    hang(&sidecar);
    let (backend, control) = (folder.text("file:", "disk.raw"), folder.text("", "control.sock"));
    let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["run", &backend, "--ram", "1MiB", "--nbd", "127.0.0.1:0", "--control", &control])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let _hung = hangs(&sidecar);
    let process = Pid::from_child(&server);
    rustix::process::kill_process(process, Signal::TERM).unwrap();
    let has_ended = ends(process);
    let _ = server.kill();
    let output = server.wait_with_output().unwrap();
    assert!(has_ended);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("SIGTERM: ended before it was ready"), "{error}");
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(!folder.path("control.sock").exists());
}
