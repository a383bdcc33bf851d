//! Bugs that the simulator's own executor can be given, to see that the oracle finds them.

/// A planted bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// One copy in fifty is not made.
    SkippedCopy,
    /// Flash is read without looking at what comes back.
    UncheckedFlash,
    /// The log is read without looking at what comes back.
    UncheckedLog,
    /// A flush is reported without being done.
    EarlyFlush,
    /// One request is answered twice.
    SecondReply,
    /// Slots of a reply are taken as sent although the executor still reads them.
    EarlySent,
    /// A buffer is filled anew although copies of what was in it are still to be made.
    EarlyReuse,
    /// A record is published in the log before its data are copied.
    RecordBeforeData,
    /// A durable write of the log is not durable.
    VolatileLog,
    /// The destager's note is reported without being made.
    ForgottenNote,
    /// A recovery empties the staging file before its groups are in the log again.
    StagingEmptiedEarly,
    /// A recovery does not flush the header of the segment that the log goes on in.
    HeaderNotFlushed,
    /// Errors of writes and flushes are not reported.
    UnheardError,
    /// A recovery writes the header that voids old segments before what it replaces them with is durable.
    HeaderBeforeGroups,
    /// A segment's header claims that all before it is durable, which may only be written.
    EarlyClaim,
    /// Recovery believes a segment's summary although nothing claims its groups to be durable.
    UnclaimedSummary,
    /// That the ring must not be believed is reported without being noted.
    ForgottenVoid,
    /// That nobody may believe the log on dead flash is reported without being noted.
    ForgottenRevocation,
    /// A durable write of the ring is not durable.
    VolatileRing,
    /// Memory is compared before the copies are made that come before the comparison.
    EarlyComparison,
    /// One comparison in fifty finds what differs the same.
    AlwaysEqual,
    /// A difference is reported one byte behind where it is.
    MisplacedDifference,
    /// The last result is reported again at the next comparison.
    StaleComparison,
    /// The administrator hears at once that the cache is dropped.
    EarlyDrop,
    /// Zeroes that may become holes are given to primary storage as a discard.
    DiscardedZeroes,
    /// A write of the journal is reported without being made.
    ForgottenRecord,
    /// All windows are written to one slot of the journal.
    OneSlot,
    /// Writes in place are reported before they are made.
    EarlyPlace,
    /// That records are retired is reported without being noted.
    ForgottenRetirement,
    /// A start retires what the journal has without putting it in place.
    ForgottenRepair,
    /// Primary storage is not flushed before records are retired.
    RetiredBeforeFlush,
    /// A start whose log has dropped a part of a write does not flush primary storage, where that part may be.
    ForgottenParts,
    /// A run writes its ring under the generation of the one before, so that pages beyond a gap count again.
    RevivedPages,
    /// The engine is not told that primary storage may still carry out what a dead process had sent.
    EarlySettled,
    /// Changes do not wait until that is over.
    UnheldChange,
}

impl Planted {
    /// Those that random runs find.
    pub const BY_CHANCE: [Planted; 9] = [
        Planted::SkippedCopy,
        Planted::UncheckedFlash,
        Planted::EarlyFlush,
        Planted::SecondReply,
        Planted::EarlySent,
        Planted::EarlyReuse,
        Planted::RecordBeforeData,
        Planted::VolatileLog,
        Planted::ForgottenNote,
    ];

    /// Those that a crash at the right instant finds.
    pub const BY_CRASH: [Planted; 8] = [
        Planted::EarlyFlush,
        Planted::VolatileLog,
        Planted::ForgottenNote,
        Planted::StagingEmptiedEarly,
        Planted::HeaderNotFlushed,
        Planted::HeaderBeforeGroups,
        Planted::EarlyClaim,
        Planted::UnclaimedSummary,
    ];

    /// Those that clients find that race with compare-and-writes.
    pub const BY_RACE: [Planted; 4] = [
        Planted::EarlyComparison,
        Planted::AlwaysEqual,
        Planted::MisplacedDifference,
        Planted::StaleComparison,
    ];

    /// Those that a log finds whose flash dies.
    pub const BY_DEATH: [Planted; 1] = [Planted::ForgottenRevocation];

    /// Those that a cache finds that is restarted often.
    pub const BY_RESTART: [Planted; 3] =
        [Planted::ForgottenVoid, Planted::VolatileRing, Planted::EarlyDrop];

    /// Those that a ring finds that the loss of power tears.
    pub const BY_TEARING: [Planted; 1] = [Planted::RevivedPages];

    /// Those that a disk finds whose primary storage discards nothing.
    pub const BY_DISCARD: [Planted; 1] = [Planted::DiscardedZeroes];

    /// Those that a disk finds whose windows go through a journal.
    pub const BY_WINDOW: [Planted; 6] = [
        Planted::ForgottenRecord,
        Planted::OneSlot,
        Planted::EarlyPlace,
        Planted::ForgottenRetirement,
        Planted::ForgottenRepair,
        Planted::RetiredBeforeFlush,
    ];

    /// Those that a mode finds that is changed often.
    pub const BY_SWITCH: [Planted; 1] = [Planted::ForgottenParts];

    /// Those that primary storage finds that carries out late what a dead process had sent.
    pub const BY_LANDING: [Planted; 2] = [Planted::EarlySettled, Planted::UnheldChange];

    /// Those that a log finds whose flash returns wrong bytes.
    pub const BY_ROT: [Planted; 1] = [Planted::UncheckedLog];
}
