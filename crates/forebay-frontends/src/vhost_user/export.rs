//! The properties of a device, and the features for them.

use forebay_core::geometry::SECTOR;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;
use virtio_bindings::{virtio_blk as blk, virtio_config, virtio_ring as ring};

use super::request::Discards;

/// Queues of a device at most.
pub const QUEUES_MAX: u16 = 16;
/// Bytes of a serial number.
pub const SERIAL_BYTES: usize = 20;

/// The feature that says that protocol features can be asked for; the transport's own.
const PROTOCOL_FEATURES: u64 = 1 << 30;

/// One disk as a guest sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Serial number; of a longer one only the first [`SERIAL_BYTES`] bytes are seen.
    pub serial: String,
    /// Size in bytes, a multiple of 512.
    pub size: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// True: a volatile write cache that the guest flushes, or switches off. False: every write is durable
    /// before it is answered, and no cache is shown.
    pub write_cache: bool,
    /// Size and alignment of requests that are served well, a power of two; the cache block.
    pub preferred_block: u32,
    /// Takes discards.
    pub discard: bool,
    /// Queues, at most [`QUEUES_MAX`].
    pub queues: u16,
}

impl Export {
    /// Virtio features that are offered.
    pub fn features(&self) -> u64 {
        let bit = |bit: u32| 1_u64 << bit;
        let when = |condition: bool, feature: u32| if condition { bit(feature) } else { 0 };
        let writable = !self.read_only;
        let cached = writable && self.write_cache;
        PROTOCOL_FEATURES
            | bit(virtio_config::VIRTIO_F_VERSION_1)
            | bit(ring::VIRTIO_RING_F_EVENT_IDX)
            | bit(ring::VIRTIO_RING_F_INDIRECT_DESC)
            | bit(blk::VIRTIO_BLK_F_SEG_MAX)
            | bit(blk::VIRTIO_BLK_F_BLK_SIZE)
            | bit(blk::VIRTIO_BLK_F_TOPOLOGY)
            | when(self.queues > 1, blk::VIRTIO_BLK_F_MQ)
            | when(self.read_only, blk::VIRTIO_BLK_F_RO)
            | when(cached, blk::VIRTIO_BLK_F_FLUSH)
            | when(cached, blk::VIRTIO_BLK_F_CONFIG_WCE)
            | when(writable && self.discard, blk::VIRTIO_BLK_F_DISCARD)
            | when(writable, blk::VIRTIO_BLK_F_WRITE_ZEROES)
    }

    /// Every virtio feature that a disk of Forebay may have. A guest that goes on over a restart keeps what it agreed on
    /// before, although by then the disk may be read-only, show no cache, or take no discards: nothing of that is wrong to use.
    ///
    /// ANY_LAYOUT is among them, and not offered: QEMU offers it by itself to a driver of before virtio 1.0, and passes on
    /// that it was taken. It asks nothing of a device that takes every layout of a request.
    fn features_of_any() -> u64 {
        let all = Export {
            serial: String::new(),
            size: 0,
            read_only: false,
            write_cache: true,
            preferred_block: 0,
            discard: true,
            queues: QUEUES_MAX,
        };
        all.features() | 1 << blk::VIRTIO_BLK_F_RO | 1 << virtio_config::VIRTIO_F_ANY_LAYOUT
    }

    /// Features of the control protocol that are offered.
    pub fn protocol_features(&self) -> Protocol {
        Protocol::MQ
            | Protocol::REPLY_ACK
            | Protocol::CONFIG
            | Protocol::BACKEND_REQ
            | Protocol::INFLIGHT_SHMFD
            | Protocol::RESET_DEVICE
            | Protocol::CONFIGURE_MEM_SLOTS
    }

    /// The serial number, filled up with zeroes.
    pub fn serial_bytes(&self) -> [u8; SERIAL_BYTES] {
        let mut bytes = [0; SERIAL_BYTES];
        let len = self.serial.len().min(SERIAL_BYTES);
        bytes[..len].copy_from_slice(&self.serial.as_bytes()[..len]);
        bytes
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.size / SECTOR
    }
}

