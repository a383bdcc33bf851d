//! The CPUs of shards, and of the threads beside them.

use std::io;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may use, and how many it gets of them: from before a shard was bound to one.
static ALL: OnceLock<(CpuSet, usize)> = OnceLock::new();

/// Binds this thread, shard number `index`, to a CPU of its own, where there are several shards and a CPU for each. A refusal
/// costs speed, not correctness.
pub fn bind_shard(index: usize, count: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if count < 2 || cpus.len() < count {
        return;
    }
    ALL.get_or_init(|| (allowed, available()));
    let mut own = CpuSet::new();
    own.set(cpus[index % cpus.len()]);
    let _ = sched_setaffinity(None, &own);
}

/// CPUs that this process gets, also for a shard that is bound to one of them.
pub(crate) fn cpus() -> usize {
    ALL.get().map_or_else(available, |(_, count)| *count)
}

/// CPUs that this thread gets: those that it may use, less what a quota of the process takes.
fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a thread that may use all CPUs. One that a shard starts would have that shard's alone, and delay it.
///
/// # Errors
/// The kernel's, when it gives no thread.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Some((all, _)) = ALL.get() {
            let _ = sched_setaffinity(None, all);
        }
        work();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_a_bound_shard_starts_is_not_bound() {
        let cpus = || {
            let allowed = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect::<Vec<_>>()
        };
        let all = cpus();
        let (shard, beside) = std::thread::spawn(move || {
            bind_shard(1, 2);
            let (sender, receiver) = std::sync::mpsc::channel();
            start("beside", move || sender.send(cpus()).unwrap()).unwrap().join().unwrap();
            (cpus(), receiver.recv().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(beside, all);
        // With one CPU there is none to bind to.
        assert_eq!(shard.len(), 1.min(all.len()));
    }
}
