//! Sense data: why a command was not done.
//!
//! ```text
//! fixed, 18 bytes                              descriptor, 8 bytes and descriptors
//!  0  70h, VALID in bit 7                       0  72h
//!  2  sense key                                 1  sense key
//!  3  INFORMATION (4), when it fits             2  additional sense code, qualifier
//!  7  10 bytes follow                           7  length of the descriptors
//! 12  additional sense code, qualifier          8  00h: INFORMATION (8 bytes)
//! 15  sense key specific (3)                       02h: sense key specific (3 bytes)
//! ```
//! The mode page Control says which of the two (D_SENSE).

/// Sense keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Key {
    /// Nothing is wrong.
    NoSense = 0x0,
    /// The medium, here: primary storage, failed.
    MediumError = 0x3,
    /// Something else failed.
    HardwareError = 0x4,
    /// The command makes no sense.
    IllegalRequest = 0x5,
    /// Something changed, which the initiator should know first.
    UnitAttention = 0x6,
    /// Not allowed.
    DataProtect = 0x7,
    /// The task was aborted.
    AbortedCommand = 0xb,
    /// What was compared differs.
    Miscompare = 0xe,
}

/// Additional sense code and qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8, pub u8);

impl Code {
    /// Nothing to add.
    pub const NONE: Code = Code(0x00, 0x00);
    /// A write failed.
    pub const WRITE_ERROR: Code = Code(0x0c, 0x00);
    /// A read failed.
    pub const UNRECOVERED_READ_ERROR: Code = Code(0x11, 0x00);
    /// The parameter list is shorter than it says.
    pub const PARAMETER_LIST_LENGTH_ERROR: Code = Code(0x1a, 0x00);
    /// What was compared differs.
    pub const MISCOMPARE_DURING_VERIFY: Code = Code(0x1d, 0x00);
    /// Not an operation code of this device.
    pub const INVALID_COMMAND_OPERATION_CODE: Code = Code(0x20, 0x00);
    /// Beyond the end.
    pub const LBA_OUT_OF_RANGE: Code = Code(0x21, 0x00);
    /// A field of the CDB.
    pub const INVALID_FIELD_IN_CDB: Code = Code(0x24, 0x00);
    /// No such logical unit.
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Code = Code(0x25, 0x00);
    /// A field of the parameter list.
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Code = Code(0x26, 0x00);
    /// A key or type of a persistent reservation that is not the one held.
    pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: Code = Code(0x26, 0x04);
    /// Read-only.
    pub const WRITE_PROTECTED: Code = Code(0x27, 0x00);
    /// Primary storage is full.
    pub const SPACE_ALLOCATION_FAILED: Code = Code(0x27, 0x07);
    /// The target started, or the logical unit was reset.
    pub const POWER_ON: Code = Code(0x29, 0x00);
    /// Mode parameters are not what they were.
    pub const MODE_PARAMETERS_CHANGED: Code = Code(0x2a, 0x01);
    /// A reservation was taken away.
    pub const RESERVATIONS_PREEMPTED: Code = Code(0x2a, 0x03);
    /// A reservation ended.
    pub const RESERVATIONS_RELEASED: Code = Code(0x2a, 0x04);
    /// A registration was taken away.
    pub const REGISTRATIONS_PREEMPTED: Code = Code(0x2a, 0x05);
    /// The disk has another size.
    pub const CAPACITY_CHANGED: Code = Code(0x2a, 0x09);
    /// Another initiator cleared the task set.
    pub const COMMANDS_CLEARED: Code = Code(0x2f, 0x00);
    /// Mode pages cannot be saved.
    pub const SAVING_NOT_SUPPORTED: Code = Code(0x39, 0x00);
    /// The target has other logical units.
    pub const LUNS_CHANGED: Code = Code(0x3f, 0x0e);
    /// INQUIRY DATA HAS CHANGED
    pub const INQUIRY_DATA_CHANGED: Code = Code(0x3f, 0x03);
    /// Something inside failed.
    pub const INTERNAL_TARGET_FAILURE: Code = Code(0x44, 0x00);
    /// No room for another registration.
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: Code = Code(0x55, 0x04);
}

/// The byte, and the bit where it is known, that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    in_cdb: bool,
    byte: u16,
    bit: Option<u8>,
}

/// Why a command was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// What kind of thing.
    pub key: Key,
    /// What exactly.
    pub code: Code,
    /// INFORMATION: the offset of the first difference, or a logical block.
    pub information: Option<u64>,
    field: Option<Field>,
    descriptor: bool,
}

impl Sense {
    /// The most bytes that [`Sense::write_to`] appends.
    pub const LEN_MAX: usize = 8 + 12 + 8;

    /// `key` and `code` alone.
    pub const fn new(key: Key, code: Code) -> Sense {
        Sense { key, code, information: None, field: None, descriptor: false }
    }

    /// An illegal request.
    pub const fn illegal(code: Code) -> Sense {
        Sense::new(Key::IllegalRequest, code)
    }

    /// Bit `bit` (the highest of the field) of byte `byte` of the CDB is not accepted.
    pub const fn cdb_field(byte: u16, bit: u8) -> Sense {
        let field = Some(Field { in_cdb: true, byte, bit: Some(bit) });
        Sense { field, ..Sense::illegal(Code::INVALID_FIELD_IN_CDB) }
    }

    /// Byte `byte` of the parameter list is not accepted.
    pub const fn parameter(byte: u16) -> Sense {
        let field = Some(Field { in_cdb: false, byte, bit: None });
        Sense { field, ..Sense::illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST) }
    }

    /// The same with an INFORMATION field.
    pub const fn with_information(self, information: u64) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// The same in descriptor format, or in fixed format.
    pub(super) const fn in_format(self, descriptor: bool) -> Sense {
        Sense { descriptor, ..self }
    }

    /// Appends the bytes.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let field = self.field.map(|field| {
            let bit = field.bit.map_or(0, |bit| 0x08 | bit & 7);
            let [high, low] = field.byte.to_be_bytes();
            [0x80 | u8::from(field.in_cdb) << 6 | bit, high, low]
        });
        if self.descriptor {
            self.write_descriptors(field, out);
        } else {
            self.write_fixed(field, out);
        }
    }

    fn write_fixed(&self, field: Option<[u8; 3]>, out: &mut Vec<u8>) {
        let information = self.information.and_then(|value| u32::try_from(value).ok());
        let mut bytes = [0; 18];
        bytes[0] = 0x70 | u8::from(information.is_some()) << 7;
        bytes[2] = self.key as u8;
        bytes[3..7].copy_from_slice(&information.unwrap_or(0).to_be_bytes());
        bytes[7] = 10;
        bytes[12..14].copy_from_slice(&[self.code.0, self.code.1]);
        bytes[15..].copy_from_slice(&field.unwrap_or_default());
        out.extend_from_slice(&bytes);
    }

    fn write_descriptors(&self, field: Option<[u8; 3]>, out: &mut Vec<u8>) {
        let information = if self.information.is_some() { 12 } else { 0 };
        let specific = if field.is_some() { 8 } else { 0 };
        let len = information + specific;
        out.extend_from_slice(&[0x72, self.key as u8, self.code.0, self.code.1, 0, 0, 0, len]);
        if let Some(value) = self.information {
            out.extend_from_slice(&[0x00, 10, 0x80, 0]);
            out.extend_from_slice(&value.to_be_bytes());
        }
        if let Some(field) = field {
            out.extend_from_slice(&[0x02, 6, 0, 0, field[0], field[1], field[2], 0]);
        }
    }
}
