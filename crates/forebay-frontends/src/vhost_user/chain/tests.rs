use super::super::memory::Map;
use super::*;
use vm_memory::Bytes;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const TABLE: u64 = 0x1000;

/// Memory at 0–64 KiB and, without a gap, at 64–128 KiB; then nothing.
fn memory() -> Map {
    GuestMap::of_test(&[(0, 0x10000), (0x10000, 0x10000)])
}

fn put(memory: &GuestMap, table: u64, entries: &[(u64, u32, u16, u16)]) {
    for (index, &(address, len, flags, next)) in entries.iter().enumerate() {
        let descriptor = Descriptor::new(address, len, flags, next);
        memory.write_obj(descriptor, GuestAddress(table + 16 * index as u64)).unwrap();
    }
}

/// The pieces of the chain that begins with the first of `entries`: `address+len`, writable ones with `w`.
fn check(entries: &[(u64, u32, u16, u16)], expect: Result<&str, Broken>) {
    let memory = memory();
    put(&memory, TABLE, entries);
    let mut pieces = Pieces::default();
    let walked = walk(&memory, GuestAddress(TABLE), 8, 0, &mut pieces);
    let show = |piece: &Piece, kind: &str| format!("{:x}+{:x}{kind}", piece.address.0, piece.len);
    let readable = pieces.readable.iter().map(|piece| show(piece, ""));
    let writable = pieces.writable.iter().map(|piece| show(piece, "w"));
    let text: Vec<String> = readable.chain(writable).collect();
    assert_eq!(walked.map(|()| text.join(" ")), expect.map(str::to_owned), "{entries:x?}");
}

#[test]
fn a_chain_is_walked_to_its_end() {
    check(&[(0x5000, 16, 0, 7)], Ok("5000+10"));
    check(&[(0x5000, 16, NEXT, 2), (0, 0, 0, 0), (0x6000, 1, WRITE, 0)], Ok("5000+10 6000+1w"));
    check(
        &[(0x5000, 16, NEXT, 1), (0x6000, 512, NEXT | WRITE, 2), (0x7000, 1, WRITE, 0)],
        Ok("5000+10 6000+200w 7000+1w"),
    );
    check(&[(0xff00, 0x200, 0, 0)], Ok("ff00+200"));
}

#[test]
fn what_cannot_be_breaks_the_ring() {
    check(&[(0x5000, 16, NEXT, 8)], Err(Broken::Index(8)));
    check(&[(0x5000, 16, NEXT, 0)], Err(Broken::TooLong));
    check(&[(0x5000, 0, 0, 0)], Err(Broken::Empty));
    check(&[(0x5000, 1, WRITE | NEXT, 1), (0x5000, 16, 0, 0)], Err(Broken::Order));
    let address = |address, len| Err(Broken::Address { address, len });
    check(&[(0x20000, 1, 0, 0)], address(0x20000, 1));
    check(&[(0x1fff0, 17, 0, 0)], address(0x1fff0, 17));
    check(&[(u64::MAX, 2, 0, 0)], address(u64::MAX, 2));
    check(&[(0, u32::MAX, 0, 0)], address(0, u32::MAX.into()));
}

#[test]
fn an_indirect_table_is_walked_the_same_way() {
    let direct = [(0x3000, 48, INDIRECT, 0)];
    let table = [(0x5000, 16, NEXT, 2), (0x7000, 1, WRITE, 0), (0x6000, 512, NEXT | WRITE, 1)];
    let memory = memory();
    put(&memory, TABLE, &direct);
    put(&memory, 0x3000, &table);
    let mut pieces = Pieces::default();
    walk(&memory, GuestAddress(TABLE), 8, 0, &mut pieces).unwrap();
    assert_eq!((len(&pieces.readable), len(&pieces.writable)), (16, 513));
    // An index that the ring has and the table does not.
    put(&memory, 0x3000, &[(0x5000, 16, NEXT, 3)]);
    let walked = walk(&memory, GuestAddress(TABLE), 8, 0, &mut pieces);
    assert_eq!(walked, Err(Broken::Index(3)));
    // A table in a table.
    put(&memory, 0x3000, &[(0x3000, 48, INDIRECT, 0)]);
    let walked = walk(&memory, GuestAddress(TABLE), 8, 0, &mut pieces);
    assert_eq!(walked, Err(Broken::Indirect(48)));
}

