//! Which versions of a sector a read may find, and what it found.
//!
//! ```text
//! a write begins ─► under way ──ends─► settled in the table ──a later one ends─► of the past
//! a read may find: what is settled, what is under way, what became of the past since the read began
//! ```
//! Of writes that were under way at the same time any may last, until a write that begins later
//! has ended (`racing`). A failed write may have reached its sectors or not, and is one of those.
//! The old bytes of the target are unknown. Sectors that this replay did not write are only
//! searched for its own bytes in the wrong place.
//!
//! **Memory** grows with what is written: about 80 bytes for each 4 KiB page.

use std::collections::HashMap;

use forebay_backends::size::rounded;
use forebay_core::geometry::{ByteRange, PAGE, SECTOR};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};

use super::pattern::{self, Sector};

/// Sectors of a page.
const SECTORS: usize = (PAGE / SECTOR) as usize;
/// Findings that are reported in words.
const TOLD_MAX: usize = 8;

/// The sectors of 512 bytes that reads brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Sectors looked at that this replay had written or was writing.
    pub checked: u64,
    /// Whole, but of an older write than the last one that ended.
    pub stale: u64,
    /// Not of this replay, although it had written them.
    pub lost: u64,
    /// Written to another place.
    pub misplaced: u64,
    /// The beginning of one write with the rest of something else.
    pub torn: u64,
    /// Bytes read once more at the end.
    pub read_back_bytes: u64,
    /// Bytes written that were not: somebody wanted an end before.
    #[serde(default)]
    pub not_read_back_bytes: u64,
    /// The first findings, in words.
    pub findings: Vec<String>,
}

impl Verified {
    /// The bytes read back at the end, in words.
    pub fn read_back(&self) -> String {
        let done = rounded(self.read_back_bytes);
        match self.not_read_back_bytes {
            0 => format!("{done} read back at the end"),
            left => format!("{done} read back at the end, and {} not", rounded(left)),
        }
    }

    /// Sectors that are not what they have to be.
    pub fn wrong(&self) -> u64 {
        self.stale + self.lost + self.misplaced + self.torn
    }
}

/// A write on its way, or one that ended while another one of the same place was.
#[derive(Clone, Copy, Debug)]
struct Written {
    range: ByteRange,
    version: u64,
    began: u64,
    ended: u64,
}

/// A read on its way, and what it may find although it is of the past by now: (sector, version).
#[derive(Debug)]
struct Reading {
    range: ByteRange,
    past: Vec<(u64, u64)>,
}

/// See the module. Requests are known by their place in the table of flights.
#[derive(Debug)]
pub(super) struct Verifier {
    seed: u64,
    /// Counts beginnings and ends.
    tick: u64,
    /// The last version that ended, by page and sector; 0: none.
    settled: HashMap<u64, [u64; SECTORS], FxBuildHasher>,
    /// Others that may have lasted, by address.
    racing: HashMap<u64, Vec<u64>, FxBuildHasher>,
    writing: HashMap<u32, Written, FxBuildHasher>,
    /// Ended while one of the same place was under way that still is.
    rivals: Vec<Written>,
    reading: HashMap<u32, Reading, FxBuildHasher>,
    found: Verified,
}

impl Verifier {
    pub(super) fn new(seed: u64) -> Verifier {
        Verifier {
            seed,
            tick: 0,
            settled: HashMap::default(),
            racing: HashMap::default(),
            writing: HashMap::default(),
            rivals: Vec::new(),
            reading: HashMap::default(),
            found: Verified::default(),
        }
    }

    pub(super) fn write_began(&mut self, flight: u32, range: ByteRange, version: u64) {
        self.tick += 1;
        let written = Written { range, version, began: self.tick, ended: u64::MAX };
        self.writing.insert(flight, written);
    }

    /// `is_done`: it was answered well.
    pub(super) fn write_ended(&mut self, flight: u32, is_done: bool) {
        self.tick += 1;
        let mut written = self.writing.remove(&flight).expect("the write has begun");
        written.ended = self.tick;
        for address in sectors(written.range) {
            match is_done {
                true => self.settle(address, &written),
                false => self.racing.entry(address).or_default().push(written.version),
            }
        }
        let is_under_way = |of: &Written| {
            self.writing
                .values()
                .any(|other| other.range.overlaps(of.range) && other.began < of.ended)
        };
        self.rivals.push(written);
        self.rivals.retain(is_under_way);
    }

