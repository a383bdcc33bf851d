//! A device on its control socket: what a hypervisor asks for, message by message.
//!
//! ```text
//! features ─► memory ─► in-flight region ─► per ring: num, addr, base, call, kick ─► enable ─► running on the shard
//!                                                        ▲                             │ GET_VRING_BASE, disable
//!                                                        └────── position ◄── Stop ◄───┘
//! ```
//! A ring runs while it has a kick and is enabled. Each message that touches a running ring is an
//! [`Order`]. It is answered when the shard has obeyed. If that takes longer than the time of one
//! I/O, the message waits for it.
//!
//! The end of a session stops every ring, before another session begins: a request is never with two of them.
//!
//! **Invariant:** every write is durable before it is answered, unless the guest flushes and its write cache is on.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vm_memory::GuestAddress;

use super::config;
use super::driver::{Counters, Order, QueueSetup, Report};
use super::export::{Agreed, Export};
use super::inflight::Region;
use super::memory::{Announced, Memory, REGIONS_MAX};
use super::ring::{RingSetup, SIZE_MAX};

mod write_cache;

/// The way to the shard, and to what outlives the session. Each call waits until it is done.
pub trait Shard {
    /// Takes a ring.
    ///
    /// # Errors
    /// Why not, in words.
    fn start(&mut self, queue: u16, setup: QueueSetup) -> std::result::Result<(), String>;

    /// Obeys; the position of the ring, or `None` when the shard has let go of it.
    fn order(&mut self, queue: u16, order: Order) -> Option<u16>;

    /// Notes for the sessions after this one whether the write cache is off.
    ///
    /// # Errors
    /// The next daemon may know of another state.
    fn note_cache(&mut self, is_off: bool) -> io::Result<()>;
}

/// What is known of a ring.
#[derive(Debug, Default)]
struct Vring {
    size: u16,
    base: u16,
    /// Descriptors, available ring and used ring, as the hypervisor counts.
    addresses: Option<[u64; 3]>,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    is_enabled: bool,
    is_running: bool,
}

/// One session with a hypervisor.
#[derive(Debug)]
pub struct Device<S: Shard> {
    export: Export,
    shard: S,
    counters: Arc<Counters>,
    report: Report,
    agreed: Agreed,
    memory: Memory,
    inflight: Option<Region>,
    vrings: Vec<Vring>,
    /// The hypervisor shows a write cache that is on, if the disk has one.
    write_cache: bool,
    /// Queues are to answer without durability once the hypervisor has heard that its cache is on.
    relaxes: bool,
    /// The write cache is off because it was in a session before.
    inherits_off: bool,
    seen: Seen,
}

/// What a hypervisor has asked for in this session.
#[derive(Debug, Default)]
struct Seen {
    /// The configuration, or it was told since that this may be another one.
    config: bool,
    /// A ring has run.
    has_run: bool,
}

/// An error in words.
fn refused(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(why))
}

impl<S: Shard> Device<S> {
    /// A session that begins. `is_cache_off`: a guest has switched the write cache off in a session before.
    pub fn new(
        export: Export,
        is_cache_off: bool,
        shard: S,
        counters: Arc<Counters>,
        report: Report,
    ) -> Device<S> {
        let vrings = (0..export.queues).map(|_| Vring::default()).collect();
        Device {
            write_cache: !is_cache_off,
            inherits_off: is_cache_off,
            relaxes: false,
            seen: Seen::default(),
            export,
            shard,
            counters,
            report,
            agreed: Agreed::NOTHING,
            memory: Memory::default(),
            inflight: None,
            vrings,
        }
    }

    /// True when the hypervisor shows that no write cache is on: its guest does not flush.
    pub fn is_cache_off(&self) -> bool {
        !self.write_cache
    }

    /// True when the device shows a write cache that is on.
    fn shows_cache(&self) -> bool {
        self.export.write_cache && self.write_cache
    }

    /// True once, when a ring runs of a hypervisor that has not read the configuration since the session began or the disk
    /// grew. QEMU before 7.2 crashes when it is told before a ring runs, and later ones pass that by.
    pub fn may_have_grown(&mut self) -> bool {
        let is_running = self.vrings.iter().any(|vring| vring.is_running);
        is_running && !std::mem::replace(&mut self.seen.config, true)
    }

