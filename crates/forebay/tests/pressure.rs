//! A disk whose clients ask for more than it has memory or places for.

#![allow(missing_docs, clippy::disallowed_methods)]

mod common;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Client, Folder, Forebay};

/// Longer than any of this may take, so that a server that hangs fails the test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(45);

#[test]
fn clients_that_wait_for_memory_get_it_when_primary_storage_has_answered() {
    // Six clients with 16 MiB in flight each ask for more than the 72 MiB of request buffers.
    const CLIENTS: u64 = 6;
    const WRITE: usize = 2 << 20;
    let folder = Folder::new();
    for reactor in ["auto", "epoll"] {
        let (nbd, control) = (folder.text("unix:", "nbd.sock"), folder.text("", "control.sock"));
        let backend = "model:san?latency=1s&inner=mem:128MiB";
        let mut args = vec!["run", backend, "--name", "db", "--ram", "1MiB", "--nbd", &nbd];
        args.extend(["--control", &control, "--reactor", reactor]);
        let server = Forebay::start(&args);
        let (done, ended) = channel();
        for client in 0..CLIENTS {
            let (done, socket) = (done.clone(), folder.path("nbd.sock"));
            std::thread::spawn(move || {
                let mut connection = Client::attach(&socket, "db");
                for write in 0..8 {
                    let offset = (client * 8 + write) * WRITE as u64;
                    connection.send(1, offset, WRITE as u32, &vec![client as u8 + 1; WRITE]);
                }
                let errors = (0..8).map(|_| connection.receive(0).unwrap().1).sum::<u32>();
                let _ = done.send(errors);
            });
        }
        for _ in 0..CLIENTS {
            assert_eq!(ended.recv_timeout(PATIENCE), Ok(0), "the server hangs or fails");
        }
        let (code, error) = server.terminate();
        assert_eq!(code, Some(0), "{error}");
    }
}

#[test]
fn a_client_that_does_not_read_its_answers_does_not_keep_the_disk_from_ending_well() {
    let folder = Folder::new();
    folder.image("disk.raw", 16 << 20);
    let (nbd, control) = (folder.text("unix:", "nbd.sock"), folder.text("", "control.sock"));
    let backend = folder.text("file:", "disk.raw");
    let mut args = vec!["run", &backend, "--name", "db", "--ram", "1MiB", "--nbd", &nbd];
    args.extend(["--control", &control]);
    let server = Forebay::start(&args);
    let mut deaf = Client::attach(&folder.path("nbd.sock"), "db");
    for n in 0..16 {
        deaf.send(0, (n % 8) << 20, 1 << 20, &[]);
    }
    let mut client = Client::attach(&folder.path("nbd.sock"), "db");
    client.write(0, &[3; 4096]);
    let (code, error) = server.terminate();
    assert_eq!(code, Some(0), "{error}");
    drop(deaf);
}
