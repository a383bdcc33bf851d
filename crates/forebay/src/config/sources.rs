//! Where a configuration comes from: a file or a command line, and what was changed since.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_host::pool::LOCK_WAIT;
use forebay_host::{fence, folders};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::changes::{Changes, find};
use super::file::{self, File};
use super::iscsi::IscsiSpec;
use super::values::Name;
use super::{DaemonSpec, DiskOptions, DiskSpec, difference};

/// Time that a daemon of the same name has to end, where it has changed nothing.
const NOTHING_WAIT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources {
    /// The configuration file; none: a command line.
    pub file: Option<PathBuf>,
    /// What the file said when it was read, or the command line in its words.
    said: Table,
    /// The daemon's name, unless the file says another.
    name: Name,
    /// What was changed since.
    pub changes: Changes,
    /// Where that is kept; none: nowhere.
    pub kept: Option<PathBuf>,
}

/// Something of the configuration file that does not count, because a command has changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Overridden {
    /// The disk that it is about.
    pub disk: String,
    /// What is in force, and what the file says.
    pub text: String,
    /// The command that takes the change back.
    pub reset: String,
}

impl Sources {
    /// The file at `path`, which says `text`, and the changes of the daemon that it is for.
    ///
    /// # Errors
    /// The file, or that of the changes, means nothing.
    pub(super) fn of_file(path: &Path, text: &str, name: Name) -> Result<Sources> {
        let file: File = super::file::from_toml(text)?;
        let kept = file.state_dir.clone().or_else(folders::state_folder);
        let of = file.name.as_ref().unwrap_or(&name);
        let kept = kept.map(|state| state.join(format!("{of}.changes.toml")));
        let changes = kept.as_deref().map(Changes::load).transpose()?.unwrap_or_default();
        Sources::with(changes, kept, path, text, name)
    }

    /// The file at `path`, which says `text` by now, and the changes that the daemon which runs with `before` keeps. Units
    /// that are there keep their numbers.
    ///
    /// # Errors
    /// As [`Sources::of_file`].
    pub(super) fn of_same_daemon(
        before: &DaemonSpec,
        path: &Path,
        text: &str,
        name: Name,
    ) -> Result<Sources> {
        // Merged with the changes, it has no lines and columns any more.
        super::file::from_toml::<File>(text)?;
        let (kept, known) = match &before.sources {
            Some(sources) => (sources.kept.clone(), sources.changes.clone()),
            None => Default::default(),
        };
        // Kept nowhere, they are the numbers of units.
        let changes = kept.as_deref().map_or(Ok(known), Changes::load)?;
        let mut sources = Sources::with(changes, kept, path, text, name)?;
        sources.note_units(&before.targets);
        Ok(sources)
    }

    fn with(
        changes: Changes,
        kept: Option<PathBuf>,
        path: &Path,
        text: &str,
        name: Name,
    ) -> Result<Sources> {
        // The daemon may be somewhere else when it is read again.
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut sources =
            Sources { file: Some(file), said: super::file::from_toml(text)?, name, changes, kept };
        sources.changes.settle(&sources.said);
        Ok(sources)
    }

    /// A command line that says this of its one disk.
    ///
    /// # Errors
    /// As [`settings`].
    pub fn of_command(name: &Name, backend: &str, options: &DiskOptions) -> Result<Sources> {
        let mut disk = settings(options)?;
        disk.insert("name".to_owned(), Value::String(name.to_string()));
        disk.insert("backend".to_owned(), Value::String(backend.to_owned()));
        let disks = Value::Array(vec![Value::Table(disk)]);
        let said = Table::from_iter([("disk".to_owned(), disks)]);
        let (name, changes) = (name.clone(), Changes::default());
        Ok(Sources { file: None, said, name, changes, kept: None })
    }

