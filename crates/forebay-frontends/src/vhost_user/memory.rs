//! A guest's memory: the regions that its hypervisor shares, mapped, and what addresses mean.
//!
//! Regions come all at once or one by one. Each change makes a new map. Queues go on with the old
//! one until they are given the new one. So a request in flight keeps the memory that its pieces
//! were checked against.
//!
//! **Limit:** an access to memory that its file cannot give ends the process (SIGBUS). A hypervisor can cut the file short
//! under our mapping. A guest can name a page that nobody has touched, of a file system that is full, or of huge pages that
//! are not reserved: its hypervisor has to give it memory that is there, as memfd and reserved huge pages are. Before a
//! request that a killed process left is done again, the memory of its data and status is asked for without an access
//! (`populate`): an error answers what would end each daemon after that one.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, FileType, fallocate};
use rustix::io::Errno;
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserSingleMemoryRegion};
use vm_memory::{
    ByteValued, Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionCollection, GuestRegionMmap, MemoryRegionAddress, MmapRegion, VolatileMemory,
    VolatileSlice,
};

/// Regions at most, as hypervisors hear it; QEMU has 509 slots of hot-plugged memory at most.
pub const REGIONS_MAX: u64 = 509;

/// A map of a guest's memory that does not change.
pub type Map = Arc<GuestMap>;

/// See [`Map`].
#[derive(Debug, Default)]
pub struct GuestMap {
    whole: GuestMemoryMmap,
    /// By address.
    regions: Vec<Arc<GuestRegionMmap>>,
    /// Which of them were used last: nearly always one has the rings, and one the data. They are looked at first, so any
    /// numbers are right.
    last: [AtomicUsize; 2],
}

impl Deref for GuestMap {
    type Target = GuestMemoryMmap;

    fn deref(&self) -> &GuestMemoryMmap {
        &self.whole
    }
}

impl GuestMap {
    /// Of regions by address.
    fn new(regions: Vec<Arc<GuestRegionMmap>>) -> Result<GuestMap, MemoryError> {
        let whole = match &regions[..] {
            [] => GuestRegionCollection::default(),
            some => GuestRegionCollection::from_arc_regions(some.to_vec())
                .map_err(|error| MemoryError::Fit(error.to_string()))?,
        };
        Ok(GuestMap { whole, regions, last: Default::default() })
    }

    /// Memory that nobody shares, where it begins and its bytes.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_test(regions: &[(u64, usize)]) -> Map {
        let region = |&(start, len)| GuestRegionMmap::from_range(GuestAddress(start), len, None);
        let regions = regions.iter().map(|of| Arc::new(region(of).expect("a little memory")));
        Arc::new(GuestMap::new(regions.collect()).expect("regions by address"))
    }

    /// The region that has a byte, and where in it. The library's own search looks at several regions for each.
    #[inline]
    fn find(&self, address: GuestAddress) -> Option<(&GuestRegionMmap, MemoryRegionAddress)> {
        let [first, second] = &self.last;
        self.find_at(first.load(Ordering::Relaxed), address)
            .or_else(|| self.find_at(second.load(Ordering::Relaxed), address))
            .or_else(|| self.search(address))
    }

    fn find_at(
        &self,
        index: usize,
        address: GuestAddress,
    ) -> Option<(&GuestRegionMmap, MemoryRegionAddress)> {
        let region = self.regions.get(index)?;
        Some((region, region.to_region_addr(address)?))
    }

    #[cold]
    fn search(&self, address: GuestAddress) -> Option<(&GuestRegionMmap, MemoryRegionAddress)> {
        let behind = self.regions.partition_point(|region| region.start_addr() <= address);
        let index = behind.checked_sub(1)?;
        let found = self.find_at(index, address)?;
        let [first, second] = &self.last;
        second.store(first.swap(index, Ordering::Relaxed), Ordering::Relaxed);
        Some(found)
    }
}

