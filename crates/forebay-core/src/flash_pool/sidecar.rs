//! The sidecar: a small file beside primary storage that says whose cache and log belong to it.
//!
//! Text, so that whoever finds it beside an image can read it; nine lines in this order, each ended by a
//! newline, at most [`SIDECAR_MAX`] bytes:
//!
//! ```text
//! Forebay sidecar 1
//! disk UUID
//! pool UUID
//! generation NUMBER
//! state open | open-with-log | dirty | clean
//! date SECONDS since 1970
//! host NAME
//! name NAME of the disk
//! crc32c EIGHT HEXADECIMAL DIGITS of all bytes before this line
//! ```
//! Where a destage journal belongs to primary storage, it is version 2, with a tenth line behind the name:
//! `journal SIXTEEN HEXADECIMAL DIGITS`, its nonce. If it is not beside the sidecar, the identity of primary storage follows, a
//! UUID, and its URI, a space before each: so a copy of primary storage with its sidecar is told from what the journal
//! is of. A program that knows version 1 only refuses it: it would not put the journal in place.
//!
//! It is replaced as a whole (a new file, flushed, renamed), so that it is there or not, never torn.

use std::fmt::Write as _;

use crate::ids::{Generation, Uuid};
use crate::sealed::crc32c;

/// Longest sidecar, in bytes.
pub const SIDECAR_MAX: usize = 2048;
/// No disk has so many sessions. A pool that follows a sidecar there has generations left.
const GENERATION_MAX: u64 = 1 << 48;
/// Longest URI of a destage journal that a sidecar names, in bytes.
pub const JOURNAL_URI_MAX: usize = 1024;
/// Longest name of a host that is kept, in bytes.
pub const HOST_MAX: usize = 255;

const FIRST_LINE: &str = "Forebay sidecar 1";
/// The same of one that names a journal.
const FIRST_LINE_2: &str = "Forebay sidecar 2";

/// What a sidecar says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The disk that serves this primary storage, or did last.
    pub disk: Uuid,
    /// The pool that has the disk's log and cache.
    pub pool: Uuid,
    /// The disk's session.
    pub generation: Generation,
    /// How it is, or was left.
    pub state: SidecarState,
    /// When this was written, seconds since 1970.
    pub date: u64,
    /// The host that wrote it.
    pub host: String,
    /// The disk's name.
    pub name: String,
    /// The destage journal that belongs to primary storage.
    pub journal: Option<NamedJournal>,
}

/// A destage journal, as a sidecar names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedJournal {
    /// Its nonce.
    pub nonce: u64,
    /// Where it is; `None`: beside the sidecar.
    pub uri: Option<String>,
    /// What primary storage was when it was named. [`Uuid::NIL`]: nobody knows, or the journal is beside it.
    pub identity: Uuid,
}

impl NamedJournal {
    /// True when a sidecar can hold its URI.
    pub fn fits(&self) -> bool {
        self.uri.as_ref().is_none_or(|uri| {
            uri.len() <= JOURNAL_URI_MAX && !uri.chars().any(char::is_control) && !uri.is_empty()
        })
    }
}

/// How a disk is, as its sidecar says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarState {
    /// It is served, or was when its host or process died; it has no write log.
    Open,
    /// The same, and its write log may hold what primary storage does not.
    OpenWithLog,
    /// It was stopped, and its write log holds what primary storage does not.
    Dirty,
    /// It was stopped, and primary storage has everything.
    Clean,
}

/// A text is no sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidecarInvalid {
    /// Another program's, or of a version that this one does not know.
    #[error(
        "it does not begin with '{FIRST_LINE}' or 2: another version of Forebay wrote it, or another program"
    )]
    Foreign,
    /// Changed after it was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// Makes no sense although its checksum is right.
    #[error("its line '{0}' makes no sense")]
    Line(&'static str),
    /// Not as this program writes it, although it can be read: something else has.
    #[error("another program wrote it")]
    Form,
}

impl SidecarState {
    const ALL: [(SidecarState, &str); 4] = [
        (SidecarState::Open, "open"),
        (SidecarState::OpenWithLog, "open-with-log"),
        (SidecarState::Dirty, "dirty"),
        (SidecarState::Clean, "clean"),
    ];

    /// True when a write log may hold what primary storage does not.
    pub fn may_be_dirty(self) -> bool {
        match self {
            SidecarState::OpenWithLog | SidecarState::Dirty => true,
            SidecarState::Open | SidecarState::Clean => false,
        }
    }

    /// True when the session has ended in order.
    pub fn has_ended(self) -> bool {
        match self {
            SidecarState::Dirty | SidecarState::Clean => true,
            SidecarState::OpenWithLog | SidecarState::Open => false,
        }
    }

    /// As it stands in the file.
    pub fn name(self) -> &'static str {
        let of = |(state, name)| (state == self).then_some(name);
        SidecarState::ALL.into_iter().find_map(of).expect("every state has a name")
    }
}

