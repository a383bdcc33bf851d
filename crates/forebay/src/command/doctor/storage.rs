//! What the storage of a configuration is: its file systems, and whether flash keeps what it was told to flush.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use forebay_backends::Uri;
use forebay_host::folders;
use forebay_host::journal::JournalPlace;
use rustix::fs::{Access, access};

use super::super::table::time;
use super::Check;
use crate::config::DaemonSpec;
use crate::daemon::preflight;

/// Durable writes that are timed.
const FLUSHES: usize = 16;
/// A flush takes longer, unless the device has a protected cache or does not flush.
const FLUSH_MIN: Duration = Duration::from_micros(60);
/// Where an administrator's settings of the unit are.
const DROP_INS: &str = "/etc/systemd/system/forebay.service.d";
/// The state folder of the unit, which it waits for.
const STATE: &str = "/var/lib/forebay";

pub(super) fn state(spec: Option<&DaemonSpec>) -> Vec<Check> {
    let given = spec.and_then(|spec| spec.state_dir.clone());
    let Some(folder) = given.or_else(folders::state_folder) else {
        let advice =
            "Nothing keeps two disks from serving the same device or export. Give --state-dir.";
        return vec![Check::warning("state", "this user has no state folder", advice)];
    };
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let shown = folder.display();
    vec![match (access(there, Access::WRITE_OK), file_system(there)) {
        (Err(error), _) => Check::bad(
            "state",
            format!("{shown} cannot be written: {error}"),
            "Forebay would forget which disk a device belongs to. Give this user the folder, or another --state-dir.",
        ),
        (Ok(()), "tmpfs") => Check::bad(
            "state",
            format!("{shown} is on tmpfs"),
            "It must outlive a restart of the host. Give another --state-dir.",
        ),
        (Ok(()), kind) => Check::ok("state", format!("{shown} on {kind}")),
    }]
}

pub(super) fn checks(spec: &DaemonSpec) -> Vec<Check> {
    let (pools, images) = (pools(spec), images(spec));
    let mut checks: Vec<Check> =
        pools.iter().flat_map(|pool| [medium(pool), flushes(pool)]).collect();
    checks.extend(images.iter().map(|image| place_of_image(image)));
    checks.extend(mounts(&pools.into_iter().chain(images).chain(beside(spec)).collect()));
    checks
}

fn pools(spec: &DaemonSpec) -> BTreeSet<PathBuf> {
    let alone = spec.disks.iter().filter_map(|disk| disk.flash.as_ref());
    let alone = alone.filter(|flash| !spec.pools.iter().any(|pool| pool.is_asked_for(flash)));
    let of_pools = spec.pools.iter().flat_map(|pool| pool.devices.iter().cloned());
    alone.map(|flash| flash.path.clone()).chain(of_pools).collect()
}

fn images(spec: &DaemonSpec) -> BTreeSet<PathBuf> {
    let uris = spec.disks.iter().filter_map(|disk| disk.backend.parse::<Uri>().ok());
    uris.filter_map(|uri| uri.path().map(Path::to_owned)).collect()
}

/// What else a start needs. The unit waits for the state folder that it has of itself.
fn beside(spec: &DaemonSpec) -> impl Iterator<Item = PathBuf> {
    let state = spec.state_dir.clone().filter(|folder| folder != Path::new(STATE));
    let logs = spec.disks.iter().filter_map(|disk| disk.write_log.as_ref()?.journal.as_ref());
    let journals = logs.filter_map(|at| JournalPlace::at(at).ok()?.path().map(Path::to_owned));
    state.into_iter().chain(journals)
}

/// What a pool lies on.
fn medium(pool: &Path) -> Check {
    let shown = pool.display();
    if is_device(pool) {
        return Check::ok("flash", format!("{shown} is a block device"));
    }
    let kind = file_system(folder_of(pool));
    let found = format!("{shown} on {kind}");
    match kind {
        "tmpfs" => Check::bad(
            "flash",
            found,
            "That is memory: the write log is gone when the host is. Put the pool on flash.",
        ),
        "nfs" | "cifs" | "fuse" | "ceph" => Check::warning(
            "flash",
            found,
            "A pool belongs on flash of this host: every write waits for it. Put it there.",
        ),
        "btrfs" | "zfs" => Check::warning(
            "flash",
            found,
            "It copies each block that is written again, which slows the log down. Use ext4, XFS or a device, or on btrfs \
             `chattr +C` on the folder before the pool is made.",
        ),
        _ => Check::ok("flash", found),
    }
}

