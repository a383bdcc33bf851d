//! An image without its daemon and its flash: is it what a file system can be mounted from, and how old is that?
//!
//! A disk that is destaged through a journal may have died while a window was put in place: then the image is torn, and the
//! journal beside it makes it whole. To look needs nothing but the folder of the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_backends::uri::FileUri;
use forebay_backends::{Backend, OpenOptions, Probe, Uri};
use forebay_core::flash_pool::fence::Timestamp;
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::journal::{Owner, Repaired};
use serde::Serialize;

use crate::fence::{self, Guard, SidecarPlace, identity, is_of_another, left_beside, names};
use crate::journal::{self, Journal, JournalPlace, Primary, keep_time};
use crate::pool::LOCK_WAIT;
use repair_note::RepairNote;

mod repair_note;

/// An image that was written so much earlier or later than the newest window of its journal is another one's copy. Windows go
/// in place and into the journal by turns.
const APART_MAX: Duration = Duration::from_secs(600);

/// What is said of an image whose disk was left with a log, and without a journal.
const MAY_BE_TORN: &str = "its disk has a write log with what the image lacks; without it the image is whole only if \
    'destage-order' was 'strict' all the time, or a journal that worked";

/// What is said of an image that is whole by its journal, whose disk was left with a log.
const MAY_BE_OLD: &str = "the write log of its disk may have newer data than the image: start the disk first, if its \
    flash is still there";

/// How an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageState {
    /// No journal belongs to it.
    Alone,
    /// All that its journal has is in place.
    InPlace,
    /// A window may be in place in part: it needs a repair.
    Torn,
    /// It was torn, and is not any more.
    Repaired,
    /// No sidecar says that the journal is the image's.
    Unknown,
}

/// What is known of an image.
#[derive(Clone, Debug, Serialize)]
pub struct ImageReport {
    /// The image, as it was named.
    pub image: String,
    /// How it is.
    pub state: ImageState,
    /// The disk that it belongs to, or did last: its name.
    pub disk: Option<String>,
    /// The host that served it last.
    pub host: Option<String>,
    /// How the disk was left, as its sidecar says.
    pub left: Option<&'static str>,
    /// The journal, where one belongs to it.
    pub journal: Option<JournalReport>,
    /// What is not as it should be with this look.
    pub warnings: Vec<String>,
}

/// What is known of its journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalReport {
    /// Where it is: a file, or a URI.
    pub place: String,
    /// Bytes that it takes on its file system, where it is a file.
    pub allocated_bytes: Option<u64>,
    /// Windows that are whole, and not known to be in place.
    pub windows: u32,
    /// Bytes of them.
    pub bytes: u64,
    /// Records that are torn: nothing of them is in place.
    pub torn: u32,
    /// When the newest whole window was written, in seconds since 1970: so old is the image with it.
    pub as_of: Option<u64>,
    /// Why it is in doubt that the journal belongs to this image.
    pub doubt: Option<String>,
}

/// An image that nobody uses, locked.
struct Image {
    name: String,
    /// Keeps others from it.
    _backend: Box<dyn Backend>,
    probe: Probe,
    place: SidecarPlace,
    /// Keeps others of this host from it.
    lock: Guard,
    sidecar: Option<Sidecar>,
    journal: Option<(JournalPlace, Owner)>,
    /// The journal is not where the sidecar says, but where the caller does.
    is_asked: bool,
    /// The state folder.
    state: Option<PathBuf>,
    size: u64,
}

/// Looks at an image, a file or a URI, and its journal. `journal`: where that is, if not where the sidecar says.
///
/// # Errors
/// Somebody uses the image, it or its journal cannot be read, or its sidecar says that it has no journal.
pub fn check(image: &str, journal: Option<&str>, state: Option<&Path>) -> Result<ImageReport> {
    let image = Image::open(image, journal, true, state)?;
    let found = image.found()?;
    image.report(found, ImageState::Torn)
}