/// Why memory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel does not map it.
    #[error("memory that the hypervisor shares cannot be mapped: {0}")]
    Map(String),
    /// It overlaps with other memory, or there is too much of it.
    #[error("memory that the hypervisor shares does not fit: {0}")]
    Fit(String),
    /// It was not there.
    #[error("there is no memory of {len} bytes at {address:#x} to be removed")]
    Unknown {
        /// Where.
        address: u64,
        /// How many bytes.
        len: u64,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    map: Map,
    /// Maps of before that queues may still have. Whoever lets go of a map last has the kernel unmap what is gone, for 10 ms
    /// per GiB: that is never a queue, whose shard would serve nobody meanwhile.
    old: Vec<Map>,
}

#[derive(Clone, Debug)]
struct Region {
    /// Where it is in the address space of the hypervisor.
    user: u64,
    region: Arc<GuestRegionMmap>,
}

/// A region as it is announced.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// Where it is for the guest.
    pub guest: u64,
    /// Where it is for the hypervisor.
    pub user: u64,
    /// Bytes.
    pub len: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

impl From<&VhostUserMemoryRegion> for Announced {
    fn from(region: &VhostUserMemoryRegion) -> Announced {
        Announced {
            guest: region.guest_phys_addr,
            user: region.user_addr,
            len: region.memory_size,
            offset: region.mmap_offset,
        }
    }
}

impl From<&VhostUserSingleMemoryRegion> for Announced {
    fn from(region: &VhostUserSingleMemoryRegion) -> Announced {
        Announced::from(&**region)
    }
}

impl Memory {
    /// The map now.
    pub fn map(&self) -> Map {
        self.map.clone()
    }

    /// Unmaps what is gone, of the maps that no queue has any more.
    pub fn unmap_old(&mut self) {
        self.old.retain(|map| Arc::strong_count(map) > 1);
    }

    /// Replaces everything.
    ///
    /// # Errors
    /// See [`MemoryError`]; nothing changed then.
    pub fn replace(
        &mut self,
        regions: impl Iterator<Item = (Announced, File)>,
    ) -> Result<(), MemoryError> {
        let regions = regions.map(|(region, file)| Region::map(region, file));
        self.set(regions.collect::<Result<_, _>>()?)
    }

    /// Adds a region.
    ///
    /// # Errors
    /// As [`Memory::replace`].
    pub fn add(&mut self, region: Announced, file: File) -> Result<(), MemoryError> {
        if self.regions.len() as u64 >= REGIONS_MAX {
            return Err(MemoryError::Fit(format!("more than {REGIONS_MAX} regions")));
        }
        let mut regions = self.regions.clone();
        regions.push(Region::map(region, file)?);
        self.set(regions)
    }

    /// Removes a region.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove(&mut self, gone: Announced) -> Result<(), MemoryError> {
        let is_it = |region: &Region| {
            region.region.start_addr().0 == gone.guest
                && region.region.len() == gone.len
                && region.user == gone.user
        };
        let unknown = MemoryError::Unknown { address: gone.guest, len: gone.len };
        let index = self.regions.iter().position(is_it).ok_or(unknown)?;
        let mut regions = self.regions.clone();
        regions.remove(index);
        self.set(regions)
    }

    /// The guest's address of what is at `user` in the hypervisor's address space.
    pub fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user)?;
            let start = region.region.start_addr().0;
            (offset < region.region.len()).then(|| GuestAddress(start + offset))
        })
    }

    fn set(&mut self, mut regions: Vec<Region>) -> Result<(), MemoryError> {
        regions.sort_by_key(|region| region.region.start_addr());
        let mapped = regions.iter().map(|region| region.region.clone()).collect();
        let map = Arc::new(GuestMap::new(mapped)?);
        self.regions = regions;
        self.old.push(std::mem::replace(&mut self.map, map));
        Ok(())
    }
}

