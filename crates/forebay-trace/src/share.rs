//! RAM that disks share while they work: how much each is to have, by what it would gain.
//!
//! ```text
//!   snapshots of each disk's curve ─► Demand: reads that a cache of each size would miss, older ones count less
//!   Demand, reservation, limit, shares ─► plan ─► bytes of each disk
//! ```
//! A disk brings RAM of its own. It keeps its reservation of that, and has its limit at most. In between the disks
//! together have the fewest reads that miss, where one of a disk with twice the shares counts twice. Who would gain nothing from
//! more keeps what it brought.
//!
//! RAM goes step by step to the disk that saves most per byte, where a step may be long: a working set gains nothing until
//! it fits (the convex hull of its curve). What is left goes to whom it helps.
//!
//! **Limits.** A curve is of LRU, and of reads as they were. The division is the best but for the last step.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use forebay_core::mrc::Snapshot;

/// Sizes of a disk are an eighth apart of what it brings, and from four times of that on a seventh of themselves.
const STEPS: u64 = 8;
const FINE: u64 = 4;
const COARSE: u64 = 7;
const MIB: u64 = 1 << 20;
/// What is changed has to save this part of all misses at least: each change costs reads that were hits.
const GAIN_MIN: f64 = 0.01;

/// The reads of a disk that caches of several sizes would miss.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// By number of blocks; of the time before each look less.
    misses: Vec<(u64, f64)>,
    /// The last look: what was seen, and the reads until then.
    before: Option<(Snapshot, u64)>,
}

impl Demand {
    /// Of a disk that was not looked at yet.
    pub const fn new() -> Demand {
        Demand { misses: Vec::new(), before: None }
    }

    /// Takes note of what came since the last look; what was known before counts `keep` times as much from now on. `reads`:
    /// all that there were by now. `caches`: a cache would have answered them. `sizes`: the numbers of blocks that are asked for
    /// later.
    pub fn look(
        &mut self,
        (snapshot, reads): (Snapshot, u64),
        caches: bool,
        sizes: impl Iterator<Item = u64>,
        keep: f64,
    ) {
        let before =
            self.before.as_ref().filter(|(before, _)| before.reads.uses() <= snapshot.reads.uses());
        let before = before.map(|(before, reads)| (before, *reads));
        let uses = snapshot.reads.uses() - before.map_or(0, |(before, _)| before.reads.uses());
        // A read waits once for all that it misses.
        let reads_of_use =
            reads.saturating_sub(before.map_or(0, |(_, reads)| reads)) as f64 / uses.max(1) as f64;
        let new = |blocks: u64| {
            let missed = |of: &Snapshot| of.reads.uses() as f64 - of.reads.hits(blocks);
            let missed = missed(&snapshot) - before.map_or(0.0, |(before, _)| missed(before));
            if caches { missed.max(0.0) * reads_of_use } else { 0.0 }
        };
        let kept = |blocks: u64| self.misses(blocks) * keep;
        let misses = sizes.map(|blocks| (blocks, new(blocks) + kept(blocks))).collect();
        self.misses = misses;
        self.before = Some((snapshot, reads));
    }

    /// All that is known by now counts `by` times as much from now on.
    pub fn weigh(&mut self, by: f64) {
        self.misses.iter_mut().for_each(|(_, misses)| *misses *= by);
    }

    /// The misses of a cache of `blocks`, from the next smaller size that is known.
    pub fn misses(&self, blocks: u64) -> f64 {
        let at = self.misses.partition_point(|(size, _)| *size <= blocks);
        self.misses.get(at.saturating_sub(1)).map_or(0.0, |(_, misses)| *misses)
    }
}

/// A disk that shares.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Bytes that it brings.
    pub brings: u64,
    /// Bytes that it has now.
    pub has: u64,
    /// Bytes that it keeps, whoever needs more.
    pub reservation: u64,
    /// Bytes that it gets at most.
    pub limit: u64,
    /// What a miss of it counts.
    pub shares: u32,
    /// Bytes of its blocks.
    pub block_size: u64,
    /// What it asks for.
    pub demand: &'a Demand,
}

impl Member<'_> {
    /// Misses with a cache of `bytes`, as they count.
    fn cost(&self, bytes: u64) -> f64 {
        self.demand.misses(bytes / self.block_size) * f64::from(self.shares)
    }

    /// The sizes that it may have of a whole of `pool`, ascending.
    fn sizes(&self, pool: u64) -> impl Iterator<Item = u64> {
        let last = self.limit.min(pool).max(self.reservation);
        let (step, fine) = ((self.brings / STEPS).max(MIB), self.brings.saturating_mul(FINE));
        std::iter::successors(Some(self.reservation), move |&size| {
            let next = size.saturating_add(if size < fine { step } else { size / COARSE + MIB });
            (size < last).then_some(next.min(last))
        })
    }
}

