use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_host::events::EventLog;
use forebay_shard::testing;

use super::*;

/// GET_FEATURES of the control protocol: its number, version 1, and no bytes.
const GET_FEATURES: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// A hypervisor that asks what a device has, and waits this long for the answer.
fn ask(socket: &Path, patience: Duration) -> UnixStream {
    let mut hypervisor = UnixStream::connect(socket).expect("somebody listens");
    hypervisor.set_read_timeout(Some(patience)).unwrap();
    hypervisor.write_all(&GET_FEATURES).unwrap();
    hypervisor
}

fn export(disk: &DiskHandle) -> vhost_user::Export {
    vhost_user::Export {
        serial: String::new(),
        size: disk.size(),
        read_only: false,
        write_cache: true,
        preferred_block: 4096,
        discard: true,
        queues: 1,
    }
}

fn attach(frontends: &Frontends, socket: &Path, disk: &DiskHandle) -> Result<()> {
    let name = socket.file_name().unwrap().to_str().unwrap();
    let socket = socket.display().to_string().parse().unwrap();
    let device = Some((VhostUserSpec { socket, queues: 1 }, export(disk)));
    frontends.attach_device(&Name(name.to_owned()), device, disk)
}

#[tokio::test]
async fn a_hypervisor_is_let_in_when_all_clients_are() {
    let folder = tempfile::tempdir().unwrap();
    let [early, late] = ["early", "late"].map(|name| folder.path().join(name));
    let (_log, events) = EventLog::start(None).unwrap();
    let frontends = Frontends::new(Arc::default(), events);
    let (disk, _shard) = testing::hung(1 << 20);
    attach(&frontends, &early, &disk).unwrap();
    let error = attach(&frontends, Path::new("/proc/no/device"), &disk).unwrap_err();
    assert!(format!("{error:#}").contains("disk 'device': its vhost-user device"), "{error:#}");

    let mut answer = [0; 20];
    let mut hypervisor = ask(&early, Duration::from_millis(300));
    let waits = hypervisor.read_exact(&mut answer).map_err(|error| error.kind());
    assert_eq!(waits, Err(ErrorKind::WouldBlock), "no disk of the start is in use before all are");
    frontends.open();
    hypervisor.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    hypervisor.read_exact(&mut answer).expect("it waited until now");

    attach(&frontends, &late, &disk).unwrap();
    ask(&late, Duration::from_secs(30)).read_exact(&mut answer).expect("it waits for nobody");
}

#[tokio::test]
async fn a_start_that_fails_leaves_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db");
    let (_log, events) = EventLog::start(None).unwrap();
    let (disk, _shard) = testing::hung(1 << 20);
    let frontends = Frontends::new(Arc::default(), events);
    attach(&frontends, &socket, &disk).unwrap();
    let mut hypervisor = ask(&socket, Duration::from_secs(30));
    drop(frontends);
    assert!(!socket.exists());
    let ended = hypervisor.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
}

#[tokio::test]
async fn whoever_tells_the_size_of_a_disk_waits_for_its_device_but_not_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db");
    let (_log, events) = EventLog::start(None).unwrap();
    let (disk, _shard) = testing::hung(1 << 20);
    let frontends = Arc::new(Frontends::new(Arc::default(), events));
    attach(&frontends, &socket, &disk).unwrap();
    frontends.open();
    let mut hypervisor = ask(&socket, Duration::from_secs(30));
    hypervisor.read_exact(&mut [0; 20]).unwrap();
    let (told, is_told) = std::sync::mpsc::channel();
    let telling = frontends.clone();
    // A message may wait for a guest's request, and that for primary storage.
    let device = frontends.device("db").unwrap();
    device.while_busy(|| {
        let users = Arc::strong_count(&device);
        tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            telling.tell_size("db", &disk);
            told.send(began.elapsed()).unwrap();
        });
        let waited = is_told.recv_timeout(Duration::from_secs(20)).expect("it goes on without");
        assert!(waited >= TELL_MAX, "the device may have been told a moment later: {waited:?}");
        assert_eq!(Arc::strong_count(&device), users, "what waits on keeps no socket");
    });
}

#[tokio::test]
async fn a_hypervisor_that_comes_after_a_disk_was_opened_again_sees_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db");
    let (_log, events) = EventLog::start(None).unwrap();
    let frontends = Frontends::new(Arc::default(), events);
    let (disk, _shard) = testing::hung(1 << 20);
    attach(&frontends, &socket, &disk).unwrap();
    frontends.open();
    let features = |hypervisor: &mut UnixStream| {
        let mut answer = [0; 20];
        hypervisor.read_exact(&mut answer).unwrap();
        u64::from_le_bytes(*answer.last_chunk().unwrap())
    };
    let mut first = ask(&socket, Duration::from_secs(30));
    let before = features(&mut first);
    let changed = vhost_user::Export { discard: false, ..export(&disk) };
    frontends.bound().devices["db"].change(&changed);
    first.write_all(&GET_FEATURES).unwrap();
    assert_eq!(features(&mut first), before, "a session keeps what it was told");
    drop(first);
    assert_eq!(features(&mut ask(&socket, Duration::from_secs(30))), changed.features());
    assert_ne!(before, changed.features());
}