/// Does flash keep what it was told to flush? Nobody can know without a loss of power; these are signs.
fn flushes(pool: &Path) -> Check {
    let cache = write_cache(pool);
    let took = match is_device(pool) {
        true => None,
        false => time_of_flush(folder_of(pool)).ok(),
    };
    let shown = pool.display();
    let reported = match cache.as_deref() {
        Some("write back") => "its device has a volatile write cache",
        Some("write through") => "its device says that it has no volatile write cache",
        _ => "the kernel does not know the write cache of its device",
    };
    let words = match took {
        Some(took) => format!("a durable write takes {}", time(took.as_nanos() as u64)),
        None => "durable writes were not timed".to_owned(),
    };
    judge(format!("{shown}: {reported}; {words}"), cache.as_deref(), took)
}

fn judge(found: String, cache: Option<&str>, time: Option<Duration>) -> Check {
    match (cache, time) {
        (Some("write back"), Some(time)) if time >= FLUSH_MIN => {
            Check::ok("flush", format!("{found}, as one that is flushed"))
        }
        (Some("write back"), Some(_)) => Check::warning(
            "flush",
            found,
            "That is fast. Either the device protects its cache against a loss of power, or it does not flush, and a loss of \
             power loses acknowledged writes. Its data sheet says which (power-loss protection).",
        ),
        _ => Check::warning(
            "flush",
            found,
            "Forebay cannot tell whether a flush survives a loss of power: the device, its controller or the host of this virtual \
             machine knows. See its data sheet (power-loss protection) or its cache mode.",
        ),
    }
}

/// What the kernel says of the write cache of the device below a path.
fn write_cache(path: &Path) -> Option<String> {
    let found = fs::metadata(path).or_else(|_| fs::metadata(folder_of(path))).ok()?;
    let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has the queue of its disk.
    let text = own
        .ancestors()
        .take(2)
        .find_map(|it| fs::read_to_string(it.join("queue/write_cache")).ok())?;
    Some(text.trim().to_owned())
}

/// The median time of a durable write of 4 KiB to a file in a folder.
fn time_of_flush(folder: &Path) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(folder)?;
    file.write_all(&[1; 4096 * FLUSHES])?;
    file.sync_all()?;
    let mut times = [Duration::ZERO; FLUSHES];
    for (index, time) in times.iter_mut().enumerate() {
        let began = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &[2; 4096], 4096 * index as u64)?;
        file.sync_data()?;
        *time = began.elapsed();
    }
    times.sort();
    Ok(times[FLUSHES / 2])
}

fn place_of_image(image: &Path) -> Check {
    let shown = image.display();
    if is_device(image) {
        return Check::ok("image", format!("{shown} is a block device"));
    }
    let kind = file_system(image);
    let found = format!("{shown} on {kind}");
    match kind {
        "tmpfs" => Check::warning(
            "image",
            found,
            "That is memory: primary storage is gone when the host is. Leave it for tests.",
        ),
        _ => Check::ok("image", found),
    }
}

/// Mounts that the service needs: systemd learns of them in a drop-in.
fn mounts(paths: &BTreeSet<PathBuf>) -> Vec<Check> {
    let mounts = paths.iter().filter_map(|path| mount_of(path));
    let needed: BTreeSet<PathBuf> = mounts.filter(|mount| mount != Path::new("/")).collect();
    let drop_ins = fs::read_dir(DROP_INS).into_iter().flatten().flatten();
    let said: String = drop_ins.filter_map(|it| fs::read_to_string(it.path()).ok()).collect();
    let missing = missing_mounts(&needed, &said);
    match (needed.is_empty(), missing.is_empty()) {
        (true, _) => Vec::new(),
        (_, true) => vec![Check::ok("mounts", "the unit waits for the mounts of what it needs")],
        _ => vec![Check::warning(
            "mounts",
            format!("the unit does not wait for: {}", missing.join(" ")),
            &format!(
                "A start before them refuses the disks, or forgets what was changed at work. For a service: `systemctl edit \
                 forebay`, below [Unit]: RequiresMountsFor={}",
                missing.join(" ")
            ),
        )],
    }
}

