use std::collections::BTreeMap;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::GuestMemoryBackend;

use super::super::driver::Weight;
use super::super::export::example;
use super::super::memory::Map;
use super::*;

/// A shard that writes down what it is asked for.
#[derive(Debug, Default)]
struct Recorder {
    log: Vec<String>,
    positions: BTreeMap<u16, u16>,
    /// What its queues have of the guest's memory.
    maps: BTreeMap<u16, Map>,
    /// Whether the write cache is off, as the next session is told.
    is_off: Option<bool>,
}

impl Shard for Recorder {
    fn start(&mut self, queue: u16, setup: QueueSetup) -> std::result::Result<(), String> {
        let RingSetup { base, descriptors, call, inflight, .. } = &setup.ring;
        let (call, marks) = (call.is_some(), inflight.is_some());
        let durable = setup.durable;
        self.maps.insert(queue, setup.ring.memory.clone());
        self.log.push(format!(
            "start {queue} at {base} {:#x} call={call} marks={marks} durable={durable}",
            descriptors.0
        ));
        Ok(())
    }

    fn order(&mut self, queue: u16, order: Order) -> Option<u16> {
        self.log.push(match order {
            Order::Stop => {
                let last = self.maps.remove(&queue).expect("it runs");
                assert!(Arc::strong_count(&last) > 1, "the shard unmaps it");
                format!("stop {queue}")
            }
            Order::Memory(map, waits) => {
                // A ring that is not in it stays in the memory that it was in.
                if map.address_in_range(GuestAddress(RING)) {
                    let old = self.maps.insert(queue, map).expect("it runs");
                    assert!(Arc::strong_count(&old) > 1, "the shard unmaps it");
                }
                format!("memory {queue} waits={waits}")
            }
            Order::Call(call) => format!("call {queue} {}", call.is_some()),
            Order::Durable(durable) => format!("durable {queue} {durable}"),
        });
        self.positions.get(&queue).copied()
    }

    fn note_cache(&mut self, is_off: bool) -> io::Result<()> {
        self.is_off = Some(is_off);
        Err(io::Error::other("the folder is gone"))
    }
}

const USER: u64 = 0x7f00_0000_0000;
const LEN: u64 = 1 << 20;
/// Where the descriptors of a ring are.
const RING: u64 = 0x1000;
/// Version 1, indirect descriptors, event index and protocol features, and a cache that is flushed.
const FEATURES: u64 = 1 << 32 | 1 << 28 | 1 << 29 | 1 << 30 | 1 << 9 | 1 << 11;

fn device(export: Export) -> Device<Recorder> {
    let report = Report(Arc::new(|_, _| {}));
    Device::new(export, false, Recorder::default(), Arc::default(), report)
}

fn event() -> Option<File> {
    Some(File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()))
}

fn memory() -> File {
    let file = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, LEN).unwrap();
    file.into()
}

fn region(guest: u64) -> VhostUserMemoryRegion {
    VhostUserMemoryRegion::new(guest, LEN, USER + guest, 0)
}

fn single(guest: u64) -> VhostUserSingleMemoryRegion {
    VhostUserSingleMemoryRegion::new(guest, LEN, USER + guest, 0)
}

/// The messages of a hypervisor until queue 0 runs.
fn started(export: Export, features: u64) -> Device<Recorder> {
    let mut device = device(export);
    device.set_features(features).unwrap();
    device.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
    set_up(&mut device, 0, 5);
    device.set_vring_enable(0, true).unwrap();
    device
}

fn set_up(device: &mut Device<Recorder>, queue: u8, base: u32) {
    let index = queue.into();
    let none = VhostUserVringAddrFlags::empty();
    device.set_vring_num(index, 128).unwrap();
    device.set_vring_base(index, base).unwrap();
    device.set_vring_addr(index, none, USER + RING, USER + 0x3000, USER + 0x2000, 0).unwrap();
    device.set_vring_kick(queue, event()).unwrap();
    device.set_vring_call(queue, event()).unwrap();
}

