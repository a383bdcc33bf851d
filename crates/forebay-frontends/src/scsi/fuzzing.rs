//! Body of the fuzz target: commands and parameter lists of hostile initiators.
//!
//! ```text
//! input: set-up (1), then steps: what (1), length of Data-Out (2), CDB (16), that much Data-Out
//! ```
//! The unit answers every input. Its I/O lies on the disk and within its limits, and its answers
//! are well-formed. With the feature `planted-bugs` this must fail soon.

use forebay_core::action::{Extent, ExtentState};
use forebay_core::geometry::{ByteRange, REQUEST_MAX};
use forebay_core::status::IoStatus;

use super::*;

const SIZE: u64 = 1000 * 512;

/// A unit with two initiators, and what they send.
pub fn scsi_commands(data: &[u8]) {
    let Some((&setup, mut rest)) = data.split_first() else { return };
    let mut unit = LogicalUnit::new(export(setup));
    let nexus = |name: &str, port| Nexus {
        initiator: Initiator { name: name.to_owned(), isid: [0; 6] },
        port,
    };
    let mut state = Vec::new();
    let mut ids = [unit.attach(nexus("iqn.a", 1)), unit.attach(nexus("iqn.b", 2))];
    while let Some((head, tail)) = rest.split_first_chunk::<19>() {
        let len = usize::from(u16::from_be_bytes([head[1], head[2]])) % 2048;
        let (list, tail) = tail.split_at(len.min(tail.len()));
        rest = tail;
        let id = ids[usize::from(head[0] & 1)];
        match head[0] >> 4 {
            0 => unit.reset(),
            1 => {
                unit.detach(id);
                ids[usize::from(head[0] & 1)] = unit.attach(nexus("iqn.c", 1));
            }
            2 => restart(&unit, &state),
            _ => {
                let cdb = Cdb(*head[3..].first_chunk().expect("sixteen bytes"));
                if let Some(stored) = run(&mut unit, id, cdb, list, head[0]) {
                    state = stored;
                }
            }
        }
    }
}

fn export(setup: u8) -> Export {
    let port = |relative| Port { relative, group: 1, target: "iqn.t".to_owned(), portal_group: 1 };
    Export {
        read_only: setup & 7 == 7,
        write_cache: setup & 8 == 0,
        store_max: [4008, 0, 100][usize::from(setup >> 4) % 3],
        atomic_write_max: u32::from(setup >> 6) * 4096,
        ports: vec![port(1), port(2)],
        ..Export::new("fuzz", SIZE)
    }
}

/// What it wants stored, if that succeeds.
fn run(unit: &mut LogicalUnit, id: NexusId, cdb: Cdb, list: &[u8], how: u8) -> Option<Vec<u8>> {
    let command = Command { cdb, data_out: list.len() as u32, luns: &[Lun::ZERO] };
    let outcome = match unit.command(id, &command) {
        Outcome::DataOut(len) => {
            let list = &list[..list.len().min(len as usize)];
            unit.parameters(id, &command, list)
        }
        outcome => outcome,
    };
    match outcome {
        Outcome::Done(response) => check_response(&response),
        Outcome::DataOut(_) => panic!("a parameter list is asked for once"),
        Outcome::Store(state) => {
            assert!(state.len() <= unit.export().store_max);
            let is_stored = how & 8 != 0;
            // Others are told to come again.
            let (again, _) = (unit.command(id, &command), unit.access_of_others());
            assert!(matches!(again, Outcome::Done(_)));
            let (response, abort) = unit.stored(is_stored);
            check_response(&response);
            assert!(is_stored == (response.status == Status::Good));
            assert!(!abort.contains(&id), "its own tasks go on");
            return is_stored.then_some(state);
        }
        Outcome::Settle { response, abort } => {
            check_response(&response);
            assert!(!abort.is_empty() && !abort.contains(&id), "its own tasks go on");
        }
        Outcome::Medium(medium) => {
            check_medium(unit, &medium, command.data_out);
            let extents = [Extent { len: 700, state: ExtentState::Hole }; 3];
            let done = match how & 6 {
                0 => Done::Status(IoStatus::IoError),
                2 if matches!(medium, Medium::Allocation { .. }) => Done::Extents(&extents),
                2 => Done::Miscompare(u64::MAX),
                _ => Done::Status(IoStatus::Ok),
            };
            check_response(&unit.medium_done(id, &medium, done));
        }
    }
    None
}

