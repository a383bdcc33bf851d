//! The unit's answers, in tables: a command in bytes on one side, its outcome in words on the
//! other.

use forebay_core::action::{Buffer, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::request::Op;
use forebay_core::status::IoStatus;

use super::*;

mod attention;
mod inquiry;
mod mode;
mod model;
mod persistent;
mod provisioning;
mod report;
mod reserve;
mod stored;
mod transfer;

/// Blocks of the disk: not a multiple of a physical block.
const BLOCKS: u64 = 2051;

/// A unit with three initiators, which know of its power on.
struct World {
    unit: LogicalUnit,
    a: NexusId,
    b: NexusId,
    c: NexusId,
    /// What is stored.
    flash: Vec<u8>,
    /// Nothing more can be.
    flash_fails: bool,
}

fn export() -> Export {
    let port = |relative, group| Port {
        relative,
        group,
        target: "iqn.2026-01.example:db".to_owned(),
        portal_group: relative,
    };
    let uuid = Some(*b"0123456789abcdef");
    let ports = vec![port(1, 1), port(2, 1), port(7, 2)];
    Export { uuid, store_max: 4008, ports, ..Export::new("db", BLOCKS * 512) }
}

fn nexus(name: &str, port: u16) -> Nexus {
    let name = format!("iqn.2026-01.example:{name}");
    Nexus { initiator: Initiator { name, isid: [0x40, 0, 0, 0, 0, 1] }, port }
}

fn cdb(bytes: &[u8]) -> Cdb {
    let mut cdb = [0; CDB_LEN];
    cdb[..bytes.len()].copy_from_slice(bytes);
    Cdb(cdb)
}

impl World {
    fn new() -> World {
        World::of(export())
    }

    fn of(export: Export) -> World {
        let mut unit = LogicalUnit::new(export);
        let mut attach = |name, port| {
            let id = unit.attach(nexus(name, port));
            let sense = unit.command(id, &command(&[0; 6], 0));
            assert_eq!(words(&sense), "6/29/00");
            id
        };
        let (a, b, c) = (attach("a", 1), attach("b", 1), attach("c", 2));
        World::with(unit, [a, b, c], Vec::new())
    }

    fn with(unit: LogicalUnit, [a, b, c]: [NexusId; 3], flash: Vec<u8>) -> World {
        World { unit, a, b, c, flash, flash_fails: false }
    }

    /// Sends a command of A with `list` as Data-Out.
    fn a(&mut self, bytes: &[u8], list: &[u8]) -> Outcome {
        self.send(self.a, bytes, list)
    }

    /// Sends a command, with a parameter list if it wants one, and stores what it wants stored. Data-Out of a
    /// medium command: zeroes of the length of `list`.
    fn send(&mut self, from: NexusId, bytes: &[u8], list: &[u8]) -> Outcome {
        match self.begin(from, bytes, list) {
            Outcome::Store(_) if self.flash_fails => {
                let (response, abort) = self.unit.stored(false);
                assert!(abort.is_empty());
                Outcome::Done(response)
            }
            Outcome::Store(state) => {
                self.flash = state;
                let (response, abort) = self.unit.stored(true);
                Outcome::Settle { response, abort }
            }
            outcome => outcome,
        }
    }

    /// The same, without storing.
    fn begin(&mut self, from: NexusId, bytes: &[u8], list: &[u8]) -> Outcome {
        let command = command(bytes, list.len() as u32);
        match self.unit.command(from, &command) {
            Outcome::DataOut(len) => {
                let list = &list[..list.len().min(len as usize)];
                self.unit.parameters(from, &command, list)
            }
            outcome => outcome,
        }
    }

    /// A command of A ends as `expect` says.
    #[track_caller]
    fn check(&mut self, bytes: &[u8], list: &[u8], expect: &str) {
        self.check_of(self.a, bytes, list, expect);
    }

    #[track_caller]
    fn check_of(&mut self, from: NexusId, bytes: &[u8], list: &[u8], expect: &str) {
        let outcome = self.send(from, bytes, list);
        assert_eq!(words(&outcome), expect, "{bytes:02x?}");
    }

    /// Whether clients of other protocols may write, or read.
    fn allows_others(&self, write: bool) -> bool {
        let (range, buffer) = (ByteRange::at(0, 512), Span { offset: 0, len: 512 });
        let buffer = Buffer { span: buffer, window: range };
        let op = match write {
            true => Op::Write { buffer, fua: false },
            false => Op::Read { no_admit: false },
        };
        self.unit.access_of_others().allows(&op)
    }

    /// The data that A is sent.
    #[track_caller]
    fn data(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.a(bytes, &[]) {
            Outcome::Done(response) => {
                assert_eq!(response.status, Status::Good, "{bytes:02x?}: {response:?}");
                response.data
            }
            outcome => panic!("{bytes:02x?}: {outcome:?}"),
        }
    }
}

fn command(bytes: &[u8], data_out: u32) -> Command<'static> {
    const LUNS: &[Lun] = &[Lun::ZERO];
    Command { cdb: cdb(bytes), data_out, luns: LUNS }
}

