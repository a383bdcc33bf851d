//! RAM and flash that several disks share: what each keeps at least, and what it gets of the rest.
//!
//! ```text
//! flash ─┬► for each disk the larger of what it reserved and its write log
//!        └► the rest by what it takes off primary storage (divide.rs), then RAM by what it makes faster still
//! what a disk's plan leaves of its share ─► all is divided again, that disk gets no more than it used
//! ```
//! A reservation is a disk's, whether it needs it or not: no other disk gets of it. The wear of the flash is divided as the
//! flash is.

use forebay_backends::size::rounded;
use serde::Serialize;

use super::choose::{self, Chosen};
use super::{Advice, Choice, Claim, Disk, Settings, Verdict, Writes, divide, words, writes};
use crate::error::{Error, ErrorKind};

/// RAM and flash of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Bytes of RAM.
    pub ram: u64,
    /// Bytes of flash, that of a write log with it.
    pub flash: u64,
}

/// A disk that has what another one would gain from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Winner {
    /// What it is called.
    pub name: String,
    /// What it has, or keeps.
    pub has: Share,
    /// What it reserved, which no other disk gets of.
    pub reserved: Share,
}

/// Whether there is as much as is reserved.
///
/// # Errors
/// There is not: how much is, and what there is.
pub fn check_reservations(reserved: &[Share], settings: &Settings) -> Result<(), Error> {
    let check = |what: &str, all: u64, of: fn(&Share) -> u64| {
        let sum = reserved.iter().map(of).try_fold(0, u64::checked_add);
        if sum.is_some_and(|sum| sum <= all) {
            return Ok(());
        }
        let (sum, all) = (rounded(sum.unwrap_or(u64::MAX)), rounded(all));
        let message = format!(
            "{sum} of {what} are reserved, and there is {all} for all disks: reserve less, or say that there is more"
        );
        Err(Error::new(ErrorKind::Invalid, message))
    };
    check("RAM", settings.ram, |share| share.ram)?;
    check("flash", settings.flash, |share| share.flash)
}

/// Each disk's share, for its cache no more than `most`, and its handling of writes. The
/// reservations were checked.
pub(super) fn shares(disks: &[Disk], settings: &Settings, most: &[Share]) -> Vec<(Writes, Share)> {
    let reserved: u64 = disks.iter().map(|disk| disk.reserved.flash).sum();
    let even = (settings.flash - reserved) / disks.len().max(1) as u64;
    // A log is at most half of this, so that all logs and all that is reserved fit.
    let logs = disks
        .iter()
        .map(|disk| writes::of(&disk.info, &disk.latencies, disk.reserved.flash + even));
    let logs: Vec<Writes> = logs.collect();
    if let ([_], [log]) = (disks, &logs[..]) {
        return vec![(*log, Share { ram: settings.ram, flash: settings.flash })];
    }
    let of_logs: u64 = logs.iter().map(Writes::log_bytes).sum();
    let of_flash = disks.iter().zip(&logs).zip(most).map(|((disk, log), most)| {
        let reserved = disk.reserved.flash.saturating_sub(log.log_bytes());
        claim(disk, reserved, most.flash, |bytes| choose::total_latency(disk, 0, bytes))
    });
    let flashes = divided(settings.flash - of_logs, of_flash.collect());
    let of_ram = disks.iter().zip(&flashes).zip(most).map(|((disk, flash), most)| {
        let latency = |bytes| choose::total_latency(disk, bytes, flash.used);
        claim(disk, disk.reserved.ram, most.ram, latency)
    });
    let rams = divided(settings.ram, of_ram.collect());
    let each = logs.into_iter().zip(rams).zip(flashes);
    each.map(|((log, ram), flash)| {
        (log, Share { ram: ram.kept, flash: flash.kept + log.log_bytes() })
    })
    .collect()
}

/// Of one tier.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// Size of the cache that was reckoned with.
    used: u64,
    /// No less, and no less than is reserved.
    kept: u64,
}

fn claim(disk: &Disk, reserved: u64, most: u64, latency: impl Fn(u64) -> f64) -> Claim {
    let sizes = disk.curves.first().map_or(&[][..], |curve| &curve.points);
    let sizes = sizes.iter().map(|point| point.cache_size).take_while(|&size| size <= most);
    let sizes = [0].into_iter().chain(sizes);
    let choice = |bytes| Choice { bytes, latency: latency(bytes) };
    Claim { reserved, choices: sizes.map(choice).collect() }
}

fn divided(pool: u64, claims: Vec<Claim>) -> Vec<Given> {
    let found = divide(pool, &claims).expect("each disk may have what it reserved and no more");
    let given = |(claim, at): (&Claim, usize)| {
        let used = claim.choices[at].bytes;
        Given { used, kept: used.max(claim.reserved) }
    };
    claims.iter().zip(found).map(given).collect()
}

/// Divides the wear of all flash there is as the flash is divided that the disks get.
pub(super) fn divide_wear(settings: &Settings, advices: &mut [Advice]) {
    let all: u64 = advices.iter().map(|advice| advice.share.flash).sum();
    for advice in advices {
        let part = u128::from(settings.flash) * u128::from(advice.share.flash);
        advice.flash_to_wear = (part / u128::from(all.max(1))) as u64;
    }
}

/// Tells disks for which there would be enough if they were alone that others have it, and which.
pub(super) fn tell_who_won(disks: &[Disk], settings: &Settings, advices: &mut [Advice]) {
    let winners: Vec<Option<Winner>> = advices.iter().map(winner).collect();
    for (at, (disk, advice)) in disks.iter().zip(&mut *advices).enumerate() {
        if !matches!(advice.verdict, Verdict::DoesNotFit { .. }) {
            continue;
        }
        let Chosen { plan: Some(alone), .. } = choose::choose(disk, settings.ram, settings.flash)
        else {
            continue;
        };
        let has_of_it =
            |of: &&Winner| alone.ram > 0 && of.has.ram > 0 || alone.flash > 0 && of.has.flash > 0;
        let others = winners.iter().enumerate().filter(|&(of, _)| of != at);
        let others = others.filter_map(|(_, winner)| winner.as_ref()).filter(has_of_it);
        let mut others: Vec<Winner> = others.cloned().collect();
        if others.is_empty() {
            continue;
        }
        others.sort_by_key(|of| std::cmp::Reverse(of.has.ram.saturating_add(of.has.flash)));
        advice.verdict = Verdict::GoesToOthers;
        advice.forgone = Some(alone);
        advice.goes_to = others;
        advice.sentence = words::sentence(advice);
    }
}

/// The part of a disk that others could have had.
fn winner(advice: &Advice) -> Option<Winner> {
    let used = advice.used();
    let reserved = advice.reserved;
    let has = Share { ram: used.ram.max(reserved.ram), flash: used.flash.max(reserved.flash) };
    (has != Share::default()).then(|| Winner { name: advice.name.clone(), has, reserved })
}
