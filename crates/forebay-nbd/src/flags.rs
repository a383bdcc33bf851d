//! Sets of flags, one newtype for each place where the protocol has some.

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $bits:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        impl $name {
            /// No flag.
            pub const NONE: $name = $name(0);
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*

            /// True when every flag of `other` is in this set.
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// The flags of both.
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The flags of both when `condition` holds, otherwise only these.
            pub const fn with_if(self, condition: bool, other: $name) -> $name {
                if condition { self.with(other) } else { self }
            }

            /// These flags but not those of `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }
    };
}

flags! {
    /// The server's flags in the greeting.
    HandshakeFlags: u16 {
        /// Options it does not know are answered, not a reason to close.
        FIXED_NEWSTYLE = 0;
        /// It can leave out the 124 zeroes after `EXPORT_NAME`.
        NO_ZEROES = 1;
    }
}

flags! {
    /// The client's answer to the greeting.
    ClientFlags: u32 {
        /// It knows that options it sends may be refused.
        FIXED_NEWSTYLE = 0;
        /// Leave out the 124 zeroes after `EXPORT_NAME`.
        NO_ZEROES = 1;
    }
}

flags! {
    /// What an export can do.
    TransmissionFlags: u16 {
        /// The other flags mean something; always set.
        HAS_FLAGS = 0;
        /// Writes are refused.
        READ_ONLY = 1;
        /// Takes `FLUSH`.
        SEND_FLUSH = 2;
        /// Takes the FUA flag.
        SEND_FUA = 3;
        /// Seeks are slow.
        ROTATIONAL = 4;
        /// Takes `TRIM`.
        SEND_TRIM = 5;
        /// Takes `WRITE_ZEROES`.
        SEND_WRITE_ZEROES = 6;
        /// Takes the DF flag on reads.
        SEND_DF = 7;
        /// A flush on one connection covers writes answered on all of them.
        CAN_MULTI_CONN = 8;
        /// Takes `RESIZE` (an experiment of the protocol; not used here).
        SEND_RESIZE = 9;
        /// Takes `CACHE`.
        SEND_CACHE = 10;
        /// Takes the FAST_ZERO flag.
        SEND_FAST_ZERO = 11;
    }
}

flags! {
    /// How a request is to be carried out.
    CommandFlags: u16 {
        /// Answer only when durable.
        FUA = 0;
        /// `WRITE_ZEROES`: keep the space allocated.
        NO_HOLE = 1;
        /// `READ`: the data in one chunk.
        DF = 2;
        /// `BLOCK_STATUS`: one extent is enough, and it ends where the request does at the latest.
        REQ_ONE = 3;
        /// `WRITE_ZEROES`: fail when it would be as slow as a write.
        FAST_ZERO = 4;
    }
}

flags! {
    /// Flags of a chunk of a structured reply.
    ChunkFlags: u16 {
        /// The last chunk of its reply.
        DONE = 0;
    }
}

flags! {
    /// State of an extent in the context `base:allocation`.
    AllocationFlags: u32 {
        /// Not allocated.
        HOLE = 0;
        /// Reads as zeroes.
        ZERO = 1;
    }
}
