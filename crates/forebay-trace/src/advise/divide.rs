//! One pool for several disks: the division with the least total latency.
//!
//! Each disk has choices, bytes and the latency that all of its requests then take together.
//! Disks are added one after the other. Of the divisions so far those are kept that no other
//! beats with as few bytes. The worth of a byte differs in steps (a random working set gains
//! nothing until it fits). So a byte does not simply go to the disk that gains most from the next
//! one. A reservation belongs to its disk, whether the disk chooses as much or not.

/// Divisions that are kept; with more, of neighbours in size the better one.
const KEPT_MAX: usize = 4096;

/// One choice of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Bytes of the pool.
    pub bytes: u64,
    /// Of all requests of the disk together.
    pub latency: f64,
}

/// What a disk may get.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Bytes that it takes at least, whatever it chooses.
    pub reserved: u64,
    /// In any order.
    pub choices: Vec<Choice>,
}

#[derive(Clone, Copy, Debug)]
struct Division {
    bytes: u64,
    latency: f64,
    /// What was chosen for the last disk.
    step: Step,
}

/// The choice for one disk, and the place of the division before it: the choices of all disks are read backwards, once.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    choice: usize,
    before: usize,
}

/// The number of each disk's choice; `None`: the pool is too small for what is reserved, or a disk has no choice.
pub fn divide(pool: u64, claims: &[Claim]) -> Option<Vec<usize>> {
    let mut kept = vec![Division { bytes: 0, latency: 0.0, step: Step::default() }];
    let mut steps: Vec<Vec<Step>> = Vec::with_capacity(claims.len());
    for claim in claims {
        let mut all = Vec::new();
        for (choice, of) in claim.choices.iter().enumerate() {
            let taken = of.bytes.max(claim.reserved);
            for (before, division) in kept.iter().enumerate() {
                let bytes = division.bytes.saturating_add(taken);
                if bytes <= pool {
                    let latency = division.latency + of.latency;
                    all.push(Division { bytes, latency, step: Step { choice, before } });
                }
            }
        }
        kept = best(all);
        steps.push(kept.iter().map(|division| division.step).collect());
    }
    let mut place = kept.len().checked_sub(1)?;
    let backwards = steps.iter().rev().map(|steps| {
        let Step { choice, before } = steps[place];
        place = before;
        choice
    });
    let mut chosen: Vec<usize> = backwards.collect();
    chosen.reverse();
    Some(chosen)
}

/// Those that no other beats with as few bytes, by bytes, so that the last one has the least latency.
fn best(mut all: Vec<Division>) -> Vec<Division> {
    all.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.latency.total_cmp(&b.latency)));
    let mut kept: Vec<Division> = Vec::new();
    for division in all {
        if kept.last().is_none_or(|last| division.latency < last.latency) {
            kept.push(division);
        }
    }
    while kept.len() > KEPT_MAX {
        let mut place = 0;
        let last = kept.len() - 1;
        kept.retain(|_| {
            place += 1;
            place % 2 == 1 || place > last
        });
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{Choice, Claim, divide};

    fn claim(reserved: u64, choices: &[(u64, f64)]) -> Claim {
        let choices = choices.iter().map(|&(bytes, latency)| Choice { bytes, latency }).collect();
        Claim { reserved, choices }
    }

    #[test]
    fn two_disks_get_what_trying_everything_gives_them() {
        // One falls steadily, one gains nothing until 60.
        let steady: Vec<_> = (0..20).map(|n| (n * 5, 1000.0 / (n + 1) as f64)).collect();
        let cliff: Vec<_> = (0..20).map(|n| (n * 5, if n < 12 { 900.0 } else { 50.0 })).collect();
        for pool in 0..200 {
            let claims = [claim(0, &steady), claim(0, &cliff)];
            let found = divide(pool, &claims).unwrap();
            let total = steady[found[0]].1 + cliff[found[1]].1;
            let mut least = f64::MAX;
            for one in &steady {
                for other in cliff.iter().filter(|other| one.0 + other.0 <= pool) {
                    least = least.min(one.1 + other.1);
                }
            }
            assert_eq!(total, least, "{pool}");
            assert!(steady[found[0]].0 + cliff[found[1]].0 <= pool);
        }
    }

    #[test]
    fn each_of_several_disks_gets_its_own_choice() {
        // Of each disk another choice is the best, and the pool has just room for these.
        let claims: Vec<Claim> = (0..200)
            .map(|disk| {
                let latency = |n: u64| if n == disk % 7 { 1.0 } else { 1000.0 };
                claim(0, &(0..10).map(|n| (n * 3 + disk % 2, latency(n))).collect::<Vec<_>>())
            })
            .collect();
        let pool = (0..200).map(|disk| disk % 7 * 3 + disk % 2).sum();
        let expect: Vec<usize> = (0..200).map(|disk| disk % 7).collect();
        assert_eq!(divide(pool, &claims), Some(expect));
    }

    #[test]
    fn what_is_reserved_is_given_first() {
        let choices = [(0, 10.0), (10, 9.9), (20, 9.8)];
        let other = [(0, 1000.0), (10, 500.0), (20, 1.0)];
        assert_eq!(divide(20, &[claim(0, &choices), claim(0, &other)]), Some(vec![0, 2]));
        assert_eq!(divide(20, &[claim(10, &choices), claim(0, &other)]), Some(vec![1, 1]));
        assert_eq!(divide(20, &[claim(20, &choices), claim(10, &other)]), None);
        // Between two choices, and more than there is use for: it is kept all the same.
        assert_eq!(divide(19, &[claim(15, &choices), claim(0, &other)]), Some(vec![1, 0]));
        assert_eq!(divide(99, &[claim(80, &choices), claim(0, &other)]), Some(vec![2, 1]));
        assert_eq!(divide(u64::MAX - 1, &[claim(u64::MAX, &choices), claim(1, &other)]), None);
    }
}
