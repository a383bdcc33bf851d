//! Records of a journal, as a disk that died has left them.

use forebay_core::ids::{Generation, Sequence};
use forebay_core::journal::record::{self, Contents, Entry, Head};
use forebay_core::sealed::crc32c;
use forebay_core::write_back::format::index::{ALL, PageIndex};

use super::*;
use crate::pool::host;

/// Writes a whole record of one page, which is this byte all over, dated now.
pub(crate) fn record(
    place: &JournalPlace,
    owner: Owner,
    shape: Shape,
    window: u64,
    page: u64,
    byte: u8,
) {
    let mut journal = place.blocking(false, false).unwrap().unwrap();
    let payload = [byte; PAGE_LEN];
    journal.write(shape.payload(window, 0, 1).start, &payload).unwrap();
    let entry = Entry { page: PageIndex(page), sectors: ALL, checksum: crc32c(&payload) };
    let contents = Contents { zeroes: Vec::new(), pages: vec![entry] };
    let mut header = vec![0; contents.header_pages() as usize * PAGE_LEN];
    contents.encode(Head::new(owner, Generation(1), window, Sequence(9)), &mut header);
    record::date(header.first_chunk_mut().unwrap(), host::now());
    journal.write(shape.header(window).start, &header).unwrap();
}
