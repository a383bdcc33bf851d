//! The agreement of initiator and target for a session (RFC 7143, section 13).
//!
//! | key | how | this target |
//! |---|---|---|
//! | HeaderDigest, DataDigest | the first of the initiator's list that is known | CRC32C, None |
//! | MaxConnections, ErrorRecoveryLevel | the lower | 1, 0 |
//! | InitialR2T | either wants it | No |
//! | ImmediateData | both want it | Yes |
//! | MaxRecvDataSegmentLength | each says its own | [`SEGMENT_MAX`] |
//! | MaxBurstLength, FirstBurstLength, MaxOutstandingR2T, DefaultTime2Retain | the lower | see below |
//! | DefaultTime2Wait | the higher | 2 s |
//! | DataPDUInOrder, DataSequenceInOrder | either wants it | Yes |
//! | markers | – | No |
//!
//! A key that is not offered keeps the protocol's default. Values out of range are answered `Reject`
//! and change nothing.

use super::text;

/// Bytes of data in one PDU that this target takes.
pub const SEGMENT_MAX: usize = 256 << 10;
/// Bytes of data in one PDU before anything is agreed on.
pub const SEGMENT_DEFAULT: usize = 8192;
/// Bytes that one R2T asks for, or one sequence of Data-In has.
const MAX_BURST: u32 = 1 << 20;
/// Bytes of a write that may come unasked.
pub const FIRST_BURST: u32 = 64 << 10;
/// R2Ts of one command at a time.
const OUTSTANDING_R2T: u32 = 8;
/// Seconds before an initiator comes back after a lost connection.
const TIME_TO_WAIT: u32 = 2;

/// The rules of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Headers carry a CRC32C.
    pub header_digest: bool,
    /// Data carry a CRC32C.
    pub data_digest: bool,
    /// No data come after the command without an R2T.
    pub initial_r2t: bool,
    /// Data may come with the command.
    pub immediate_data: bool,
    /// Bytes of data in one PDU that the initiator takes.
    pub segment_max: usize,
    /// Bytes of one sequence of data.
    pub max_burst: u32,
    /// Bytes of unsolicited data.
    pub first_burst: u32,
    /// R2Ts of one command at a time.
    pub outstanding_r2t: u32,
}

impl Default for Rules {
    /// The protocol's defaults.
    fn default() -> Rules {
        Rules {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            segment_max: SEGMENT_DEFAULT,
            max_burst: 256 << 10,
            first_burst: 64 << 10,
            outstanding_r2t: 1,
        }
    }
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was taken, and answered where it wants an answer.
    Yes,
    /// It is none of a negotiation.
    Unknown,
}

impl Rules {
    /// Takes one key of the initiator. Digests stay off while `plain`, in discovery.
    pub fn take(&mut self, name: &str, value: &str, plain: bool, out: &mut Vec<u8>) -> Taken {
        match name {
            "HeaderDigest" => self.header_digest = digest(name, value, plain, out),
            "DataDigest" => self.data_digest = digest(name, value, plain, out),
            "InitialR2T" => set(&mut self.initial_r2t, yes_or_no(name, value, out, |it| it)),
            "ImmediateData" => set(&mut self.immediate_data, yes_or_no(name, value, out, |it| it)),
            "MaxRecvDataSegmentLength" => match text::number(value) {
                Some(len @ 512..=0xff_ffff) => self.segment_max = len as usize,
                _ => text::put(out, name, "Reject"),
            },
            "MaxBurstLength" => {
                set(&mut self.max_burst, lower(name, value, 512..=0xff_ffff, MAX_BURST, out));
            }
            "FirstBurstLength" => {
                set(&mut self.first_burst, lower(name, value, 512..=0xff_ffff, FIRST_BURST, out));
            }
            "MaxOutstandingR2T" => {
                let agreed = lower(name, value, 1..=65535, OUTSTANDING_R2T, out);
                set(&mut self.outstanding_r2t, agreed);
            }
            "MaxConnections" => drop(lower(name, value, 1..=65535, 1, out)),
            "ErrorRecoveryLevel" => drop(lower(name, value, 0..=2, 0, out)),
            "DefaultTime2Retain" => drop(lower(name, value, 0..=3600, 0, out)),
            "DefaultTime2Wait" => match text::number(value) {
                Some(time @ 0..=3600) => {
                    text::put(out, name, &time.max(TIME_TO_WAIT).to_string());
                }
                _ => text::put(out, name, "Reject"),
            },
            "DataPDUInOrder" | "DataSequenceInOrder" => {
                yes_or_no(name, value, out, |_| true);
            }
            "IFMarker" | "OFMarker" => text::put(out, name, "No"),
            "IFMarkInt" | "OFMarkInt" => text::put(out, name, "Irrelevant"),
            _ => return Taken::Unknown,
        }
        Taken::Yes
    }

