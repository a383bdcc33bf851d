//! A guest that has a queue of a vhost-user-blk device, in memory that it shares.
//!
//! ```text
//!      0  descriptors, each of an indirect table
//!  16 KiB  available ring
//!  32 KiB  used ring
//!  64 KiB  indirect tables: header, data, status
//! 128 KiB  headers
//! 192 KiB  status
//!   1 MiB  data
//! ```
//! It does as Linux under QEMU: descriptors are indirect, positions in the ring ask for
//! notifications, requests in flight are marked. A lap goes once around the ring. The shard is
//! awake, so the guest never has to kick.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use forebay_frontends::vhost_user::export::{Agreed, Export};
use forebay_frontends::vhost_user::inflight::Region;
use forebay_frontends::vhost_user::memory::{Announced, Map, Memory};
use forebay_frontends::vhost_user::ring::RingSetup;
use forebay_frontends::vhost_user::{Counters, Orders, QueueSetup, Report, queue};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{ByteValued, Bytes, FileOffset, GuestAddress, MmapRegion, VolatileMemory};

use crate::load::{self, BATCH, BLOCK, Client, Hit, LAP, SIZE, Served};
use crate::shard::{DISK, Shard};

const TABLE: usize = 0;
const AVAILABLE: usize = 16 << 10;
const USED: usize = 32 << 10;
const INDIRECT: usize = 64 << 10;
const HEADERS: usize = 128 << 10;
const STATUS: usize = 192 << 10;
const DATA: usize = 1 << 20;
const MEMORY: usize = DATA + LAP * BLOCK as usize;

/// Bytes of a request's header.
const HEADER: u32 = 16;
const SECTOR: u64 = 512;
const DESCRIPTOR: usize = size_of::<Descriptor>();
/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const IS_INDIRECT: u16 = 4;

/// The driver of one queue.
pub struct Guest {
    memory: MmapRegion,
    /// Where answers of the last batch begin in the used ring.
    answered: u16,
    available: u16,
    _orders: Orders,
    _call: OwnedFd,
}

/// A guest after a lap.
pub fn served() -> Served<Guest> {
    let (ours, theirs) = memory();
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let call = event();
    let copy = call.try_clone().expect("a descriptor");
    let (new, orders, _) = queue(DISK, setup(theirs, event(), copy)).expect("an eventfd");
    let guest = Guest { memory: ours, answered: 0, available: 0, _orders: orders, _call: call };
    (0..LAP).for_each(|head| guest.describe(head));
    Served::new(Shard::new(load::warm_engine(), new), guest)
}

/// The guest's memory, as it has it and as it is shared.
fn memory() -> (MmapRegion, Map) {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, MEMORY as u64).expect("it is there");
    let (file, mut shared) = (File::from(file), Memory::default());
    let copy = file.try_clone().expect("a descriptor");
    shared
        .add(Announced { guest: 0, user: 0, len: MEMORY as u64, offset: 0 }, copy)
        .expect("it is mapped");
    let ours = MmapRegion::from_file(FileOffset::new(file, 0), MEMORY).expect("it is mapped");
    (ours, shared.map())
}

fn setup(memory: Map, kick: OwnedFd, call: OwnedFd) -> QueueSetup {
    let size = LAP as u16;
    let export = Export {
        serial: "db".to_owned(),
        size: SIZE,
        read_only: false,
        write_cache: true,
        preferred_block: BLOCK as u32,
        discard: true,
        queues: 1,
    };
    let agreed = Agreed::new(export.features()).expect("it is offered");
    let (inflight, _) = Region::create(1, size).expect("a file in memory");
    let ring = RingSetup {
        queue: 0,
        size,
        descriptors: GuestAddress(TABLE as u64),
        available: GuestAddress(AVAILABLE as u64),
        used: GuestAddress(USED as u64),
        base: 0,
        event_index: agreed.event_index(),
        memory,
        inflight: Some(inflight),
        call: Some(call),
    };
    QueueSetup {
        ring,
        kick,
        agreed,
        durable: false,
        serial: export.serial_bytes(),
        counters: Arc::<Counters>::default(),
        report: Report(Arc::new(|_, text| panic!("{text}"))),
    }
}

impl Guest {
    /// Lays the request of a head out, but for where it reads.
    fn describe(&self, head: usize) {
        let table = INDIRECT + 3 * DESCRIPTOR * head;
        let at = TABLE + DESCRIPTOR * head;
        self.write(at, Descriptor::new(table as u64, 3 * DESCRIPTOR as u32, IS_INDIRECT, 0));
        let (header, data) = (HEADERS + HEADER as usize * head, DATA + BLOCK as usize * head);
        for (place, descriptor) in [
            Descriptor::new(header as u64, HEADER, NEXT, 1),
            Descriptor::new(data as u64, BLOCK as u32, NEXT | WRITE, 2),
            Descriptor::new((STATUS + head) as u64, 1, WRITE, 0),
        ]
        .into_iter()
        .enumerate()
        {
            self.write(table + DESCRIPTOR * place, descriptor);
        }
        self.write(AVAILABLE + 4 + 2 * head, head as u16);
    }

    fn write(&self, at: usize, value: impl ByteValued) {
        self.memory.as_volatile_slice().write_obj(value, at).expect("within the memory");
    }

    fn read<T: ByteValued>(&self, at: usize) -> T {
        self.memory.as_volatile_slice().read_obj(at).expect("within the memory")
    }

    /// An index of a ring.
    fn index(&self, at: usize) -> &AtomicU16 {
        self.memory.get_atomic_ref(at).expect("within the memory")
    }
}

impl Client for Guest {
    fn prepare(&mut self, lap: &[Hit]) {
        for (head, hit) in lap.iter().enumerate() {
            let sector = hit.block * BLOCK / SECTOR;
            self.write(HEADERS + HEADER as usize * head + 8, sector);
            self.write(STATUS + head, u8::MAX);
            self.write(DATA + BLOCK as usize * head, u64::MAX);
        }
    }

    fn ask(&mut self, _batch: usize) {
        // It is to be woken by the first answer.
        self.index(AVAILABLE + 4 + 2 * LAP).store(self.answered, Ordering::Relaxed);
        self.available = self.available.wrapping_add(BATCH as u16);
        self.index(AVAILABLE + 2).store(self.available, Ordering::Release);
    }

    fn take(&mut self, _batch: usize) -> bool {
        self.answered = self.index(USED + 2).load(Ordering::Acquire);
        self.answered == self.available
    }

    fn check(&self, batch: &[Hit]) {
        for hit in batch {
            let head = hit.number as usize % LAP;
            let used: [u32; 2] = self.read(USED + 4 + 8 * head);
            assert_eq!(used, [head as u32, BLOCK as u32 + 1]);
            assert_eq!(self.read::<u8>(STATUS + head), 0);
            assert_eq!(self.read::<u64>(DATA + BLOCK as usize * head), 0, "the disk's bytes");
        }
    }
}
