//! Error numbers as they travel in replies.

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// Not allowed: the export is read-only.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// No memory for it.
    NoMem = 12,
    /// The request makes no sense, or lies outside the export.
    Inval = 22,
    /// No space, or a write outside the export.
    NoSpc = 28,
    /// The answer would be too long.
    Overflow = 75,
    /// Cannot be done (at this speed).
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// All of them.
    pub const ALL: [Errno; 8] = [
        Errno::Perm,
        Errno::Io,
        Errno::NoMem,
        Errno::Inval,
        Errno::NoSpc,
        Errno::Overflow,
        Errno::NotSup,
        Errno::Shutdown,
    ];

    /// Its number on the wire, never 0.
    pub const fn wire(self) -> u32 {
        self as u32
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
        let known = Errno::ALL.into_iter().find(|errno| errno.wire() == number);
        Err(known.unwrap_or(Errno::Inval))
    }
}