impl Sidecar {
    /// The bytes of the file. Characters that cannot stand in a line are left out of the names.
    pub fn encode(&self) -> Vec<u8> {
        let first_line = if self.journal.is_some() { FIRST_LINE_2 } else { FIRST_LINE };
        let mut text = format!(
            "{first_line}\ndisk {}\npool {}\ngeneration {}\nstate {}\ndate {}\nhost {}\nname {}\n",
            self.disk,
            self.pool,
            self.generation.0,
            self.state.name(),
            self.date,
            one_line(&self.host, HOST_MAX),
            one_line(&self.name, super::disk::NAME_MAX),
        );
        if let Some(NamedJournal { nonce, uri, identity }) = &self.journal {
            let _ = write!(text, "journal {nonce:016x}");
            if let Some(uri) = uri {
                let _ = write!(text, " {identity} {}", one_line(uri, JOURNAL_URI_MAX));
            }
            text.push('\n');
        }
        let checksum = crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c {checksum:08x}");
        assert!(text.len() <= SIDECAR_MAX, "its parts are bounded");
        text.into_bytes()
    }

    /// What the bytes of a file say.
    ///
    /// # Errors
    /// They are no sidecar that this program knows, or were changed.
    pub fn decode(bytes: &[u8]) -> Result<Sidecar, SidecarInvalid> {
        let has_journal = bytes.starts_with(FIRST_LINE_2.as_bytes());
        let is_ours = has_journal || bytes.starts_with(FIRST_LINE.as_bytes());
        if !is_ours || bytes.len() > SIDECAR_MAX {
            return Err(SidecarInvalid::Foreign);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| SidecarInvalid::Checksum)?;
        let last = text.strip_suffix('\n').and_then(|text| text.rfind('\n'));
        let (body, checksum) = text.split_at(last.ok_or(SidecarInvalid::Checksum)? + 1);
        if checksum != format!("crc32c {:08x}\n", crc32c(body.as_bytes())) {
            return Err(SidecarInvalid::Checksum);
        }
        let mut lines = body.lines();
        let first_line = if has_journal { FIRST_LINE_2 } else { FIRST_LINE };
        if lines.next() != Some(first_line) {
            return Err(SidecarInvalid::Foreign);
        }
        let mut line = |key: &'static str| {
            let value = lines.next().and_then(|line| line.strip_prefix(key)?.strip_prefix(' '));
            value.ok_or(SidecarInvalid::Line(key))
        };
        let uuid = |text: &str, key| text.parse().map_err(|_| SidecarInvalid::Line(key));
        let number = |text: &str, key| text.parse().map_err(|_| SidecarInvalid::Line(key));
        let sidecar = Sidecar {
            disk: uuid(line("disk")?, "disk")?,
            pool: uuid(line("pool")?, "pool")?,
            generation: Generation(number(line("generation")?, "generation")?),
            state: {
                let text = line("state")?;
                let found = SidecarState::ALL.into_iter().find(|(_, name)| *name == text);
                found.ok_or(SidecarInvalid::Line("state"))?.0
            },
            date: number(line("date")?, "date")?,
            host: line("host")?.to_owned(),
            name: line("name")?.to_owned(),
            journal: match has_journal {
                true => Some(NamedJournal::decode(line("journal")?)?),
                false => None,
            },
        };
        match lines.next() {
            None if sidecar.generation.0 > GENERATION_MAX => {
                Err(SidecarInvalid::Line("generation"))
            }
            // What it says is shown to people: nothing in it is for their terminals.
            None if sidecar.encode() != bytes && !cfg!(feature = "planted-bugs") => {
                Err(SidecarInvalid::Form)
            }
            None => Ok(sidecar),
            Some(_) => Err(SidecarInvalid::Line("after the last one")),
        }
    }
}

impl NamedJournal {
    fn decode(text: &str) -> Result<NamedJournal, SidecarInvalid> {
        const INVALID: SidecarInvalid = SidecarInvalid::Line("journal");
        let mut words = text.splitn(3, ' ');
        let nonce = words.next().and_then(|nonce| u64::from_str_radix(nonce, 16).ok());
        let nonce = nonce.ok_or(INVALID)?;
        let Some(identity) = words.next() else {
            return Ok(NamedJournal { nonce, uri: None, identity: Uuid::NIL });
        };
        let identity = identity.parse().map_err(|_| INVALID)?;
        let uri = words.next().filter(|uri| !uri.is_empty()).ok_or(INVALID)?;
        Ok(NamedJournal { nonce, uri: Some(uri.to_owned()), identity })
    }
}

