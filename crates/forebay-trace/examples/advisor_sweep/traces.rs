//! The traces, and how to read them.

use std::path::{Path, PathBuf};

use forebay_trace::Error;
use forebay_trace::formats::{Options, Reader, TimeUnit};
use forebay_trace::record::Record;

/// One of them.
pub struct Trace {
    /// What the tables call it.
    pub name: &'static str,
    file: PathBuf,
    /// Bytes of its blocks, as figures of it are published.
    pub block: u64,
    /// Bytes of its unit of length; none: that of the format.
    len_unit: Option<u32>,
    /// Of its times; none: that of the format.
    time_unit: Option<TimeUnit>,
}

impl Trace {
    /// All of it.
    pub fn read(&self) -> Result<Vec<Record>, Error> {
        let options =
            Options { len_unit: self.len_unit, time_unit: self.time_unit, ..Options::default() };
        Reader::open(&self.file, &options)?.collect()
    }
}

/// The project's own, and those of the folder.
pub fn all(folder: Option<&Path>) -> Vec<Trace> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let recorded = |name: &'static str| {
        let file = own.join(format!("{name}.fbt"));
        Trace { name, file, block: 4096, len_unit: None, time_unit: None }
    };
    let mut all: Vec<Trace> = ["pgbench", "build"].map(recorded).into();
    let Some(folder) = folder else {
        eprintln!("FOREBAY_TRACES names no folder of traces: only the project's own");
        return all;
    };
    let shared = [
        ("CloudPhysics", "cloudPhysicsIO.vscsi.zst", 4096, 512),
        ("DTRS", "msprod-DTRS1K.ssdsim.zst", 4096, 512),
        ("prxy_0 reads", "msr-prxy_0-reads-13h.mqsim.zst", 4096, 512),
        ("Financial1, 50 k", "financial1-50k-pages.disksim.zst", 4096, 4096),
        ("Financial1, 10 k", "financial1-first10k.ssdsim.zst", 4096, 512),
        ("TPC-C", "tpcc-small.mqsim.zst", 4096, 512),
        ("OLTP", "OLTP.lis.zst", 512, 512),
        ("P3", "P3.lis.zst", 512, 512),
        ("netsys-0", "netsys-150521203555-0.blktrace.zst", 4096, 512),
        ("netsys-1", "netsys-150521203555-1.blktrace.zst", 4096, 512),
        ("netsys-2", "netsys-150521203555-2.blktrace.zst", 4096, 512),
        ("netsys-3", "netsys-150521203555-3.blktrace.zst", 4096, 512),
        ("netsys-4", "netsys-150521203555-4.blktrace.zst", 4096, 512),
        ("netsys-5", "netsys-150521203555-5.blktrace.zst", 4096, 512),
    ];
    let shared = shared.into_iter().map(|(name, file, block, len_unit)| Trace {
        name,
        file: folder.join(file),
        block,
        len_unit: Some(len_unit),
        // Its times would be 0.3 s in all if they were nanoseconds.
        time_unit: (name == "DTRS").then_some(TimeUnit::Microseconds),
    });
    all.extend(shared);
    all
}
