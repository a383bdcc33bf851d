//! Makes a ring: the best one that the kernel has, or the reason why there is none.

use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Threads of the kernel for work on files, at most: it starts them as they are needed.
pub(super) const WORKERS_MAX: u32 = (super::OF_A_FILE_MAX * super::HANGING_MAX) as u32;

/// A ring with room for `entries` submissions, not enabled yet: it will belong to the thread that enables it.
///
/// # Errors
/// In words for an operator: why io_uring cannot be used here.
pub(super) fn ring(entries: u32) -> io::Result<IoUring> {
    let mut last = None;
    for flags in [Flags::Deferred, Flags::Cooperative, Flags::Plain] {
        match build(entries, flags) {
            Ok(ring) => {
                check(&ring)?;
                // Kernels before 5.15 have a limit that depends on the number of CPUs.
                let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
                return Ok(ring);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = Some(error),
            Err(error) => return Err(explain(&error)),
        }
    }
    Err(explain(&last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))))
}

/// Sets of flags, by the kernel that brought them.
#[derive(Clone, Copy, Debug)]
enum Flags {
    /// 6.1: completions are processed when the shard asks for them.
    Deferred,
    /// 5.19: completions do not interrupt the shard.
    Cooperative,
    /// 5.13, the oldest that will do.
    Plain,
}

fn build(entries: u32, flags: Flags) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(entries.saturating_mul(4)).setup_r_disabled();
    match flags {
        Flags::Deferred => {
            builder.setup_submit_all().setup_single_issuer();
            builder.setup_defer_taskrun().setup_taskrun_flag();
        }
        Flags::Cooperative => {
            builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
        }
        Flags::Plain => {}
    }
    builder.build(entries)
}

/// Whether the ring has what this reactor relies on.
fn check(ring: &IoUring) -> io::Result<()> {
    let params = ring.params();
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| explain(&error))?;
    let codes = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::Recv::CODE,
        opcode::RecvMsg::CODE,
        opcode::Send::CODE,
        opcode::AsyncCancel::CODE,
    ];
    let is_enough = params.is_feature_nodrop()
        && params.is_feature_submit_stable()
        && params.is_feature_ext_arg()
        && params.is_feature_fast_poll()
        // It came with polls that go on after their first event, which nothing else tells of.
        && params.is_feature_resource_tagging()
        && codes.iter().all(|code| probe.is_supported(*code));
    if is_enough { Ok(()) } else { Err(explain(&io::Error::from_raw_os_error(libc::EINVAL))) }
}

fn explain(error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden (kernel.io_uring_disabled, or a seccomp filter of the container)"
        }
        Some(libc::ENOSYS) => "this kernel has no io_uring, or a seccomp filter hides it",
        Some(libc::EINVAL) => "io_uring of this kernel is too old (Linux 5.13 or newer is needed)",
        Some(libc::ENOMEM) => "io_uring got no memory (is the limit of locked memory too low?)",
        Some(libc::EMFILE | libc::ENFILE) => "no file descriptor is left for io_uring",
        Some(_) | None => "io_uring does not work",
    };
    super::super::context(why, error)
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn reasons_name_what_an_operator_can_change() {
        let check = |errno, expect: &str| {
            let text = explain(&std::io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(expect), "{text}");
        };
        check(libc::EPERM, "kernel.io_uring_disabled");
        check(libc::ENOSYS, "seccomp");
        check(libc::EINVAL, "too old");
        check(libc::ENOMEM, "locked memory");
        check(libc::EIO, "does not work");
    }
}
