//! The identity of a disk: its world-wide name and serial number.
//!
//! ```text
//! NAA-6, 16 bytes:   6 | 24 bits: 02 46 42 | 100 bits: of SHA-256(what the disk is made of)
//! ```
//! The name is the same on every host and over every port. It is made of the disk's UUID alone
//! (or, for a disk without one, of its name). The bit of locally administered identifiers is set
//! in 02-46-42, so it differs from every vendor's registered identifier.

use sha2::{Digest, Sha256};

use super::export::Export;

/// Vendor, as INQUIRY shows it.
pub(super) const VENDOR: &[u8; 8] = b"FOREBAY ";
/// Product, as INQUIRY shows it.
pub(super) const PRODUCT: &[u8; 16] = b"Virtual disk    ";
/// Product revision level.
pub(super) const REVISION: &[u8; 4] = b"1   ";

const COMPANY: [u8; 3] = [0x02, 0x46, 0x42];

/// The identity of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// NAA-6 identifier.
    pub naa: [u8; 16],
    /// Unit serial number, ASCII.
    pub serial: String,
}

impl Identity {
    /// The identity of a disk.
    pub fn of(export: &Export) -> Identity {
        let digest = match &export.uuid {
            Some(uuid) => Sha256::new().chain_update("forebay disk uuid").chain_update(uuid),
            None => Sha256::new().chain_update("forebay disk name").chain_update(&export.name),
        };
        let digest = digest.finalize();
        let mut naa = [0; 16];
        naa[3..].copy_from_slice(&digest[..13]);
        naa[0] = 0x60 | COMPANY[0] >> 4;
        naa[1] = COMPANY[0] << 4 | COMPANY[1] >> 4;
        naa[2] = COMPANY[1] << 4 | COMPANY[2] >> 4;
        naa[3] = COMPANY[2] << 4 | naa[3] & 0x0f;
        let serial = match export.uuid {
            Some(uuid) => hex(&uuid),
            None => hex(&naa),
        };
        Identity { naa, serial }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Export, Identity, hex};

    #[test]
    fn the_name_of_a_disk_never_changes() {
        let mut export = Export::new("db", 1 << 20);
        let by_name = Identity::of(&export);
        assert_eq!(hex(&by_name.naa), "6024642ca890349b687dc76f55bc156c");
        assert_eq!(by_name.serial, hex(&by_name.naa));
        export.uuid = Some([7; 16]);
        let by_uuid = Identity::of(&export);
        assert_eq!(hex(&by_uuid.naa), "602464241f523d712fda5d0235a60078");
        assert_eq!(by_uuid.serial, "07070707070707070707070707070707");
        export.name = "renamed".to_owned();
        export.size = 2 << 20;
        assert_eq!(Identity::of(&export), by_uuid);
    }
}
