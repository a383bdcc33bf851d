//! What a restart found, and could not have been written in one run.

use super::*;
use crate::config::DestageOrder;
use crate::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use crate::journal::{JournalConfig, Owner, Shape, Superblock};
use crate::write_back::format::group::RecordKind;
use crate::write_back::format::index::ZEROES_MAX;
use crate::write_back::format::recover::{
    RecordPlace, RecoveredLog, RecoveredRecord, RecoveredSegment,
};
use crate::write_back::format::reopen::Tail;

/// More than may be in the log at once.
const ZEROES: u64 = 2 * ZEROES_MAX as u64 + 7;
/// One that is written over at once.
const WRITTEN: u64 = 300;

/// A log of zero records, each of a sector, up to `through` perhaps on primary storage; the sector of `WRITTEN` is
/// written again after it.
fn many_zeroes(rig: &mut Rig, through: u64) -> RecoveredLog {
    let record = |sequence, kind, sector: u64| RecoveredRecord {
        sequence: Sequence(sequence),
        epoch: FlushEpoch(1 + sequence / 64),
        kind,
        more: false,
        range: ByteRange::at(sector * 512, 512),
        phase: 0,
        place: RecordPlace::Log { segment: SegmentId(0), page: 2 },
        first_checksum: 0,
    };
    let mut records: Vec<_> = (1..=ZEROES).map(|n| record(n, RecordKind::Zero, n)).collect();
    let last = ZEROES + 1;
    records.insert(WRITTEN as usize, record(WRITTEN + 1, RecordKind::Write, WRITTEN));
    for (record, sequence) in records.iter_mut().zip(1..) {
        (record.sequence, record.epoch) = (Sequence(sequence), FlushEpoch(1 + sequence / 64));
    }
    let page = &mut rig.pool[2 * 4096..3 * 4096];
    page.fill(0x77);
    let checksum = page.iter().fold(7u32, |s, &b| s * 31 % 65537 + u32::from(b));
    let segment = RecoveredSegment {
        segment: SegmentId(0),
        ordinal: 0,
        first_group: GroupNumber(1),
        first_sequence: Sequence(1),
        end_sequence: Sequence(last + 1),
    };
    RecoveredLog {
        segments: vec![segment],
        records,
        checksums: vec![checksum],
        next_group: GroupNumber(8),
        next_sequence: Sequence(last + 1),
        next_ordinal: 1,
        next_epoch: FlushEpoch(100),
        through: Sequence(through),
        ..RecoveredLog::default()
    }
}

/// Primary storage that hangs keeps no guest from its work.
#[test]
fn a_disk_that_starts_on_its_log_needs_no_first_flush() {
    let mut rig = Rig::new(with_log());
    let found = many_zeroes(&mut rig, 0);
    rig.engine.restore(&found, Tail { segment: SegmentId(1), page: 1 }).unwrap();
    rig.leases.1 = 2;
    rig.begin();
    assert!(!rig.drawn().iter().any(|io| io == "F 0+0"), "{:?}", rig.drawn());
    rig.submit(1, 0, 0, Op::Flush);
    while !rig.has_reply(1) {
        let log = rig.pending.iter().position(|io| io.target == Target::Log);
        rig.complete(log.expect("the flush waits for the log alone"), IoStatus::Ok);
    }
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    // The list of zeroes is full: a discard is given up when primary storage takes too long.
    rig.submit(3, 4096, 4096, Op::Discard { fua: false });
    rig.log();
    assert!(!rig.has_reply(3));
    rig.tick(31_000);
    assert_eq!(rig.replied(3).1, IoStatus::Ok);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle_log();
    assert_eq!(rig.replied(2).1, IoStatus::Ok, "the log has all that was acknowledged");
    assert!(!rig.events.contains(&Event::FormerWritesAtRisk), "{:?}", rig.events);
}

