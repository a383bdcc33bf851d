//! A vhost-user-blk device that only copies: a thread per queue, or one for all, that looks at its rings without
//! sleeping, and one copy from memory into the guest for each read. It checks next to nothing, serves only reads whose chain is a header, one
//! piece of data and a status, and is the upper limit for a device that copies.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use vhost::vhost_user::{Listener, VhostUserProtocolFeatures};
use vhost_user_backend::{VhostUserBackend, VhostUserDaemon, VringRwLock, VringT};
use virtio_driver::{VirtioBlkFeatureFlags, VirtioFeatureFlags};
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueT};
use vm_memory::{
    Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
    GuestMemoryRegion, VolatileSlice,
};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::size;

/// Queues, and descriptors of each at most.
const QUEUES: usize = 2;
const RING_MAX: usize = 256;
/// How long a queue is looked at in vain before its thread sleeps.
const SPIN_MAX: Duration = Duration::from_millis(1);
/// Types and status of the virtio specification.
const READ: u32 = 0;
const OK: u8 = 0;

struct Device {
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
    disk: Arc<[u8]>,
    one_thread: bool,
}

#[derive(Args)]
pub(crate) struct Options {
    /// Path of the socket
    socket: String,
    /// Bytes served
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    size: u64,
    /// One thread serves all queues; otherwise each has its own
    #[arg(long)]
    one_thread: bool,
}

/// Serves one client after the other.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let socket = &options.socket;
    // Touched at the start, like any cache: a first touch would cost more than the copy.
    let disk: Arc<[u8]> = (0..options.size).map(|i| (i % 251) as u8).collect();
    let failed = |error: vhost_user_backend::Error| anyhow::anyhow!("{error:?}");
    let mut listener = Listener::new(socket, true).with_context(|| socket.to_owned())?;
    println!("ready");
    loop {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::default());
        let one_thread = options.one_thread;
        let device = Device { memory: memory.clone(), disk: Arc::clone(&disk), one_thread };
        let mut daemon =
            VhostUserDaemon::new("bare".to_owned(), Arc::new(device), memory).map_err(failed)?;
        daemon.start(&mut listener).map_err(failed)?;
        // However it ends, the next one is served.
        let _ = daemon.wait();
    }
}

impl VhostUserBackend for Device {
    type Bitmap = ();
    type Vring = VringRwLock;

    fn num_queues(&self) -> usize {
        QUEUES
    }

    fn max_queue_size(&self) -> usize {
        RING_MAX
    }

    fn features(&self) -> u64 {
        let ring = VirtioFeatureFlags::VERSION_1
            | VirtioFeatureFlags::RING_EVENT_IDX
            | VirtioFeatureFlags::RING_INDIRECT_DESC;
        // Bit 30: there are protocol features.
        ring.bits() | VirtioBlkFeatureFlags::MQ.bits() | 1 << 30
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn set_event_idx(&self, _enabled: bool) {
        // It is taken for granted.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = vec![0; 60];
        config[..8].copy_from_slice(&(self.disk.len() as u64 / 512).to_le_bytes());
        config[34..36].copy_from_slice(&(QUEUES as u16).to_le_bytes());
        config.resize((offset + size) as usize, 0);
        config.split_off(offset as usize)
    }

    fn update_memory(&self, _memory: GuestMemoryAtomic<GuestMemoryMmap>) -> std::io::Result<()> {
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        if self.one_thread {
            return vec![(1 << QUEUES) - 1];
        }
        (0..QUEUES).map(|queue| 1 << queue).collect()
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK).ok()
    }

