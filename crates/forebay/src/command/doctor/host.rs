//! What the host has.

use std::fs;

use forebay_backends::size::rounded;
use forebay_host::tmpfs;
use forebay_io::reactor::{Reactor, ReactorKind};
use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::command::table::of;
use crate::config::DaemonSpec;
use crate::daemon::api::DaemonInfo;

/// From this kernel on io_uring has what Forebay uses to save CPU time.
const KERNEL_MIN: (u32, u32) = (6, 1);
/// Files that a daemon needs beside those of its disks: pools, control, the reactors.
const FILES_BESIDE: u64 = 64;
/// Files of a disk beside its clients: image, sidecar, staging, sockets.
const FILES_OF_DISK: u64 = 16;
/// Locked memory with which the buffers of a small disk can be registered.
const LOCKED_MIN: u64 = 256 << 20;
/// The staging file of a disk with a write log, once it has grown.
const STAGING_BYTES: u64 = 3 << 20;

pub(super) fn checks(spec: Option<&DaemonSpec>, daemon: Option<&DaemonInfo>) -> Vec<Check> {
    let limits = Limits::of(daemon);
    let uring = Reactor::new(8, Some(ReactorKind::Uring)).map(drop);
    vec![
        kernel(rustix::system::uname().release().to_str().unwrap_or_default()),
        io_uring(uring, read("/proc/sys/kernel/io_uring_disabled"), read("/proc/self/status")),
        huge_pages(read("/sys/kernel/mm/transparent_hugepage/enabled")),
        locked_memory(&limits),
        open_files(&limits, spec),
        processors(nodes()),
        staging(spec),
    ]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("Linux {release}");
    match version >= KERNEL_MIN {
        true => Check::ok("kernel", found),
        false => Check::warning(
            "kernel",
            found,
            "Before 6.1 io_uring lacks what saves CPU time for each I/O. Everything works. Take a newer kernel when it suits.",
        ),
    }
}

fn io_uring(works: std::io::Result<()>, disabled: String, status: String) -> Check {
    let Err(error) = works else { return Check::ok("io_uring", "it can be used") };
    let has_filter = status.lines().any(|line| line.trim_end() == "Seccomp:\t2");
    let (why, advice) = match disabled.trim() {
        "1" => (
            "kernel.io_uring_disabled is 1",
            "epoll serves instead, with more CPU time for each I/O. Set kernel.io_uring_group to the group of Forebay, or \
             kernel.io_uring_disabled to 0.",
        ),
        "2" => (
            "kernel.io_uring_disabled is 2",
            "epoll serves instead, with more CPU time for each I/O. Set kernel.io_uring_disabled to 0.",
        ),
        _ if has_filter => (
            "this process has a seccomp filter",
            "epoll serves instead, with more CPU time for each I/O. Allow io_uring_setup, io_uring_enter and \
             io_uring_register in the filter of the unit or the container.",
        ),
        _ => (
            "the kernel refuses it",
            "epoll serves instead, with more CPU time for each I/O. Look at the limit of locked memory and at the kernel.",
        ),
    };
    Check::warning("io_uring", format!("it cannot be used: {error}; {why}"), advice)
}

fn huge_pages(enabled: String) -> Check {
    match enabled.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')) {
        Some(mode @ ("always" | "madvise")) => {
            Check::ok("huge-pages", format!("transparent huge pages: {mode}"))
        }
        found => Check::warning(
            "huge-pages",
            format!("transparent huge pages: {}", found.unwrap_or("the kernel has none")),
            "A large cache in small pages costs CPU time. Write madvise to /sys/kernel/mm/transparent_hugepage/enabled.",
        ),
    }
}

/// Hard limits of a process.
struct Limits {
    whose: String,
    locked_bytes: Option<u64>,
    files: Option<u64>,
}

impl Limits {
    /// Those of a daemon that runs, or else of this process.
    fn of(daemon: Option<&DaemonInfo>) -> Limits {
        let of_daemon = |daemon: &DaemonInfo| {
            let text = fs::read_to_string(format!("/proc/{}/limits", daemon.pid)).ok()?;
            let whose = format!("daemon {}", daemon.name);
            let (locked, files) = (hard(&text, "Max locked memory"), hard(&text, "Max open files"));
            Some(Limits { whose, locked_bytes: locked?, files: files? })
        };
        daemon.and_then(of_daemon).unwrap_or_else(|| Limits {
            whose: "this shell".to_owned(),
            locked_bytes: getrlimit(Resource::Memlock).maximum,
            files: getrlimit(Resource::Nofile).maximum,
        })
    }
}