fn check_response(response: &Response) {
    let is_check = response.status == Status::CheckCondition;
    assert_eq!(response.sense.is_some(), is_check);
    assert!(!is_check || response.data.is_empty());
    assert!(response.data.len() <= 64 << 10, "answers are bounded");
    if let Some(sense) = response.sense {
        let mut bytes = Vec::new();
        sense.write_to(&mut bytes);
        assert!(bytes.len() <= Sense::LEN_MAX && [0x70, 0x72].contains(&(bytes[0] & 0x7f)));
        assert!(bytes.len() == 18 || bytes.len() == 8 + usize::from(bytes[7]));
    }
}

fn check_medium(unit: &LogicalUnit, medium: &Medium, data_out: u32) {
    let disk = ByteRange::at(0, unit.export().size);
    let on_disk = |range: &ByteRange| {
        assert!(range.start <= range.end && disk.contains(*range), "{medium:?}");
        assert!(range.is_aligned(512));
    };
    assert!(medium.data_out(512) <= data_out.into(), "more Data-Out than was announced");
    match medium {
        Medium::Read { range, .. }
        | Medium::Verify { range, .. }
        | Medium::Compare { range, .. }
        | Medium::Write { range, .. }
        | Medium::OrWrite { range, .. }
        | Medium::CompareAndWrite { range, .. }
        | Medium::Prefetch { range, .. } => {
            on_disk(range);
            assert!(range.len() <= REQUEST_MAX);
        }
        Medium::WriteSame { range, .. } | Medium::Zero { range, .. } => {
            on_disk(range);
            assert!(!range.is_empty() && range.len() <= 4 << 30);
        }
        Medium::Unmap { ranges, .. } => {
            assert!(!ranges.is_empty() && ranges.len() <= 256);
            for range in ranges {
                on_disk(range);
                assert!(!range.is_empty());
            }
        }
        Medium::Allocation { range, extents_max, .. } => {
            on_disk(range);
            assert!(!range.is_empty() && (1..=256).contains(extents_max));
        }
        Medium::Flush | Medium::CacheOff => {}
    }
    if medium.writes() && !matches!(medium, Medium::Flush | Medium::CacheOff) {
        assert!(!unit.export().read_only, "a read-only disk is not written");
    }
}

/// Another unit understands the state that a unit stores. A damaged one is refused, or makes
/// sense.
fn restart(unit: &LogicalUnit, state: &[u8]) {
    let mut again = LogicalUnit::new(unit.export().clone());
    again.restore(state).expect("what it said itself");
    let (after, before) = (&again.persistent, &unit.persistent);
    assert_eq!(state.is_empty(), !before.outlives_restart || !before.has_registrations());
    if !state.is_empty() {
        assert_eq!(after.registrations, before.registrations);
        assert_eq!(after.reservation, before.reservation);
    }
}