    /// Makes the rules agree with each other, when all is said.
    pub fn settle(&mut self) {
        self.first_burst = self.first_burst.min(self.max_burst);
    }

    /// Bytes of data that may come with a command.
    pub fn immediate_max(&self) -> usize {
        match self.immediate_data {
            true => SEGMENT_MAX.min(self.first_burst as usize),
            false => 0,
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// The first digest of a list that is known; true for CRC32C.
fn digest(name: &str, value: &str, plain: bool, out: &mut Vec<u8>) -> bool {
    let known = |it: &&str| *it == "None" || (*it == "CRC32C" && !plain);
    let choice = value.split(',').find(known);
    text::put(out, name, choice.unwrap_or("Reject"));
    choice == Some("CRC32C")
}

fn yes_or_no(
    name: &str,
    value: &str,
    out: &mut Vec<u8>,
    agree: impl Fn(bool) -> bool,
) -> Option<bool> {
    let agreed = match value {
        "Yes" => Some(agree(true)),
        "No" => Some(agree(false)),
        _ => None,
    };
    text::put(out, name, agreed.map_or("Reject", |yes| if yes { "Yes" } else { "No" }));
    agreed
}

fn lower(
    name: &str,
    value: &str,
    allowed: std::ops::RangeInclusive<u32>,
    own: u32,
    out: &mut Vec<u8>,
) -> Option<u32> {
    let agreed = text::number(value).filter(|it| allowed.contains(it)).map(|it| it.min(own));
    match agreed {
        Some(agreed) => text::put(out, name, &agreed.to_string()),
        None => text::put(out, name, "Reject"),
    }
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, value: &str) -> (String, Rules) {
        let mut rules = Rules::default();
        let mut out = Vec::new();
        assert_eq!(rules.take(name, value, false, &mut out), Taken::Yes);
        rules.settle();
        (String::from_utf8(out).unwrap().trim_end_matches('\0').to_owned(), rules)
    }

    #[test]
    fn keys_are_answered_as_the_protocol_says() {
        let check = |name: &str, value: &str, expect: &str| {
            let expect = if expect.is_empty() { String::new() } else { format!("{name}={expect}") };
            assert_eq!(answer(name, value).0, expect, "{name}={value}");
        };
        check("HeaderDigest", "CRC32C,None", "CRC32C");
        check("HeaderDigest", "None,CRC32C", "None");
        check("DataDigest", "SHA1,CRC32C", "CRC32C");
        check("DataDigest", "SHA1", "Reject");
        check("InitialR2T", "No", "No");
        check("InitialR2T", "Yes", "Yes");
        check("InitialR2T", "Maybe", "Reject");
        check("ImmediateData", "No", "No");
        check("MaxRecvDataSegmentLength", "65536", "");
        check("MaxRecvDataSegmentLength", "511", "Reject");
        check("MaxRecvDataSegmentLength", "16777216", "Reject");
        check("MaxBurstLength", "16776192", "1048576");
        check("FirstBurstLength", "262144", "65536");
        check("FirstBurstLength", "1", "Reject");
        check("MaxOutstandingR2T", "1", "1");
        check("MaxConnections", "8", "1");
        check("ErrorRecoveryLevel", "2", "0");
        check("DefaultTime2Wait", "0", "2");
        check("DefaultTime2Retain", "20", "0");
        check("DataPDUInOrder", "No", "Yes");
        check("DataSequenceInOrder", "Yes", "Yes");
        check("IFMarker", "Yes", "No");
    }

    #[test]
    fn a_first_burst_is_not_longer_than_a_burst() {
        assert_eq!(answer("MaxBurstLength", "4096").1.first_burst, 4096);
        assert_eq!(answer("ImmediateData", "No").1.immediate_max(), 0);
        assert_eq!(answer("ImmediateData", "Yes").1.immediate_max(), 65536);
    }

    #[test]
    fn other_keys_are_left_to_others() {
        let mut out = Vec::new();
        assert_eq!(Rules::default().take("X-com.x.y", "1", false, &mut out), Taken::Unknown);
        assert!(out.is_empty());
    }
}
