use std::sync::Arc;

use forebay_backends::OpenOptions;
use forebay_core::config::Mode;
use forebay_host::events::{EventLog, EventSender};
use forebay_io::mailbox::{Receiver, channel};
use forebay_io::reactor::{Reactor, ReactorKind};

use super::*;
use crate::return_path::ReturnPath;
use crate::tests::{disk, handle_of};

/// Disks that come and go; nothing carries out what they ask for.
struct World {
    roster: Roster,
    reactor: Reactor,
    events: EventSender,
    sender: Sender<Command>,
    _mailbox: Receiver<Command>,
    _log: Arc<EventLog>,
}

impl World {
    fn new() -> World {
        let (log, events) = EventLog::start(None).unwrap();
        let reactor = Reactor::new(8, Some(ReactorKind::Epoll)).unwrap();
        let (sender, mailbox) = channel(8, reactor.waker());
        World { roster: Roster::default(), reactor, events, sender, _mailbox: mailbox, _log: log }
    }

    /// A new disk comes.
    fn add(&mut self) -> (DiskHandle, u32) {
        let (new, _peer) = disk("disk", Mode::WriteThrough);
        let handle = handle_of(&new, &self.sender);
        let number = self.replace(&handle);
        (handle, number)
    }

    /// Another disk takes the place of this one; its number.
    fn replace(&mut self, handle: &DiskHandle) -> u32 {
        let (mut new, _peer) = disk("disk", Mode::WriteThrough);
        new.backend =
            forebay_backends::open(&"mem:1MiB".parse().unwrap(), OpenOptions::default()).unwrap();
        let (number, sender) = (self.roster.take_number().unwrap(), self.sender.clone());
        let path = ReturnPath { sender, number };
        let (events, reactor) = (self.events.clone(), &mut self.reactor);
        let attached = ShardDisk::attach(new, Nanos(1), reactor, events, (handle, path));
        self.roster.add(attached.unwrap(), number);
        number
    }

    fn leave(&mut self, disk: &DiskHandle) {
        self.roster.move_to(disk, self.sender.clone());
    }
}

#[tokio::test]
async fn ten_thousand_disks_that_have_gone_cost_a_turn_nothing_and_hardly_any_memory() {
    let mut world = World::new();
    let (first, _) = world.add();
    let mut last = world.add();
    for round in 0..10_000 {
        if round % 2 == 0 {
            last.1 = world.replace(&last.0);
        } else {
            world.leave(&last.0);
            last = world.add();
        }
        world.roster.sleep();
        if round % 100 == 0 {
            // No end of a disk lets go of what it has there.
            world.reactor = Reactor::new(8, Some(ReactorKind::Epoll)).unwrap();
        }
    }
    let Roster { here, of_numbers, of_ids, moved, gone, awake } = &world.roster;
    // What a turn looks at.
    assert_eq!((here.len(), awake.len()), (2, 0));
    assert!(here.capacity() < 10);
    assert_eq!((of_numbers.len(), size_of_val(&of_numbers[0])), (10_002, 4));
    // The ids are those of the whole process.
    assert_eq!(size_of_val(&of_ids[0]), 4);
    assert!(moved.len() < 3, "the handles of all but the last are gone: {}", moved.len());
    assert!(gone.is_empty());
    world.roster.wake_all();
    assert_eq!(world.roster.awake(), 2);
    for disk in [&first, &last.0] {
        assert_eq!(world.roster.look(disk.id).unwrap().id(), disk.id);
    }
}

#[tokio::test]
async fn a_disk_is_found_by_its_id_and_its_number_whoever_else_has_gone() {
    let mut world = World::new();
    let mut disks: Vec<_> = (0..5).map(|_| world.add()).collect();
    let mut dead = Vec::new();
    let check = |world: &mut World, disks: &[(DiskHandle, u32)]| {
        for (disk, number) in disks {
            assert_eq!(world.roster.find(disk.id).unwrap().id(), disk.id);
            assert_eq!(world.roster.find_numbered(*number).unwrap().id(), disk.id);
            assert_eq!(world.roster.port(disk.id).engine.config().backend.size, 1 << 20);
        }
        world.roster.check_invariants();
        assert_eq!(world.roster.awake(), disks.len());
        world.roster.sleep();
        assert_eq!(world.roster.awake(), 0);
    };
    check(&mut world, &disks);
    // Of those that sleep and those that are awake one goes: the first, one between, the last.
    for (goes, wakes) in [(0, 3), (1, 1), (2, 0)] {
        world.roster.find(disks[wakes].0.id);
        let (gone, number) = disks.remove(goes);
        world.leave(&gone);
        dead.push((gone, number));
        check(&mut world, &disks);
    }
    // One takes the place of another.
    dead.push(disks[0].clone());
    disks[0].1 = world.replace(&disks[0].0);
    disks.push(world.add());
    check(&mut world, &disks);
    for (disk, number) in &dead {
        assert!(world.roster.find_numbered(*number).is_none(), "what comes late finds nobody");
        let is_here = disks.iter().any(|(it, _)| it.is(disk));
        assert_eq!(world.roster.find(disk.id).is_some(), is_here);
        assert_eq!(world.roster.moved_to(disk.id).is_some(), !is_here);
    }
    assert!(
        world.roster.find_numbered(99).is_none() && world.roster.find(DiskId(99_999)).is_none()
    );
}
