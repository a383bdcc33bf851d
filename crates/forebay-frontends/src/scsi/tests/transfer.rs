//! Commands that move blocks.

use super::*;

/// A READ, WRITE or the like of `blocks` blocks at `lba`, in the shape that the operation code has.
fn rw(code: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut bytes = vec![code, flags];
    match code >> 5 {
        0 => bytes.extend([(lba >> 8) as u8, lba as u8, blocks as u8, 0]),
        4 => {
            bytes.extend(lba.to_be_bytes());
            bytes.extend(blocks.to_be_bytes());
            bytes.extend([0, 0]);
        }
        5 => {
            bytes.extend((lba as u32).to_be_bytes());
            bytes.extend(blocks.to_be_bytes());
            bytes.extend([0, 0]);
        }
        _ => {
            bytes.extend((lba as u32).to_be_bytes());
            bytes.push(0);
            bytes.extend((blocks as u16).to_be_bytes());
            bytes.push(0);
        }
    }
    bytes
}

#[test]
fn every_length_of_cdb_names_the_same_blocks() {
    let mut world = World::new();
    for (read, write, flags) in
        [(0x08, 0x0a, 0), (0x28, 0x2a, 0x18), (0xa8, 0xaa, 0x18), (0x88, 0x8a, 0x18)]
    {
        let (dpo, fua) = if flags == 0 { ("", "") } else { (" dpo", " fua") };
        world.check(&rw(read, 0, 5, 3), &[], "read 5+3");
        world.check(&rw(read, flags, 5, 3), &[], &format!("read 5+3{dpo}"));
        world.check(&rw(write, 0, 5, 3), &[0; 1536], "write 5+3");
        world.check(&rw(write, flags, 5, 3), &[0; 1536], &format!("write 5+3{fua}"));
    }
    // Six bytes: 0 is 256 blocks, and the address has 21 bits.
    world.check(&[0x08, 0, 0, 1, 0, 0], &[], "read 1+256");
    world.check(&[0x08, 0x1f, 0xff, 0xff, 1, 0], &[], "5/21/00");
}

#[test]
fn what_lies_beyond_the_end_is_refused() {
    let mut world = World::new();
    let codes = [0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x41, 0xa8, 0xaa, 0xae, 0xaf];
    let long = [0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93];
    for code in codes.into_iter().chain(long) {
        for (lba, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::from(u32::MAX), 1)] {
            world.check(&rw(code, 0, lba, blocks), &[0; 1024], "5/21/00");
        }
    }
    for code in long {
        for (lba, blocks) in [(u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 1), (0, u32::MAX)] {
            world.check(&rw(code, 0, lba, blocks), &[0; 1024], "5/21/00");
        }
    }
    world.check(&rw(0x88, 0, BLOCKS - 1, 1), &[], "read 2050+1");
    world.check(&rw(0x88, 0, BLOCKS, 0), &[], "read 2051+0");
    world.check(&rw(0x88, 0, BLOCKS + 1, 0), &[], "5/21/00");
}

#[test]
fn no_command_moves_more_than_the_limit_that_is_told() {
    let mut world = World::of(Export { size: 1 << 40, ..export() });
    for code in [0x88, 0x8a, 0x8b, 0x8f, 0x90, 0xa8, 0xaa] {
        let at = if code >> 5 == 5 { 6 } else { 10 };
        let refusal = format!("5/24/00 at cdb {at}.7");
        world.check(&rw(code, 0, 0, 65537), &[], &refusal);
    }
    world.check(&rw(0x88, 0, 0, 65536), &[], "read 0+65536");
}

#[test]
fn protection_and_reserved_bits_are_refused() {
    let mut world = World::new();
    for code in [0x28, 0x2a, 0x2e, 0x2f, 0x41, 0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x93, 0xa8, 0xaa] {
        for bit in 5..8 {
            world.check(&rw(code, 1 << bit, 0, 1), &[0; 512], &format!("5/24/00 at cdb 1.{bit}"));
        }
    }
    // NACA, in the last byte.
    world.check(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0x04], &[], "5/24/00 at cdb 9.2");
    world.check(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0xc0], &[], "read 0+1");
    world.check(&[0, 0, 0, 0, 1, 0], &[], "5/24/00 at cdb 4.0");
    world.check(&[0x02, 0, 0, 0, 0, 0], &[], "5/20/00");
}

#[test]
fn a_write_takes_the_whole_blocks_of_what_was_announced() {
    let mut world = World::new();
    world.check(&rw(0x2a, 0, 5, 3), &[0; 1024], "write 5+2");
    world.check(&rw(0x2a, 0, 5, 3), &[0; 1535], "write 5+2");
    world.check(&rw(0x2a, 0, 5, 3), &[0; 511], "write 5+0");
    world.check(&rw(0x2a, 0, 5, 3), &[0; 4096], "write 5+3");
}

