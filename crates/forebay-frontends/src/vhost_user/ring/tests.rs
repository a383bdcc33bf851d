//! Waking the guest. What a ring gives and takes is tested with its queue (`driver/tests.rs`).

use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};

use super::Call;

/// It takes 2⁶⁴ - 2 signals: one more would wait for its owner, and all disks of the shard with it.
#[test]
fn a_guest_that_cannot_be_woken_is_not_waited_for() {
    for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
        let eventfd = eventfd(0, flags).unwrap();
        let call = Call(eventfd.try_clone().unwrap());
        assert!(call.wake());
        rustix::io::write(&eventfd, &(u64::MAX - 2).to_ne_bytes()).unwrap();
        assert!(!call.wake());
    }
}

/// The mode is the file's, which the hypervisor has as well.
#[test]
fn a_hypervisor_that_changes_the_mode_of_what_wakes_it_is_not_waited_for() {
    let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let call = Call(eventfd.try_clone().unwrap());
    rustix::io::write(&eventfd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    fcntl_setfl(&eventfd, OFlags::RDWR).unwrap();
    let (sender, woken) = channel();
    std::thread::spawn(move || sender.send(call.wake()));
    assert_eq!(woken.recv_timeout(Duration::from_secs(20)), Ok(false));
}
