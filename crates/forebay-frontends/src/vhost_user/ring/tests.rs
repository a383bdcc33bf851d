//! Waking the guest. What a ring gives and takes is tested with its queue (`driver/tests.rs`).

use rustix::event::{EventfdFlags, eventfd};

use super::Call;

/// It takes 2⁶⁴ - 2 signals: one more would wait for its owner, and all disks of the shard with it.
#[test]
fn a_guest_that_cannot_be_woken_is_not_waited_for() {
    for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
        let eventfd = eventfd(0, flags).unwrap();
        let call = Call::new(eventfd.try_clone().unwrap());
        assert!(call.wake());
        rustix::io::write(&eventfd, &(u64::MAX - 2).to_ne_bytes()).unwrap();
        assert!(!call.wake());
    }
}
