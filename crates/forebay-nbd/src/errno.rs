//! Error numbers as they travel in replies.

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    /// Not allowed: the export is read-only.
    Perm,
    /// The device failed.
    Io,
    /// No memory for it.
    NoMem,
    /// The request makes no sense, or lies outside the export.
    Inval,
    /// No space, or a write outside the export.
    NoSpc,
    /// The answer would be too long.
    Overflow,
    /// Cannot be done (at this speed).
    NotSup,
    /// The server is shutting down.
    Shutdown,
}

impl Errno {
    /// All of them with their numbers on the wire.
    pub const ALL: [(Errno, u32); 8] = [
        (Errno::Perm, 1),
        (Errno::Io, 5),
        (Errno::NoMem, 12),
        (Errno::Inval, 22),
        (Errno::NoSpc, 28),
        (Errno::Overflow, 75),
        (Errno::NotSup, 95),
        (Errno::Shutdown, 108),
    ];

    /// Its number on the wire, never 0.
    pub const fn wire(self) -> u32 {
        match self {
            Errno::Perm => 1,
            Errno::Io => 5,
            Errno::NoMem => 12,
            Errno::Inval => 22,
            Errno::NoSpc => 28,
            Errno::Overflow => 75,
            Errno::NotSup => 95,
            Errno::Shutdown => 108,
        }
    }

    /// The outcome behind a number from the wire; numbers that the protocol does not have mean
    /// [`Errno::Inval`], as it asks for.
    ///
    /// # Errors
    /// The error of every number but 0.
    pub fn from_wire(number: u32) -> Result<(), Errno> {
        if number == 0 {
            return Ok(());
        }
        let known = Errno::ALL.iter().find(|(_, wire)| *wire == number);
        Err(known.map_or(Errno::Inval, |(errno, _)| *errno))
    }
}