/// The hard limit of a line of `/proc/PID/limits`; the inner `None` when there is none.
fn hard(limits: &str, name: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

fn locked_memory(Limits { whose, locked_bytes, .. }: &Limits) -> Check {
    match *locked_bytes {
        None => Check::ok("memlock", format!("{whose}: locked memory has no limit")),
        Some(bytes) if bytes >= LOCKED_MIN => {
            Check::ok("memlock", format!("{whose}: up to {} of locked memory", rounded(bytes)))
        }
        Some(bytes) => Check::warning(
            "memlock",
            format!("{whose}: up to {} of locked memory", rounded(bytes)),
            "io_uring cannot register its buffers, and each I/O costs more CPU time. The unit of the package sets \
             LimitMEMLOCK=infinity; for a shell: ulimit -l unlimited.",
        ),
    }
}

fn open_files(Limits { whose, files, .. }: &Limits, spec: Option<&DaemonSpec>) -> Check {
    let needed = spec.map_or(1024, files_needed);
    let found = match files {
        None => format!("{whose}: no limit of open files"),
        Some(limit) => format!("{whose}: up to {limit} open files, {needed} needed"),
    };
    match files.is_none_or(|limit| limit >= needed) {
        true => Check::ok("open-files", found),
        false => Check::warning(
            "open-files",
            found,
            "When all are taken, clients cannot connect and disks cannot be opened. Raise LimitNOFILE= in the unit.",
        ),
    }
}

/// When each listener has all the clients that it may have.
fn files_needed(spec: &DaemonSpec) -> u64 {
    let of_listeners = spec.listeners.iter().map(|listener| u64::from(listener.connections_max));
    let of_targets = spec.targets.iter().map(|target| u64::from(target.connections_max));
    let clients: u64 = of_listeners.chain(of_targets).sum();
    FILES_BESIDE + clients + FILES_OF_DISK * spec.disks.len() as u64
}

fn nodes() -> u64 {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let is_node =
        |name: &str| name.strip_prefix("node").is_some_and(|it| it.parse::<u32>().is_ok());
    names.filter(|name| name.to_str().is_some_and(is_node)).count().max(1) as u64
}

fn processors(nodes: u64) -> Check {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let found = format!("{}, {}", of(cpus, "CPU"), of(nodes, "NUMA node"));
    match nodes {
        1 => Check::ok("processors", found),
        _ => Check::warning(
            "processors",
            found,
            "Forebay does not choose a node. Memory of another node is slower: let the unit run on the node of the flash and \
             the network card, with CPUAffinity= and NUMAPolicy=.",
        ),
    }
}

/// Where acknowledged writes outlive the process.
fn staging(spec: Option<&DaemonSpec>) -> Check {
    let logs = spec.map_or(0, |spec| spec.disks.iter().filter(|it| it.write_log.is_some()).count());
    let needed = STAGING_BYTES * logs as u64;
    let advice = "Without it each write waits for flash. With too little of it writes to the log stay small. Both are slower and \
                  promise the same. Give this user /dev/shm with room.";
    let Some(folder) = tmpfs::folder() else {
        return Check::warning("staging", "there is no folder on tmpfs", advice);
    };
    let free = rustix::fs::statvfs(&folder).map_or(0, |it| it.f_bavail * it.f_frsize);
    let found =
        format!("{} free in {}, {} needed", rounded(free), folder.display(), rounded(needed));
    match free >= needed {
        true => Check::ok("staging", found),
        false => Check::warning("staging", found, advice),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{self, Ok, Warning};
    use super::*;

    fn check(check: Check, verdict: Verdict, part: &str) {
        assert_eq!(check.verdict, verdict, "{check}");
        assert!(format!("{check}").contains(part), "{part}: {check}");
    }

    #[test]
    fn kernels_are_compared_by_number() {
        check(kernel("6.1.0-25-amd64"), Ok, "6.1.0-25-amd64");
        check(kernel("10.0.1"), Ok, "10.0.1");
        check(kernel("5.15.0"), Warning, "newer kernel");
        check(kernel("odd"), Warning, "newer kernel");
    }

    #[test]
    fn what_forbids_io_uring_is_named_with_what_to_do() {
        let refused = || Err(std::io::ErrorKind::PermissionDenied.into());
        check(io_uring(std::result::Result::Ok(()), "0".into(), String::new()), Ok, "can be used");
        check(io_uring(refused(), "2\n".into(), String::new()), Warning, "io_uring_disabled to 0");
        check(io_uring(refused(), "1\n".into(), String::new()), Warning, "io_uring_group");
        check(io_uring(refused(), "0\n".into(), "Seccomp:\t2\n".into()), Warning, "seccomp filter");
        check(io_uring(refused(), String::new(), String::new()), Warning, "the kernel refuses");
    }

    #[test]
    fn limits_are_compared_with_what_is_needed() {
        let limits = |locked_bytes, files| Limits { whose: "it".into(), locked_bytes, files };
        check(locked_memory(&limits(None, None)), Ok, "no limit");
        check(locked_memory(&limits(Some(8 << 20), None)), Warning, "LimitMEMLOCK");
        check(open_files(&limits(None, Some(512)), None), Warning, "1024 needed");
        check(open_files(&limits(None, Some(1 << 20)), None), Ok, "open files");
        let text = "[[disk]]\nbackend = \"mem:1MiB\"\nnbd = [\"h:0\"]\n";
        let spec = crate::config::file::parse(text, "x".parse().unwrap()).unwrap();
        check(open_files(&limits(None, Some(207)), Some(&spec)), Warning, "208 needed");
        check(open_files(&limits(None, Some(208)), Some(&spec)), Ok, "208 needed");
    }

    #[test]
    fn limits_of_a_daemon_are_read_as_the_kernel_writes_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(hard(text, "Max open files"), Some(Some(524_288)));
        assert_eq!(hard(text, "Max locked memory"), Some(None));
        assert_eq!(hard(text, "Max processes"), None);
    }

    #[test]
    fn huge_pages_may_be_had_for_the_asking() {
        check(huge_pages("always [madvise] never".into()), Ok, "madvise");
        check(huge_pages("always madvise [never]".into()), Warning, "Write madvise");
        check(huge_pages(String::new()), Warning, "has none");
    }
}