/// The numbers of blocks that [`plan`] will ask a disk's [`Demand`] for, when all bring `pool`.
pub fn blocks_asked_for(pool: u64, member: &Member<'_>) -> Vec<u64> {
    let mut sizes: Vec<u64> = member.sizes(pool).collect();
    sizes.extend([member.has, member.brings]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.iter().map(|bytes| bytes / member.block_size).collect()
}

/// Bytes that all bring.
pub fn pool(members: &[Member<'_>]) -> u64 {
    members.iter().map(|member| member.brings).fold(0, u64::saturating_add)
}

/// How many bytes each is to have: together no more than they bring. `None`: as they have them.
pub fn plan(members: &[Member<'_>]) -> Option<Vec<u64>> {
    let pool = pool(members);
    let mut planned = divide(pool, members)?;
    let now: f64 = members.iter().map(|member| member.cost(member.has)).sum();
    let then: f64 = members.iter().zip(&planned).map(|(member, bytes)| member.cost(*bytes)).sum();
    // What is not theirs goes back, whatever is gained.
    let has_too_much = members.iter().map(|member| member.has).fold(0, u64::saturating_add) > pool;
    let is_astray = |member: &Member<'_>| {
        member.has < member.reservation || member.has > member.limit.max(member.reservation)
    };
    let is_free = !has_too_much && !members.iter().any(is_astray);
    if is_free && now - then <= now * GAIN_MIN {
        return None;
    }
    give_rest(pool, members, &mut planned);
    Some(planned)
}

/// The same where other disks share than before, or bring another size: what none of them has is given, too, whatever is
/// gained. `None`: they have more than they bring, which no division helps.
pub fn plan_anew(members: &[Member<'_>]) -> Option<Vec<u64>> {
    plan(members).or_else(|| {
        let pool = pool(members);
        let mut planned: Vec<u64> = members.iter().map(|member| member.has).collect();
        let taken = planned.iter().copied().fold(0, u64::saturating_add);
        (taken <= pool).then(|| give_rest(pool, members, &mut planned))?;
        Some(planned)
    })
}

/// Gives what nobody gains from: first so that each has what it brings, then by shares.
fn give_rest(pool: u64, members: &[Member<'_>], planned: &mut [u64]) {
    let mut rest = pool - planned.iter().sum::<u64>();
    for most in [|member: &Member<'_>| member.brings, |member: &Member<'_>| member.limit] {
        let mut open: Vec<usize> = (0..members.len()).collect();
        // Those that want less than their part first: what they leave is the others'.
        let wants = |at: usize, planned: &[u64]| most(&members[at]).saturating_sub(planned[at]);
        let by_share =
            |at: usize, planned: &[u64]| wants(at, planned) / u64::from(members[at].shares.max(1));
        open.sort_by_key(|&at| by_share(at, planned));
        let mut shares: u64 = open.iter().map(|&at| u64::from(members[at].shares.max(1))).sum();
        for at in open {
            let share = u64::from(members[at].shares.max(1));
            let part = (u128::from(rest) * u128::from(share) / u128::from(shares)) as u64;
            let given = part.min(wants(at, planned));
            planned[at] += given;
            rest -= given;
            shares -= share;
        }
    }
}

/// Bytes of each so that all together cost least. `None`: there is less than is reserved.
fn divide(pool: u64, members: &[Member<'_>]) -> Option<Vec<u64>> {
    let curves: Vec<Vec<(u64, f64)>> = members
        .iter()
        .map(|member| member.sizes(pool).map(|bytes| (bytes, member.cost(bytes))).collect())
        .collect();
    let reserved = members.iter().map(|member| member.reservation).fold(0, u64::saturating_add);
    let mut rest = pool.checked_sub(reserved)?;
    let mut at: Vec<usize> = vec![0; members.len()];
    let mut next: BinaryHeap<Step> =
        (0..members.len()).filter_map(|disk| Step::best(disk, &curves[disk], 0, rest)).collect();
    while let Some(step) = next.pop() {
        let curve = &curves[step.disk];
        if step.bytes <= rest {
            at[step.disk] = step.to;
            rest -= step.bytes;
        }
        // What does not fit any more may do so in part.
        next.extend(Step::best(step.disk, curve, at[step.disk], rest));
    }
    Some(at.iter().zip(&curves).map(|(at, curve)| curve[*at].0).collect())
}

/// What a disk would gain by one step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    gain_per_byte: f64,
    disk: usize,
    to: usize,
    bytes: u64,
}

impl Step {
    /// The step of `rest` bytes at most that gains most per byte, from a place on its curve; of equal ones the longest.
    fn best(disk: usize, curve: &[(u64, f64)], from: usize, rest: u64) -> Option<Step> {
        let (has, cost) = curve[from];
        let steps = curve.iter().enumerate().skip(from + 1).map(|(to, (size, then))| {
            let bytes = size - has;
            Step { gain_per_byte: (cost - then) / bytes as f64, disk, to, bytes }
        });
        steps.filter(|step| step.bytes <= rest && step.gain_per_byte > 0.0).max()
    }
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Step) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Step) -> Ordering {
        let by_gain = self.gain_per_byte.total_cmp(&other.gain_per_byte);
        by_gain.then(self.bytes.cmp(&other.bytes)).then(other.disk.cmp(&self.disk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    /// Misses of reads in a loop over `bytes`, and of others that never come back.
    fn looping(bytes: u64, reads: f64, cold: f64) -> Demand {
        let sizes = (0..=4096).map(|at| at * MIB / BLOCK);
        let missed = |blocks: u64| if blocks * BLOCK >= bytes { cold } else { reads + cold };
        let misses = sizes.map(|blocks| (blocks, missed(blocks))).collect();
        Demand { misses, before: None }
    }

    fn member(brings: u64, demand: &Demand) -> Member<'_> {
        Member {
            brings: brings * MIB,
            has: brings * MIB,
            reservation: MIB,
            limit: 1 << 40,
            shares: 1000,
            block_size: BLOCK,
            demand,
        }
    }

    fn planned(members: &[Member<'_>]) -> Option<Vec<u64>> {
        let planned = plan(members);
        if let Some(planned) = &planned {
            assert!(planned.iter().sum::<u64>() <= pool(members));
            for (member, bytes) in members.iter().zip(planned) {
                assert!((member.reservation..=member.limit).contains(bytes), "{planned:?}");
            }
        }
        planned.map(|planned| planned.iter().map(|bytes| bytes / MIB).collect())
    }

    #[test]
    fn who_gains_gets_what_others_do_not_need() {
        let (large, small, none) =
            (looping(300 * MIB, 1e6, 10.0), looping(20 * MIB, 1e3, 0.0), looping(0, 0.0, 1e5));
        let members = [member(128, &large), member(128, &small), member(128, &none)];
        let planned = planned(&members).unwrap();
        assert!(planned[0] >= 300 && planned[1] >= 20, "{planned:?}");
        let given = plan(&members).unwrap();
        assert_eq!(given.iter().sum::<u64>(), 384 * MIB, "all is given: {given:?}");
        // As they are to be: nothing changes any more.
        let has = |at: usize| planned[at] * MIB;
        let members = [0, 1, 2].map(|at| Member { has: has(at), ..members[at] });
        assert_eq!(super::plan(&members), None);
    }

    #[test]
    fn a_reservation_is_kept_and_a_limit_is_held() {
        let (large, none) = (looping(200 * MIB, 1e6, 0.0), looping(0, 0.0, 1e5));
        let lender = Member { reservation: 64 * MIB, ..member(128, &none) };
        assert_eq!(planned(&[member(128, &large), lender]), None, "200 MiB are not to be had");
        let lender = Member { reservation: 32 * MIB, ..lender };
        let planned_two = planned(&[member(128, &large), lender]).unwrap();
        assert!(planned_two[0] >= 200 && planned_two[1] >= 32, "{planned_two:?}");
        let limited = Member { limit: 150 * MIB, ..member(128, &large) };
        assert_eq!(planned(&[limited, lender]), None);
    }

    #[test]
    fn of_two_that_gain_the_same_the_one_with_more_shares_gets_it() {
        let (one, other) = (looping(150 * MIB, 1e6, 0.0), looping(150 * MIB, 1e6, 0.0));
        for shares in [[1000, 4000], [4000, 1000]] {
            let members = [(&one, shares[0]), (&other, shares[1])];
            let members = members.map(|(demand, shares)| Member { shares, ..member(100, demand) });
            let planned = planned(&members).unwrap();
            let winner = usize::from(shares[1] > shares[0]);
            assert!(planned[winner] >= 150, "{shares:?} {planned:?}");
        }
    }

    #[test]
    fn what_gains_too_little_changes_nothing() {
        let (steady, none) = (looping(200 * MIB, 10.0, 1e6), looping(0, 0.0, 1e5));
        assert_eq!(planned(&[member(128, &steady), member(128, &none)]), None);
        assert_eq!(planned(&[member(128, &Demand::default()), member(128, &none)]), None);
        assert_eq!(planned(&[]), None);
    }

    #[test]
    fn who_stops_sharing_gets_back_what_it_brought() {
        let (one, other) = (looping(0, 0.0, 1.0), looping(150 * MIB, 1e6, 1.0));
        let alone =
            Member { reservation: 100 * MIB, limit: 100 * MIB, has: MIB, ..member(100, &one) };
        let borrower = Member { has: 199 * MIB, ..member(100, &other) };
        assert_eq!(planned(&[alone, borrower]), Some(vec![100, 100]));
        // The lender has gone with what it brought.
        assert_eq!(planned(&[borrower]), Some(vec![100]));
        assert_eq!(planned(&[Member { has: 100 * MIB, ..borrower }]), None);
    }

    #[test]
    fn what_none_of_them_has_is_given_when_others_share() {
        let (one, other) = (looping(20 * MIB, 1e3, 10.0), looping(150 * MIB, 10.0, 1e6));
        let lender = Member { has: 60 * MIB, ..member(100, &one) };
        assert_eq!(plan(&[lender]), None, "it gains nothing");
        assert_eq!(plan_anew(&[lender]), Some(vec![100 * MIB]));
        // What one has of another stays, and what is left goes by shares.
        let borrower = Member { has: 140 * MIB, ..member(100, &other) };
        assert_eq!(plan_anew(&[lender, borrower]), Some(vec![60 * MIB, 140 * MIB]));
        let more = Member { brings: 120 * MIB, ..borrower };
        assert_eq!(plan_anew(&[lender, more]), Some(vec![80 * MIB, 140 * MIB]));
        let limited = Member { limit: 100 * MIB, ..member(100, &one) };
        let rich = Member { has: 60 * MIB, shares: 3000, ..member(100, &other) };
        assert_eq!(plan_anew(&[limited, rich]), Some(vec![100 * MIB, 100 * MIB]));
        let too_much = Member { reservation: 101 * MIB, ..borrower };
        assert_eq!(plan_anew(&[too_much]), None);
    }

    #[test]
    fn five_hundred_disks_are_divided_in_a_moment() {
        let demands: Vec<Demand> =
            (0..500u64).map(|at| looping((1 + at % 97) * MIB, 1000.0 + at as f64, 1.0)).collect();
        let reserving = |(at, demand): (usize, _)| Member {
            reservation: MIB + at as u64 * BLOCK,
            ..member(16, demand)
        };
        let members: Vec<Member<'_>> = demands.iter().enumerate().map(reserving).collect();
        let began = std::time::Instant::now();
        let planned = planned(&members).unwrap();
        // Those with the smallest working sets gain most per byte.
        assert!((0..40).all(|at| planned[at] > at as u64), "{planned:?}");
        let took = began.elapsed();
        assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn what_is_older_counts_less() {
        let mut shards = forebay_core::mrc::Shards::new(8192, 1);
        let mut count = 0;
        let mut read = |blocks: std::ops::Range<u64>| {
            for block in blocks {
                shards.on_use(forebay_core::characteristics::Kind::Read, block, 0..1);
            }
            count += 1000;
            (shards.snapshot(), count)
        };

        let mut demand = Demand::default();
        let sizes = || [0, 100, 2000].into_iter();
        demand.look(read(0..1000), true, sizes(), 0.5);
        let cold = demand.misses(2000);
        assert!(cold > 900.0, "{cold}");
        demand.look(read(0..1000), true, sizes(), 0.5);
        let (large, small) = (demand.misses(2000), demand.misses(100));
        assert!((large - cold / 2.0).abs() < 20.0 && small > 1400.0, "{large} {small}");
        // Nor does it miss anything that no cache is to answer.
        demand.look(read(0..1000), false, sizes(), 0.5);
        assert!((demand.misses(100) - small / 2.0).abs() < 1.0);
        demand.look(read(0..1000), true, sizes(), 0.5);
        assert!(
            demand.misses(100) < small / 4.0 + 1100.0,
            "what came meanwhile is not made up for"
        );
    }
}