/// An outcome in words: `good`, `5/24/00 at cdb 2.7`, `write 0+512 fua`.
fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(response) => response_words(response),
        Outcome::DataOut(len) => format!("wants {len}"),
        Outcome::Medium(medium) => medium_words(medium),
        Outcome::Store(state) => format!("store {}", state.len()),
        Outcome::Settle { response, abort } => {
            format!("{} abort {}", response_words(response), abort.len())
        }
    }
}

fn response_words(response: &Response) -> String {
    let Response { status, sense, data } = response;
    assert_eq!(sense.is_some(), *status == Status::CheckCondition);
    match (sense, status) {
        (Some(sense), _) => sense_words(sense),
        (None, Status::Good) if data.is_empty() => "good".to_owned(),
        (None, Status::Good) => format!("good {}", data.len()),
        (None, Status::ReservationConflict) => "conflict".to_owned(),
        (None, status) => format!("{status:?}"),
    }
}

fn sense_words(sense: &Sense) -> String {
    let mut bytes = Vec::new();
    sense.write_to(&mut bytes);
    let text = format!("{:x}/{:02x}/{:02x}", sense.key as u8, sense.code.0, sense.code.1);
    let field = match bytes[0] & 0x7f {
        0x70 => &bytes[15..18],
        _ => bytes[8..].get(4..7).unwrap_or(&[0; 3]),
    };
    let at = u16::from_be_bytes([field[1], field[2]]);
    match field[0] {
        0 => text,
        flags if flags & 0x40 != 0 => format!("{text} at cdb {at}.{}", flags & 7),
        _ => format!("{text} at {at}"),
    }
}

fn medium_words(medium: &Medium) -> String {
    let at = |range: &ByteRange| format!("{}+{}", range.start / 512, range.len() / 512);
    let flag = |is: bool, word: &'static str| if is { word } else { "" };
    let fua = |is| flag(is, " fua");
    match medium {
        Medium::Read { range, no_admit } => {
            format!("read {}{}", at(range), flag(*no_admit, " dpo"))
        }
        Medium::Verify { range, no_admit } => {
            format!("verify {}{}", at(range), flag(*no_admit, " dpo"))
        }
        Medium::Compare { range, pattern } => {
            format!("compare {}{}", at(range), flag(*pattern, " pattern"))
        }
        Medium::Write { range, fua: durable } => format!("write {}{}", at(range), fua(*durable)),
        Medium::OrWrite { range, fua: durable } => format!("or {}{}", at(range), fua(*durable)),
        Medium::CompareAndWrite { range, fua: durable } => {
            format!("caw {}{}", at(range), fua(*durable))
        }
        Medium::WriteSame { range, may_unmap } => {
            format!("same {}{}", at(range), flag(*may_unmap, " unmap"))
        }
        Medium::Zero { range, may_unmap } => {
            format!("zero {}{}", at(range), flag(*may_unmap, " unmap"))
        }
        Medium::Unmap { ranges, may_unmap } => {
            let ranges: Vec<_> = ranges.iter().map(at).collect();
            let anchor = flag(!*may_unmap, " anchor");
            format!("unmap {}{anchor}", ranges.join(" "))
        }
        Medium::Flush => "flush".to_owned(),
        Medium::CacheOff => "cache off".to_owned(),
        Medium::Prefetch { range, immediate } => {
            format!("fetch {}{}", at(range), flag(*immediate, " immed"))
        }
        Medium::Allocation { range, extents_max, .. } => format!("map {} {extents_max}", at(range)),
    }
}

#[test]
fn an_outcome_of_the_engine_becomes_a_status_in_one_place() {
    let mut world = World::new();
    let range = ByteRange::at(0, 512);
    let read = Medium::Read { range, no_admit: false };
    let write = Medium::Write { range, fua: false };
    for (status, expect_read, expect_write) in [
        (IoStatus::Ok, "good", "good"),
        (IoStatus::IoError, "3/11/00", "3/0c/00"),
        (IoStatus::TimedOut, "Busy", "Busy"),
        (IoStatus::NoSpace, "7/27/07", "7/27/07"),
        (IoStatus::Unsupported, "4/44/00", "4/44/00"),
        (IoStatus::ReadOnly, "7/27/00", "7/27/00"),
        (IoStatus::Reserved, "conflict", "conflict"),
        (IoStatus::Invalid, "4/44/00", "4/44/00"),
        (IoStatus::ShuttingDown, "Busy", "Busy"),
    ] {
        for (medium, expect) in [(&read, expect_read), (&write, expect_write)] {
            let response = world.unit.medium_done(world.a, medium, Done::Status(status));
            assert_eq!(response_words(&response), expect, "{status:?} {medium:?}");
        }
    }
}