#[test]
fn an_indirect_table_is_whole_and_ends_its_chain() {
    check(&[(0x3000, 0, INDIRECT, 0)], Err(Broken::Indirect(0)));
    check(&[(0x3000, 17, INDIRECT, 0)], Err(Broken::Indirect(17)));
    check(&[(0x3000, 16, INDIRECT | NEXT, 1)], Err(Broken::Indirect(16)));
    check(&[(0x1fff8, 16, INDIRECT, 0)], Err(Broken::Address { address: 0x1fff8, len: 16 }));
    check(&[(u64::MAX, 32, INDIRECT, 0)], Err(Broken::Address { address: u64::MAX, len: 16 }));
}

#[test]
fn ends_are_taken_off_across_pieces() {
    let memory = memory();
    memory.write_slice(b"abcdefgh", GuestAddress(0x5000)).unwrap();
    let piece = |address, len| Piece { address: GuestAddress(address), len };
    let mut pieces = vec![piece(0x5000, 2), piece(0x5006, 2), piece(0x5002, 3)];
    let first = take_first::<5>(&memory, &mut pieces).unwrap();
    assert_eq!((&first, &pieces[..]), (b"abghc", &[piece(0x5003, 2)][..]));
    assert_eq!(take_last(&mut pieces), Some(GuestAddress(0x5004)));
    assert_eq!(take_last(&mut pieces), Some(GuestAddress(0x5003)));
    assert_eq!(take_last(&mut pieces), None);
    assert_eq!(take_first::<5>(&memory, &mut vec![piece(0x5000, 4)]), None);
    let mut whole = vec![piece(0x5000, 4), piece(0x5006, 2)];
    assert_eq!(take_first(&memory, &mut whole), Some(*b"abcd"));
    assert_eq!(
        (take_first::<4>(&memory, &mut whole), take_first::<4>(&memory, &mut vec![])),
        (None, None)
    );
}

#[test]
fn bytes_go_in_and_out_across_pieces_and_regions() {
    let memory = memory();
    let piece = |address, len| Piece { address: GuestAddress(address), len };
    let pieces = [piece(0xfffe, 4), piece(0x100, 3)];
    scatter(&memory, &pieces, 0, b"abcdefg");
    scatter(&memory, &pieces, 3, b"XYZ");
    let mut bytes = [0; 7];
    gather(&memory, &pieces, 0, &mut bytes);
    assert_eq!(&bytes, b"abcXYZg");
    let mut bytes = [0; 2];
    gather(&memory, &pieces, 0, &mut bytes);
    assert_eq!(&bytes, b"ab");
}

proptest::proptest! {
    /// Any bytes for tables: no panic, an end, and only pieces of the guest's memory in order.
    #[test]
    fn any_table_gives_checked_pieces_or_an_error(
        entries in proptest::collection::vec((0_u64..0x22000, 0_u32..0x3000, 0_u16..8, 0_u16..10), 8),
        indirect in proptest::collection::vec((0_u64..0x22000, 0_u32..0x3000, 0_u16..8, 0_u16..10), 8),
        head in 0_u16..10,
    ) {
        let memory = memory();
        put(&memory, TABLE, &entries);
        put(&memory, 0x3000, &indirect);
        let mut pieces = Pieces::default();
        if walk(&memory, GuestAddress(TABLE), 8, head, &mut pieces).is_ok() {
            let count = pieces.readable.len() + pieces.writable.len();
            assert!((1..=DESCRIPTORS_MAX as usize + 1).contains(&count));
            for piece in pieces.readable.iter().chain(&pieces.writable) {
                assert!(piece.len > 0 && is_backed(&memory, *piece));
            }
        }
    }
}
