//! Several traces at once through real engines that share RAM, or flash, against shares that stay as they are: the trials
//! behind docs/operating/sharing.md.
//!
//! `cargo run --release -p forebay-trace --example shared -- ram|flash POOL TRACE…`
//!
//! Each trace is one disk. All take one hour of virtual time, each in its own order. The pool is divided anew every ten
//! seconds, as by a daemon. Disks that share flash have 1 MiB of RAM each. Against that: equal shares, and the best of all divisions into sixteenths that do not change, which
//! nobody could have known before.

use forebay_backends::model::ModelConfig;
use forebay_backends::size;
use forebay_core::config::{BackendTraits, Config, FlashAdmission, GridOffset};
use forebay_core::ids::Nanos;
use forebay_core::policy::PolicyKind;
use forebay_timed::{Ask, Timed};
use forebay_trace::advise::{Choice, Claim, divide};
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::{Op, Record};
use forebay_trace::share::{self, Demand, Member};

const BLOCK: u64 = 4096;
const HOUR: u64 = 3_600_000_000_000;
const ROUND: u64 = 10_000_000_000;
const KEEP: f64 = 0.98;
const PARTS: u64 = 16;
const MIB: u64 = 1 << 20;

struct Trace {
    name: String,
    size: u64,
    records: Vec<Record>,
}

impl Trace {
    fn read(path: &str) -> Result<Trace, Box<dyn std::error::Error>> {
        let mut records: Vec<Record> =
            Reader::open(path.as_ref(), &Options::default())?.collect::<Result<_, _>>()?;
        records.sort_by_key(|record| record.time_ns);
        let last = records.last().map_or(0, |record| record.time_ns);
        let count = records.len() as u64;
        for (at, record) in records.iter_mut().enumerate() {
            let share = match last {
                0 => at as f64 / count as f64,
                last => record.time_ns as f64 / last as f64,
            };
            record.time_ns = (share * HOUR as f64) as u64;
            record.offset += u64::from(record.device) << 40;
            (record.offset, record.len) =
                (record.offset / 512 * 512, record.len.next_multiple_of(512).min(1 << 20));
        }
        let end = records.iter().map(|record| record.offset + u64::from(record.len)).max();
        let size = end.unwrap_or(0).next_multiple_of(MIB);
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(Trace { name, size, records })
    }
}

/// What is shared.
#[derive(Clone, Copy, PartialEq)]
enum Tier {
    Ram,
    Flash,
}

/// A disk at work.
struct Disk<'a> {
    tier: Tier,
    trace: &'a Trace,
    next: usize,
    timed: Timed,
    demand: Demand,
}

impl<'a> Disk<'a> {
    fn new(tier: Tier, trace: &'a Trace, bytes: u64, room: u64) -> Disk<'a> {
        let backend = BackendTraits {
            size: trace.size,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        };
        let (ram, flash) = match tier {
            Tier::Ram => ((bytes, room), (0, 0)),
            Tier::Flash => ((MIB, MIB), (bytes, room)),
        };
        let config = Config {
            block_size: BLOCK,
            grid_offset: GridOffset::Auto,
            ram_bytes: ram.0,
            ram_room: ram.1,
            flash_bytes: flash.0,
            flash_room: flash.1,
            flash_admission: FlashAdmission::Always,
            policy: PolicyKind::Auto,
            curve: true,
            metadata_bytes_max: 8 << 30,
            ..Config::for_disk(backend)
        };
        let device =
            ModelConfig { latency: Some(Nanos::from_micros(50)), ..ModelConfig::default() };
        let timed = Timed::new(config, device, device).expect("it can be had");
        Disk { tier, trace, next: 0, timed, demand: Demand::default() }
    }

    /// Does what comes before `end`.
    fn run(&mut self, end: u64) {
        while let Some(record) = self.trace.records.get(self.next).filter(|it| it.time_ns < end) {
            self.next += 1;
            while self.timed.step(Nanos(record.time_ns)) {}
            let ask = if record.op == Op::Read { Ask::Read } else { Ask::Write(false) };
            let range = forebay_core::geometry::ByteRange::at(record.offset, record.len.into());
            self.timed.submit(0, ask, range);
            while self.timed.under_way() > 0 {
                self.timed.step(Nanos::NEVER);
            }
            self.timed.answers.clear();
            self.timed.done.clear();
        }
        while self.timed.step(Nanos(end)) {}
    }

    fn has(&self) -> u64 {
        let statistics = self.timed.engine.statistics(self.timed.now);
        let tier = if self.tier == Tier::Ram { statistics.ram } else { statistics.flash };
        tier.slots * BLOCK
    }

    fn resize(&mut self, bytes: u64) {
        match self.tier {
            Tier::Ram => self.timed.resize_ram(bytes),
            // One that is becoming smaller is asked again in the next round.
            Tier::Flash => _ = self.timed.resize_flash(bytes),
        }
    }

    /// Reads, and those that found all in the cache.
    fn hits(&self) -> (u64, u64) {
        let counters = self.timed.engine.statistics(self.timed.now).counters;
        (counters.reads, counters.read_hits_ram + counters.read_hits_flash)
    }

    fn member(&self, brings: u64, reservation: u64, limit: u64) -> Member<'_> {
        let (has, demand) = (self.has(), &self.demand);
        Member { brings, has, reservation, limit, shares: 1000, block_size: BLOCK, demand }
    }
}

