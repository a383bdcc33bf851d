//! How RAM caches get memory and give it back.

use super::*;

const MIB: u64 = 1 << 20;

/// One with a RAM cache of 1 MiB, which can have as much as `room`.
fn disk_with_room(room: u64) -> (NewDisk, UnixStream) {
    let (mut new, peer) = disk("disk", Mode::WriteThrough);
    let config = Config { ram_bytes: MIB, ram_room: room, ..*new.engine.config() };
    new.engine = Engine::new(config).unwrap();
    let size = new.engine.memory_size() as usize;
    let spare = new.engine.ram_spare().unwrap();
    new.memory = Arc::new(Arena::with_room(size, spare.start..spare.end, None).unwrap());
    (new, peer)
}

#[tokio::test]
async fn a_ram_cache_gets_memory_and_gives_it_back_while_its_disk_works() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let shard = ShardHandle::start(0, 1, kind, events).unwrap();
        let (new, _peer) = disk_with_room(4 * MIB);
        let spare = new.engine.ram_spare().unwrap();
        let memory = new.memory.clone();
        let disk = shard.sender().add(new).await.unwrap();

        assert!(disk.resize_ram(5 * MIB).await.unwrap_err().to_string().contains("room"));
        let mut wanted = disk.resize_ram(4 * MIB).await.unwrap().wanted.expect("memory is to come");
        assert_eq!(wanted.place, spare.start..spare.end);
        assert!(memory.spare().is_empty());
        assert!(memory.populate(wanted.place.start, 3 << 20, &wanted.is_wanted));
        (wanted.tell)(wanted.place.start + MIB);
        let ram = disk.stats().await.unwrap().engine.ram;
        assert_eq!((ram.slots, ram.slots_ready), (512, 256));
        // Another size while memory is still to come.
        for bytes in [3 * MIB, 4 * MIB] {
            let again = disk.resize_ram(bytes).await.unwrap().wanted.expect("memory is to come");
            assert_eq!(again.place, wanted.place.start + MIB..spare.start + bytes - MIB);
        }
        // Who was to give it before gives no more, and is not listened to.
        assert!(!(wanted.is_wanted)());
        (wanted.tell)(wanted.place.end);
        assert_eq!(disk.stats().await.unwrap().engine.ram.slots_ready, 256);

        assert!(disk.resize_ram(MIB).await.unwrap().wanted.is_none());
        while memory.spare() != (spare.start..spare.end) {
            disk.stats().await.unwrap();
        }
        let ram = disk.stats().await.unwrap().engine.ram;
        assert_eq!((ram.slots, ram.slots_ready), (128, 128));
        assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_size_that_cannot_be_had_keeps_no_memory_from_coming_that_is_on_its_way() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (mut new, _peer) = disk("disk", Mode::WriteThrough);
    let config = Config { ram_bytes: MIB, ram_room: 4 * MIB, ..*new.engine.config() };
    new.engine = Engine::new(config).unwrap();
    let place = new.engine.withhold_ram().unwrap();
    let size = new.engine.memory_size() as usize;
    let spare = new.engine.ram_spare().unwrap();
    // Less room than the engine takes there to be.
    new.memory = Arc::new(Arena::with_room(size, spare.start..spare.end - MIB, None).unwrap());
    let memory = Arc::downgrade(&new.memory);
    let disk = shard.sender().add(new).await.unwrap();
    let mut wanted = disk.wants_memory(Missing { disk: "disk".into(), memory, place, resizes: 0 });
    let error = disk.resize_ram(4 * MIB).await.unwrap_err().to_string();
    assert!(error.contains("there is no memory"), "{error}");
    assert!((wanted.is_wanted)());
    (wanted.tell)(place.end);
    assert_eq!(disk.stats().await.unwrap().engine.ram.slots_ready, 128);
    assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_two_resizes_at_once_only_the_later_wants_memory() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (new, _peer) = disk_with_room(8 * MIB);
    let disk = shard.sender().add(new).await.unwrap();
    // Whoever asked for the first one hears of it after the shard has done the second.
    let both_are_done = async {
        while disk.resizes.load(Ordering::Acquire) < 2 {
            std::hint::spin_loop();
        }
    };
    let (first, second, ()) =
        tokio::join!(disk.resize_ram(2 * MIB), disk.resize_ram(4 * MIB), both_are_done);
    let is_wanted = |resized: Resized| (resized.wanted.expect("memory is to come").is_wanted)();
    assert!(!is_wanted(first.unwrap()) && is_wanted(second.unwrap()));
    assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
}