impl Region {
    fn map(announced: Announced, file: File) -> Result<Region, MemoryError> {
        let mapping = map(file, announced.offset, announced.len).map_err(MemoryError::Map)?;
        let region = GuestRegionMmap::new(mapping, GuestAddress(announced.guest));
        let region = region.ok_or_else(|| MemoryError::Fit("beyond all addresses".into()))?;
        Ok(Region { user: announced.user, region: Arc::new(region) })
    }
}

/// `len` bytes at `address`, if they lie in one region, as nearly all do. The library's own access looks at every
/// region on the way, which takes longer than what is done here with the bytes.
pub(super) fn slice(
    map: &GuestMap,
    address: GuestAddress,
    len: usize,
) -> Option<VolatileSlice<'_>> {
    let (region, at) = map.find(address)?;
    region.get_slice(at, len).ok()
}

/// Reads an object, which may lie in several regions.
pub(super) fn read<T: ByteValued>(map: &GuestMap, address: GuestAddress) -> Option<T> {
    match slice(map, address, size_of::<T>()) {
        Some(slice) => Some(slice.get_ref(0).ok()?.load()),
        None => map.read_obj(address).ok(),
    }
}

/// Writes an object, as [`read`].
pub(super) fn write<T: ByteValued>(map: &GuestMap, value: T, address: GuestAddress) -> Option<()> {
    match slice(map, address, size_of::<T>()) {
        Some(slice) => {
            slice.get_ref(0).ok()?.store(value);
            Some(())
        }
        None => map.write_obj(value, address).ok(),
    }
}

/// Loads at once what the guest may store meanwhile; it lies in one region and is aligned.
pub(super) fn load(map: &GuestMap, address: GuestAddress) -> Option<u16> {
    let slice = slice(map, address, size_of::<u16>())?;
    Some(slice.get_atomic_ref::<AtomicU16>(0).ok()?.load(Ordering::Acquire))
}

/// Stores at once, after everything that was stored before; as [`load`].
pub(super) fn store(map: &GuestMap, value: u16, address: GuestAddress) -> Option<()> {
    let slice = slice(map, address, size_of::<u16>())?;
    slice.get_atomic_ref::<AtomicU16>(0).ok()?.store(value, Ordering::Release);
    Some(())
}

/// Whether `len` bytes at `address` can be had: their pages are there afterwards. What cannot be asked for is left to the
/// access, such as memory that is no file.
pub(super) fn populate(map: &GuestMap, address: GuestAddress, len: u32) -> bool {
    let (mut address, mut left) = (address, u64::from(len));
    while left > 0
        && let Some((region, at)) = map.find(address)
    {
        let part = left.min(region.len() - at.0);
        let failed = region.file_offset().is_some_and(|place| {
            let offset = place.start() + at.0;
            let done = fallocate(place.file(), FallocateFlags::KEEP_SIZE, offset, part);
            matches!(done, Err(Errno::NOSPC | Errno::NOMEM | Errno::DQUOT | Errno::IO))
        });
        if failed {
            return false;
        }
        (address, left) = (GuestAddress(address.0 + part), left - part);
    }
    true
}