#[track_caller]
fn check(device: &mut Device<Recorder>, expect: &[&str]) {
    assert_eq!(std::mem::take(&mut device.shard.log), expect);
}

#[test]
fn a_ring_runs_when_it_has_all_that_it_takes() {
    let mut device = device(example());
    device.set_features(FEATURES).unwrap();
    device.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
    set_up(&mut device, 0, 5);
    check(&mut device, &[]);
    device.set_vring_enable(0, true).unwrap();
    check(&mut device, &["start 0 at 5 0x1000 call=true marks=false durable=false"]);
    // Without protocol features rings need no message to be enabled.
    let mut device = self::device(example());
    device.set_features(FEATURES & !(1 << 30)).unwrap();
    device.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
    set_up(&mut device, 1, 0);
    check(
        &mut device,
        &["start 1 at 0 0x1000 call=false marks=false durable=false", "call 1 true"],
    );
}

#[test]
fn a_stopped_ring_goes_on_where_it_was() {
    let mut device = started(example(), FEATURES);
    device.shard.log.clear();
    device.shard.positions.insert(0, 77);
    device.set_vring_enable(0, false).unwrap();
    device.set_vring_enable(0, true).unwrap();
    check(&mut device, &["stop 0", "start 0 at 77 0x1000 call=true marks=false durable=false"]);
    let state = device.get_vring_base(0).unwrap();
    assert_eq!((state.index, state.num), (0, 77));
    check(&mut device, &["stop 0"]);
    device.set_vring_enable(0, true).unwrap();
    check(&mut device, &[]);
    assert!(device.get_vring_base(2).is_err(), "there are two queues");
}

#[test]
fn a_running_ring_is_told_of_memory_and_calls() {
    let mut device = started(example(), FEATURES);
    device.shard.log.clear();
    device.add_mem_region(&single(LEN), memory(), None).unwrap();
    device.remove_mem_region(&single(LEN)).unwrap();
    device.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
    device.set_vring_call(0, None).unwrap();
    check(
        &mut device,
        &["memory 0 waits=false", "memory 0 waits=true", "memory 0 waits=true", "call 0 false"],
    );
    assert!(device.remove_mem_region(&single(LEN)).is_err());
    assert!(device.set_vring_num(0, 64).is_err(), "it runs");
}

#[test]
fn the_device_unmaps_the_memory_that_a_ring_was_in_which_was_away() {
    for is_stopped in [false, true] {
        let mut device = started(example(), FEATURES);
        let old = Arc::downgrade(&device.memory.map());
        device.remove_mem_region(&single(0)).unwrap();
        assert!(old.upgrade().is_some(), "its ring is in it");
        match is_stopped {
            true => drop(device.get_vring_base(0).unwrap()),
            false => drop(device.add_mem_region(&single(0), memory(), None).unwrap()),
        }
        assert!(old.upgrade().is_none(), "nobody uses it");
    }
}

#[test]
fn a_ring_outside_of_the_memory_does_not_run() {
    let mut device = device(example());
    device.set_features(FEATURES).unwrap();
    set_up(&mut device, 0, 0);
    let error = device.set_vring_enable(0, true).unwrap_err().to_string();
    assert!(error.contains("not in the memory that is shared"), "{error}");
    for size in [0, 3, 2048, 1 << 20] {
        assert!(device.set_vring_num(0, size).is_err(), "{size}");
    }
    assert!(device.set_vring_kick(0, None).is_err());
    assert!(device.set_features(1 << 34).is_err());
    assert!(device.set_protocol_features(1 << 40).is_err());
}

#[test]
fn the_end_of_a_session_stops_what_runs() {
    let mut device = started(example(), FEATURES);
    set_up(&mut device, 1, 0);
    device.shard.log.clear();
    device.end();
    device.end();
    check(&mut device, &["stop 0"]);
}

fn switch(device: &mut Device<Recorder>, on: u8) {
    device.set_config(32, &[on], VhostUserConfigFlags::WRITABLE).unwrap();
}

