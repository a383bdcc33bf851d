//! What is no raw disk, known by a few of its bytes: images of other formats, and flash pools.
//!
//! Forebay serves the bytes of a file as they are. A guest would see the tables of such an image instead of its disk, and
//! write over those of a pool.
//! A guest may write the same bytes to a raw disk: they prove nothing about one that was served before.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use forebay_core::flash_pool::SUPERBLOCKS;
use forebay_core::flash_pool::superblock::MAGIC;

/// A format of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// QEMU's, of both versions.
    Qcow2,
    /// QEMU's former one.
    Qed,
    /// VMware's: sparse, or the text that describes one.
    Vmdk,
    /// Microsoft's.
    Vhdx,
    /// Microsoft's former one.
    Vhd,
    /// VirtualBox's.
    Vdi,
    /// No image: a flash pool of Forebay.
    Pool,
}

/// Bytes at each end that tell.
const SECTOR: usize = 512;

impl ImageFormat {
    /// The format of a file of `size` bytes; `None`: it is raw, or of a format that nobody here knows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: &File, size: u64) -> io::Result<Option<ImageFormat>> {
        let head = sector(file, 0)?;
        let tail = sector(file, size.saturating_sub(SECTOR as u64))?;
        for superblock in SUPERBLOCKS {
            if sector(file, superblock)?.starts_with(MAGIC) {
                return Ok(Some(ImageFormat::Pool));
            }
        }
        Ok(ImageFormat::from_bytes(&head, &tail))
    }

    /// The format of what begins with `head` and ends with `tail`.
    fn from_bytes(head: &[u8], tail: &[u8]) -> Option<ImageFormat> {
        const BEGINNINGS: [(&[u8], ImageFormat); 7] = [
            (b"QFI\xfb", ImageFormat::Qcow2),
            (b"QED\0", ImageFormat::Qed),
            (b"KDMV", ImageFormat::Vmdk),
            (b"COWD", ImageFormat::Vmdk),
            (b"# Disk DescriptorFile", ImageFormat::Vmdk),
            (b"vhdxfile", ImageFormat::Vhdx),
            (b"conectix", ImageFormat::Vhd),
        ];
        let beginning = BEGINNINGS.iter().find(|(magic, _)| head.starts_with(magic));
        // VirtualBox has a line of text first. A VHD of fixed size has its header at the end.
        let is_vdi = || head.get(64..68) == Some(&[0x7f, 0x10, 0xda, 0xbe]);
        match beginning {
            Some((_, format)) => Some(*format),
            None if is_vdi() => Some(ImageFormat::Vdi),
            None => tail.starts_with(b"conectix").then_some(ImageFormat::Vhd),
        }
    }

    /// Its name in `qemu-nbd --format`; `None`: QEMU cannot read it.
    pub fn in_qemu(self) -> Option<&'static str> {
        match self {
            ImageFormat::Qcow2 => Some("qcow2"),
            ImageFormat::Qed => Some("qed"),
            ImageFormat::Vmdk => Some("vmdk"),
            ImageFormat::Vhdx => Some("vhdx"),
            ImageFormat::Vhd => Some("vpc"),
            ImageFormat::Vdi => Some("vdi"),
            ImageFormat::Pool => None,
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageFormat::Qcow2 => "qcow2",
            ImageFormat::Qed => "QED",
            ImageFormat::Vmdk => "VMDK",
            ImageFormat::Vhdx => "VHDX",
            ImageFormat::Vhd => "VHD",
            ImageFormat::Vdi => "VDI",
            ImageFormat::Pool => "Forebay pool",
        })
    }
}

/// The sector at `offset`, or what the file has of it.
fn sector(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; SECTOR];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_known_by_its_bytes_and_raw_ones_by_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let check = |at: usize, magic: &[u8], size: usize, expect: Option<ImageFormat>| {
            let mut bytes = vec![0; size];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            std::fs::write(&path, bytes).unwrap();
            let file = File::open(&path).unwrap();
            assert_eq!(ImageFormat::of(&file, size as u64).unwrap(), expect, "{magic:?} at {at}");
        };
        check(0, b"QFI\xfb\0\0\0\x03", 65536, Some(ImageFormat::Qcow2));
        check(0, b"QED\0", 65536, Some(ImageFormat::Qed));
        check(0, b"KDMV\x01", 65536, Some(ImageFormat::Vmdk));
        check(0, b"COWD", 65536, Some(ImageFormat::Vmdk));
        check(0, b"# Disk DescriptorFile\n", 340, Some(ImageFormat::Vmdk));
        check(0, b"vhdxfile", 65536, Some(ImageFormat::Vhdx));
        check(0, b"conectix", 65536, Some(ImageFormat::Vhd));
        check(65536 - 512, b"conectix", 65536, Some(ImageFormat::Vhd));
        check(64, b"\x7f\x10\xda\xbe", 65536, Some(ImageFormat::Vdi));
        check(0, b"FOREBAY\0\x01", 65536, Some(ImageFormat::Pool));
        check(512 << 10, b"FOREBAY\0\x01", 1 << 20, Some(ImageFormat::Pool));
        for (at, magic) in [(1, b"QFI\xfb".as_slice()), (0, b"QFI"), (510, b"\x55\xaa")] {
            check(at, magic, 65536, None);
        }
        check(0, b"", 0, None);
        check(0, b"KDM", 3, None);
    }
}
