//! Five columns: `time device sector sectors type`, with 1 for a read and 0 for a write. SSDsim
//! and MQSim write it with whole numbers of ns, MQSim and DiskSim also with decimal ms. Files
//! with µs, or lengths in pages, also exist. Nothing in them says so, hence
//! [`Options::time_unit`] and [`Options::len_unit`].

use super::fields::{SECTOR, bytes, decimal_ns, exactly, number, shown};
use super::lines::Parser;
use super::{Guess, Item, Options, Raw, TimeUnit};
use crate::record::Op;

/// The columns, for errors.
const COLUMNS: &str = "time, device, sector, sectors, type";

/// See the module.
#[derive(Debug)]
pub(super) struct Ssdsim {
    time_unit_ns: u64,
    len_unit: u64,
    guess: Guess,
}

impl Ssdsim {
    /// Guesses from the first lines what the options leave open.
    pub(super) fn new(sample: &[u8], options: &Options) -> Ssdsim {
        let decimal = sample.split(|&byte| byte == b'\n').any(|line| {
            let line = line.trim_ascii_start();
            let time = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            line.first() != Some(&b'#') && time.contains(&b'.')
        });
        let unit = if decimal { TimeUnit::Milliseconds } else { TimeUnit::Nanoseconds };
        Ssdsim {
            time_unit_ns: options.time_unit.unwrap_or(unit).ns(),
            len_unit: options.len_unit.map_or(SECTOR, u64::from),
            guess: Guess {
                time_unit: options.time_unit.is_none().then_some(unit),
                len_unit: options.len_unit.is_none().then_some(SECTOR),
            },
        }
    }
}

impl Parser for Ssdsim {
    fn guess(&self) -> Guess {
        self.guess
    }

    fn parse(&mut self, line: &str) -> Result<Item, String> {
        let [time, device, sector, len, kind] = exactly(line.split_ascii_whitespace(), COLUMNS)?;
        let device_number = number(device, "device")?;
        Ok(Item::Request(Raw {
            time_ns: decimal_ns(time, self.time_unit_ns, "time")?,
            op: match kind {
                "1" => Op::Read,
                "0" => Op::Write,
                _ => return Err(format!("type \"{}\" is neither 0 nor 1", shown(kind))),
            },
            offset: bytes(sector, SECTOR, "sector")?,
            len: bytes(len, self.len_unit, "length")?,
            device: u32::try_from(device_number)
                .map_err(|_| format!("device {device_number} is too large"))?,
            latency_ns: None,
        }))
    }
}