    /// The configuration that the file and the changes say.
    ///
    /// # Errors
    /// It cannot work.
    pub fn spec(&self) -> Result<DaemonSpec> {
        let spec = self.checked();
        match (&self.kept, self.changes.is_empty()) {
            (Some(path), false) if spec.is_err() => {
                // What is wrong with the file alone is not the fault of the changes.
                let alone = Sources { changes: Changes::default(), ..self.clone() };
                alone.checked()?;
                spec.with_context(|| {
                    format!(
                        "with the changes that were made while Forebay ran ({})",
                        path.display()
                    )
                })
            }
            _ => spec,
        }
    }

    fn checked(&self) -> Result<DaemonSpec> {
        let spec = self.described()?;
        super::check::daemon(&spec)?;
        Ok(spec)
    }

    /// The configuration of a daemon that runs with `old`: a command line says what disks are, the rest stays.
    ///
    /// # Errors
    /// As [`Sources::spec`].
    pub fn spec_after(&self, old: &DaemonSpec) -> Result<DaemonSpec> {
        if self.file.is_some() {
            return self.spec();
        }
        let described = self.described()?;
        let (disks, sources) = (described.disks, described.sources);
        let spec = DaemonSpec { disks, sources, ..old.clone() };
        super::check::daemon(&spec)?;
        Ok(spec)
    }

    /// The same when a command has made these of `before`, with a change of disk `name` that names these `keys`. Of what else is
    /// asked of the disk, and is not in force, nothing comes with that.
    ///
    /// # Errors
    /// As [`Sources::spec`], or the file does not list any more a disk that is here.
    pub fn spec_after_change(
        &self,
        before: &Sources,
        old: &DaemonSpec,
        (name, keys): (&Name, &[String]),
    ) -> Result<DaemonSpec> {
        let mut spec = self.spec_after(old)?;
        let find = |spec: &DaemonSpec| spec.disks.iter().find(|disk| disk.name == *name).cloned();
        let Some(after) = spec.disks.iter_mut().find(|disk| disk.name == *name) else {
            ensure!(
                find(old).is_none(),
                "the configuration file does not list it any more: list it again and give 'forebay reload', or give 'forebay disk \
                 remove {name}'"
            );
            // What was changed of it waited for the file to list it.
            return Ok(spec);
        };
        let asked = before.spec_after(old)?;
        if let (Some(now), Some(asked)) = (find(old), find(&asked)) {
            let is_other = |one: &DiskSpec, other: &DiskSpec, key: &String| {
                one.changed(other).iter().flatten().any(|(it, _)| it == key)
            };
            // Who asks for it once more means that.
            let is_meant =
                |key: &String| is_other(&now, &asked, key) && !is_other(&asked, after, key);
            if !keys.iter().any(is_meant) {
                *after = now.changed_by(&asked, after);
                super::check::daemon(&spec)?;
            }
        }
        Ok(spec)
    }

    fn described(&self) -> Result<DaemonSpec> {
        let merged = self.changes.merged(&self.said);
        let file = File::deserialize(merged)?;
        let mut spec = file::describe(file, self.name.clone(), &self.changes)?;
        let mut sources = self.clone();
        sources.note_units(&spec.targets);
        for name in self.changes.removed() {
            spec = difference::without(&spec, &name.0);
        }
        Ok(DaemonSpec { sources: Some(sources), ..spec })
    }

    /// Notes the numbers that units have; those that have none any more are used again after all others.
    pub fn note_units(&mut self, targets: &[IscsiSpec]) {
        self.changes.note_units(&self.said, targets);
    }

    /// True when the file has the disk.
    pub fn has(&self, name: &Name) -> bool {
        find(&self.said, name).is_some()
    }

    /// Changes of disks that the file does not have.
    pub fn waiting(&self) -> Vec<Name> {
        self.changes.waiting(&self.said)
    }

    /// Pools whose devices were changed, and that the file does not have.
    pub fn waiting_pools(&self) -> Vec<Name> {
        self.changes.waiting_pools(&self.said)
    }