    /// A write of this sector has ended well.
    fn settle(&mut self, address: u64, written: &Written) {
        let page = self.settled.entry(address / PAGE).or_insert([0; SECTORS]);
        let settled = &mut page[(address % PAGE / SECTOR) as usize];
        let before = std::mem::replace(settled, written.version);
        let raced = self.racing.remove(&address).unwrap_or_default();
        for reading in self.reading.values_mut().filter(|of| contains(of.range, address)) {
            reading.past.extend(raced.iter().chain([&before]).map(|&version| (address, version)));
        }
        let rivals = self.rivals.iter().filter(|of| contains(of.range, address));
        let racing: Vec<u64> =
            rivals.filter(|of| of.ended > written.began).map(|of| of.version).collect();
        if !racing.is_empty() {
            self.racing.insert(address, racing);
        }
    }

    pub(super) fn read_began(&mut self, flight: u32, range: ByteRange) {
        self.reading.insert(flight, Reading { range, past: Vec::new() });
    }

    /// A read has ended; well, if it brought bytes. `number`: of the request, for people;
    /// none when everything is looked at once more.
    pub(super) fn read_ended(&mut self, flight: u32, number: Option<u64>, bytes: Option<&[u8]>) {
        let reading = self.reading.remove(&flight).expect("the read has begun");
        let Some(bytes) = bytes else { return };
        for (address, sector) in sectors(reading.range).zip(bytes.chunks_exact(SECTOR as usize)) {
            self.check(address, sector, number, &reading);
        }
    }

    fn check(&mut self, address: u64, sector: &[u8], number: Option<u64>, reading: &Reading) {
        let settled = self.settled(address);
        let under_way =
            self.writing.values().filter(|of| contains(of.range, address)).map(|of| of.version);
        let past = reading.past.iter().filter(|of| of.0 == address).map(|of| of.1);
        let racing = self.racing.get(&address).into_iter().flatten().copied();
        let mut allowed = under_way.chain(past).chain(racing).chain([settled]);
        let found = pattern::look(self.seed, sector);
        let is_right = match found {
            Sector::Whole { address: at, version } => {
                at == address && allowed.any(|of| of == version)
            }
            Sector::Torn { .. } => false,
            // Before anything of this replay has settled there.
            Sector::Foreign => allowed.any(|of| of == 0),
        };
        let wrote = settled > 0 || found != Sector::Foreign;
        self.found.checked += u64::from(wrote);
        if !is_right {
            self.tell(address, found, settled, number);
        }
    }

    fn settled(&self, address: u64) -> u64 {
        let page = self.settled.get(&(address / PAGE));
        page.map_or(0, |page| page[(address % PAGE / SECTOR) as usize])
    }

    fn tell(&mut self, address: u64, found: Sector, settled: u64, number: Option<u64>) {
        let expected = match settled {
            0 => "nothing was written there".to_owned(),
            version => format!("write {version} had ended"),
        };
        let (count, what) = match found {
            Sector::Foreign => (&mut self.found.lost, "lost: other bytes".to_owned()),
            Sector::Torn { version, .. } => {
                (&mut self.found.torn, format!("torn: write {version} and something else"))
            }
            Sector::Whole { address: at, version } if at != address => {
                (&mut self.found.misplaced, format!("misplaced: write {version} for byte {at}"))
            }
            Sector::Whole { version, .. } => {
                (&mut self.found.stale, format!("stale: write {version}"))
            }
        };
        *count += 1;
        if self.found.findings.len() < TOLD_MAX {
            let who = number.map_or("at the end".to_owned(), |number| format!("request {number}"));
            let text = format!("{who}, sector at byte {address}: {what}, where {expected}");
            self.found.findings.push(text);
        }
    }

    /// The written ranges, in order, in pieces of at most `len` bytes.
    pub(super) fn written(&self, len: u64) -> Vec<ByteRange> {
        let mut addresses: Vec<u64> = self.settled.keys().copied().collect();
        addresses.sort_unstable();
        let all = addresses
            .iter()
            .flat_map(|page| (0..SECTORS as u64).map(move |n| page * PAGE + n * SECTOR));
        let mut pieces: Vec<ByteRange> = Vec::new();
        for address in all.filter(|&address| self.settled(address) > 0) {
            match pieces.last_mut() {
                Some(last) if last.end == address && last.len() < len => last.end += SECTOR,
                _ => pieces.push(ByteRange::at(address, SECTOR)),
            }
        }
        pieces
    }

    /// Of what was written, so much was read back, and so much was not.
    pub(super) fn found(self, read_back_bytes: u64, not_read_back_bytes: u64) -> Verified {
        Verified { read_back_bytes, not_read_back_bytes, ..self.found }
    }
}

fn sectors(range: ByteRange) -> impl Iterator<Item = u64> {
    (range.start..range.end).step_by(SECTOR as usize)
}

fn contains(range: ByteRange, address: u64) -> bool {
    range.start <= address && address < range.end
}

#[cfg(test)]
mod tests;
