//! An initiator's view: the disk, and the ports through which it reaches it.

use super::unit::BLOCK;

/// A disk as initiators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The disk's name.
    pub name: String,
    /// Of the disk, where it has one: what the world-wide name is made of. Without one it is made of
    /// the name, so that disks of the same name must not meet at one initiator.
    pub uuid: Option<[u8; 16]>,
    /// Bytes; a multiple of 512.
    pub size: u64,
    /// Bytes of a physical block, a power of two from 512 to 16 MiB.
    pub physical_block: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// True: a volatile write cache, which initiators flush; they can change it.
    pub write_cache: bool,
    /// Bytes of reservations that can be stored for it, so that they outlive a restart where that is asked for; 0: it
    /// is refused.
    pub store_max: usize,
    /// Bytes of the longest write that loss of power leaves whole or undone; 0: not promised. A
    /// multiple of 512.
    pub atomic_write_max: u32,
    /// The target ports that expose the disk.
    pub ports: Vec<Port>,
}

/// A target port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Relative target port identifier: not 0, and no other port of the disk has it.
    pub relative: u16,
    /// Target port group, not 0.
    pub group: u16,
    /// Name of the iSCSI target.
    pub target: String,
    /// iSCSI portal group tag.
    pub portal_group: u16,
}

impl Export {
    /// A writable disk with a write cache, without ports.
    pub fn new(name: &str, size: u64) -> Export {
        Export {
            name: name.to_owned(),
            uuid: None,
            size,
            physical_block: 4096,
            read_only: false,
            write_cache: true,
            store_max: 0,
            atomic_write_max: 0,
            ports: Vec::new(),
        }
    }

    /// Logical blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.size / BLOCK
    }

    /// Logical blocks per physical block.
    pub(super) fn blocks_per_physical(&self) -> u32 {
        self.physical_block / BLOCK as u32
    }

    /// Panics when a field breaks its promise.
    pub(super) fn assert_valid(&self) {
        assert!(self.size.is_multiple_of(BLOCK), "a disk has whole logical blocks");
        let physical = self.physical_block;
        assert!(physical.is_power_of_two() && (BLOCK as u32..=16 << 20).contains(&physical));
        assert!(u64::from(self.atomic_write_max).is_multiple_of(BLOCK));
        for (at, port) in self.ports.iter().enumerate() {
            assert!(port.relative != 0 && port.group != 0, "identifiers of ports begin with 1");
            let others = &self.ports[at + 1..];
            assert!(others.iter().all(|other| other.relative != port.relative));
        }
    }
}

impl Port {
    /// Its name, as SCSI knows it.
    pub(super) fn name(&self) -> String {
        format!("{},t,{:#06x}", self.target, self.portal_group)
    }
}
