//! The daemon inside this process: start, control socket, end, and start again.

#![allow(missing_docs, clippy::disallowed_methods)]

mod common;

use common::{Client, Folder};
use forebay::config::values::{Access, Address, Mode, Name, Reactor, Size};
use forebay::config::{DaemonSpec, DiskOptions, ListenerSpec};
use forebay::daemon::Daemon;
use forebay::daemon::inherited::Inherited;

fn spec(folder: &Folder, backend: String) -> DaemonSpec {
    let name = Name("db".to_owned());
    let options = DiskOptions {
        mode: Some(Mode(forebay_core::config::Mode::WriteThrough)),
        ram: Some(Size(1 << 20)),
        ..DiskOptions::default()
    };
    DaemonSpec {
        sources: None,
        disks: vec![options.resolve(name.clone(), backend)],
        listeners: vec![ListenerSpec {
            address: Address::Unix(folder.path("nbd.sock"), Access::default()),
            disks: vec![name.clone()],
            connections_max: 4,
        }],
        targets: Vec::new(),
        name,
        shards: 1,
        shards_asked: None,
        reactor: Reactor(None),
        control: Some(folder.path("control.sock")),
        state_dir: Some(folder.path("state")),
        pools: Vec::new(),
        http: None,
    }
}

/// A blocking client beside the daemon's runtime.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn a_daemon_that_has_ended_lets_go_of_everything() {
    let folder = Folder::new();
    folder.image("disk.raw", 8 << 20);
    let inner = folder.text("model:san?latency=1ms&inner=file:", "disk.raw");
    for round in 0..3u8 {
        let daemon =
            Daemon::start(spec(&folder, inner.clone()), Inherited::default()).await.unwrap();
        let socket = folder.path("nbd.sock");
        beside(move || {
            let mut client = Client::attach(&socket, "db");
            let mut other = Client::attach(&socket, "db");
            client.write(0, &[round; 8192]);
            assert_eq!(other.read(0, 8192), [round; 8192]);
        })
        .await;
        let stats = daemon.disks()[0].stats().await.unwrap();
        assert_eq!(stats.engine.counters.writes, 1);
        daemon.shut_down().await.unwrap();
        assert!(!folder.path("nbd.sock").exists() && !folder.path("control.sock").exists());
    }
}

#[tokio::test]
async fn a_start_that_fails_undoes_what_it_did() {
    let folder = Folder::new();
    let mut wrong = spec(&folder, "mem:1MiB".to_owned());
    // Where a disk is found at another place, that goes on.
    wrong.listeners[0].address = Address::Unix("/proc/no/such/place".into(), Access::default());
    let error = Daemon::start(wrong, Inherited::default()).await.unwrap_err();
    assert!(format!("{error:#}").contains("/proc/no"), "{error:#}");
    assert!(!folder.path("nbd.sock").exists() && !folder.path("control.sock").exists());
    let daemon =
        Daemon::start(spec(&folder, "mem:1MiB".to_owned()), Inherited::default()).await.unwrap();
    daemon.shut_down().await.unwrap();
}