#[test]
fn a_read_only_disk_refuses_what_writes_and_nothing_else() {
    let mut world = World::of(Export { read_only: true, ..export() });
    for code in [0x0a, 0x2a, 0x2e, 0x41, 0x8a, 0x8b, 0x8e, 0x93, 0xaa, 0xae] {
        world.check(&rw(code, 0, 0, 1), &[0; 512], "7/27/00");
    }
    world.check(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &[0; 24], "7/27/00");
    world.check(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[0; 1024], "7/27/00");
    world.check(&rw(0x28, 0, 0, 1), &[], "read 0+1");
    world.check(&rw(0x35, 0, 0, 0), &[], "flush");
}

#[test]
fn compare_and_write_takes_exactly_twice_its_length() {
    let mut world = World::new();
    let caw = |blocks| [0x89, 0x18, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, blocks, 0, 0];
    world.check(&caw(1), &[0; 1024], "caw 7+1 fua");
    world.check(&caw(0), &[], "caw 7+0 fua");
    world.check(&caw(128), &[0; 128 * 1024], "caw 7+128 fua");
    world.check(&caw(129), &[0; 129 * 1024], "5/24/00 at cdb 13.7");
    world.check(&caw(1), &[0; 2048], "5/24/00 at cdb 13.7");
    world.check(&caw(3), &[0; 2048], "5/24/00 at cdb 13.7");
    // 256 blocks, of which the CDB has the lower byte.
    world.check(&caw(0), &[0; 256 * 1024], "5/24/00 at cdb 13.7");
}

#[test]
fn a_miscompare_says_where() {
    let mut world = World::new();
    let medium = Medium::CompareAndWrite { range: ByteRange::at(0, 512), fua: false };
    let late = Done::Status(IoStatus::TimedOut);
    let sense = world.unit.medium_done(world.a, &medium, late).sense.expect("no BUSY");
    assert_eq!((sense.key, sense.code), (Key::MediumError, Code::WRITE_ERROR));
    let response = world.unit.medium_done(world.a, &medium, Done::Miscompare(485));
    let mut bytes = Vec::new();
    response.sense.expect("a miscompare").write_to(&mut bytes);
    assert_eq!(bytes, [0xf0, 0, 0x0e, 0, 0, 1, 229, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0]);
}

#[test]
fn verify_reads_or_compares() {
    let mut world = World::new();
    for code in [0x2f, 0xaf, 0x8f] {
        world.check(&rw(code, 0x10, 4, 2), &[], "verify 4+2 dpo");
        world.check(&rw(code, 0x02, 4, 2), &[0; 1024], "compare 4+2");
        world.check(&rw(code, 0x02, 4, 2), &[0; 512], "5/24/00 at cdb 1.2");
        world.check(&rw(code, 0x06, 4, 2), &[0; 512], "compare 4+2 pattern");
        world.check(&rw(code, 0x04, 4, 2), &[0; 512], "5/24/00 at cdb 1.2");
    }
    for code in [0x2e, 0xae, 0x8e] {
        world.check(&rw(code, 0x12, 4, 2), &[0; 1024], "write 4+2 fua");
        world.check(&rw(code, 0x04, 4, 2), &[0; 1024], "5/24/00 at cdb 1.2");
    }
}

#[test]
fn a_length_of_zero_prefetches_and_synchronizes_up_to_the_end() {
    let mut world = World::new();
    world.check(&rw(0x34, 0x02, 2000, 0), &[], "fetch 2000+51 immed");
    world.check(&rw(0x90, 0, 0, 2051), &[], "fetch 0+2051");
    world.check(&rw(0x90, 0, BLOCKS, 0), &[], "good");
    world.check(&rw(0x35, 0x06, 2000, 0), &[], "flush");
    world.check(&rw(0x91, 0, BLOCKS, 1), &[], "5/21/00");
}

#[test]
fn atomic_writes_exist_only_where_they_are_promised() {
    let atomic =
        |boundary, blocks| [0x9c, 0x18, 0, 0, 0, 0, 0, 0, 0, 4, 0, boundary, 0, blocks, 0, 0];
    World::new().check(&atomic(0, 1), &[0; 512], "5/20/00");
    let mut world = World::of(Export { atomic_write_max: 4096, ..export() });
    world.check(&atomic(0, 8), &[0; 4096], "write 4+8 fua");
    world.check(&atomic(0, 9), &[0; 4608], "5/24/00 at cdb 12.7");
    world.check(&atomic(0, 8), &[0; 512], "5/24/00 at cdb 12.7");
    world.check(&atomic(8, 8), &[0; 4096], "5/24/00 at cdb 10.7");
}