/// Hits of each trace with a share that stays.
fn fixed(tier: Tier, trace: &Trace, bytes: u64) -> (u64, u64) {
    let mut disk = Disk::new(tier, trace, bytes, bytes);
    disk.run(u64::MAX >> 1);
    disk.hits()
}

/// Hits of each trace with shares that are divided anew.
fn shared(tier: Tier, traces: &[Trace], pool: u64, reservation: u64) -> Vec<(u64, u64)> {
    let brings = pool / traces.len() as u64 / BLOCK * BLOCK;
    let reservation = reservation.clamp(MIB, brings);
    let mut disks: Vec<Disk<'_>> =
        traces.iter().map(|trace| Disk::new(tier, trace, brings, pool)).collect();
    let pool = brings * traces.len() as u64;
    let mut planned: Vec<u64> = vec![brings; traces.len()];
    for round in 1..=HOUR / ROUND + 1 {
        for disk in &mut disks {
            disk.run(round * ROUND);
            let member = disk.member(brings, reservation, pool);
            let sizes = share::blocks_asked_for(pool, &member);
            let snapshot =
                disk.timed.engine.observer().uses().expect("it keeps a curve").snapshot();
            disk.demand.look((snapshot, disk.hits().0), true, sizes.into_iter(), KEEP);
        }
        let members: Vec<Member<'_>> =
            disks.iter().map(|disk| disk.member(brings, reservation, pool)).collect();
        if let Some(plan) = share::plan(&members) {
            planned = plan;
        }
        let mut free = pool - disks.iter().map(Disk::has).sum::<u64>();
        for (disk, planned) in disks.iter_mut().zip(&planned) {
            let (has, wanted) = (disk.has(), planned / BLOCK * BLOCK);
            let bytes = if wanted > has { has + (wanted - has).min(free) } else { wanted };
            free -= bytes.saturating_sub(has);
            disk.resize(bytes);
        }
    }
    disks.iter().map(Disk::hits).collect()
}

fn ratio(hits: &[(u64, u64)]) -> f64 {
    let reads: u64 = hits.iter().map(|(reads, _)| reads).sum();
    hits.iter().map(|(_, hits)| hits).sum::<u64>() as f64 / reads as f64
}

fn show(what: &str, hits: &[(u64, u64)]) {
    let each: Vec<String> = hits.iter().map(|it| format!("{:.4}", ratio(&[*it]))).collect();
    println!("{what:44} {:.4}   {}", ratio(hits), each.join(" "));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "give ram|flash POOL TRACE…";
    let tier = match arguments.next().ok_or(usage)?.as_str() {
        "ram" => Tier::Ram,
        "flash" => Tier::Flash,
        _ => return Err(usage.into()),
    };
    let pool = size::parse(&arguments.next().ok_or(usage)?)?;
    let traces: Vec<Trace> = arguments.map(|path| Trace::read(&path)).collect::<Result<_, _>>()?;
    let names: Vec<&str> = traces.iter().map(|trace| trace.name.as_str()).collect();
    println!("{:44} all      {}", size::rounded(pool), names.join(" "));
    let equal = pool / traces.len() as u64 / BLOCK * BLOCK;
    let of_equal: Vec<_> = traces.iter().map(|trace| fixed(tier, trace, equal)).collect();
    show("equal shares", &of_equal);
    show("shared, 1 MiB reserved", &shared(tier, &traces, pool, 0));
    show("shared, half of an equal share reserved", &shared(tier, &traces, pool, equal / 2));
    show("shared, an equal share reserved", &shared(tier, &traces, pool, equal));
    let part = |number: u64| (pool / PARTS * number / BLOCK * BLOCK).max(MIB);
    let all: Vec<Vec<(u64, u64)>> = traces
        .iter()
        .map(|trace| (0..=PARTS).map(|number| fixed(tier, trace, part(number))).collect())
        .collect();
    let claims: Vec<Claim> = all
        .iter()
        .map(|each| {
            let choice = |(number, (reads, hits)): (usize, &(u64, u64))| Choice {
                bytes: pool / PARTS * number as u64,
                latency: (reads - hits) as f64,
            };
            Claim { reserved: 0, choices: each.iter().enumerate().map(choice).collect() }
        })
        .collect();
    let best = divide(pool, &claims).ok_or("there is a division")?;
    let hits: Vec<_> = best.iter().zip(&all).map(|(at, each)| each[*at]).collect();
    show(&format!("best that stays, in sixteenths: {best:?}"), &hits);
    Ok(())
}