/// Maps a part of a file that is shared with us. The library does not look whether the file has it.
pub(super) fn map(file: File, offset: u64, len: u64) -> Result<MmapRegion, String> {
    let status = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
    let is_regular = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    let end = offset.checked_add(len).ok_or("it is beyond all addresses")?;
    if is_regular && end > status.st_size as u64 {
        return Err(format!("it ends at {end}, its file at {}", status.st_size));
    }
    let len = usize::try_from(len).map_err(|_| "it is too long")?;
    MmapRegion::from_file(FileOffset::new(file, offset), len).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(len: u64) -> File {
        let file = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len).unwrap();
        file.into()
    }

    fn region(guest: u64, user: u64, len: u64) -> Announced {
        Announced { guest, user, len, offset: 0 }
    }

    #[test]
    fn addresses_of_the_hypervisor_become_the_guests() {
        let mut memory = Memory::default();
        assert_eq!(memory.guest_address(0), None);
        let regions = [(0x10000, 0x7000_0000), (0, 0x5000_0000)];
        let regions = regions.map(|(guest, user)| (region(guest, user, 0x2000), file(0x2000)));
        memory.replace(regions.into_iter()).unwrap();
        for (user, guest) in [
            (0x7000_0000, Some(0x10000)),
            (0x7000_1fff, Some(0x11fff)),
            (0x7000_2000, None),
            (0x5000_0010, Some(0x10)),
            (0, None),
        ] {
            assert_eq!(memory.guest_address(user), guest.map(GuestAddress), "{user:#x}");
        }
    }

    #[test]
    fn an_address_is_found_whatever_was_used_before() {
        let starts = [0, 0x2000, 0x4000, 0x8000];
        let map = GuestMap::of_test(&starts.map(|start| (start, 0x1000)));
        for before in starts {
            for start in starts {
                for (address, is_there) in
                    [(start, true), (start + 0xff8, true), (start + 0x1000, false)]
                {
                    assert!(write(&map, before, GuestAddress(before)).is_some());
                    let written = write(&map, address, GuestAddress(address));
                    assert_eq!(written.is_some(), is_there, "{address:#x} after {before:#x}");
                    let read = read::<u64>(&map, GuestAddress(address));
                    assert_eq!(read, is_there.then_some(address));
                }
            }
        }
    }

    #[test]
    fn an_old_map_stays_as_it_was() {
        let mut memory = Memory::default();
        memory.add(region(0, 0x1000, 0x1000), file(0x1000)).unwrap();
        let old = memory.map();
        memory.add(region(0x1000, 0x9000, 0x1000), file(0x1000)).unwrap();
        memory.map().write_slice(b"abcd", GuestAddress(0xffe)).unwrap();
        memory.remove(region(0, 0x1000, 0x1000)).unwrap();
        assert!(memory.map().read_obj::<u8>(GuestAddress(0xffe)).is_err());
        assert_eq!(old.read_obj::<u16>(GuestAddress(0xffe)).unwrap().to_le_bytes(), *b"ab");
        assert_eq!(memory.map().read_obj::<u8>(GuestAddress(0x1000)).unwrap(), b'c');
        let error = memory.remove(region(0, 0x1000, 0x1000)).unwrap_err();
        assert!(matches!(error, MemoryError::Unknown { address: 0, len: 0x1000 }), "{error}");
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut memory = Memory::default();
        memory.add(region(0, 0, 0x2000), file(0x2000)).unwrap();
        assert!(memory.add(region(0x1000, 0x9000, 0x1000), file(0x1000)).is_err(), "overlaps");
        assert!(memory.add(region(0x9000, 0x9000, 0x2000), file(0x1000)).is_err(), "short file");
        assert!(memory.add(region(u64::MAX, 0x9000, 0x1000), file(0x1000)).is_err(), "too far");
        assert_eq!(memory.map().regions.len(), 1);
        memory.remove(region(0, 0, 0x2000)).unwrap();
        assert_eq!(memory.map().regions.len(), 0);
    }

    #[test]
    fn memory_that_can_be_had_is_there_afterwards() {
        let mut memory = Memory::default();
        let shared = file(0x20000);
        let seen = shared.try_clone().unwrap();
        memory.add(region(0, 0, 0x10000), shared).unwrap();
        memory.add(region(0x10000, 0x10000, 0x10000), file(0x10000)).unwrap();
        let blocks = || rustix::fs::fstat(&seen).unwrap().st_blocks;
        let map = memory.map();
        assert_eq!(blocks(), 0);
        assert!(populate(&map, GuestAddress(0x3fff), 2));
        assert_eq!(blocks(), 2 * 8);
        assert!(populate(&map, GuestAddress(0xf000), 0x2000), "in two regions");
        assert!(
            populate(&map, GuestAddress(0x1f000), 0x2000),
            "no memory is found broken elsewhere"
        );
    }
}
