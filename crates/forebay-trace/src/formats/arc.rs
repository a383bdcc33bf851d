//! The `.lis` files of the ARC paper (Megiddo & Modha, FAST '03): `first page, pages, ignored,
//! request number`. Pages have 512 bytes; all requests are reads, and there is no time.

use super::fields::{SECTOR, bytes, exactly, number};
use super::lines::Parser;
use super::{Item, Raw};
use crate::record::Op;

/// The columns, for errors.
const COLUMNS: &str = "first page, pages, ignored, request number";

/// See the module.
#[derive(Debug)]
pub(super) struct Arc;

impl Parser for Arc {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        let [page, pages, ignored, request] = exactly(line.split_ascii_whitespace(), COLUMNS)?;
        number(ignored, "third field")?;
        number(request, "request number")?;
        Ok(Item::Request(Raw {
            time_ns: 0,
            op: Op::Read,
            offset: bytes(page, SECTOR, "first page")?,
            len: bytes(pages, SECTOR, "pages")?,
            device: 0,
            latency_ns: None,
        }))
    }
}