    /// What the file says in vain of its disks.
    pub fn overridden(&self) -> Vec<Overridden> {
        let removed = self.changes.removed().iter().map(|disk| Overridden {
            disk: disk.to_string(),
            text: "the file has it, and it was removed".to_owned(),
            reset: format!("forebay disk reset {disk}"),
        });
        let of_file = self.changes.disks().filter(|(disk, _)| self.has(disk));
        let changed = of_file.flat_map(|(disk, table)| {
            let keys = table.iter().filter(|(key, _)| *key != "name");
            keys.map(move |(key, value)| Overridden {
                disk: disk.to_string(),
                text: match self.said(&disk, key) {
                    Some(said) => format!("{key} is {}, and the file says {said}", shown(value)),
                    None => format!("{key} is {}, and the file has no {key}", shown(value)),
                },
                reset: format!("forebay disk reset {disk} {key}"),
            })
        });
        removed.chain(changed).collect()
    }

    /// What the file says of a setting of a disk.
    pub fn said(&self, name: &Name, key: &str) -> Option<String> {
        find(&self.said, name)?.get(key).map(shown)
    }

    /// What was changed of a setting of a disk.
    pub fn changed(&self, name: &Name, key: &str) -> Option<String> {
        self.changes.of(name)?.get(key).map(shown)
    }

    /// Keeps other daemons from the file of changes until what this returns is dropped. `None`: there is none, or its folder
    /// cannot be written, so that no change is kept there either. Where another daemon has the file, and there is no change in
    /// it, none of this one is kept.
    ///
    /// # Errors
    /// Another daemon has it, and its changes would count here.
    pub fn lock(&mut self) -> Result<Option<fs::File>> {
        let Some(kept) = &self.kept else { return Ok(None) };
        let _ = fs::create_dir_all(kept.parent().unwrap_or(Path::new("/")));
        // Of a daemon that was killed the kernel may still have I/O.
        let wait = if self.changes.is_nothing() { NOTHING_WAIT } else { LOCK_WAIT };
        match fence::lock_at(&kept.with_extension("lock"), false, wait) {
            Ok(locked) => {
                // Whoever had it may have changed something meanwhile.
                self.changes = Changes::load(kept)?;
                self.changes.settle(&self.said);
                Ok(Some(locked))
            }
            Err(error) if fence::is_in_use(&error) => {
                let why = format!("{}: {error:#}", another(kept));
                ensure!(self.changes.is_nothing(), why);
                self.kept = None;
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    /// Forgets durably which changes the configuration file says by now, and notes the numbers of units.
    ///
    /// # Errors
    /// The kernel's.
    pub fn settle(&self) -> Result<()> {
        match &self.kept {
            Some(path) if Changes::load(path)? != self.changes => self.keep(),
            _ => Ok(()),
        }
    }

    /// Finds out whether there is a place for the changes.
    ///
    /// # Errors
    /// There is none.
    pub fn check_place(&self) -> Result<()> {
        ensure!(
            self.kept.is_some() || self.changes.is_empty() || self.file.is_none(),
            "nothing can keep the change over a restart: there is no state folder, or another daemon of the same name has it; set \
             state-dir or name in the configuration file"
        );
        Ok(())
    }

    /// Keeps the changes over a restart, durably. Those of a command line are kept nowhere.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep(&self) -> Result<()> {
        self.check_place()?;
        let Some(path) = &self.kept else { return Ok(()) };
        let kept = self.changes.store(path);
        kept.with_context(|| {
            format!("the change cannot be kept over a restart, in {}", path.display())
        })
    }
}

/// What is wrong when two daemons would keep their changes in the same file.
pub fn another(kept: &Path) -> String {
    format!(
        "another daemon of the same name keeps its changes in {}: set another name or state-dir in one of the configuration files",
        kept.display()
    )
}

/// The options that were given, as keys of a `[[disk]]` table.
///
/// # Errors
/// A value that a configuration file cannot have.
pub fn settings(options: &DiskOptions) -> Result<Table> {
    let mut table = Table::try_from(options).context("a setting has no form in a file")?;
    let is_given = |value: &Value| match value {
        Value::Boolean(is_on) => *is_on,
        Value::Array(values) => !values.is_empty(),
        _ => true,
    };
    table.retain(|_, value| is_given(value));
    Ok(table)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
