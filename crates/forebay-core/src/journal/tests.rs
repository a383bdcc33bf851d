//! The format of the journal, and what a start makes of one.

mod format;
mod hostile;
mod repair;

use super::record::{Contents, Entry, Head};
use super::{FIRST_SLOT, Medium, Owner, Shape, Superblock, repair as put_in_place};
use crate::geometry::{ByteRange, PAGE, SECTOR};
use crate::ids::{Generation, Sequence, Uuid};
use crate::sealed::{PAGE_LEN, Page, crc32c};
use crate::write_back::format::index::{PageIndex, SectorMask};

const OWNER: Owner = Owner { disk: Uuid(*b"disk-uuid-golden"), nonce: 0x0123_4567_89ab_cdef };
/// Bytes of the disk.
const SIZE: u64 = 64 * PAGE;

fn shape() -> Shape {
    Shape::new(2, 8).expect("a shape")
}

fn superblock(retired: u64) -> Superblock {
    Superblock { owner: OWNER, shape: shape(), version: 1, retired }
}

fn encoded(superblock: &Superblock) -> Page {
    let mut page = [0xEE; PAGE_LEN];
    superblock.encode(&mut page);
    page
}

fn head(window: u64) -> Head {
    Head::new(OWNER, Generation(3), window, Sequence(10 * window))
}

/// A payload page that is one byte all over, and its entry.
fn entry(page: u64, sectors: u8, byte: u8) -> Entry {
    let checksum = crc32c(&[byte; PAGE_LEN]);
    Entry { page: PageIndex(page), sectors: SectorMask(sectors), checksum }
}

/// The pages of a header.
fn header(head: Head, contents: &Contents) -> Vec<u8> {
    let mut bytes = vec![0xEE; contents.header_pages() as usize * PAGE_LEN];
    contents.encode(head, &mut bytes);
    bytes
}

fn first_page(header: &[u8]) -> &Page {
    header.first_chunk().expect("a page")
}

/// What a start reads of a header: its head and its contents.
fn decoded(header: &[u8]) -> Option<(Head, Contents)> {
    let head = Head::decode(first_page(header), OWNER, shape())?;
    let contents = Contents::decode(&head, &header[PAGE_LEN..], SIZE)?;
    Some((head, contents))
}