    fn handle_event(
        &self,
        _event: u16,
        _events: EventSet,
        rings: &[VringRwLock],
        _thread: usize,
    ) -> std::io::Result<()> {
        let failed = std::io::Error::other::<virtio_queue::Error>;
        let mut last = Instant::now();
        loop {
            let is_patient = last.elapsed() <= SPIN_MAX;
            let mut is_idle = true;
            for ring in rings {
                let mut state = ring.get_mut();
                // A queue that the client does not use has no memory of its own.
                if !state.get_queue().ready() {
                    continue;
                }
                let served = self.serve(state.get_queue_mut());
                match served
                    .inspect_err(|error| eprintln!("{error:#}"))
                    .map_err(std::io::Error::other)?
                {
                    Served::Nothing if is_patient => is_idle = false,
                    Served::Nothing => is_idle &= !state.enable_notification().map_err(failed)?,
                    Served::Some => (is_idle, last) = (false, Instant::now()),
                    Served::AndCall => {
                        (is_idle, last) = (false, Instant::now());
                        state.signal_used_queue()?;
                    }
                }
            }
            if is_idle {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }
}

/// What a look at a ring gave.
enum Served {
    Nothing,
    Some,
    /// The client wants to be called.
    AndCall,
}

impl Device {
    /// Answers what is available.
    fn serve(&self, queue: &mut Queue) -> anyhow::Result<Served> {
        let slot = |next: u16| u64::from(next % queue.size());
        let first = queue.next_avail();
        let offered = load(&self.memory.memory(), queue.avail_ring() + 2)?;
        if offered == first {
            return Ok(Served::Nothing);
        }
        // The client gives memory before it uses it, so that it is there by now.
        let memory = &*self.memory.memory();
        let mut next = first;
        let mut used = queue.next_used();
        while next != offered {
            let head = load(memory, queue.avail_ring() + 4 + 2 * slot(next))?;
            self.answer(queue.desc_table(), head, memory)?;
            let entry = [u32::from(head), 0];
            at(memory, queue.used_ring() + 4 + 8 * slot(used), 8)?.write_obj(entry, 0)?;
            (next, used) = (next.wrapping_add(1), used.wrapping_add(1));
        }
        let count = next.wrapping_sub(first);
        queue.set_next_avail(next);
        queue.set_next_used(used);
        at(memory, queue.used_ring() + 2, 2)?.store(used, 0, Ordering::Release)?;
        fence(Ordering::SeqCst);
        let wanted = load(memory, queue.avail_ring() + 4 + 2 * u64::from(queue.size()))?;
        let calls = used.wrapping_sub(wanted).wrapping_sub(1) < count;
        Ok(if calls { Served::AndCall } else { Served::Some })
    }

    /// Answers the request whose chain begins with descriptor `head`.
    fn answer(&self, table: u64, head: u16, memory: &GuestMemoryMmap) -> anyhow::Result<()> {
        let descriptor = |table: u64, index: u16| -> anyhow::Result<Descriptor> {
            Ok(at(memory, table + 16 * u64::from(index), 16)?.read_obj(0)?)
        };
        let mut table = table;
        let mut header = descriptor(table, head)?;
        if header.refers_to_indirect_table() {
            table = header.addr().0;
            header = descriptor(table, 0)?;
        }
        let data = descriptor(table, header.next())?;
        let status = descriptor(table, data.next())?;
        let header: [u32; 4] = at(memory, header.addr().0, 16)?.read_obj(0)?;
        ensure!(header[0] == READ, "only reads are served");
        let from = (u64::from(header[2]) | u64::from(header[3]) << 32) as usize * 512;
        let len = data.len() as usize;
        let bytes = self.disk.get(from..from + len).context("outside the disk")?;
        at(memory, data.addr().0, len)?.copy_from(bytes);
        Ok(at(memory, status.addr().0, 1)?.write_obj(OK, 0)?)
    }
}

fn load(memory: &GuestMemoryMmap, address: u64) -> anyhow::Result<u16> {
    Ok(at(memory, address, 2)?.load(0, Ordering::Acquire)?)
}

/// Memory of the guest within one region.
fn at(memory: &GuestMemoryMmap, address: u64, len: usize) -> anyhow::Result<VolatileSlice<'_>> {
    let address = GuestAddress(address);
    let region = memory.find_region(address).context("not the guest's memory")?;
    let offset = region.to_region_addr(address).context("not the guest's memory")?;
    Ok(region.get_slice(offset, len)?)
}
