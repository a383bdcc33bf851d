//! The body of a fuzz target: hostile tables of descriptors, promises checked.
//!
//! Seven bytes of input are one descriptor: eight of the ring's table, then eight of an indirect one, then what is
//! in the guest's memory. A second walk that knows no shortcuts says what has to come out.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

use super::chain::{self, Broken, DESCRIPTORS_MAX, Pieces};
use super::memory::GuestMap;
use super::request::{self, Asked, Discards};

const SIZE: u16 = 8;
const TABLE: u64 = 0x100;
const INDIRECT: u64 = 0x200;
/// Two regions without a gap; nothing behind them.
const REGION: usize = 0x4000;
const END: u64 = 2 * REGION as u64;

/// A chain of whatever descriptors: the first byte is its head.
pub fn vhost_chain(data: &[u8]) {
    let Some((&head, data)) = data.split_first() else { return };
    let memory = GuestMap::of_test(&[(0, REGION), (REGION as u64, REGION)]);
    let mut bytes = data.chunks_exact(7);
    for table in [TABLE, INDIRECT] {
        // One more than the table has: nobody may read it.
        for (index, bytes) in (0..=u64::from(SIZE)).zip(&mut bytes) {
            let descriptor = descriptor(bytes);
            memory.write_obj(descriptor, GuestAddress(table + 16 * index)).expect("it has room");
        }
    }
    let rest = bytes.flatten().take(0x1000).copied().collect::<Vec<u8>>();
    memory.write_slice(&rest, GuestAddress(0x1000)).expect("it has room");
    let head = u16::from(head % 10);
    let mut pieces = Pieces::default();
    let walked = chain::walk(&memory, GuestAddress(TABLE), SIZE, head, &mut pieces);
    let expect = reference(&memory, head);
    assert_eq!(walked.is_ok(), expect.is_some(), "{walked:?}");
    let Some((readable, writable)) = expect else { return };
    assert_eq!((chain::len(&pieces.readable), chain::len(&pieces.writable)), (readable, writable));
    check_request(&memory, &mut pieces, readable, writable);
}

/// Addresses around the ends of both regions, and any small number of bytes.
fn descriptor(bytes: &[u8]) -> Descriptor {
    let pair = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let address = match pair(0) % 8 {
        0 => INDIRECT,
        1 => u64::MAX - u64::from(bytes[1]),
        _ => u64::from(pair(0)) % (END + 0x100),
    };
    let len = if bytes[4] & 8 != 0 { 16 * u32::from(bytes[2] % 10) } else { pair(2).into() };
    Descriptor::new(address, len, u16::from(bytes[4] & 7), u16::from(bytes[5] % 10))
}

/// Bytes that are readable and writable; `None` when the chain breaks its ring.
fn reference(memory: &GuestMap, head: u16) -> Option<(u64, u64)> {
    let (mut table, mut size, mut index, mut nested) = (TABLE, u64::from(SIZE), head, false);
    let (mut readable, mut writable, mut count) = (0, 0, 0);
    loop {
        let at = table.checked_add(16 * u64::from(index))?;
        if u64::from(index) >= size || at.checked_add(16)? > END || count > DESCRIPTORS_MAX {
            return None;
        }
        let raw: [u8; 16] = memory.read_obj(GuestAddress(at)).ok()?;
        let address = u64::from_le_bytes(raw[..8].try_into().ok()?);
        let len = u64::from(u32::from_le_bytes(raw[8..12].try_into().ok()?));
        let (next, write, indirect) = (raw[12] & 1 != 0, raw[12] & 2 != 0, raw[12] & 4 != 0);
        count += 1;
        if indirect {
            if nested || next || len == 0 || len % 16 != 0 {
                return None;
            }
            (table, size, index, nested) = (address, len / 16, 0, true);
            continue;
        }
        if len == 0 || address.checked_add(len)? > END || (!write && writable > 0) {
            return None;
        }
        *(if write { &mut writable } else { &mut readable }) += len;
        if !next {
            return Some((readable, writable));
        }
        index = u16::from_le_bytes([raw[14], raw[15]]);
    }
}

/// The request fits to the bytes that there are.
fn check_request(memory: &GuestMap, pieces: &mut Pieces, readable: u64, writable: u64) {
    let all = Discards { discard: true, write_zeroes: true };
    match request::parse(memory, all, pieces) {
        Ok((Asked::Read(range), _)) => {
            assert_eq!(range.len(), writable - 1);
            let bytes = vec![0xa5; range.len() as usize];
            chain::scatter(memory, &pieces.writable, 0, &bytes);
        }
        Ok((Asked::Write(range), _)) => {
            assert_eq!(range.len(), readable - 16);
            let mut bytes = vec![0; range.len() as usize];
            chain::gather(memory, &pieces.readable, 0, &mut bytes);
        }
        Ok((Asked::Discard(range) | Asked::WriteZeroes { range, .. }, _)) => {
            assert!(!range.is_empty() && range.is_aligned(512));
        }
        Ok((Asked::Flush | Asked::Serial | Asked::Refused(_), _)) => {}
        Err(broken) => {
            assert!(
                broken == Broken::Header && readable < 16
                    || broken == Broken::Status && writable == 0
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    fn inputs() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..400)
    }

    fn run(data: Vec<u8>) -> Result<(), TestCaseError> {
        vhost_chain(&data);
        Ok(())
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn whatever_a_guest_writes_is_survived() {
        TestRunner::default().run(&inputs(), run).unwrap();
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn the_planted_bug_is_found() {
        let mut runner = TestRunner::new(ProptestConfig::with_cases(100_000));
        let found = runner.run(&inputs(), run);
        assert!(found.is_err(), "an index beyond the table");
    }
}
