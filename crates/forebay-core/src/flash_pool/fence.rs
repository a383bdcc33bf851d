//! The fence: whether primary storage is still what the disk left, and what follows for cache and log.
//!
//! ```text
//!   what the pool remembers ─┐
//!                            ├─ judge ─► Strong | Weak | Mismatch ─ follows ─► cache kept or not, log goes on or not
//!   what is found there ─────┘
//! ```
//! | | clean cache | dirty log |
//! |---|---|---|
//! | **Strong**: nobody else can have written | kept | goes on |
//! | **Weak**: nothing speaks against it, but nothing proves it | kept only if the backend is declared exclusive | goes on, and is shown as weak |
//! | **Mismatch**: somebody did | dropped | refused, and kept until an administrator resolves it |
//!
//! The modification time proves it. A disk that was stopped noted it when nothing of its own was
//! under way any more: it must be the same. A process that was killed could not, so the time may
//! lie between the last one seen and the moment after its last write, which tmpfs remembers.
//! After a loss of the host only a time from before the session tells something.
//!
//! **Limits.** A change leaves a time that fits if it comes within a tick of the file system's
//! clock (up to 10 ms) of our own last write. Before a kill, [`GRACE_NS`] takes the place of the
//! tick. Samples may find it. The time of the last change of metadata betrays a time that was set
//! back (`touch -d`). It makes the evidence weak, not a mismatch.

use super::disk::Evidence;
use super::sidecar::Sidecar;
use crate::ids::{Generation, Uuid};

/// Seconds since 1970, and nanoseconds.
pub type Timestamp = (i64, u32);

/// How much later than the last write that was noted primary storage may have got its time from a write of ours.
pub const GRACE_NS: u64 = 1_000_000_000;

/// The pool's knowledge of the disk.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The disk.
    pub disk: Uuid,
    /// The pool.
    pub pool: Uuid,
    /// It was never served.
    pub is_new: bool,
    /// The sidecar of the last session that wrote one has this generation; 0: there was none.
    pub sidecar: Generation,
    /// A sidecar up to this generation may have been written.
    pub pending: Generation,
    /// No session above this one has ended, as far as the pool knows.
    pub ended: Generation,
    /// Bytes of primary storage.
    pub size: u64,
    /// Its times, as remembered.
    pub times: Times,
    /// This host remembers a detach of the disk, or that another one was served in its place: its log is of the past.
    pub is_detached: bool,
    /// The last session has seen that somebody else modified primary storage.
    pub is_modified: bool,
}

/// Times of primary storage, as remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// As they were when nothing of the disk was under way any more.
    Final {
        /// Of its last modification, where it has one.
        modified: Option<Timestamp>,
        /// Of the last change of its metadata.
        changed: Option<Timestamp>,
    },
    /// The process died and the host lives: the last modification was in between.
    Between {
        /// As it was seen last.
        from: Timestamp,
        /// Nothing of ours was written after this.
        to: Timestamp,
    },
    /// The host died, or nobody noted anything.
    NotBefore(Option<Timestamp>),
}

/// What is there.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Bytes of primary storage.
    pub size: u64,
    /// When it was modified, where it can tell.
    pub modified: Option<Timestamp>,
    /// When its metadata changed.
    pub changed: Option<Timestamp>,
    /// Its sidecar.
    pub sidecar: SidecarFound<'a>,
    /// What sampled ranges say.
    pub samples: Samples,
    /// The path, or the loop device, leads to another image than it did.
    pub is_elsewhere: bool,
}

/// The sidecar of primary storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarFound<'a> {
    /// There is no place for one.
    NoPlace,
    /// There is none.
    Missing,
    /// There is one that cannot be read.
    Unreadable,
    /// There is one.
    There(&'a Sidecar),
}

/// What sampled ranges say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// Nothing: there are none, or they could not be read in time.
    Unknown,
    /// They hold what they held.
    Agree,
    /// One of them holds something else.
    Differ,
}

/// Whether primary storage is what the disk left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was ever served from here.
    New,
    /// Nobody else has written there.
    Strong,
    /// Nothing speaks against it, but this is missing.
    Weak(Doubt),
    /// Somebody else has.
    Mismatch(Change),
}

/// Why evidence is not strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// There can be no sidecar, or it cannot be read, or it is gone.
    Sidecar,
    /// Primary storage does not tell when it was modified, or nobody noted it.
    NoTime,
    /// The host died, or what was noted is gone, so that nobody knows when the last write was.
    Unseen,
    /// Its metadata changed: the time of modification may have been set.
    Touched,
}

/// How primary storage was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has another size.
    Size {
        /// Before.
        was: u64,
        /// Now.
        is: u64,
    },
    /// It was modified later.
    Modified {
        /// As last known.
        was: Timestamp,
        /// Now.
        is: Timestamp,
    },
    /// It is older than it was: an old copy was put back.
    RolledBack {
        /// As last known.
        was: Timestamp,
        /// Now.
        is: Timestamp,
    },
    /// Sampled ranges hold something else.
    Content,
    /// It was modified while the disk was served, whatever was written after that.
    WhileServed,
    /// Another disk was served from it meanwhile.
    OtherDisk,
    /// It is another image under the same name, and nothing beside it says that the disk was served from it.
    Elsewhere,
    /// This disk was served from it by a newer state of the pool, or went on without its flash, which had died. Where the
    /// pool knows the generation, that session has ended, which the pool does not know.
    FlashRolledBack {
        /// Of the sidecar.
        sidecar: Generation,
        /// The highest that the pool knows.
        pool: Generation,
    },
    /// The disk was detached since, and this is an old copy of its pool; or another disk has taken its place.
    Detached,
    /// The sidecar is of an earlier session: an old copy of primary storage was put back with its sidecar.
    SidecarRolledBack {
        /// Of the sidecar.
        sidecar: Generation,
        /// The one that the last session wrote.
        pool: Generation,
    },
}