/// Rot in the newest progress page brings back destaged zero records, beside those that took their places.
#[test]
fn more_zeroes_than_a_log_may_have_are_taken_over_and_destaged_in_order() {
    // Some, or all, of them were sent, and are written again at once.
    for through in [0, 400, ZEROES + 1] {
        let mut rig = Rig::new(with_log());
        let found = many_zeroes(&mut rig, through);
        rig.engine.restore(&found, Tail { segment: SegmentId(1), page: 1 }).unwrap();
        rig.leases.1 = 2;
        rig.engine.check_invariants();
        let expected = |rig: &mut Rig| {
            for n in 1..=ZEROES {
                rig.expect_bytes(n * 512, 512, if n == WRITTEN { 0x77 } else { 0 });
            }
        };
        rig.tick(0);
        // One more has to wait for room.
        rig.submit(1, 0, 512, Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false });
        assert!(!rig.has_reply(1));
        expected(&mut rig);
        let mut unmaps = 0;
        while !rig.engine.log_statistics(rig.now).expect("a log").is_clean {
            let may_unmap = rig.pending.iter().filter_map(|io| match io.op {
                IoOp::WriteZeroes { may_unmap, .. } => Some(may_unmap),
                _ => None,
            });
            unmaps += may_unmap.clone().count();
            assert!(may_unmap.into_iter().all(|may| may), "a discard takes no space");
            match rig.pending.is_empty() {
                true => rig.tick(100),
                false => rig.complete(0, IoStatus::Ok),
            }
            rig.grant();
        }
        assert!(unmaps > 0);
        assert_eq!(rig.replied(1).1, IoStatus::Ok);
        expected(&mut rig);
        for n in 0..=ZEROES {
            let (at, byte) = (n as usize * 512, if n == WRITTEN { 0x77 } else { 0 });
            assert!(rig.backend[at..at + 512].iter().all(|&b| b == byte), "{n} of {through}");
        }
        assert!(rig.engine.log_statistics(rig.now).unwrap().is_clean);
    }
}

/// A run without a journal may have sent more than a slot of one has room for.
#[test]
fn more_than_fits_into_a_slot_is_written_again_in_place() {
    for capacity in [8, 40] {
        let mut config = with_log();
        let log = config.write_log.as_mut().expect("a log");
        log.order = DestageOrder::Journaled;
        let owner = Owner { disk: Uuid([7; 16]), nonce: 3 };
        let shape = Shape::new(2, capacity).expect("a journal");
        let journal = JournalConfig::new(Superblock::first(owner, shape), Generation(1));
        log.journal = Some(JournalConfig { patience: Nanos(0), ..journal });
        let mut rig = Rig::new(config);
        let pages = 15;
        let record = |n: u64| RecoveredRecord {
            sequence: Sequence(n),
            epoch: FlushEpoch(n),
            kind: RecordKind::Write,
            more: false,
            range: ByteRange::at(n * 16384, 4096),
            phase: 0,
            place: RecordPlace::Log { segment: SegmentId(0), page: n as u32 },
            first_checksum: n as u32 - 1,
        };
        let mut checksums = Vec::new();
        for n in 1..=pages as usize {
            let page = &mut rig.pool[n * 4096..(n + 1) * 4096];
            page.fill(100 + n as u8);
            checksums.push(page.iter().fold(7u32, |s, &b| s * 31 % 65537 + u32::from(b)));
        }
        let segment = RecoveredSegment {
            segment: SegmentId(0),
            ordinal: 0,
            first_group: GroupNumber(1),
            first_sequence: Sequence(1),
            end_sequence: Sequence(pages + 1),
        };
        let found = RecoveredLog {
            segments: vec![segment],
            records: (1..=pages).map(record).collect(),
            checksums,
            next_group: GroupNumber(8),
            next_sequence: Sequence(pages + 1),
            next_ordinal: 1,
            next_epoch: FlushEpoch(100),
            through: Sequence(pages),
            ..RecoveredLog::default()
        };
        rig.engine.restore(&found, Tail { segment: SegmentId(1), page: 1 }).unwrap();
        rig.leases.1 = 2;
        rig.tick(0);
        rig.settle_log();
        for n in 1..=pages as usize {
            assert_eq!(rig.backend[n * 16384], 100 + n as u8, "{n} of {capacity}");
        }
        let through_journal = rig.counters().journal_windows > 0;
        assert_eq!(through_journal, capacity > 15, "{capacity}");
        assert!(rig.engine.log_is_clean());
    }
}
