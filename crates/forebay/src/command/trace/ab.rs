//! `forebay trace ab`: the same requests on the backend itself, through a cold cache, and through a warm one.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::uri::FileUri;
use forebay_backends::{OpenOptions, Uri};
use forebay_host::fence::{self, Guard, SidecarPlace, names};
use forebay_host::folders;
use forebay_host::pool::LOCK_WAIT;
use forebay_trace::replay::{self, Asked, Settings};
use forebay_trace::report;
use forebay_trace::results::{Results, Run};
use tempfile::TempDir;

use super::super::output::{Output, show};
use super::super::served::Served;
use super::super::{page_file, signals, write_page};
use super::compare;
use super::input::Input;
use super::replay::{Job, check, open, settings, survey, warn_of_holes, write_json};
use crate::cli::trace::AbArgs;
use crate::config::values::Flash;
use crate::config::{self, DaemonSpec};

/// What a warm cache is that saw the very same requests before.
pub(in crate::command) const SAME_AGAIN: &str = "warm cache: it has seen the very same requests before, and a cache that holds them all hits them \
    all. That is the most that this cache can do; with other requests it does less.";

pub(super) fn ab(args: &AbArgs) -> Result<()> {
    let input = Input::of(&args.input).again()?;
    let mut spec = spec(args)?;
    let state = spec.state_dir.take().or_else(folders::state_folder);
    let _guard = keep_others_off(&args.backend, state.as_deref(), args.overwrite)?;
    let opened = open(&args.backend)?;
    let (asked, touched) = survey(&input, (&args.backend, &*opened), args.how.prefill)?;
    let _pool = spec.disks[0].flash.as_mut().map(own_pool).transpose()?;
    let journal = spec.disks[0].write_log.as_mut().and_then(|log| log.journal.as_mut());
    let _journal = journal.map(own_journal).transpose()?;
    let file = args.json.as_deref().map(Output::create).transpose()?;
    let page = page_file(&args.page)?;
    let folder = tempfile::Builder::new().prefix("forebay-ab-").tempdir()?;
    spec.state_dir = Some(folder.path().join("state"));
    let wants_end = signals::wants_end()?;
    let passes = args.how.passes;
    let trace = input.name();
    let job = Job {
        name: "no cache",
        trace: &trace,
        target: &args.backend,
        configuration: None,
        asked: Asked { summary: &asked, touched: touched.as_ref() },
        passes,
        settings: Settings { overwrite: args.overwrite, ..settings(&args.how) },
        wants_end: &wants_end,
    };
    let records = || replay::passes(|| input.open(), passes, asked);
    let mut runs = vec![job.run_on(opened, records())?];
    // Whoever wants the end may have said so after the last request.
    let is_over = || wants_end.load(Ordering::Relaxed);
    if !is_over() {
        let cached = Served::during(spec, folder.path(), |served| {
            served.drop_cache()?;
            let cached = format!("{}, in front of {}", served.configuration, args.backend);
            // What is there now is of the first replay.
            let settings = Settings { overwrite: true, prefill: false, ..job.settings };
            cold_and_warm(is_over, |name| {
                let asked = Asked::from(&asked);
                let configuration = Some(cached.as_str());
                let job = Job { name, target: &served.uri, configuration, settings, asked, ..job };
                served.measure(&job, records())
            })
        })?;
        runs.extend(cached);
    }
    input.bad().tell();
    warn_of_holes(&mut runs[0]);
    runs.iter_mut().for_each(|run| input.bad().note(run));
    let results = Results::new(runs);
    write_json(file, &results)?;
    write_page(page, || report::comparison(&results.runs))?;
    let shown = show(compare::describe(&results.runs));
    results.runs.iter().try_for_each(check)?;
    shown
}

