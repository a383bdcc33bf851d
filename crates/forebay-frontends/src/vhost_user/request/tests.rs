use super::super::chain::Piece;
use super::*;
use vm_memory::Bytes;

const ALL: Discards = Discards { discard: true, write_zeroes: true };
const NONE: Discards = Discards { discard: false, write_zeroes: false };

/// A chain of a header, `data` bytes that are readable and `writable` bytes.
fn ask(
    discards: Discards,
    kind: u32,
    sector: u64,
    data: &[u8],
    writable: u32,
) -> Result<Asked, Broken> {
    let memory = GuestMap::of_test(&[(0, 64 << 20)]);
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    memory.write_slice(&header, GuestAddress(0)).unwrap();
    memory.write_slice(data, GuestAddress(16)).unwrap();
    let piece = |address, len| Piece { address: GuestAddress(address), len };
    let readable = vec![piece(0, 16 + data.len() as u32)];
    let writable = if writable == 0 { Vec::new() } else { vec![piece(0x1000, writable)] };
    let mut pieces = Pieces { readable, writable };
    let (asked, status) = parse(&memory, discards, &mut pieces)?;
    let last = 0x1000 + chain::len(&pieces.writable);
    assert_eq!(status, GuestAddress(last), "the last writable byte");
    Ok(asked)
}

fn space(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

const ERROR: Asked = Asked::Refused(Status::Error);
const UNSUPPORTED: Asked = Asked::Refused(Status::Unsupported);

#[test]
fn commands_are_what_the_specification_says() {
    let range = |sector: u64, sectors: u64| ByteRange::at(sector * 512, sectors * 512);
    let write = [7; 1024];
    for (kind, sector, data, writable, expect) in [
        (0, 3, &[][..], 1025, Asked::Read(range(3, 2))),
        (1, 4, &write[..], 1, Asked::Write(range(4, 2))),
        (4, 0, &[], 1, Asked::Flush),
        (8, 0, &[], 21, Asked::Serial),
        (11, 0, &space(8, 16, 0), 1, Asked::Discard(range(8, 16))),
        (13, 0, &space(8, 16, 0), 1, Asked::WriteZeroes { range: range(8, 16), may_unmap: false }),
        (13, 0, &space(8, 16, 1), 1, Asked::WriteZeroes { range: range(8, 16), may_unmap: true }),
        (2, 0, &[], 1, UNSUPPORTED),
        (u32::MAX, 0, &[], 1, UNSUPPORTED),
    ] {
        assert_eq!(ask(ALL, kind, sector, data, writable), Ok(expect), "type {kind}");
    }
}

#[test]
fn what_no_disk_can_do_is_an_error() {
    let long = DATA_MAX as u32;
    for (kind, sector, data, writable, expect) in [
        (0, 0, &[][..], 1, ERROR),
        (0, 0, &[], 100, ERROR),
        (0, u64::MAX, &[], 513, ERROR),
        (0, u64::MAX / 512, &[], 513, ERROR),
        (0, 0, &[], long + 513, ERROR),
        (0, 0, &[], long + 1, Asked::Read(ByteRange::at(0, DATA_MAX))),
        (1, 0, &[], 1, ERROR),
        (1, 0, &[1; 511], 1, ERROR),
        (11, 0, &space(0, 0, 0), 1, ERROR),
        (11, 0, &space(0, SPACE_SECTORS_MAX + 1, 0), 1, ERROR),
        (11, 0, &space(u64::MAX, 1, 0), 1, ERROR),
        (11, 0, &space(0, 1, 1), 1, UNSUPPORTED),
        (13, 0, &space(0, 1, 2), 1, UNSUPPORTED),
        (11, 0, &[0; 15], 1, ERROR),
        (11, 0, &[0; 32], 1, ERROR),
    ] {
        assert_eq!(ask(ALL, kind, sector, data, writable), Ok(expect), "type {kind}, {sector}");
    }
}

#[test]
fn what_was_not_agreed_on_is_unsupported() {
    assert_eq!(ask(NONE, 11, 0, &space(0, 1, 0), 1), Ok(UNSUPPORTED));
    assert_eq!(ask(NONE, 13, 0, &space(0, 1, 0), 1), Ok(UNSUPPORTED));
}

#[test]
fn a_chain_without_header_or_status_breaks_the_ring() {
    assert_eq!(ask(ALL, 0, 0, &[], 0), Err(Broken::Status));
    let memory = GuestMap::of_test(&[(0, 4096)]);
    let short = vec![Piece { address: GuestAddress(0), len: 15 }];
    let mut pieces = Pieces { readable: short.clone(), writable: short };
    assert_eq!(parse(&memory, ALL, &mut pieces), Err(Broken::Header));
}