/// Puts in place what the journal of an image has. `force`: although it is in doubt that the journal belongs to the image.
///
/// # Errors
/// As [`check`], or the image cannot be written, or it is in doubt.
pub fn repair(
    image: &str,
    journal: Option<&str>,
    force: bool,
    state: Option<&Path>,
) -> Result<ImageReport> {
    let image = Image::open(image, journal, false, state)?;
    let found = image.found()?;
    let before = image.report(found, ImageState::Torn)?;
    let (Some((place, owner)), Journal::Found(has)) = (&image.journal, found) else {
        return Ok(before);
    };
    let doubt = before.journal.as_ref().and_then(|journal| journal.doubt.as_ref());
    if let Some(doubt) = doubt.filter(|_| !force) {
        bail!("{doubt}. To put the journal in place all the same: --force");
    }
    let note = image.repair_note()?;
    if has.windows > 0 {
        if let Some(note) = &note {
            if let Some(file) = image.probe.open_at().filter(|_| note.is_left) {
                // The time that the former repair gave it lies before the new note, and would count as somebody else's.
                let kept = keep_time(&file, note.modified)
                    .and_then(|()| fs::File::open(&file)?.sync_all());
                kept.context("cannot keep the image's time")?;
            }
            note.write().context("cannot note the image's time beside it")?;
        }
        // What a daemon that has died a moment ago has sent may still be carried out. One that has ended may have ended
        // without all answers. A plain file has carried out all when its lock is free.
        let state = image.sidecar.as_ref().map(|sidecar| sidecar.state);
        let is_unanswered = state != Some(SidecarState::Clean);
        let primary = || Primary::of(&image.probe, None, is_unanswered);
        // A daemon that has the journal keeps it for a disk of its own.
        let _guard = place.lock(identity(Some(&image.probe)), image.state.as_deref())?;
        let is_remote = image.probe.open_at().is_none() || place.path().is_none();
        if is_remote {
            image.write_state(true)?;
        }
        journal::repair(place, *owner, primary, image.size, is_unanswered)?;
        if is_remote {
            image.write_state(false)?;
        }
    }
    let note = note.filter(|note| has.windows > 0 || note.is_left);
    if let (Some(note), Some(file)) = (note, image.probe.open_at()) {
        // So that the disk, if its flash is there, knows the image again.
        note.restore(&file).context("cannot keep the image's time")?;
    }
    let came = if has.windows > 0 { ImageState::Repaired } else { ImageState::InPlace };
    Ok(ImageReport { state: came, ..image.report(found, ImageState::Repaired)? })
}

impl Image {
    fn open(
        name: &str,
        journal: Option<&str>,
        read_only: bool,
        state: Option<&Path>,
    ) -> Result<Image> {
        let uri: Uri = match name.parse() {
            // A path is taken as it is: '%' and '?' are part of it.
            Err(_) if name.starts_with('/') || !name.contains(':') => {
                Uri::File(FileUri { path: name.into(), direct: true, read_only: false })
            }
            uri => uri?,
        };
        let options = OpenOptions { read_only, lock_wait: LOCK_WAIT };
        let backend = forebay_backends::open(&uri, options)?;
        let size = backend.properties().size;
        let probe = backend.probe().map(|probe| names::known(probe, state));
        let probe = probe.context("it cannot be looked at")?;
        let place = SidecarPlace::of(Some(&probe), state);
        let lock = fence::lock(&place, read_only)?;
        let sidecar = left_beside(&place)?;
        let asked = journal.map(JournalPlace::at).transpose()?;
        let is_asked = asked.is_some();
        let named = sidecar.as_ref().and_then(|sidecar| Some((sidecar, journal::owner(sidecar)?)));
        let journal = match (asked, named, place.path()) {
            (Some(asked), Some((_, owner)), _) => Some((asked, owner)),
            (None, Some((sidecar, owner)), Some(path)) => {
                JournalPlace::named(sidecar, path)?.map(|place| (place, owner))
            }
            // A sidecar that names none says that there is none.
            (Some(asked), None, Some(path)) if sidecar.is_some() => bail!(
                "the sidecar {} names no destage journal: none belongs to the image, and {asked} does not either. Leave \
                 --journal out. If another host has served the image since, give a --state-dir without that sidecar",
                path.display()
            ),
            (Some(asked), _, _) => {
                let owner = journal::owner_of(&asked)?;
                Some((asked, owner))
            }
            (None, _, _) => None,
        };
        Ok(Image {
            name: name.to_owned(),
            _backend: backend,
            probe,
            place,
            lock,
            sidecar,
            journal,
            is_asked,
            state: state.map(Path::to_owned),
            size,
        })
    }

    /// Says in its sidecar that something is under way: should this process die, what it sent to a server may still be carried
    /// out. Or says again what was found.
    fn write_state(&self, is_open: bool) -> Result<()> {
        let (Some(sidecar), Some(path)) = (&self.sidecar, self.place.path()) else { return Ok(()) };
        let state = match sidecar.state {
            SidecarState::Clean if is_open => SidecarState::Open,
            SidecarState::Dirty if is_open => SidecarState::OpenWithLog,
            state => state,
        };
        fence::replace(path, &Sidecar { state, ..sidecar.clone() }.encode())
            .with_context(|| format!("cannot write the sidecar {}", path.display()))?;
        Ok(())
    }

