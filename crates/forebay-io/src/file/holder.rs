//! The holder of a file's lock: a living process, or one that has ended and whose I/O the kernel
//! is still finishing.

use std::fs;
use std::os::fd::BorrowedFd;

use rustix::fs::{fstat, major, minor};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// `PF_EXITING` of the kernel's process flags.
const EXITING: u64 = 0x4;

/// The process that holds a `flock` on the file, if it lives; it may be this one. `None` also when the kernel does
/// not tell (another process namespace, a file system with device numbers of its own).
pub(super) fn living_holder(fd: BorrowedFd<'_>) -> Option<u32> {
    let stat = fstat(fd).ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut holders = locks.lines().filter_map(|line| holder_of(line, &file));
    holders.find(|&process| is_living(process))
}

/// The process of a line of `/proc/locks` that is a `flock` on `file`.
fn holder_of(line: &str, file: &str) -> Option<u32> {
    // 1: FLOCK  ADVISORY  WRITE 3500 fe:00:5480764 0 EOF
    let mut words = line.split_whitespace().skip(1);
    (words.next()? == "FLOCK").then_some(())?;
    let process = words.nth(2)?.parse().ok()?;
    (words.next()? == file).then_some(process)
}

/// True when the process exists and is not on its way out.
fn is_living(process: u32) -> bool {
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => is_living_by(&stat),
        // A service may not see those of others, which are there all the same.
        Err(_) => is_of_another_user(process),
    }
}

fn is_of_another_user(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::PERM))
}

fn is_living_by(stat: &str) -> bool {
    // The name, in brackets, may hold anything, brackets and blanks too.
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut words = rest.split_whitespace();
    let ended = matches!(words.next(), None | Some("Z" | "X"));
    let flags = words.nth(5).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    !ended && flags & EXITING == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_the_file() {
        let line = "1: FLOCK  ADVISORY  WRITE 3500 fe:00:5480764 0 EOF";
        assert_eq!(holder_of(line, "fe:00:5480764"), Some(3500));
        assert_eq!(holder_of(line, "fe:00:548076"), None);
        assert_eq!(
            holder_of("1: POSIX  ADVISORY  WRITE 3500 fe:00:5480764 0 EOF", "fe:00:5480764"),
            None
        );
        assert_eq!(
            holder_of("1: -> FLOCK ADVISORY WRITE 3500 fe:00:5480764 0 EOF", "fe:00:5480764"),
            None
        );
        assert_eq!(holder_of("", "fe:00:5480764"), None);
    }

    #[test]
    fn a_process_that_has_ended_or_is_ending_does_not_live() {
        let stat = |state: &str, flags: u64| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0");
        assert!(is_living_by(&stat("S", 0x40_0000)));
        assert!(!is_living_by(&stat("Z", 0x40_0000)));
        assert!(!is_living_by(&stat("D", 0x40_0004)));
        assert!(is_living(std::process::id()));
        assert!(!is_living(u32::MAX));
    }
}