fn shown(device: &mut Device<Recorder>) -> u8 {
    device.get_config(32, 1, VhostUserConfigFlags::empty()).unwrap()[0]
}

#[test]
fn writes_are_durable_unless_the_guest_flushes_and_its_cache_is_on() {
    let mut device = started(example(), FEATURES);
    device.shard.log.clear();
    assert_eq!(shown(&mut device), 1);
    switch(&mut device, 0);
    switch(&mut device, 0);
    assert_eq!(shown(&mut device), 0);
    switch(&mut device, 1);
    device.set_config(0, &[9], VhostUserConfigFlags::WRITABLE).unwrap();
    // Its hypervisor has not heard yet that it is on.
    check(&mut device, &["durable 0 true"]);
    device.note_cache();
    device.note_cache();
    check(&mut device, &["durable 0 false"]);
    // A driver that does not flush.
    let mut device = started(example(), FEATURES & !(1 << 9));
    check(&mut device, &["start 0 at 5 0x1000 call=true marks=false durable=true"]);
    // A disk without a cache, whatever its guest tries.
    let off = Export { write_cache: false, ..example() };
    let mut device = started(off, FEATURES & !(1 << 9 | 1 << 11));
    switch(&mut device, 1);
    assert_eq!(shown(&mut device), 0);
    check(&mut device, &["start 0 at 5 0x1000 call=true marks=false durable=true"]);
}

#[test]
fn a_cache_that_was_switched_off_stays_off_over_a_kill() {
    let mut device = device(example());
    let wanted = VhostUserInflight::new(0, 0, 2, 128);
    let (given, file) = device.get_inflight_fd(&wanted).unwrap();
    assert_eq!({ given.mmap_size }, Region::bytes(2, 128));
    device.set_inflight_fd(&given, file.try_clone().unwrap()).unwrap();
    assert_eq!(shown(&mut device), 1);
    switch(&mut device, 0);
    drop(device);
    let mut next = self::device(example());
    assert_eq!(shown(&mut next), 1, "it cannot know yet");
    next.set_inflight_fd(&given, file.try_clone().unwrap()).unwrap();
    assert_eq!(shown(&mut next), 0);
    next.set_features(FEATURES).unwrap();
    next.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
    set_up(&mut next, 0, 0);
    next.set_vring_enable(0, true).unwrap();
    check(&mut next, &["start 0 at 0 0x1000 call=true marks=true durable=true"]);
    // Another guest in the same machine is shown by QEMU what this one was, and does not flush either.
    next.reset_device().unwrap();
    assert_eq!(shown(&mut next), 0);
    next.set_features(FEATURES).unwrap();
    assert!(next.is_durable());
    let mut last = self::device(example());
    last.set_inflight_fd(&given, file.try_clone().unwrap()).unwrap();
    assert_eq!(shown(&mut last), 0);
    // Until it switches it on.
    switch(&mut last, 1);
    last.note_cache();
    let mut other = self::device(example());
    other.set_inflight_fd(&given, file).unwrap();
    assert_eq!(shown(&mut other), 1);
}

#[test]
fn regions_for_requests_in_flight_are_bounded() {
    let mut device = device(example());
    for (queues, size) in [(17, 128), (1, 2048), (u16::MAX, u16::MAX)] {
        let wanted = VhostUserInflight::new(0, 0, queues, size);
        assert!(device.get_inflight_fd(&wanted).is_err());
    }
    let short = VhostUserInflight::new(64, 0, 2, 128);
    assert!(device.set_inflight_fd(&short, memory()).is_err());
}