    /// The disk has this many bytes. True: the hypervisor has to be told, as a ring runs. Otherwise that comes when one runs
    /// ([`Device::may_have_grown`]).
    pub fn resize(&mut self, size: u64) -> bool {
        let has_grown = size > self.export.size;
        self.export.size = self.export.size.max(size);
        let is_running = self.vrings.iter().any(|vring| vring.is_running);
        self.seen.config &= is_running || !has_grown;
        is_running
    }

    /// Stops every ring; the session is over.
    pub fn end(&mut self) {
        for queue in 0..self.vrings.len() {
            self.stop(queue);
            self.vrings[queue] = Vring::default();
        }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.vrings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// As [`Device::vring`], of a ring that does not run.
    fn stopped(&mut self, index: u32) -> Result<&mut Vring> {
        let vring = self.vring(index)?;
        if vring.is_running {
            return Err(Error::InvalidOperation("the ring runs: stop it first"));
        }
        Ok(vring)
    }

    fn is_durable(&self) -> bool {
        !(self.shows_cache() && self.agreed.flushes())
    }

    /// Lets a ring run if it has all that it takes.
    fn start(&mut self, queue: usize) -> Result<()> {
        let durable = self.is_durable();
        let vring = &mut self.vrings[queue];
        let is_ready = vring.is_enabled || !self.agreed.enables_rings();
        let (Some(kick), Some(addresses)) = (&vring.kick, vring.addresses) else { return Ok(()) };
        if vring.is_running || !is_ready || vring.size == 0 {
            return Ok(());
        }
        let mut places = [GuestAddress(0); 3];
        for (place, user) in places.iter_mut().zip(addresses) {
            let found = self.memory.guest_address(user);
            *place = found.ok_or_else(|| {
                refused(format!("queue {queue}: {user:#x} is not in the memory that is shared"))
            })?;
        }
        let call = vring.call.as_ref().map(OwnedFd::try_clone).transpose();
        let ring = RingSetup {
            queue: queue as u16,
            size: vring.size,
            descriptors: places[0],
            available: places[1],
            used: places[2],
            base: vring.base,
            event_index: self.agreed.event_index(),
            memory: self.memory.map(),
            inflight: self.inflight.clone(),
            call: call.map_err(Error::ReqHandlerError)?,
        };
        let setup = QueueSetup {
            ring,
            kick: kick.try_clone().map_err(Error::ReqHandlerError)?,
            agreed: self.agreed,
            durable,
            serial: self.export.serial_bytes(),
            counters: self.counters.clone(),
            report: self.report.clone(),
        };
        self.shard.start(queue as u16, setup).map_err(refused)?;
        self.vrings[queue].is_running = true;
        self.seen.has_run = true;
        Ok(())
    }

    /// Stops a ring: all that was taken is answered, and it can start again where it was.
    fn stop(&mut self, queue: usize) {
        let vring = &mut self.vrings[queue];
        if std::mem::take(&mut vring.is_running)
            && let Some(position) = self.shard.order(queue as u16, Order::Stop)
        {
            vring.base = position;
        }
        self.memory.unmap_old();
    }

    /// Gives an order to every ring that runs.
    fn order_all(&mut self, order: impl Fn() -> Order) {
        for (queue, vring) in self.vrings.iter().enumerate() {
            if vring.is_running {
                // One that is gone is told so when it is stopped.
                let _ = self.shard.order(queue as u16, order());
            }
        }
    }

    fn tell_memory(&mut self, waits: bool) {
        let map = self.memory.map();
        self.order_all(|| Order::Memory(map.clone(), waits));
        self.memory.unmap_old();
    }
}

impl<S: Shard> VhostUserBackendReqHandlerMut for Device<S> {
    /// A device begins. QEMU may begin one after the other in one session, and sends all memory anew.
    fn set_owner(&mut self) -> Result<()> {
        self.reset_device()?;
        (self.memory, self.inflight) = (Memory::default(), None);
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.end();
        self.agreed = Agreed::NOTHING;
        // A write cache that was switched off stays off: QEMU goes on showing it so, and the next guest does not flush.
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.export.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let before = self.is_durable();
        self.agreed = Agreed::new(features).map_err(|others| {
            refused(format!("features {others:#x} are none that Forebay offers"))
        })?;
        let durable = self.is_durable();
        if durable != before {
            self.order_all(|| Order::Durable(durable));
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let regions = regions.iter().map(Announced::from).zip(files);
        self.memory.replace(regions).map_err(refused)?;
        self.tell_memory(true);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok().filter(|size| (1..=SIZE_MAX).contains(size));
        let why = "a ring has a power of two of descriptors, at most 1024";
        let size = size.filter(|size| size.is_power_of_two());
        self.stopped(index)?.size = size.ok_or(Error::InvalidOperation(why))?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.stopped(index)?.addresses = Some([descriptor, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stopped(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.vring(index)?;
        self.stop(index as usize);
        let vring = self.vring(index)?;
        (vring.kick, vring.call) = (None, None);
        Ok(VhostUserVringState::new(index, vring.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let queue = usize::from(index);
        self.vring(index.into())?;
        self.stop(queue);
        let why = "a ring without a descriptor to kick is not served";
        self.vrings[queue].kick = Some(fd.ok_or(Error::InvalidOperation(why))?.into());
        self.start(queue)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let vring = self.vring(index.into())?;
        // Its blocking mode is its owner's, who may wait on it: an eventfd takes 2⁶⁴ - 2 signals that nobody reads.
        vring.call = fd.map(OwnedFd::from);
        if vring.is_running {
            let call = vring.call.as_ref().map(OwnedFd::try_clone).transpose();
            let call = call.map_err(Error::ReqHandlerError)?;
            let _ = self.shard.order(index.into(), Order::Call(call));
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.vring(index.into()).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(self.export.protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = self.export.protocol_features().bits();
        match features & !offered {
            0 => Ok(()),
            other => Err(refused(format!("protocol features {other:#x} were not offered"))),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.export.queues.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.vring(index)?.is_enabled = enable;
        if enable {
            return self.start(index as usize);
        }
        self.stop(index as usize);
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        self.seen.config = true;
        let inherits_off = std::mem::take(&mut self.inherits_off);
        if !self.seen.has_run && (inherits_off || !self.export.write_cache) {
            // A hypervisor that begins shows what it is told, and not what another one was. It goes on showing that.
            self.write_cache = self.export.write_cache;
            self.note_if_off();
        }
        let space = config::space(&self.export, self.shows_cache());
        Ok(config::read(&space, config::place(offset), size as usize))
    }

    fn set_config(
        &mut self,
        offset: u32,
        bytes: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        let space = config::space(&self.export, self.write_cache);
        // What a guest may not write it writes in vain. A cache that the disk lacks for a while may be switched off.
        if let Some(is_on) = config::written(&space, offset as usize, bytes)
            && (self.export.write_cache || !is_on)
        {
            self.inherits_off = false;
            self.set_write_cache(is_on);
        }
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("a disk has no display"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("a disk shares no objects"))
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = checked(wanted)?;
        let (region, file) = Region::create(queues, size).map_err(refused)?;
        region.note_cache(self.is_cache_off());
        self.inflight = Some(region);
        Ok((VhostUserInflight::new(Region::bytes(queues, size), 0, queues, size), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let (queues, size) = checked(given)?;
        let region = Region::open(file, given.mmap_offset, given.mmap_size, queues, size);
        let region = region.map_err(refused)?;
        // What the guest has switched off before this daemon, or this session, began.
        let is_on = self.write_cache && !region.is_cache_off();
        self.inherits_off &= !region.is_cache_off();
        self.inflight = Some(region);
        self.set_write_cache(is_on);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        self.memory.add(Announced::from(region), file).map_err(refused)?;
        self.tell_memory(false);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.memory.remove(Announced::from(region)).map_err(refused)?;
        self.tell_memory(true);
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("a disk has no state to transfer"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("a disk has no state to transfer"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Ok(VhostUserShMemConfig::new(0, &[]))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation("live migration was not offered"))
    }
}

/// For how many queues of what size memory for requests in flight is.
fn checked(inflight: &VhostUserInflight) -> Result<(u16, u16)> {
    let (queues, size) = (inflight.num_queues, inflight.queue_size);
    if queues > super::export::QUEUES_MAX || size > SIZE_MAX {
        return Err(refused(format!("requests in flight of {queues} queues of {size}")));
    }
    Ok((queues, size))
}

#[cfg(test)]
mod tests;
