//! A medium that fails, for tests: the n-th I/O of this thread meets a fate, and what was not flushed can be lost.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;

use forebay_core::splitmix::Rng;

use super::{PAGE, PoolFile, PoolPage};

const SECTOR: usize = 512;

/// What befalls an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It fails and does nothing.
    Fails,
    /// It fails, and a part of it was done.
    Tears,
    /// It fails, and was done.
    Lies,
    /// A flush that goes well, because another one was told that it failed.
    FailsElsewhere,
    /// It and everything after it fails, and nothing is done: the process died before it.
    Dies,
}

#[derive(Debug, Default)]
struct Medium {
    /// I/Os until the one with a fate, which is 1; then those from there to the next one.
    fates: VecDeque<(u64, Fate)>,
    is_dead: bool,
    /// A fate was that of a read, which may be tried again.
    has_struck_read: bool,
    /// Where pages are that cannot be read.
    bad: Vec<u64>,
    /// What is durable in sectors that were written and not flushed.
    durable: BTreeMap<u64, Vec<u8>>,
}

thread_local! {
    static MEDIUM: RefCell<Option<Medium>> = const { RefCell::new(None) };
}

/// From now on I/Os of this thread are watched; the `nth` one meets its fate, and of those after it another one.
pub(crate) fn arm(fates: &[(u64, Fate)]) {
    let medium = Medium { fates: fates.iter().copied().collect(), ..Medium::default() };
    MEDIUM.set(Some(medium));
}

/// The pages at these places cannot be read from now on; all else goes well.
pub(crate) fn spoil(places: &[u64]) {
    MEDIUM.set(Some(Medium { bad: places.to_vec(), ..Medium::default() }));
}

/// Whether a read met its fate: one that is tried again may leave no trace.
pub(crate) fn has_struck_read() -> bool {
    MEDIUM.with_borrow(|medium| medium.as_ref().is_some_and(|it| it.has_struck_read))
}

/// Nothing fails any more; whether every fate was met. What was not flushed is lost by chance when `power` says
/// so, a seed.
pub(crate) fn disarm(path: &std::path::Path, power: Option<u64>) -> bool {
    use std::os::unix::fs::FileExt;
    let medium = MEDIUM.take().expect("it was armed");
    if let Some(seed) = power {
        let mut random = Rng::new(seed);
        let file = std::fs::File::options().write(true).open(path).unwrap();
        for (&sector, bytes) in &medium.durable {
            if random.below(4) != 0 {
                file.write_all_at(bytes, sector * SECTOR as u64).unwrap();
            }
        }
    }
    medium.fates.is_empty()
}

impl Medium {
    /// The fate of the next I/O.
    fn next(&mut self) -> Option<Fate> {
        if self.is_dead {
            return Some(Fate::Dies);
        }
        let (left, _) = self.fates.front_mut()?;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        let (_, fate) = self.fates.pop_front().expect("it is the first");
        self.is_dead = fate == Fate::Dies;
        Some(fate)
    }
}

fn error() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

/// Before pages are read.
pub(super) fn on_read(offset: u64, pages: usize) -> io::Result<()> {
    let range = offset..offset + pages as u64 * PAGE;
    MEDIUM.with_borrow_mut(|medium| {
        let Some(medium) = medium else { return Ok(()) };
        let is_bad = medium.bad.iter().any(|place| range.contains(place));
        let is_struck = medium.next().is_some();
        medium.has_struck_read |= is_struck;
        if is_bad || is_struck { Err(error()) } else { Ok(()) }
    })
}

/// Before pages are written; after an error as much of them as the fate says.
pub(super) fn on_write(file: &PoolFile, offset: u64, pages: &[PoolPage]) -> io::Result<()> {
    let fate = MEDIUM.with_borrow_mut(|medium| medium.as_mut().map(Medium::next));
    let Some(fate) = fate else { return Ok(()) };
    let done = match fate {
        None | Some(Fate::Lies) => pages.len(),
        // A page and a half of three.
        Some(Fate::Tears) => pages.len() / 2,
        Some(Fate::Fails | Fate::Dies) => return Err(error()),
        Some(Fate::FailsElsewhere) => unreachable!("a flush meets it"),
    };
    let torn = usize::from(fate == Some(Fate::Tears));
    let mut before = PoolPage::zeroes(done + torn);
    file.read_pages(offset, &mut before)?;
    let sectors = before.iter().flat_map(|page| page.0.chunks_exact(SECTOR));
    MEDIUM.with_borrow_mut(|medium| {
        let durable = &mut medium.as_mut().expect("it is armed").durable;
        for (sector, bytes) in (offset / SECTOR as u64..).zip(sectors) {
            durable.entry(sector).or_insert_with(|| bytes.to_vec());
        }
    });
    if fate.is_none() {
        return Ok(());
    }
    let mut written = pages[..done].to_vec();
    if torn > 0 {
        let mut page = before[done].clone();
        page.0[..4 * SECTOR].copy_from_slice(&pages[done].0[..4 * SECTOR]);
        written.push(page);
    }
    assert!(offset.is_multiple_of(PAGE));
    file.write_pages(offset, &written)?;
    Err(error())
}

/// Before a flush.
pub(super) fn on_sync(file: &PoolFile) -> io::Result<()> {
    MEDIUM.with_borrow_mut(|medium| {
        let Some(medium) = medium else { return Ok(()) };
        let fate = medium.next();
        if matches!(fate, None | Some(Fate::Lies)) {
            medium.durable.clear();
        }
        if fate == Some(Fate::FailsElsewhere) {
            file.failed_flushes.note();
            return Ok(());
        }
        if fate.is_some() { Err(error()) } else { Ok(()) }
    })
}