#[test]
fn a_write_cache_that_a_guest_switched_off_stays_off_in_the_next_session() {
    let export = Export { write_cache: true, ..example() };
    let mut first = device(export.clone());
    assert!(!first.is_cache_off());
    first.set_config(32, &[0], VhostUserConfigFlags::WRITABLE).unwrap();
    assert!(first.is_cache_off());
    let report = || Report(Arc::new(|_, _| {}));
    let next = || Device::new(export.clone(), true, Recorder::default(), Arc::default(), report());
    let wce = |device: &mut Device<Recorder>| {
        device.get_config(32, 1, VhostUserConfigFlags::empty()).unwrap()[0]
    };
    // One that goes on reads nothing before its rings run.
    let mut goes_on = next();
    goes_on.set_features(FEATURES).unwrap();
    goes_on.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
    set_up(&mut goes_on, 0, 5);
    goes_on.set_vring_enable(0, true).unwrap();
    assert!(goes_on.is_cache_off() && wce(&mut goes_on) == 0);
    // One that begins shows what it is told.
    let mut begins = next();
    assert!(wce(&mut begins) == 1 && !begins.is_cache_off());
}

/// A kill between a note and the answer leaves a hypervisor that shows what it did before.
#[test]
fn a_cache_is_noted_off_before_the_hypervisor_is_answered_and_on_after_that() {
    let (report, reports) = std::sync::mpsc::channel();
    let report = Report(Arc::new(move |weight, text| report.send((weight, text)).unwrap()));
    let session = |export, is_off| {
        Device::new(export, is_off, Recorder::default(), Arc::default(), report.clone())
    };
    let mut device = session(example(), false);
    shown(&mut device);
    assert_eq!(device.shard.is_off, None, "it is as it was");
    device.get_inflight_fd(&VhostUserInflight::new(0, 0, 2, 128)).unwrap();
    let noted = |device: &Device<Recorder>| {
        let is_off = device.shard.is_off.expect("it is noted");
        assert_eq!(device.inflight.as_ref().unwrap().is_cache_off(), is_off);
        is_off
    };
    for on in [0, 1, 0, 0, 1] {
        switch(&mut device, on);
        assert!(noted(&device), "its hypervisor may never hear that it is on");
        device.note_cache();
        assert_eq!(noted(&device), on == 0);
        let told: Vec<_> = reports.try_iter().collect();
        assert!(!told.is_empty(), "it could not be noted");
        for (weight, text) in told {
            assert_eq!(weight, Weight::Warning);
            assert!(text.contains("a restart may forget") && text.contains("is gone"), "{text}");
        }
    }
    // One that begins goes on showing that its disk has none.
    let mut begins = session(Export { write_cache: false, ..example() }, false);
    shown(&mut begins);
    assert_eq!(begins.shard.is_off, Some(true));
    // Another one shows that it is on once it has heard so.
    let mut begins = session(example(), true);
    assert_eq!(shown(&mut begins), 1);
    assert_eq!(begins.shard.is_off, None);
    begins.note_cache();
    assert_eq!(begins.shard.is_off, Some(false));
}

#[test]
fn a_cache_that_the_hypervisor_shows_off_stays_so_whatever_the_disk_has_meanwhile() {
    let report = || Report(Arc::new(|_, _| {}));
    let session =
        |export, is_off| Device::new(export, is_off, Recorder::default(), Arc::default(), report());
    let without = || Export { write_cache: false, ..example() };
    let mut first = started(example(), FEATURES);
    switch(&mut first, 0);
    let mut second = session(without(), first.is_cache_off());
    second.set_features(FEATURES).unwrap();
    assert!(second.is_cache_off() && second.is_durable());
    let (_, region) = second.get_inflight_fd(&VhostUserInflight::new(0, 0, 1, 128)).unwrap();
    let inflight = VhostUserInflight::new(Region::bytes(1, 128), 0, 1, 128);
    for (is_off, region) in [(true, None), (false, Some(region))] {
        let mut third = session(example(), is_off);
        third.set_features(FEATURES).unwrap();
        if let Some(region) = region {
            third.set_inflight_fd(&inflight, region).unwrap();
        }
        assert!(third.is_cache_off() && third.is_durable());
    }
    // One that begins while the disk has no cache goes on showing none.
    let mut begins = session(without(), false);
    assert!(shown(&mut begins) == 0 && begins.is_cache_off());
}