/// Possible bytes where reservations were stored, behind their checksum. With the feature
/// `planted-bugs` this must fail soon.
pub fn scsi_stored(data: &[u8]) {
    let checksum = forebay_core::sealed::crc32c(data).to_le_bytes();
    let state = [b"FBSCSIPR", &checksum[..], data].concat();
    let mut unit = LogicalUnit::new(export(0));
    if unit.restore(&state).is_err() {
        assert!(!unit.persistent.has_registrations(), "nothing was taken");
        return;
    }
    let held = unit.persistent.reservation.clone();
    let is_registered =
        |nexus: &Nexus| unit.persistent.registrations.iter().any(|it| it.nexus == *nexus);
    if let Some(held) = held {
        assert!(
            unit.persistent.has_registrations() && held.holder.as_ref().is_none_or(is_registered)
        );
    }
    // Earlier versions stored that nobody is registered.
    if unit.persistent.has_registrations() {
        assert_eq!(unit.persistent.encode(), state, "one form for each state");
    }
    let id = unit
        .attach(Nexus { initiator: Initiator { name: "iqn.a".to_owned(), isid: [0; 6] }, port: 1 });
    for action in 0..4 {
        let mut cdb = [0; CDB_LEN];
        (cdb[0], cdb[1], cdb[7]) = (0x5e, action, 0xff);
        run(&mut unit, id, Cdb(cdb), &[], 0);
    }
}

#[cfg(all(test, not(feature = "planted-bugs")))]
mod tests {
    use proptest::prelude::*;

    use super::{scsi_commands, scsi_stored};

    /// Operation codes that there are, more often than others.
    const CODES: &[u8] = &[
        0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1d, 0x1e, 0x25, 0x28, 0x2a,
        0x2e, 0x2f, 0x34, 0x35, 0x37, 0x41, 0x42, 0x4d, 0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x88,
        0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae,
        0xaf, 0xb7,
    ];

    /// Bytes that are small, all ones or anything.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![6 => Just(0), 3 => 0..32_u8, 1 => Just(0xff), 1 => any::<u8>()]
    }

    fn step() -> impl Strategy<Value = Vec<u8>> {
        let code = prop_oneof![9 => prop::sample::select(CODES), 1 => any::<u8>()];
        let cdb = prop::collection::vec(byte(), 15);
        let list = prop_oneof![
            prop::collection::vec(byte(), 0..80),
            prop::sample::select(vec![24_usize, 512, 1024]).prop_map(|len| vec![0; len]),
        ];
        (any::<u8>(), code, cdb, list).prop_map(|(what, code, cdb, list)| {
            let mut bytes = vec![what];
            bytes.extend((list.len() as u16).to_be_bytes());
            bytes.push(code);
            bytes.extend(cdb);
            bytes.extend(list);
            bytes
        })
    }

    proptest! {
        #[test]
        fn no_command_breaks_a_promise(
            setup in any::<u8>(),
            steps in prop::collection::vec(step(), 1..60),
        ) {
            scsi_commands(&[vec![setup], steps.concat()].concat());
        }

        #[test]
        fn no_stored_bytes_break_a_promise(
            head in prop::collection::vec(byte(), 8),
            registrations in prop::collection::vec(prop::collection::vec(byte(), 17..24), 0..4),
        ) {
            scsi_stored(&[vec![1, 0], head[2..].to_vec(), registrations.concat()].concat());
        }

        #[test]
        fn no_bytes_break_a_promise(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            scsi_commands(&bytes);
        }
    }
}

#[cfg(all(test, feature = "planted-bugs"))]
mod planted {
    use super::{scsi_commands, scsi_stored};

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_holder_beyond_the_registrations_is_noticed() {
        scsi_stored(&[1, 0, 0, 0, 1, 0, 7, 0]);
    }

    #[test]
    #[should_panic(expected = "Unmap")]
    fn an_unmap_beyond_the_end_is_noticed() {
        // The unit attention, then one block too many.
        let mut data = vec![0];
        let mut step = |cdb: &[u8], list: &[u8]| {
            data.extend([0xf0, 0, list.len() as u8]);
            data.extend(cdb);
            data.resize(data.len() + 16 - cdb.len(), 0);
            data.extend(list);
        };
        step(&[0], &[]);
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(999_u64.to_be_bytes());
        list.extend([0, 0, 0, 2, 0, 0, 0, 0]);
        step(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24], &list);
        scsi_commands(&data);
    }
}
