//! The kernel's figures of memory: how much is available, how much is on huge pages.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory that can be had now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes that can be had.
    pub bytes: u64,
    /// Bytes in all, those in use included.
    pub all: u64,
    /// Nobody ever has more than that. Above a limit that is not hard processes are slowed down.
    pub is_hard: bool,
    /// Whose they are.
    pub of: Holder,
}

/// Who has memory to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The machine.
    Machine,
    /// The control group of the process, or one around it, which may have less than the machine.
    ControlGroup,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Holder::Machine => "this machine",
            Holder::ControlGroup => "the control group of this process (memory.max or memory.high)",
        })
    }
}

/// Memory that this process can have now, of everyone who limits it: the machine, and each control group of version 2 around
/// the process. Empty: the kernel does not say.
pub fn available() -> Vec<Available> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|m| of_machine(&m));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = folders(&groups).flat_map(|folder| of_group(&folder));
    machine.into_iter().chain(groups).collect()
}

/// Bytes of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: `sysconf` takes no memory of ours and may be called at any time.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the page size is known on Linux")
}

/// Refuses a length that cannot be had: mapping it would succeed, and touching it would end a process, perhaps this one.
///
/// # Errors
/// `OutOfMemory`, with both numbers.
pub(super) fn check_available(len: usize) -> io::Result<()> {
    let hard = available().into_iter().filter(|available| available.is_hard);
    let least = hard.min_by_key(|available| available.bytes);
    let Some(Available { bytes, of, .. }) = least else { return Ok(()) };
    if len as u64 <= bytes {
        return Ok(());
    }
    let text = format!(
        "memory of {} MiB asked for, but {of} has only {} MiB available: ask for less, or free some",
        len.div_ceil(1 << 20),
        bytes >> 20
    );
    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

/// Bytes of `base..base + len` that the kernel counts under `key`.
pub(super) fn mapped(key: &str, base: usize, len: usize) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps");
    smaps.map_or(0, |smaps| mapped_in(&smaps, key, base, base + len))
}

fn of_machine(meminfo: &str) -> Option<Available> {
    let find = |key| meminfo.lines().find_map(|line| kib(line, key));
    let (bytes, all) = (find("MemAvailable:")?, find("MemTotal:")?);
    Some(Available { bytes, all, is_hard: true, of: Holder::Machine })
}

/// The folders of the control groups around a process, innermost first.
fn folders(cgroup: &str) -> impl Iterator<Item = PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/")).map(str::to_owned);
    let mut path = path.filter(|path| !path.starts_with("..")).map(PathBuf::from);
    std::iter::from_fn(move || {
        let folder = path.take()?;
        path = folder.parent().map(Path::to_owned);
        Some(Path::new(GROUPS).join(folder))
    })
}

/// What a control group has left below each of its limits. Above `memory.high` the kernel ends no process, but it slows each
/// one down until it stands still. What it takes back for somebody else counts as free: file pages that nobody uses, and half
/// of those in use and of its own.
fn of_group(folder: &Path) -> Vec<Available> {
    let read = |name| fs::read_to_string(folder.join(name)).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    let Some(used) = number("memory.current") else { return Vec::new() };
    let stat = read("memory.stat").unwrap_or_default();
    let of = |key: &str| {
        let found = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        found.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
    };
    let unused: u64 = of("inactive_file") + (of("active_file") + of("slab_reclaimable")) / 2;
    let limits = [("memory.max", true), ("memory.high", false)];
    let left = limits.into_iter().filter_map(|(name, is_hard)| {
        let all = number(name)?;
        let bytes = all.saturating_sub(used.saturating_sub(unused));
        Some(Available { bytes, all, is_hard, of: Holder::ControlGroup })
    });
    left.collect()
}

/// Sums what is under `key` of the mappings that overlap `start..end`. A mapping that the kernel merged with
/// a neighbour counts at most for the part inside.
fn mapped_in(smaps: &str, key: &str, start: usize, end: usize) -> usize {
    let mut overlap = 0;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some((from, to)) = range(line) {
            overlap = to.min(end).saturating_sub(from.max(start));
        } else if let Some(bytes) = kib(line, key) {
            sum += overlap.min(bytes as usize);
        }
    }
    sum
}

fn range(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

/// Bytes of a line `KEY: N kB`.
fn kib(line: &str, key: &str) -> Option<u64> {
    let number = line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let expected = Available {
            bytes: 24_403_312 * 1024,
            all: 30_000_000 * 1024,
            is_hard: true,
            of: Holder::Machine,
        };
        let meminfo = "MemTotal: 30000000 kB\nMemAvailable:   24403312 kB\n";
        assert_eq!(of_machine(meminfo), Some(expected));
        assert_eq!(of_machine("MemTotal: 9 kB\n"), None);
        assert_eq!(of_machine("MemTotal: 9 kB\nMemAvailable: many kB\n"), None);
    }

    #[test]
    fn every_control_group_around_the_process_counts() {
        let of = |text| folders(text).map(|f| f.display().to_string()).collect::<Vec<_>>();
        let expected = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"];
        assert_eq!(of("1:name=x:/\n0::/a/b\n"), expected);
        assert_eq!(of("0::/"), ["/sys/fs/cgroup/"]);
        assert!(of("").is_empty() && of("0::/../elsewhere").is_empty());
    }

    #[test]
    fn a_control_group_has_its_limit_less_what_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let write = |name, text| std::fs::write(folder.join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(of_group(folder), [], "without a limit");
        write("memory.max", "1000\n");
        write("memory.stat", "anon 500\ninactive_file 150\nactive_file 50\n");
        let of = Holder::ControlGroup;
        let expected = Available { bytes: 475, all: 1000, is_hard: true, of };
        assert_eq!(of_group(folder), [expected]);
        write("memory.current", "5000\n");
        assert_eq!(of_group(folder)[0].bytes, 0);
    }

    #[test]
    fn a_control_group_may_have_a_hard_limit_and_one_that_slows_it_down() {
        let check = |max: &str, high: &str, expect: &[(u64, bool)]| {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in
                [("memory.max", max), ("memory.high", high), ("memory.current", "700")]
            {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let found = of_group(folder.path());
            let found: Vec<_> = found.iter().map(|it| (it.all, it.is_hard)).collect();
            assert_eq!(found, expect, "memory.max {max}, memory.high {high}");
        };
        check("1000\n", "max\n", &[(1000, true)]);
        check("max\n", "900\n", &[(900, false)]);
        check("1000\n", "900\n", &[(1000, true), (900, false)]);
        check("max\n", "max\n", &[]);
    }

    #[test]
    fn huge_pages_count_only_inside_the_range() {
        let smaps = "400000-800000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonHugePages:  4096 kB\n\
                     800000-a00000 rw-p 00000000 00:00 0\nAnonHugePages:     0 kB\n\
                     a00000-e00000 rw-p 00000000 00:00 0\nAnonHugePages:  4096 kB\n";
        let huge_in = |start, end| mapped_in(smaps, "AnonHugePages:", start, end);
        assert_eq!(huge_in(0x400000, 0xa00000), 4096 * 1024);
        assert_eq!(huge_in(0x600000, 0xc00000), 4096 * 1024);
        assert_eq!(huge_in(0x800000, 0xa00000), 0);
    }
}