/// Judges.
pub fn judge(known: &Known, found: &Found<'_>) -> Verdict {
    if known.is_new {
        return Verdict::New;
    }
    match change(known, found) {
        Some(change) => Verdict::Mismatch(change),
        None => doubt(known, found).map_or(Verdict::Strong, Verdict::Weak),
    }
}

/// What speaks against it.
fn change(known: &Known, found: &Found<'_>) -> Option<Change> {
    if let SidecarFound::There(sidecar) = found.sidecar
        && (sidecar.disk, sidecar.pool) != (known.disk, known.pool)
    {
        return Some(Change::OtherDisk);
    }
    if known.is_detached {
        return Some(Change::Detached);
    }
    if found.size != known.size {
        return Some(Change::Size { was: known.size, is: found.size });
    }
    if let SidecarFound::There(sidecar) = found.sidecar {
        let generation = sidecar.generation;
        // No start says that a session has ended before the pool knows that it has begun.
        let is_end = sidecar.state.has_ended() && generation > known.ended;
        if generation > known.pending || is_end {
            let pool = known.pending;
            return Some(Change::FlashRolledBack { sidecar: generation, pool });
        }
        if generation < known.sidecar {
            let pool = known.sidecar;
            return Some(Change::SidecarRolledBack { sidecar: generation, pool });
        }
    } else if found.is_elsewhere && !matches!(known.times, Times::Final { .. }) {
        // After an orderly end times and samples tell more.
        return Some(Change::Elsewhere);
    }
    let is = found.modified;
    let before =
        |was: Timestamp| is.filter(|is| *is < was).map(|is| Change::RolledBack { was, is });
    let after = |was: Timestamp| is.filter(|is| *is > was).map(|is| Change::Modified { was, is });
    let by_time = match known.times {
        Times::Final { modified, .. } => modified.and_then(|was| before(was).or(after(was))),
        Times::Between { from, to } => before(from).or(after(to)),
        Times::NotBefore(was) => was.and_then(before),
    };
    let by_content = || (found.samples == Samples::Differ).then_some(Change::Content);
    // What it looked like in the end tells nothing of that: a later write of ours, or the last look, has taken its time over.
    let by_session = || known.is_modified.then_some(Change::WhileServed);
    by_time.or_else(by_content).or_else(by_session)
}

/// Why evidence is not strong, although nothing speaks against it.
fn doubt(known: &Known, found: &Found<'_>) -> Option<Doubt> {
    // Then nobody could have noted one either.
    if found.modified.is_none() {
        return Some(Doubt::NoTime);
    }
    let changed = found.changed;
    match known.times {
        Times::NotBefore(_) => return Some(Doubt::Unseen),
        Times::Final { modified: None, .. } => return Some(Doubt::NoTime),
        Times::Final { changed: was, .. } if changed != was => return Some(Doubt::Touched),
        Times::Between { to, .. } if changed.is_some_and(|is| is > to) => {
            return Some(Doubt::Touched);
        }
        Times::Final { .. } | Times::Between { .. } => {}
    }
    match found.sidecar {
        SidecarFound::There(_) => None,
        SidecarFound::NoPlace | SidecarFound::Missing | SidecarFound::Unreadable => {
            Some(Doubt::Sidecar)
        }
    }
}

/// What the disk has on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Its log holds what may not be on primary storage.
    pub is_dirty: bool,
    /// The log was refused before, and nobody has resolved it.
    pub is_unresolved: bool,
    /// An administrator says that nobody else writes to primary storage.
    pub is_exclusive: bool,
}

/// What happens to cache and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// The disk may be served.
    Serve {
        /// Cached data may be used.
        keeps_cache: bool,
        /// There is a dirty log that goes on, on weak evidence.
        is_weak: bool,
    },
    /// It must not be served until an administrator has resolved it; nothing is given up.
    Refuse,
}

impl Verdict {
    /// The consequence for a disk that has this on flash.
    pub fn follows(self, holdings: Holdings) -> Follows {
        let Holdings { is_dirty, is_unresolved, is_exclusive } = holdings;
        if is_dirty && is_unresolved {
            return Follows::Refuse;
        }
        match self {
            Verdict::New => Follows::Serve { keeps_cache: false, is_weak: false },
            Verdict::Strong => Follows::Serve { keeps_cache: true, is_weak: false },
            Verdict::Weak(_) => Follows::Serve { keeps_cache: is_exclusive, is_weak: is_dirty },
            Verdict::Mismatch(_) if is_dirty => Follows::Refuse,
            Verdict::Mismatch(_) => Follows::Serve { keeps_cache: false, is_weak: false },
        }
    }
}

/// Times as the evidence of a record remembers them, for a disk whose last session left nothing
/// else.
pub fn times_of(evidence: &Evidence) -> Times {
    let Evidence { modified, changed, is_final, .. } = *evidence;
    match is_final {
        true => Times::Final { modified, changed },
        false => Times::NotBefore(modified),
    }
}

/// True when primary storage with this sidecar belongs to a disk other than `own`, whose log may
/// hold newer data. That its pool does not know that disk is no proof that it is gone: the pool may
/// have been put back to a time before it. A detach says `clean` before the pool forgets the disk.
pub fn is_claimed(sidecar: &Sidecar, own: Option<Uuid>) -> bool {
    sidecar.state.may_be_dirty() && Some(sidecar.disk) != own
}

#[cfg(test)]
mod tests;