/// The run through a cold cache, and the one that finds it warm, as long as it is not over.
fn cold_and_warm(
    mut is_over: impl FnMut() -> bool,
    mut measure: impl FnMut(&'static str) -> Result<Run>,
) -> Result<Vec<Run>> {
    if is_over() {
        return Ok(Vec::new());
    }
    let cold = measure("cold cache")?;
    if is_over() {
        return Ok(vec![cold]);
    }
    let mut warm = measure("warm cache")?;
    warm.warnings.push(SAME_AGAIN.to_owned());
    Ok(vec![cold, warm])
}

/// Keeps disks of this host from the backend, as long as what is returned lives. A backend that a disk was served from is that disk's: the
/// runs take it over, and their end removes what the disk has noted beside it.
fn keep_others_off(backend: &Uri, state: Option<&Path>, overwrite: bool) -> Result<Guard> {
    let unusable = || format!("the backend {backend} cannot be used");
    let options = OpenOptions { read_only: true, lock_wait: LOCK_WAIT };
    let opened = forebay_backends::open(backend, options).with_context(unusable)?;
    let probe = opened.probe().map(|probe| names::known(probe, state));
    let place = SidecarPlace::of(probe.as_ref(), state);
    if let Some(owner) = fence::left_beside(&place).with_context(unusable)? {
        let belongs = format!(
            "the backend {backend} belongs to the disk '{}', which host '{}' served",
            owner.name, owner.host
        );
        ensure!(
            !owner.state.may_be_dirty(),
            "{belongs}: its write log may hold newer data. Detach that disk first. If its flash is gone for ever, remove the sidecar"
        );
        ensure!(
            overwrite,
            "{belongs}: the runs would take it over, and the disk would begin with an empty cache. Name a copy, or give --overwrite"
        );
    }
    fence::lock(&place, false).with_context(unusable)
}

/// Gives the runs a pool of their own beside the one that the configuration names, which is a disk's that goes on: what it has cached, its
/// identity and its reservations would be those of the backend here. It is gone with the folder.
fn own_pool(flash: &mut Flash) -> Result<TempDir> {
    let path = flash.path.display();
    if std::fs::metadata(&flash.path).is_ok_and(|found| found.file_type().is_block_device()) {
        bail!(
            "the runs need a pool of their own, and the flash {path} is a device: give them a configuration whose flash is a file, \
             on a file system of that device"
        );
    }
    let folder = beside(&flash.path)
        .with_context(|| format!("cannot make a pool for the runs beside {path}"))?;
    flash.path = folder.path().join("pool");
    Ok(folder)
}

/// The same for the destage journal: one that belongs to a disk is refused to every other one.
fn own_journal(journal: &mut String) -> Result<TempDir> {
    let Uri::File(file) = journal.parse()? else {
        bail!(
            "the runs need a destage journal of their own, and {journal} is no file: give them a configuration whose \
             destage-journal is one"
        );
    };
    let folder = beside(&file.path)
        .with_context(|| format!("cannot make a destage journal for the runs beside {journal}"))?;
    let path = folder.path().join("journal");
    *journal = Uri::File(FileUri { path, ..file }).to_string();
    Ok(folder)
}

/// A folder beside a file.
fn beside(path: &Path) -> std::io::Result<TempDir> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::Builder::new().prefix(".forebay-ab-").tempdir_in(folder.unwrap_or(Path::new(".")))
}

/// The disk of the configuration file, in front of the backend.
fn spec(args: &AbArgs) -> Result<DaemonSpec> {
    let mut spec = config::file::load_unattached(&args.config)?;
    let path = args.config.display();
    let mut disks = std::mem::take(&mut spec.disks).into_iter();
    let disk = match &args.disk {
        Some(name) => disks.find(|disk| disk.name == *name),
        None if disks.len() > 1 => {
            bail!("{path} has {} disks: say which one with --disk", disks.len())
        }
        None => disks.next(),
    };
    let mut disk = disk.with_context(|| format!("{path} has no disk of that name"))?;
    disk.backend = args.backend.to_string();
    if let Some(flash) = &disk.flash
        && spec.pools.iter().any(|pool| pool.is_asked_for(flash))
    {
        bail!(
            "the runs need a pool of their own, and the flash {flash} is on devices: give them a configuration whose flash is a \
             file"
        );
    }
    spec.disks = vec![disk];
    spec.shards = 1;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_follows_a_run_that_was_interrupted() {
        let of = |is_over: Option<u32>| {
            let mut names = Vec::new();
            let mut asked = 0;
            let runs = cold_and_warm(
                || {
                    asked += 1;
                    is_over == Some(asked)
                },
                |name| {
                    names.push(name);
                    Ok(Run { name: name.to_owned(), ..Run::default() })
                },
            );
            let warnings: Vec<_> = runs.unwrap().into_iter().map(|run| run.warnings).collect();
            (names, warnings)
        };
        let (names, warnings) = of(None);
        assert_eq!(names, ["cold cache", "warm cache"]);
        assert_eq!(warnings, [vec![], vec![SAME_AGAIN.to_owned()]]);
        assert!(of(Some(1)).0.is_empty());
        let (names, warnings) = of(Some(2));
        assert_eq!(names, ["cold cache"]);
        assert_eq!(warnings, [Vec::<String>::new()]);
    }
}
