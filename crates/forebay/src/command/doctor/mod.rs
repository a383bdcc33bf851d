//! `forebay doctor`: does this host have what Forebay needs, and what is configured?
//!
//! | file | checks |
//! |---|---|
//! | `host.rs` | kernel, io_uring, huge pages, limits, processors, memory for staging |
//! | `storage.rs` | flash and its write cache, file systems, mounts, the state folder |
//!
//! A check says what it found, why that matters and what to do. It changes nothing, but for a small file that it writes beside a
//! pool, to time its flushes, and removes.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;

use super::table::of;
use super::{client, output};
use crate::cli::DoctorArgs;
use crate::config::{self, DaemonSpec};
use crate::daemon::inherited::Inherited;
use crate::daemon::preflight;

mod host;
mod storage;

/// How a check came out; the worst is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// As it should be, as far as can be known.
    Ok,
    /// It works, and less well than it could; or it cannot be known.
    Warning,
    /// It does not work, or data are at risk.
    Bad,
}

/// One check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    /// What was looked at; a program may rely on it.
    check: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// Why it matters, and what to do. Empty when all is well.
    advice: String,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Check {
        Check { check, verdict: Verdict::Ok, found: found.into(), advice: String::new() }
    }

    fn warning(check: &'static str, found: impl Into<String>, advice: &str) -> Check {
        Check { check, verdict: Verdict::Warning, found: found.into(), advice: advice.to_owned() }
    }

    fn bad(check: &'static str, found: impl Into<String>, advice: &str) -> Check {
        Check { check, verdict: Verdict::Bad, found: found.into(), advice: advice.to_owned() }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Bad => "BAD",
        };
        writeln!(f, "{verdict:<8} {:<13} {}", self.check, self.found)?;
        match self.advice.is_empty() {
            true => Ok(()),
            false => writeln!(f, "{:22} {}", "", self.advice),
        }
    }
}

/// Checks, and fails when something is bad.
pub(super) fn doctor(args: &DoctorArgs) -> Result<()> {
    let checks = checks(args.config.as_deref());
    let shown = match args.json {
        true => output::show(format!("{}\n", serde_json::to_string(&checks)?)),
        false => output::show(checks.iter().map(ToString::to_string).collect::<String>()),
    };
    match checks.iter().filter(|check| check.verdict == Verdict::Bad).count() {
        0 => shown,
        bad => bail!("{} found something bad", of(bad as u64, "check")),
    }
}

/// All checks of the host, and those of what a configuration file says.
pub(super) fn checks(config: Option<&Path>) -> Vec<Check> {
    let spec = config.map(config::file::load).transpose();
    let known = spec.as_ref().ok().and_then(Option::as_ref);
    let daemon = client::running(known);
    let mut checks = host::checks(known, daemon.as_ref());
    checks.extend(storage::state(known));
    match spec {
        Ok(None) => {}
        Ok(Some(spec)) => checks.extend(configured(&spec, daemon.is_some())),
        Err(error) => {
            let advice = "No start succeeds with it. Correct the file.";
            checks.push(Check::bad("configuration", format!("{error:#}"), advice));
        }
    }
    checks
}

fn configured(spec: &DaemonSpec, is_running: bool) -> Vec<Check> {
    // systemd passes sockets to a service, and to nobody who checks.
    let inherited = Inherited::default();
    let mut checks = match preflight::problems(spec, is_running, &inherited) {
        problems if problems.is_empty() => {
            let disks = of(spec.disks.len() as u64, "disk");
            vec![Check::ok("configuration", format!("{disks}; a start finds what it needs"))]
        }
        problems => {
            let advice = "A start fails, or refuses the disk.";
            problems.into_iter().map(|text| Check::bad("configuration", text, advice)).collect()
        }
    };
    let warning = preflight::warning(spec, is_running, &inherited);
    checks.extend(warning.map(|text| Check::warning("metrics", text, "Disks are served.")));
    checks.extend(storage::checks(spec));
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    checks.extend(storage::hidden(spec).filter(|_| has_service(&users)));
    checks.extend(rights(rustix::process::geteuid().is_root(), &users));
    checks
}

/// Whether this table of users has the one of the service.
fn has_service(users: &str) -> bool {
    users.lines().any(|line| line.starts_with("forebay:"))
}

/// Root may use what the user of the service may not.
fn rights(is_root: bool, users: &str) -> Option<Check> {
    (is_root && has_service(users)).then(|| {
        Check::warning(
            "rights",
            "all of this was checked with the rights of root".to_owned(),
            "The service has those of the user forebay. Check with these: runuser -u forebay -- forebay doctor --config FILE",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_told_that_the_service_has_other_rights() {
        let users =
            "root:x:0:0::/root:/bin/sh\nforebay:x:990:990::/var/lib/forebay:/usr/sbin/nologin\n";
        assert!(
            rights(true, users).is_some_and(|check| check.advice.contains("runuser -u forebay"))
        );
        assert!(rights(false, users).is_none() && rights(true, "notforebay:x:1\n").is_none());
    }
}
