//! What cannot work, found before anything is opened.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::config::DestageOrder;
use forebay_core::flash_pool::DISKS_MAX;
use forebay_core::geometry::{BLOCK_MAX, BLOCK_MIN, SECTOR};
use forebay_frontends::vhost_user::export::QUEUES_MAX;
use forebay_host::journal::JournalPlace;

use super::values::{DiskId, Size, Span, ValueError};
use super::{DaemonSpec, DiskSpec, InVain, ListenerSpec, SHARES_MAX, Sharing, iscsi, pools};

/// The least and the most memory that the flight recorder can have.
const RECORDER_MIN: u64 = 64 << 10;
const RECORDER_MAX: u64 = 4 << 30;
/// Smallest write log.
const WRITE_LOG_MIN: u64 = 4 << 20;
/// The most RAM, and the most flash, of a disk: the sum over all disks of a host fits into 64 bits.
const SIZE_MAX: u64 = 1 << 50;

/// Finds what cannot work whatever the machine.
///
/// # Errors
/// What is wrong, and with which setting.
pub fn daemon(spec: &DaemonSpec) -> Result<(), ValueError> {
    unattached(spec)?;
    for DiskSpec { name, vhost_user, .. } in &spec.disks {
        let is_found = spec.listeners.iter().any(|listener| listener.disks.contains(name));
        let is_unit = spec.targets.iter().any(|it| it.luns.values().any(|disk| disk == name));
        if !is_found && !is_unit && vhost_user.is_none() {
            return Err(ValueError(format!(
                "disk '{name}': nobody could attach to it; give an address, such as --nbd unix:/run/forebay/db.sock, \
                 --nbd 127.0.0.1:10809 (nbd = [\"127.0.0.1:10809\"] in a file), --iscsi 127.0.0.1:3260 or --vhost-user \
                 /run/forebay/db.vhost"
            )));
        }
    }
    Ok(())
}

/// The same for who attaches to the disks in a way of his own.
///
/// # Errors
/// As [`daemon`], but that nobody could attach is none.
pub fn unattached(spec: &DaemonSpec) -> Result<(), ValueError> {
    iscsi::check(&spec.targets)?;
    for disk in &spec.disks {
        let name = &disk.name;
        self::disk(disk).map_err(|why| ValueError(format!("disk '{name}': {why}")))?;
    }
    let mut unit_ids: Vec<DiskId> = spec.disks.iter().filter_map(|disk| disk.unit_id).collect();
    unit_ids.sort_by_key(|id| id.0);
    if let Some(pair) = unit_ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ValueError(format!(
            "two disks have the unit-id {}: initiators would take them for one; give each its own",
            pair[0]
        )));
    }
    pools::check(&spec.pools, &spec.disks)?;
    check_pools(&spec.disks)?;
    let mut places: Vec<String> = spec.listeners.iter().map(ListenerSpec::place).collect();
    let mut portals: Vec<String> =
        spec.targets.iter().flat_map(|it| &it.portals).map(ToString::to_string).collect();
    portals.sort();
    portals.dedup();
    // Any port that is free is another one.
    portals.retain(|portal| !portal.ends_with(":0"));
    places.append(&mut portals);
    let devices = spec.disks.iter().filter_map(|disk| disk.vhost_user.as_ref());
    places.extend(devices.map(|device| device.socket.path.display().to_string()));
    places.sort();
    match places.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) if pair[0].ends_with(":0") && !pair[0].starts_with('/') => {
            Err(ValueError(format!(
                "two listeners use the address {}; addresses must differ: port 0 is any that is free, and Forebay tells \
                 listeners apart by the address of the configuration. Give each a port, or all disks one listener",
                pair[0]
            )))
        }
        Some(pair) => Err(ValueError(format!(
            "two listeners use the address {}; addresses must differ",
            pair[0]
        ))),
        None => Ok(()),
    }
}

