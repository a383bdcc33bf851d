//! A change of a disk that is not yet as it is asked for: what else is asked for does not come with the change.
//!
//! Field by field: what the change makes otherwise is taken, the rest is as it is in force.

use super::{DiskSpec, Sharing, WriteLogSpec};

impl DiskSpec {
    /// This disk, as it is in force, with what a change makes otherwise: it was `asked` for before, and `after` is asked for
    /// now.
    pub fn changed_by(&self, asked: &DiskSpec, after: &DiskSpec) -> DiskSpec {
        let merged = merged!(
            DiskSpec,
            (self, asked, after),
            name,
            backend,
            in_vain,
            mode,
            block_size,
            ram_bytes,
            ram_sharing,
            flash_sharing,
            flash,
            unplaced,
            write_log,
            grid_offset,
            policy,
            flash_admission,
            flash_dwpd,
            bypass_sequential,
            iops_limit,
            bandwidth_limit,
            limit_burst,
            metadata_bytes_max,
            recorder_bytes,
            write_cache,
            write_cache_of_units,
            read_only,
            raw_anyway,
            backend_exclusive,
            take_over,
            unit_id,
            physical_block,
            backend_timeout,
            on_timeout,
            vhost_user,
        );
        DiskSpec {
            ram_sharing: self.ram_sharing.changed_by(&asked.ram_sharing, &after.ram_sharing),
            flash_sharing: self
                .flash_sharing
                .changed_by(&asked.flash_sharing, &after.flash_sharing),
            write_log: match (&self.write_log, &asked.write_log, &after.write_log) {
                (Some(log), Some(asked), Some(after)) => Some(log.changed_by(asked, after)),
                // It waits, whatever it is to be like.
                (None, Some(_), Some(_)) => None,
                _ => merged.write_log,
            },
            // Whoever gives it a device finds that out anew.
            unplaced: None,
            ..merged
        }
    }
}

impl Sharing {
    fn changed_by(&self, asked: &Sharing, after: &Sharing) -> Sharing {
        merged!(Sharing, (self, asked, after), reservation, limit, shares)
    }
}

impl WriteLogSpec {
    fn changed_by(&self, asked: &WriteLogSpec, after: &WriteLogSpec) -> WriteLogSpec {
        merged!(
            WriteLogSpec,
            (self, asked, after),
            bytes,
            order,
            journal,
            barrier,
            rate_max,
            flush,
            dirty_age_max,
            accepts_data_loss,
        )
    }
}

/// A struct of these fields, each as it is in force unless it is asked for otherwise than before.
macro_rules! merged {
    ($of:ident, ($now:ident, $asked:ident, $after:ident), $($field:ident),* $(,)?) => {
        $of { $($field: changed_by(&$now.$field, &$asked.$field, &$after.$field)),* }
    };
}
use merged;

fn changed_by<T: Clone + PartialEq>(now: &T, asked: &T, after: &T) -> T {
    if asked == after { now.clone() } else { after.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;

    fn disk(more: &str) -> DiskSpec {
        let text = format!(
            "[[disk]]\nname = \"a\"\nbackend = \"file:/san/a\"\nnbd = [\"unix:/run/a\"]\n{more}"
        );
        let mut spec = file::parse(&text, "test".parse().unwrap()).unwrap();
        spec.disks.remove(0)
    }

    /// Settings, in one line.
    fn check(now: &str, asked: &str, after: &str, expect: &str) {
        let lines = |text: &str| disk(&text.replace("; ", "\n"));
        assert_eq!(lines(now).changed_by(&lines(asked), &lines(after)), lines(expect), "{after}");
    }

    #[test]
    fn a_change_takes_nothing_with_it_that_was_asked_for_before() {
        let limit = "iops-limit = 5";
        check("", "", limit, limit);
        let (cache, log) = ("flash = '/f:64MiB'", "flash = '/f:64MiB'; mode = 'write-back'");
        check(cache, log, &format!("{log}; max-destage-rate = '1MiB'"), cache);
        check("", "block-size = '16KiB'", &format!("block-size = '16KiB'; {limit}"), limit);
        check("", "ram = '1MiB'", "ram = '1MiB'; ram-shares = 5", "ram-shares = 5");
        check("ram = '1MiB'", "ram = '1MiB'", "ram = '2MiB'", "ram = '2MiB'");
        let logs = "mode = 'write-back'; flash = '/f:64MiB'";
        let moves = logs.replace("/f:64", "/g:128");
        let slow = "max-destage-rate = '1MiB'";
        check(logs, &moves, &format!("{moves}; {slow}"), &format!("{logs}; {slow}"));
        check(logs, &moves, &format!("{moves}; {limit}"), &format!("{logs}; {limit}"));
        // What is taken back is as it was.
        check(logs, &moves, logs, logs);
        check("", logs, &format!("{logs}; {limit}"), limit);
    }
}
