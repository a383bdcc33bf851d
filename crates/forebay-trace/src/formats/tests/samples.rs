//! Good files of every format.

use super::*;

pub(in crate::formats) const MSR: &str = "\
Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
128166372003061629,hm,0,Write,7014912,4096,26
128166372003061639,hm,1,Read,512,1024,30
128166372003061640,usr,0,Read,0,512,30
128166372003061641,hm,0,read,8192,4096,1
";

pub(in crate::formats) const VSCSI_CSV: &str = "\
#Vscsi Cmd Trace. (Trace Format Version 1)
#Serial Number,IO Data Length,Num SG Entries,Command Type,LBN,Time Stamp (microseconds)
2147483692,4096,1,write,24048792,2756778716647
2147483693,512,1,42,8,2756778716657
2147483694,0,1,TUR,0,2756778716658
2147483695,8192,1,0x28,16,2756778716659
";

pub(in crate::formats) const SSDSIM: &str = "0 0 303567 7 0\n26214000 21 303574 8 1\n";

pub(in crate::formats) const DISKSIM: &str = "26.214000\t0\t303574\t1\t0\n26.5\t0\t240840\t2\t1\n";

pub(in crate::formats) const ARC: &str = "230027 8 0 0\n1842745 64 0 1\n";

pub(in crate::formats) const SPC: &str =
    "0,20941264,8192,W,0.551706\n1,20939840,8192,r,0.554041,more\n";

pub(in crate::formats) const ALIBABA: &str =
    "419,W,8792731648,16384,1577808144360767\n419,R,512,4096,1577808144360790\n";

pub(in crate::formats) const TENCENT: &str =
    "1538323199,202471424,8,1,1283\n1538323200,42983424,16,0,1360\n";

pub(in crate::formats) const FIO2: &str = "\
fio version 2 iolog
/dev/a add
/dev/a open
/dev/a read 61440 4096
/dev/a wait 1500 0
/dev/b write 512 1024
/dev/a sync 0 0
/dev/a close
";

pub(in crate::formats) const FIO3: &str = "\
fio version 3 iolog
38 a add
178 a open
186 a read 61440 4096
208 a datasync 0 0
1686 b write 512 1024
1900 a close
";

/// A read that completes after one that was issued later, a discard, a flush, what was merged, and one without an end.
pub(in crate::formats) const BLKPARSE: &str = "\
259,2    0        1     0.000000000  4020  Q   R 282624 + 8 [java]
259,2    0        4     0.000003858  4020  I  RS 282624 + 8 [java]
259,2    0        5     0.000005462  4020  D  RS 282624 + 8 [java]
259,0    1        1     0.000009000  4020  D  WS 16 + 16 [kworker/u8:1]
259,0    1        2     0.000019000     0  C  WS 16 + 16 [0]
259,2    0        6     0.013163464     0  C  RS 282624 + 8 [0]
259,2    0        7     0.013200000  4020  D  DS 4096 + 8 [fstrim]
259,2    0        8     0.013300000  4020  D  FN [fsync]
259,2    0        9     0.013400000  4020  D  WFS 24 + 8 [fsync]
CPU0 (259,2):
 Reads Queued:           1,        4KiB\t Writes Queued:           0,        0KiB
";

/// One record of the binary format: opcode, length, sector, µs.
pub(in crate::formats) fn vscsi(
    version: vscsi::Version,
    opcode: u16,
    len: u32,
    sector: u64,
    micros: u64,
) -> Vec<u8> {
    let (serial, entries) = (7u32.to_le_bytes(), 1u32.to_le_bytes());
    let [opcode, len] = [opcode.to_le_bytes().to_vec(), len.to_le_bytes().to_vec()];
    let tail = [sector.to_le_bytes(), micros.to_le_bytes()].concat();
    match version {
        vscsi::Version::V1 => [&serial[..], &len, &entries, &opcode, &[0, 1], &tail].concat(),
        vscsi::Version::V2 => {
            [&opcode[..], &[0, 2], &serial, &len, &entries, &tail, &99u64.to_le_bytes()].concat()
        }
    }
}

pub(in crate::formats) fn vscsi_file(version: vscsi::Version) -> Vec<u8> {
    [
        vscsi(version, 0x2A, 512, 8, 5_000_000),
        vscsi(version, 0x35, 0, 0, 5_000_001), // SYNCHRONIZE CACHE
        vscsi(version, 0x28, 4096, 63, 5_000_010),
        vscsi(version, 0x88, 69_632, 1 << 33, 5_000_020),
    ]
    .concat()
}

/// Every format with a good file of it.
pub(in crate::formats) fn samples() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::VscsiV1, vscsi_file(vscsi::Version::V1)),
        (Format::VscsiV2, vscsi_file(vscsi::Version::V2)),
        (Format::VscsiCsv, VSCSI_CSV.into()),
        (Format::Msr, MSR.into()),
        (Format::Ssdsim, SSDSIM.into()),
        (Format::Ssdsim, DISKSIM.into()),
        (Format::Arc, ARC.into()),
        (Format::Spc, SPC.into()),
        (Format::Alibaba, ALIBABA.into()),
        (Format::Tencent, TENCENT.into()),
        (Format::Fio2, FIO2.into()),
        (Format::Fio3, FIO3.into()),
        (Format::Blkparse, BLKPARSE.into()),
        (Format::Blktrace, blktrace_file()),
        (Format::Fbt, fbt_file()),
    ]
}

/// One event of blktrace: time, sector, length, action and kind, device, what follows.
pub(in crate::formats) fn blktrace(
    ns: u64,
    sector: u64,
    len: u32,
    action: u32,
    device: u32,
    follows: &[u8],
) -> Vec<u8> {
    let numbers = [ns.to_le_bytes(), sector.to_le_bytes()].concat();
    let tail = [len, action, 4020, device, 0].map(u32::to_le_bytes).concat();
    let ends = [[0, 0], (follows.len() as u16).to_le_bytes()].concat();
    [&0x6561_7407u32.to_le_bytes()[..], &[0; 4], &numbers, &tail, &ends, follows].concat()
}

pub(in crate::formats) const READ: u32 = 1 << 16;
pub(in crate::formats) const WRITE: u32 = 2 << 16;

pub(in crate::formats) fn blktrace_file() -> Vec<u8> {
    [
        blktrace(9, 0, 0, 1 << 26, 0, b"jbd2/xvda1-8\0\0\0\0"), // the name of a process
        blktrace(1000, 8, 4096, READ | 1, 7, b""),
        blktrace(1500, 8, 4096, READ | 7, 7, b""),
        blktrace(1700, 16, 512, WRITE | 7, 9, b"remap"),
        blktrace(1800, 64, 512, 1 << 29 | WRITE | 7, 9, b""), // a discard
        blktrace(2000, 16, 512, WRITE | 8, 9, b""),
        blktrace(9500, 8, 4096, READ | 8, 7, b""),
        blktrace(9900, 24, 1024, WRITE | 7, 7, b""),
    ]
    .concat()
}

/// The file that a writer makes of records.
pub(in crate::formats) fn written(format: Format, records: &[Record]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap(), "x.trace", format).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
    std::fs::read(file.path()).unwrap()
}

pub(in crate::formats) fn fbt_file() -> Vec<u8> {
    let first = timed(record(0, Op::Write, 4096, 512, 3), 90_000);
    written(Format::Fbt, &[first, record(1500, Op::Read, 4608, 8192, 3)])
}