    /// What its journal has.
    fn found(&self) -> Result<Journal> {
        match &self.journal {
            Some((place, owner)) => journal::check(place, *owner, self.size),
            None => Ok(Journal::None),
        }
    }

    /// What is told of it; `torn`: its state where the journal has more than the image.
    fn report(&self, found: Journal, torn: ImageState) -> Result<ImageReport> {
        let (state, journal) = match (found, &self.journal) {
            (Journal::Found(found), Some((place, _))) => {
                let state = match (&self.sidecar, found.windows) {
                    (None, _) => ImageState::Unknown,
                    (Some(_), 0) => ImageState::InPlace,
                    (Some(_), _) => torn,
                };
                (state, Some(self.of_journal(place, &found)?))
            }
            (Journal::None, Some((place, _))) if self.is_asked => {
                bail!("{place} is not there: whether the image is whole cannot be known")
            }
            (Journal::None, Some((place, _))) => bail!(
                "its sidecar names the destage journal {place}, which is not there: whether the image is whole cannot \
                 be known. If the journal is elsewhere: --journal PATH"
            ),
            (Journal::Foreign(_), Some((place, _))) => bail!(
                "{place} is not the destage journal that the sidecar names: whether the image is whole cannot be known"
            ),
            (_, None) => (ImageState::Alone, None),
        };
        let sidecar = self.sidecar.as_ref();
        let has_log = sidecar.is_some_and(|sidecar| {
            matches!(sidecar.state, SidecarState::OpenWithLog | SidecarState::Dirty)
        });
        let of_log = has_log.then_some(match state {
            ImageState::Alone => MAY_BE_TORN,
            _ => MAY_BE_OLD,
        });
        Ok(ImageReport {
            image: self.name.clone(),
            state,
            disk: sidecar.map(|sidecar| sidecar.name.clone()),
            host: sidecar.map(|sidecar| sidecar.host.clone()),
            left: sidecar.map(|sidecar| sidecar.state.name()),
            journal,
            warnings: self.lock.missing().into_iter().chain(of_log).map(str::to_owned).collect(),
        })
    }

    fn of_journal(&self, place: &JournalPlace, found: &Repaired) -> Result<JournalReport> {
        use std::os::unix::fs::MetadataExt;
        let metadata = place.path().map(fs::metadata).transpose()?;
        let doubt = match (found.last, &self.sidecar) {
            (_, None) => Some("no sidecar says that this journal belongs to the image".to_owned()),
            (None, Some(_)) => None,
            (Some(head), Some(sidecar)) => self.doubt(sidecar, head.date)?,
        };
        Ok(JournalReport {
            place: place.to_string(),
            allocated_bytes: metadata.map(|metadata| metadata.blocks() * 512),
            windows: found.windows,
            bytes: found.bytes,
            torn: found.ignored,
            as_of: found.last.map(|head| head.date),
            doubt,
        })
    }

    /// Why the image may not be the one that the journal is of, whose newest window was written at `date`, in seconds since
    /// 1970.
    fn doubt(&self, sidecar: &Sidecar, date: u64) -> Result<Option<String>> {
        if is_of_another(sidecar, &self.probe) {
            return Ok(Some(
                "the sidecar was written for another image: this one is a copy, or was moved or renamed, and a disk that \
                 is served from the other image may need what the journal has"
                    .to_owned(),
            ));
        }
        let Some((seconds, _)) = self.modified()? else { return Ok(None) };
        let Ok(seconds) = u64::try_from(seconds) else {
            bail!("the image was modified before 1970")
        };
        let which = if seconds < date { "earlier" } else { "later" };
        let apart = Duration::from_secs(seconds.abs_diff(date));
        Ok((apart > APART_MAX).then(|| {
            format!(
                "the image was written {} {which} than its journal: it may be a copy from another time, such as a backup",
                humantime::format_duration(apart)
            )
        }))
    }

    /// When the image was modified; when it was before the first write of a repair, if that has not come to its end.
    fn modified(&self) -> Result<Option<Timestamp>> {
        Ok(self.repair_note()?.map(|note| note.modified))
    }

    /// The note that a repair makes, or that one has left which did not come to its end. Nothing where the image has no time.
    fn repair_note(&self) -> Result<Option<RepairNote>> {
        let Some(modified) = self.probe.look()?.modified else { return Ok(None) };
        let (Some((_, owner)), Some(path)) = (&self.journal, self.place.path()) else {
            return Ok(None);
        };
        RepairNote::of(path, owner.nonce, modified).map(Some)
    }
}

#[cfg(test)]
mod tests;
