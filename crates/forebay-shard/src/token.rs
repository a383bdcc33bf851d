//! The names of operations on a shard's reactor: who gets a completion, in 64 bits.
//!
//! ```text
//!   63    60 59              40 39                                0
//!  +--------+------------------+-----------------------------------+
//!  | class  | disk             | index: the owner's own            |
//!  +--------+------------------+-----------------------------------+
//! ```
//! A disk's number is never used again while the shard lives, so a late completion of a removed disk
//! finds nobody instead of somebody else. So does one of a disk that could not be taken: its journal may have begun to listen.

use forebay_io::reactor::Token;

/// Bits of the index.
pub(crate) const INDEX_BITS: u32 = 40;
/// Disks that a shard can have had, with those that it could not take.
pub(crate) const DISKS_MAX: u32 = 1 << 20;

/// Who a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The disk's backend.
    Backend,
    /// An I/O on the disk's share of flash.
    Flash,
    /// A client of the shard; no disk.
    Client,
    /// An I/O on the disk's write log.
    Log,
    /// The disk's progress page.
    Progress,
    /// The ring of the disk's cache.
    Ring,
    /// The backend with the destage journal.
    Journal,
}

const CLASSES: [Class; 7] = [
    Class::Backend,
    Class::Flash,
    Class::Client,
    Class::Log,
    Class::Progress,
    Class::Ring,
    Class::Journal,
];

/// The token of operation `index` of `class` of `disk`.
pub(crate) fn token(class: Class, disk: u32, index: u64) -> Token {
    assert!(disk < DISKS_MAX && index >> INDEX_BITS == 0);
    Token(code(class) << 60 | u64::from(disk) << INDEX_BITS | index)
}

/// The parts of a token; `None` when it was not made here.
pub(crate) fn split(token: Token) -> Option<(Class, u32, u64)> {
    let class = *CLASSES.iter().find(|class| code(**class) == token.0 >> 60)?;
    let disk = token.0 >> INDEX_BITS & u64::from(DISKS_MAX - 1);
    Some((class, disk as u32, token.0 & ((1 << INDEX_BITS) - 1)))
}

fn code(class: Class) -> u64 {
    match class {
        Class::Backend => 1,
        Class::Flash => 2,
        Class::Client => 3,
        Class::Log => 4,
        Class::Progress => 5,
        Class::Ring => 6,
        Class::Journal => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_apart_as_they_were_made() {
        for class in CLASSES {
            for disk in [0, 7, DISKS_MAX - 1] {
                for index in [0, 1, (1 << INDEX_BITS) - 1] {
                    assert_eq!(split(token(class, disk, index)), Some((class, disk, index)));
                }
            }
        }
        assert_eq!(split(Token(0)), None);
        assert_eq!(split(Token(u64::MAX)), None);
    }
}
