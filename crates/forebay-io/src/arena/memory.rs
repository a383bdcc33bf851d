//! The kernel's figures of memory in `/proc`: how much is available, how much is on huge pages.

use std::fs;
use std::io;

/// Bytes of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: `sysconf` takes no memory of ours and may be called at any time.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the page size is known on Linux")
}

/// Refuses a length that the machine does not have available: mapping it would succeed, and touching it
/// would end a process, perhaps this one.
///
/// # Errors
/// `OutOfMemory`, with both numbers.
pub(super) fn check_available(len: usize) -> io::Result<()> {
    let Some(available) = fs::read_to_string("/proc/meminfo").ok().and_then(|m| available(&m))
    else {
        return Ok(());
    };
    if len as u64 <= available {
        return Ok(());
    }
    let text = format!(
        "memory of {} MiB asked for, but only {} MiB are available on this machine: \
         ask for less, or free some",
        len.div_ceil(1 << 20),
        available >> 20
    );
    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

/// Bytes of `base..base + len` on huge pages.
pub(super) fn huge_bytes(base: usize, len: usize) -> usize {
    fs::read_to_string("/proc/self/smaps").map_or(0, |smaps| huge_in(&smaps, base, base + len))
}

fn available(meminfo: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| kib(line, "MemAvailable:"))
}

/// Sums `AnonHugePages` of the mappings that overlap `start..end`. A mapping that the kernel merged with
/// a neighbour counts at most for the part inside.
fn huge_in(smaps: &str, start: usize, end: usize) -> usize {
    let mut overlap = 0;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some((from, to)) = range(line) {
            overlap = to.min(end).saturating_sub(from.max(start));
        } else if let Some(bytes) = kib(line, "AnonHugePages:") {
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
    use super::{available, huge_in};

    #[test]
    fn available_memory_is_read_from_meminfo() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:   24403312 kB\n"),
            Some(24_403_312 * 1024)
        );
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn huge_pages_count_only_inside_the_range() {
        let smaps = "400000-800000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonHugePages:  4096 kB\n\
                     800000-a00000 rw-p 00000000 00:00 0\nAnonHugePages:     0 kB\n\
                     a00000-e00000 rw-p 00000000 00:00 0\nAnonHugePages:  4096 kB\n";
        assert_eq!(huge_in(smaps, 0x400000, 0xa00000), 4096 * 1024);
        assert_eq!(huge_in(smaps, 0x600000, 0xc00000), 4096 * 1024);
        assert_eq!(huge_in(smaps, 0x800000, 0xa00000), 0);
    }
}
