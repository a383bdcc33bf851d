//! Logical unit numbers as they stand in eight bytes.
//!
//! Numbers below 256 are shown in peripheral device addressing, others in flat space addressing,
//! as initiators expect; both forms are understood for any number. Extended addressing is not.

/// A logical unit number, at most [`Lun::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(u16);

impl Lun {
    /// The first.
    pub const ZERO: Lun = Lun(0);
    /// The highest number that flat space addressing has.
    pub const MAX: Lun = Lun(0x3fff);

    /// Number `number`, when it can be addressed.
    pub fn new(number: u16) -> Option<Lun> {
        (number <= Lun::MAX.0).then_some(Lun(number))
    }

    /// The number itself.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The number that the eight bytes address; `None` for other forms of addressing, other buses and
    /// deeper levels.
    pub fn decode(bytes: [u8; 8]) -> Option<Lun> {
        let number = u16::from_be_bytes([bytes[0], bytes[1]]);
        if bytes[2..] != [0; 6] {
            return None;
        }
        match number >> 14 {
            0 if number >> 8 == 0 => Some(Lun(number)),
            1 => Some(Lun(number & Lun::MAX.0)),
            _ => None,
        }
    }

    /// The eight bytes.
    pub fn encode(self) -> [u8; 8] {
        let form = if self.0 < 256 { 0 } else { 1 << 14 };
        let [high, low] = (form | self.0).to_be_bytes();
        [high, low, 0, 0, 0, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::Lun;

    #[test]
    fn every_number_is_decoded_as_it_was_encoded() {
        for number in 0..=Lun::MAX.number() {
            let lun = Lun::new(number).expect("in range");
            assert_eq!(Lun::decode(lun.encode()), Some(lun));
        }
        assert_eq!(Lun::new(0x4000), None);
    }

    #[test]
    fn other_forms_of_addressing_are_no_lun() {
        assert_eq!(Lun::decode([0x40, 5, 0, 0, 0, 0, 0, 0]), Lun::new(5));
        for bytes in [
            [1, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 1, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 1],
            [0x80, 0, 0, 0, 0, 0, 0, 0],
            [0xc1, 1, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Lun::decode(bytes), None, "{bytes:02x?}");
        }
    }
}