/// The driver's features, as far as requests are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed(u64);

impl Agreed {
    /// Nothing: before features are set.
    pub const NOTHING: Agreed = Agreed(0);

    /// The features that a driver chose.
    ///
    /// # Errors
    /// Those that Forebay never offers.
    pub fn new(features: u64) -> Result<Agreed, u64> {
        match features & !Export::features_of_any() {
            0 => Ok(Agreed(features)),
            others => Err(others),
        }
    }

    /// Positions in the ring ask for notifications.
    pub fn event_index(self) -> bool {
        self.has(ring::VIRTIO_RING_F_EVENT_IDX)
    }

    /// Rings begin disabled and are enabled by a message.
    pub fn enables_rings(self) -> bool {
        self.0 & PROTOCOL_FEATURES != 0
    }

    /// The guest flushes, so that a write may be answered before it is durable while the cache is on.
    pub fn flushes(self) -> bool {
        self.has(blk::VIRTIO_BLK_F_FLUSH)
    }

    /// Which of the commands that give space back may be used.
    pub fn discards(self) -> Discards {
        Discards {
            discard: self.has(blk::VIRTIO_BLK_F_DISCARD),
            write_zeroes: self.has(blk::VIRTIO_BLK_F_WRITE_ZEROES),
        }
    }

    fn has(self, feature: u32) -> bool {
        self.0 & 1 << feature != 0
    }
}

#[cfg(test)]
pub(super) fn example() -> Export {
    Export {
        serial: "db".to_owned(),
        size: 1 << 30,
        read_only: false,
        write_cache: true,
        preferred_block: 8192,
        discard: true,
        queues: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of the block device that are offered.
    fn offered(export: &Export) -> Vec<u32> {
        (0..24).filter(|bit| export.features() & 1 << bit != 0).collect()
    }

    #[test]
    fn what_is_offered_follows_from_what_the_disk_is() {
        let cached = example();
        assert_eq!(offered(&cached), [2, 6, 9, 10, 11, 12, 13, 14]);
        let durable = Export { write_cache: false, ..example() };
        assert_eq!(offered(&durable), [2, 6, 10, 12, 13, 14], "no cache is shown");
        let read_only = Export { read_only: true, ..example() };
        assert_eq!(offered(&read_only), [2, 5, 6, 10, 12], "nothing that writes");
        let plain = Export { discard: false, queues: 1, ..example() };
        assert_eq!(offered(&plain), [2, 6, 9, 10, 11, 14]);
        assert_eq!(cached.features() >> 24, 0b1_0111_0000, "28, 29, 30 and 32");
    }

    #[test]
    fn what_is_never_offered_cannot_be_agreed_on() {
        let offered = example().features();
        assert!(Agreed::new(offered).unwrap().flushes());
        assert_eq!(Agreed::new(offered | 1 << 34), Err(1 << 34), "the packed ring");
        assert_eq!(Agreed::new(offered | 1 << 24), Err(1 << 24), "notify on empty");
        let few = Agreed::new(1 << 32).unwrap();
        assert!(!few.flushes() && !few.event_index() && !few.enables_rings());
    }

    #[test]
    fn a_guest_without_version_1_may_say_that_it_lays_out_requests_as_it_likes() {
        let legacy = 1 << 27 | 1 << 9 | 1 << 6 | 1 << 2;
        assert!(Agreed::new(legacy).unwrap().flushes());
        assert_eq!(example().features() & 1 << 27, 0, "QEMU offers it by itself");
    }

    #[test]
    fn a_serial_number_has_twenty_bytes() {
        let long = Export { serial: "a-name-of-more-than-20-bytes".to_owned(), ..example() };
        assert_eq!(&long.serial_bytes(), b"a-name-of-more-than-");
        assert_eq!(&example().serial_bytes()[..3], b"db\0");
    }
}
