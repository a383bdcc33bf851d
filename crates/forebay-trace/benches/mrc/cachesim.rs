//! libCacheSim, by `bench/cachesim.py`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_trace::record::Record;
use tempfile::NamedTempFile;

use super::PAGE;

/// What is measured of it.
pub const NAMES: [&str; 4] =
    ["libCacheSim lru", "libCacheSim s3fifo", "libCacheSim sieve", "libCacheSim arc"];

/// Uses of blocks in a file, for a cache of so many.
pub struct Peer {
    python: PathBuf,
    file: NamedTempFile,
    blocks: u64,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Peer {
    /// None, with a word, where libCacheSim is not installed.
    pub fn new(records: &mut dyn Iterator<Item = Record>, blocks: u64) -> Option<Peer> {
        let python = root().join("target/libcachesim/bin/python3");
        if !python.exists() {
            println!(
                "\nlibCacheSim is not in target/libcachesim ('scripts/setup bench' puts it there): not measured"
            );
            return None;
        }
        let mut file = NamedTempFile::new().expect("a temporary file");
        let mut out = BufWriter::new(file.as_file_mut());
        for record in records {
            for page in record.offset / PAGE..=(record.end() - 1) / PAGE {
                let block = page | u64::from(record.device) << 52;
                let mut entry = [0; 24];
                entry[4..12].copy_from_slice(&block.to_le_bytes());
                entry[12] = 1;
                out.write_all(&entry).expect("room in the temporary folder");
            }
        }
        out.flush().expect("room in the temporary folder");
        drop(out);
        Some(Peer { python, file, blocks })
    }

    /// CPU seconds, in the order of the names.
    pub fn seconds(&self) -> [f64; NAMES.len()] {
        let policies = NAMES.map(|name| name.rsplit(' ').next().expect("two words"));
        let mut command = Command::new(&self.python);
        command.arg(root().join("bench/cachesim.py")).arg(self.file.path());
        let output = command.arg(self.blocks.to_string()).args(policies).output();
        let output = output.expect("it is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        policies.map(|policy| all[policy]["seconds"].as_f64().expect("seconds"))
    }
}