#[test]
fn a_cache_that_is_switched_off_while_the_disk_has_none_is_off_when_it_has_one_again() {
    let report = || Report(Arc::new(|_, _| {}));
    let mut first = started(Export { write_cache: false, ..example() }, FEATURES);
    let (given, region) = first.get_inflight_fd(&VhostUserInflight::new(0, 0, 1, 128)).unwrap();
    // What changes nothing does not switch it off either.
    first.set_config(20, &[0, 2], VhostUserConfigFlags::WRITABLE).unwrap();
    assert!(!first.is_cache_off(), "its hypervisor shows it on");
    switch(&mut first, 0);
    switch(&mut first, 1);
    assert!(first.is_cache_off(), "only a disk with a cache switches it on");
    let session =
        |is_off| Device::new(example(), is_off, Recorder::default(), Arc::default(), report());
    for (is_off, region) in [(first.is_cache_off(), None), (false, Some(region))] {
        let mut next = session(is_off);
        next.set_features(FEATURES).unwrap();
        if let Some(region) = region {
            next.set_inflight_fd(&given, region).unwrap();
        }
        assert!(next.is_cache_off() && next.is_durable());
    }
}

#[test]
fn a_hypervisor_that_goes_on_is_told_of_the_size_once_a_ring_runs() {
    let export = || Export { write_cache: true, ..example() };
    for goes_on in [false, true] {
        let mut device = device(export());
        device.set_features(FEATURES).unwrap();
        device.set_mem_table(&[region(0)], vec![memory()], None).unwrap();
        if !goes_on {
            device.get_config(0, 8, VhostUserConfigFlags::empty()).unwrap();
        }
        set_up(&mut device, 0, 5);
        assert!(!device.may_have_grown(), "no ring runs");
        device.set_vring_enable(0, true).unwrap();
        assert_eq!(device.may_have_grown(), goes_on);
        assert!(!device.may_have_grown(), "once");
    }
}

#[test]
fn a_hypervisor_is_told_that_the_disk_grew_while_a_ring_runs() {
    let mut device = started(example(), FEATURES);
    let size = example().size;
    device.get_config(0, 8, VhostUserConfigFlags::empty()).unwrap();
    assert!(device.resize(2 * size), "at once");
    assert!(!device.may_have_grown());
    // The guest begins anew, and its disk grows meanwhile.
    device.reset_device().unwrap();
    assert!(!device.resize(3 * size) && !device.may_have_grown());
    device.set_features(FEATURES).unwrap();
    set_up(&mut device, 0, 5);
    device.set_vring_enable(0, true).unwrap();
    assert!(device.may_have_grown() && !device.may_have_grown(), "once, when it runs");
    let sectors = device.get_config(0, 8, VhostUserConfigFlags::empty()).unwrap();
    assert_eq!(sectors, (3 * size / 512).to_le_bytes());
}

#[test]
fn a_guest_goes_on_with_a_disk_that_offers_less_than_before() {
    for less in [
        Export { write_cache: false, ..example() },
        Export { read_only: true, ..example() },
        Export { discard: false, ..example() },
    ] {
        let features = FEATURES | 1 << 13 | 1 << 14;
        let is_durable = !less.write_cache;
        let mut device = started(less, features);
        let start = format!("start 0 at 5 0x1000 call=true marks=false durable={is_durable}");
        check(&mut device, &[&start]);
        assert!(device.set_features(features | 1 << 34).is_err(), "nobody offers that");
    }
}

#[test]
fn one_device_after_the_other_begins_in_a_session() {
    let mut device = device(example());
    for _ in 0..2 {
        device.set_owner().unwrap();
        device.set_features(FEATURES).unwrap();
        device.add_mem_region(&single(0), memory(), None).unwrap();
        set_up(&mut device, 0, 5);
        device.set_vring_enable(0, true).unwrap();
    }
    let start = "start 0 at 5 0x1000 call=true marks=false durable=false";
    check(&mut device, &[start, "stop 0", start]);
}