/// A pool has room for so many names.
fn check_pools(disks: &[DiskSpec]) -> Result<(), ValueError> {
    let mut on = BTreeMap::new();
    for flash in disks.iter().filter_map(|disk| disk.flash.as_ref()) {
        *on.entry(&flash.path).or_insert(0) += 1;
    }
    match on.into_iter().find(|(_, disks)| *disks > usize::from(DISKS_MAX)) {
        Some((path, disks)) => Err(ValueError(format!(
            "{disks} disks are to be on the flash {}, which can have {DISKS_MAX}: give some of them other flash",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// What cannot work about one disk.
pub(crate) fn disk(disk: &DiskSpec) -> Result<(), String> {
    if let Err(error) = disk.backend.parse::<forebay_backends::Uri>() {
        return Err(format!("its primary storage: {error}"));
    }
    let block = Size(disk.block_size);
    if !block.0.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block.0) {
        return Err(format!(
            "block-size {block} cannot work; a power of two from 4KiB to 1MiB is allowed"
        ));
    }
    if let forebay_core::config::GridOffset::Fixed(offset) = disk.grid_offset.0
        && (offset >= block.0 || offset % SECTOR != 0)
    {
        return Err(format!(
            "grid-offset {offset} cannot work; a multiple of 512 below the block size {block} is allowed"
        ));
    }
    let flash = disk.flash.as_ref().map(|flash| ("flash", flash.bytes));
    for (key, bytes) in [Some(("ram", disk.ram_bytes)), flash].into_iter().flatten() {
        if bytes > SIZE_MAX {
            let (size, most) = (Size(bytes), Size(SIZE_MAX));
            return Err(format!("--{key} {size} cannot work; {most} at most is allowed"));
        }
    }
    if let Some(flash) = disk.flash.as_ref().filter(|flash| flash.bytes < block.0) {
        return Err(format!(
            "its share of flash, {flash}, is smaller than one cache block, {block}"
        ));
    }
    check_sharing(disk)?;
    check_write_log(disk)?;
    if let Some(device) = &disk.vhost_user
        && !(1..=QUEUES_MAX).contains(&device.queues)
    {
        return Err(format!("{} queues cannot work; 1 to {QUEUES_MAX} are allowed", device.queues));
    }
    if ![512, 4096].contains(&disk.physical_block) {
        let block = Size(disk.physical_block);
        return Err(format!("physical-block {block} cannot work; 512B or 4KiB is allowed"));
    }
    let recorder = disk.recorder_bytes;
    if recorder > 0 && !(RECORDER_MIN..=RECORDER_MAX).contains(&recorder) {
        return Err(format!(
            "a recorder of {} cannot work; {} to {} are allowed, or 0 for none",
            Size(recorder),
            Size(RECORDER_MIN),
            Size(RECORDER_MAX)
        ));
    }
    if disk.backend_timeout < Duration::from_millis(1) {
        return Err("backend-timeout is below 1ms".to_owned());
    }
    Ok(())
}

fn check_sharing(disk: &DiskSpec) -> Result<(), String> {
    let ram = (disk.ram_bytes, format!("--ram {}", Size(disk.ram_bytes)));
    check_sharing_of(disk, ("ram", "RAM"), disk.ram_sharing, ram, disk.shares_ram())?;
    let cached = disk.flash_cache_bytes();
    let what = match &disk.write_log {
        Some(_) => format!("the {} of --flash that --write-log leaves", Size(cached)),
        None => format!("the {} of --flash", Size(cached)),
    };
    let shares = disk.shares_flash();
    check_sharing_of(disk, ("flash", "flash"), disk.flash_sharing, (cached, what), shares)
}

fn check_sharing_of(
    disk: &DiskSpec,
    (key, name): (&str, &str),
    Sharing { reservation, limit, shares }: Sharing,
    (brings, said): (u64, String),
    is_shared: bool,
) -> Result<(), String> {
    if !(1..=SHARES_MAX).contains(&shares) {
        return Err(format!("--{key}-shares {shares} is not possible: use 1 to {SHARES_MAX}"));
    }
    if reservation > brings {
        return Err(format!(
            "--{key}-reservation {} is more than {said}: a disk keeps of what it brings",
            Size(reservation)
        ));
    }
    if limit < brings {
        return Err(format!(
            "--{key}-limit {} is less than {said}: a disk may have what it brings",
            Size(limit)
        ));
    }
    if is_shared && reservation < disk.block_size {
        return Err(format!(
            "--{key}-reservation {} holds no block of {}: a disk that shares {name} keeps a block at least",
            Size(reservation),
            Size(disk.block_size)
        ));
    }
    Ok(())
}

fn check_write_log(disk: &DiskSpec) -> Result<(), String> {
    match disk.in_vain {
        Some((setting, InVain::WithoutLog)) => {
            return Err(format!(
                "--{setting} is for a disk with a write log, and this one has none: give --mode write-back and --flash, or \
                 --write-log SIZE"
            ));
        }
        Some((setting, InVain::WithHonestFlushes)) => {
            return Err(format!(
                "--{setting} is for deferred flushes, and flushes are honest here: leave it out, or give \
                 --flush-semantics deferred"
            ));
        }
        None => {}
    }
    let Some(log) = &disk.write_log else { return Ok(()) };
    if let Some(journal) = &log.journal {
        let uses_it = log.order.is_none_or(|order| order.0 == DestageOrder::Journaled);
        if !uses_it {
            return Err(
                "--destage-journal is for --destage-order journaled: leave one of them out"
                    .to_owned(),
            );
        }
        JournalPlace::at(journal).map_err(|why| format!("--destage-journal {journal}: {why:#}"))?;
        if *journal == disk.backend {
            return Err(format!("--destage-journal {journal} is primary storage itself"));
        }
    }
    let Some(flash) = &disk.flash else {
        return Err("a write log needs flash: give --flash PATH:SIZE".to_owned());
    };
    if log.bytes < WRITE_LOG_MIN {
        return Err(format!(
            "a write log of {} is too small, at least {} is needed; give write-log or more flash",
            Size(log.bytes),
            Size(WRITE_LOG_MIN)
        ));
    }
    if log.bytes > flash.bytes {
        return Err(format!(
            "the write log of {} does not fit into the flash of {}",
            Size(log.bytes),
            Size(flash.bytes)
        ));
    }
    if disk.read_only {
        return Err("a read-only disk has nothing to write back: give another --mode, or leave --read-only out".to_owned());
    }
    if log.flush.0 && !log.accepts_data_loss {
        return Err(format!(
            "with deferred flushes a loss of power loses up to {} of writes that the guest has flushed; if that is \
             agreed to, add --accept-data-loss (accept-data-loss = true in a file)",
            Span(log.dirty_age_max)
        ));
    }
    if log.flush.0 && log.dirty_age_max < Duration::from_millis(100) {
        return Err("max-dirty-age is below 100ms".to_owned());
    }
    Ok(())
}