/// What of a configuration lies where the unit hides it from the service. Whoever checks sees it.
pub(super) fn hidden(spec: &DaemonSpec) -> Option<Check> {
    let sockets = preflight::unix_sockets(spec).into_iter().map(|(path, _)| path);
    // The service has one of its own unless the configuration names one.
    let own = preflight::control(spec);
    let sockets = sockets.filter(|path| spec.control.is_some() || *path != own);
    let chap = spec.targets.iter().flat_map(|target| target.chap.iter().chain(&target.mutual_chap));
    let secrets = chap.map(|chap| chap.secret_file.clone());
    let needed = pools(spec).into_iter().chain(images(spec)).chain(beside(spec));
    let needed = needed.chain(sockets).chain(secrets);
    let hidden: BTreeSet<String> =
        needed.filter(|path| is_hidden(path)).map(|path| path.display().to_string()).collect();
    let hidden = hidden.into_iter().collect::<Vec<_>>().join(" ");
    (!hidden.is_empty()).then(|| {
        Check::warning(
            "hidden",
            format!("the unit of the service hides {hidden}"),
            "The service does not find that, or others do not find it there. Use another folder than these: /home, /root, /run/user, \
             /tmp, /var/tmp.",
        )
    })
}

fn is_hidden(path: &Path) -> bool {
    let at = fs::canonicalize(path)
        .or_else(|_| Ok::<_, std::io::Error>(fs::canonicalize(folder_of(path))?.join("it")))
        .unwrap_or_else(|_| path.to_owned());
    ["/home", "/root", "/run/user", "/tmp", "/var/tmp"].iter().any(|hidden| at.starts_with(hidden))
}

/// Mounts that no RequiresMountsFor= of a text has.
fn missing_mounts(needed: &BTreeSet<PathBuf>, text: &str) -> Vec<String> {
    let values = text.lines().filter_map(|line| line.trim().strip_prefix("RequiresMountsFor="));
    let said: Vec<&Path> = values.flat_map(str::split_whitespace).map(Path::new).collect();
    let is_missing = |mount: &&PathBuf| !said.iter().any(|path| path.starts_with(mount));
    needed.iter().filter(is_missing).map(|mount| mount.display().to_string()).collect()
}

/// Where the file system of a path is mounted.
fn mount_of(path: &Path) -> Option<PathBuf> {
    let path = match is_device(path) {
        true => return None,
        false => fs::canonicalize(path).or_else(|_| fs::canonicalize(folder_of(path))).ok()?,
    };
    mounted_at(&path, &fs::read("/proc/self/mounts").ok()?)
}

/// The same by this table of mounts.
fn mounted_at(path: &Path, table: &[u8]) -> Option<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(1)).map(unescaped);
    points.filter(|point| path.starts_with(point)).max_by_key(|point| point.as_os_str().len())
}

