//! A backend that fails on purpose: another backend with faults, by rule and by seed.
//!
//! `fault:seed=7&rule=error,op=read,p=0.01&rule=power-cut,nth=500&volatile=on&inner=URI`
//!
//! | option | meaning |
//! |---|---|
//! | `seed=N` | for everything that is random (0): the same seed and the same I/O give the same faults |
//! | `volatile=on` | what was not flushed may be lost by a power cut ([`volatile`]) |
//! | `rule=ACTION[,key=value]...` | may be given several times; the first rule that fires decides |
//!
//! | action | effect on the I/O that meets it |
//! |---|---|
//! | `error[,status=S]` | fails; `S` = io (default), no-space, unsupported, read-only, timeout |
//! | `delay,time=T` | starts only after `T`, so that a write lands late |
//! | `hang` | never ends, unless its session ends: then it is replayed |
//! | `torn` | of a write only a part from its start is written, in whole logical blocks, then it fails |
//! | `drop` | a write is acknowledged and never done: a lying disk |
//! | `session-lost[,time=T]` | the session ends, for `T` (0s); what is in flight is replayed afterwards |
//! | `power-cut[,time=T]` | the same, and unflushed writes are lost by the seed (needs `volatile=on`) |
//!
//! | key | the rule looks at |
//! |---|---|
//! | `op=O` | only read, write, flush, discard, zeroes or extents |
//! | `range=START+LEN` | only I/O that touches these bytes (`range=1MiB+4KiB`) |
//! | `p=X` | of those it looks at, each with probability `X` |
//! | `nth=N`, `every=N` | of those it looks at, the `N`-th, or each `N`-th |
//! | `times=N` | at most `N` of them altogether |

mod backend;
mod rule;
pub mod volatile;

use std::fmt;

use crate::error::Error;
use crate::uri::Options;
pub use backend::FaultBackend;
pub use rule::{Action, Rule};

/// Faults of one backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// For everything that is random.
    pub seed: u64,
    /// Unflushed writes can be lost.
    pub volatile: bool,
    /// The first that fires decides.
    pub rules: Vec<Rule>,
}

impl FaultConfig {
    /// Rules of one backend, at most.
    pub const RULES_MAX: usize = 64;

    pub(crate) fn parse(options: &mut Options<'_>) -> Result<FaultConfig, Error> {
        let seed = options.number("seed", 0, u64::MAX)?.unwrap_or(0);
        let volatile = options.switch("volatile", false)?;
        let mut rules = Vec::new();
        while let Some(text) = options.take_next("rule") {
            let rule = Rule::parse(text).map_err(|why| options.bad("rule", text, why))?;
            if matches!(rule.action, Action::PowerCut { .. }) && !volatile {
                return Err(options.bad("rule", text, "a power cut needs volatile=on"));
            }
            if rules.len() == Self::RULES_MAX {
                let why = format_args!("more than {} rules", Self::RULES_MAX);
                return Err(options.bad("rule", text, why));
            }
            rules.push(rule);
        }
        Ok(FaultConfig { seed, volatile, rules })
    }
}

impl fmt::Display for FaultConfig {
    /// Each option that is not the default, followed by `&`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seed != 0 {
            write!(f, "seed={}&", self.seed)?;
        }
        if self.volatile {
            write!(f, "volatile=on&")?;
        }
        self.rules.iter().try_for_each(|rule| write!(f, "rule={rule}&"))
    }
}

#[cfg(test)]
mod tests;