/// `text` without what would end a line, cut to `max` bytes.
fn one_line(text: &str, max: usize) -> String {
    let mut line: String = text.chars().filter(|letter| !letter.is_control()).collect();
    while line.len() > max {
        line.pop();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar() -> Sidecar {
        Sidecar {
            disk: Uuid([0xd1; 16]),
            pool: Uuid([0xb0; 16]),
            generation: Generation(7),
            state: SidecarState::OpenWithLog,
            date: 1_700_000_000,
            host: "esx7.example".into(),
            name: "db 1".into(),
            journal: None,
        }
    }

    fn sealed(body: &str) -> Vec<u8> {
        format!("{body}crc32c {:08x}\n", crc32c(body.as_bytes())).into_bytes()
    }

    #[test]
    fn what_is_written_is_read() {
        for (state, _) in SidecarState::ALL {
            let sidecar = Sidecar { state, ..sidecar() };
            assert_eq!(Sidecar::decode(&sidecar.encode()), Ok(sidecar));
        }
        let empty = Sidecar { host: String::new(), name: String::new(), ..sidecar() };
        assert_eq!(Sidecar::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let expect = "Forebay sidecar 1\n\
            disk d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1\n\
            pool b0b0b0b0-b0b0-b0b0-b0b0-b0b0b0b0b0b0\n\
            generation 7\nstate open-with-log\ndate 1700000000\nhost esx7.example\nname db 1\n";
        assert_eq!(sidecar().encode(), sealed(expect));
    }

    #[test]
    fn one_that_names_a_journal_is_of_version_2() {
        let journal = NamedJournal { nonce: 0xab, uri: None, identity: Uuid::NIL };
        let named = Sidecar { journal: Some(journal), ..sidecar() };
        let text = String::from_utf8(named.encode()).unwrap();
        assert!(text.starts_with("Forebay sidecar 2\n"));
        assert!(text.contains("\nname db 1\njournal 00000000000000ab\ncrc32c "));
        assert_eq!(Sidecar::decode(text.as_bytes()), Ok(named));
        let body = &text[..text.rfind("crc32c").unwrap()];
        let odd = body.replace("journal 00", "journal +0");
        assert_eq!(Sidecar::decode(&sealed(&odd)), Err(SidecarInvalid::Form));
        for behind in [" ", " nbd://host/journal", " 1d1d1d1d-1d1d-1d1d-1d1d-1d1d1d1d1d1d "] {
            let odd = body.replace("ab\n", &format!("ab{behind}\n"));
            assert_eq!(Sidecar::decode(&sealed(&odd)), Err(SidecarInvalid::Line("journal")));
        }
        let uri = Some("nbd://host/journal".to_owned());
        let journal = Some(NamedJournal { nonce: 0xab, uri, identity: Uuid([0x1d; 16]) });
        let elsewhere = Sidecar { journal, ..sidecar() };
        let text = String::from_utf8(elsewhere.encode()).unwrap();
        let line =
            "journal 00000000000000ab 1d1d1d1d-1d1d-1d1d-1d1d-1d1d1d1d1d1d nbd://host/journal";
        assert!(text.contains(&format!("\n{line}\ncrc32c ")), "{text}");
        assert_eq!(Sidecar::decode(text.as_bytes()), Ok(elsewhere));
    }

    #[test]
    fn names_cannot_add_lines_or_grow_it() {
        let evil =
            Sidecar { host: "x\nstate clean\n".repeat(99), name: "é".repeat(99), ..sidecar() };
        let read = Sidecar::decode(&evil.encode()).unwrap();
        assert_eq!(read.state, SidecarState::OpenWithLog);
        assert!(read.host.len() <= HOST_MAX && read.name.len() <= 64);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let bytes = sidecar().encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            Sidecar::decode(&changed).unwrap_err();
            Sidecar::decode(&bytes[..at]).unwrap_err();
        }
    }

    #[test]
    fn nonsense_under_a_right_checksum_is_named() {
        let text = String::from_utf8(sidecar().encode()).unwrap();
        let body = &text[..text.rfind("crc32c").unwrap()];
        let check = |from: &str, to: &str, expect| {
            assert_eq!(Sidecar::decode(&sealed(&body.replace(from, to))), Err(expect), "{to}");
        };
        check("sidecar 1", "sidecar 3", SidecarInvalid::Foreign);
        check("sidecar 1", "sidecar 2", SidecarInvalid::Line("journal"));
        check("disk d1", "disk x1", SidecarInvalid::Line("disk"));
        check("state open-with-log", "state closed", SidecarInvalid::Line("state"));
        check("generation 7", "generation 281474976710657", SidecarInvalid::Line("generation"));
        check("generation 7", "generation -7", SidecarInvalid::Line("generation"));
        check(
            "generation 7",
            "generation 18446744073709551615",
            SidecarInvalid::Line("generation"),
        );
        check("generation 7", "generation 07", SidecarInvalid::Form);
        check("name db 1", "name db\u{1b}[2J1", SidecarInvalid::Form);
        check("name db 1\n", "", SidecarInvalid::Line("name"));
        check("name db 1\n", "name db 1\nmore\n", SidecarInvalid::Line("after the last one"));
    }
}