/// A path as the kernel writes it there: a space is `\040`.
fn unescaped(text: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), text);
    while let [first, behind @ ..] = rest {
        let code = behind.get(..3).filter(|_| *first == b'\\');
        let code =
            code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        path.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(path).into()
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The kind of the file system that has a path.
fn file_system(path: &Path) -> &'static str {
    /// By their numbers in statfs(2).
    const KINDS: [(u64, &str); 12] = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x2fc1_2fc1, "zfs"),
        (0x0102_1994, "tmpfs"),
        (0x6969, "nfs"),
        (0xff53_4d42, "cifs"),
        (0xfe53_4d42, "cifs"),
        (0x6573_5546, "fuse"),
        (0x00c3_6400, "ceph"),
        (0x794c_7630, "overlay"),
        (0xf2f5_2010, "f2fs"),
    ];
    let Ok(found) = rustix::fs::statfs(path) else { return "a file system that does not answer" };
    let kinds: BTreeMap<u64, &str> = KINDS.into();
    kinds.get(&(found.f_type as u64)).copied().unwrap_or("another file system")
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::config::values::Name;

    #[test]
    fn the_mount_of_a_path_is_the_deepest_one_whatever_its_name() {
        let table = b"/dev/a / ext4 rw 0 0\n/dev/b /mnt/my\\040san xfs rw 0 0\nx /mnt/back\\134slash xfs rw 0 0\ny /mnt/odd\\04 z\n";
        for (path, mount) in [
            ("/mnt/my san/db.raw", "/mnt/my san"),
            ("/mnt/my", "/"),
            ("/mnt/back\\slash/x", "/mnt/back\\slash"),
            ("/mnt/odd\\04/x", "/mnt/odd\\04"),
        ] {
            assert_eq!(mounted_at(Path::new(path), table), Some(mount.into()), "{path}");
        }
    }

    #[test]
    fn a_flush_is_believed_only_where_it_takes_its_time() {
        let check = |cache, micros: Option<u64>, expect| {
            let check = judge(String::new(), cache, micros.map(Duration::from_micros));
            assert_eq!(check.verdict, expect, "{check}");
        };
        check(Some("write back"), Some(900), Verdict::Ok);
        check(Some("write back"), Some(10), Verdict::Warning);
        check(Some("write back"), None, Verdict::Warning);
        check(Some("write through"), Some(900), Verdict::Warning);
        check(None, Some(900), Verdict::Warning);
    }

    #[test]
    fn memory_is_no_place_for_a_pool() {
        let check = medium(Path::new("/dev/shm/pool"));
        assert_eq!(check.verdict, Verdict::Bad, "{check}");
    }

    #[test]
    fn a_start_needs_its_state_folder_and_journals_too() {
        let text = |state: &str| {
            format!(
                "state-dir = \"{state}\"\n[[disk]]\nname = \"d\"\nbackend = \"file:/dev/sdb\"\nflash = \"/nvme/p:1GiB\"\n\
                 mode = \"write-back\"\nwrite-log = \"256MiB\"\ndestage-order = \"journaled\"\n\
                 destage-journal = \"file:/jnl/d\"\nnbd = [\"unix:/run/d.sock\"]\n"
            )
        };
        for (state, needed) in
            [("/srv/state", vec!["/srv/state", "/jnl/d"]), (STATE, vec!["/jnl/d"])]
        {
            let name = "forebay".parse().expect("it is a name");
            let spec = crate::config::file::parse(&text(state), name).expect("it is fine");
            assert_eq!(
                beside(&spec).collect::<Vec<_>>(),
                needed.iter().map(PathBuf::from).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn a_mount_is_waited_for_when_a_path_below_it_is_named() {
        let needed = ["/nvme", "/san"].map(PathBuf::from).into();
        let none: [&str; 0] = [];
        assert_eq!(missing_mounts(&needed, "[Unit]\n"), ["/nvme", "/san"]);
        assert_eq!(missing_mounts(&needed, "RequiresMountsFor=/nvme/pool\n"), ["/san"]);
        assert_eq!(missing_mounts(&needed, "RequiresMountsFor=/nvme/pool /san\n"), none);
        assert_eq!(missing_mounts(&needed, "RequiresMountsFor=/nvme2 /sand\n"), ["/nvme", "/san"]);
    }

    #[test]
    fn what_the_unit_hides_is_found_also_where_nothing_is_yet() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let there = folder.path().join("db.raw");
        fs::write(&there, "").unwrap();
        let none = folder.path().join("pool");
        for hidden in [&*there, &*none, Path::new("/home/me/db.raw")] {
            assert!(is_hidden(hidden), "{}", hidden.display());
        }
        for seen in ["/var/lib/forebay/pool", "/run/forebay/db.sock", "/tmpfs/db.raw", "/dev/null"]
        {
            assert!(!is_hidden(Path::new(seen)), "{seen}");
        }
    }

    #[test]
    fn all_that_a_service_needs_is_looked_for_where_the_unit_hides_it() {
        let text = r#"
            [[disk]]
            name = "db"
            backend = "file:/home/me/db.raw"
            flash = "/var/tmp/pool:1GiB"
            nbd = ["unix:/run/user/1000/db.sock"]

            [[iscsi]]
            listen = ["127.0.0.1:3260"]
            target = "iqn.2026-01.org.example:db"
            chap-user = "me"
            chap-secret-file = "/root/secret"
        "#;
        let parsed = |text: &str| crate::config::file::parse(text, Name("a".into())).unwrap();
        let found = hidden(&parsed(text)).expect("four").to_string();
        for path in ["/home/me/db.raw", "/var/tmp/pool", "/root/secret", "/run/user/1000/db.sock"] {
            assert!(found.contains(path), "{path}: {found}");
        }
        assert!(!found.contains("control"), "that of the service is elsewhere: {found}");
        let seen = r#"
            [[disk]]
            name = "db"
            backend = "file:/srv/db.raw"
            ram = "8MiB"
            nbd = ["unix:/run/forebay/db.sock"]
        "#;
        assert!(hidden(&parsed(seen)).is_none());
        let named = format!("control = \"/tmp/control\"\n{seen}");
        assert!(hidden(&parsed(&named)).expect("it").to_string().contains("/tmp/control"));
    }
}
