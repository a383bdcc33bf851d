//! An image without its daemon and its flash: is it what a file system can be mounted from, and how old is that?
//!
//! A disk that is destaged through a journal may have died while a window was put in place: then the image is torn, and the
//! journal beside it makes it whole. To look needs nothing but the folder of the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::{Backend, OpenOptions, Probe, Uri};
use forebay_core::journal::Repaired;
use serde::Serialize;

use crate::fence::{SidecarPlace, left_beside, names};
use crate::journal::{self, Journal};
use crate::pool::LOCK_WAIT;

/// An image that was written so much earlier or later than its journal is another one's copy. Windows go in place and into
/// the journal by turns.
const APART_MAX: Duration = Duration::from_secs(600);

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
}

/// What is known of an image.
#[derive(Clone, Debug, Serialize)]
pub struct ImageReport {
    /// The image.
    pub image: PathBuf,
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
}

/// What is known of its journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalReport {
    /// The file.
    pub path: PathBuf,
    /// Bytes that it takes.
    pub allocated_bytes: u64,
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
    path: PathBuf,
    /// Keeps others from it.
    _backend: Box<dyn Backend>,
    probe: Probe,
    sidecar: Option<forebay_core::flash_pool::sidecar::Sidecar>,
    journal: Option<PathBuf>,
    size: u64,
}

/// Looks at an image and its journal. `journal`: where that is, if not beside the image.
///
/// # Errors
/// Somebody uses the image, or it or its journal cannot be read.
pub fn check(path: &Path, journal: Option<&Path>, state: Option<&Path>) -> Result<ImageReport> {
    let image = Image::open(path, journal, true, state)?;
    let found = match (&image.sidecar, &image.journal) {
        (Some(sidecar), Some(journal)) => journal::check(journal, sidecar, image.size)?,
        _ => Journal::None,
    };
    image.report(found, ImageState::Torn)
}

/// Puts in place what the journal of an image has. `force`: although it is in doubt that the journal belongs to the image.
///
/// # Errors
/// As [`check`], or the image cannot be written, or it is in doubt.
pub fn repair(
    path: &Path,
    journal: Option<&Path>,
    force: bool,
    state: Option<&Path>,
) -> Result<ImageReport> {
    let image = Image::open(path, journal, false, state)?;
    let (Some(sidecar), Some(there)) = (&image.sidecar, &image.journal) else {
        return image.report(Journal::None, ImageState::Torn);
    };
    let found = journal::check(there, sidecar, image.size)?;
    let before = image.report(found, ImageState::Torn)?;
    if before.state != ImageState::Torn {
        return Ok(before);
    }
    let doubt = before.journal.as_ref().and_then(|journal| journal.doubt.as_ref());
    if let Some(doubt) = doubt.filter(|_| !force) {
        bail!("{doubt}. To put the journal in place all the same: --force");
    }
    let file = image.probe.open_at().context("it is no file")?;
    let look = image.probe.look()?;
    journal::repair(there, sidecar, &file, image.size, None)?;
    if let Some(modified) = look.modified {
        // So that the disk, if its flash is there, knows the image again.
        journal::keep_time(&file, modified).context("cannot keep the image's time")?;
    }
    image.report(found, ImageState::Repaired)
}

impl Image {
    fn open(
        path: &Path,
        journal: Option<&Path>,
        read_only: bool,
        state: Option<&Path>,
    ) -> Result<Image> {
        let uri: Uri = format!("file:{}", path.display()).parse()?;
        let options = OpenOptions { read_only, lock_wait: LOCK_WAIT };
        let backend = forebay_backends::open(&uri, options)?;
        let size = backend.properties().size;
        let probe = backend.probe().map(|probe| names::known(probe, state));
        let probe = probe.context("it cannot be looked at")?;
        let place = SidecarPlace::of(Some(&probe), state);
        let SidecarPlace::Beside(beside) = &place else {
            bail!("{} is no image file: a journal lies beside files only", path.display())
        };
        let there = journal::beside(beside);
        let sidecar = left_beside(&place)?;
        let named = sidecar.as_ref().is_some_and(|sidecar| sidecar.journal.is_some());
        let journal = named.then(|| journal.map_or(there, Path::to_owned));
        Ok(Image { path: path.to_owned(), _backend: backend, probe, sidecar, journal, size })
    }

    /// What is told of it; `torn`: its state where the journal has more than the image.
    fn report(&self, found: Journal, torn: ImageState) -> Result<ImageReport> {
        let (state, journal) = match (found, &self.journal) {
            (Journal::Found(found), Some(path)) => {
                let state = if found.windows > 0 { torn } else { ImageState::InPlace };
                (state, Some(self.of_journal(path, &found)?))
            }
            (Journal::None, Some(path)) => bail!(
                "its sidecar names a destage journal, and {} is not there: whether the image is whole cannot be known. If \
                 the journal is elsewhere: --journal PATH",
                path.display()
            ),
            (Journal::Foreign(_), Some(path)) => bail!(
                "{} is not the destage journal that the sidecar names: whether the image is whole cannot be known",
                path.display()
            ),
            (_, None) => (ImageState::Alone, None),
        };
        let sidecar = self.sidecar.as_ref();
        Ok(ImageReport {
            image: self.path.clone(),
            state,
            disk: sidecar.map(|sidecar| sidecar.name.clone()),
            host: sidecar.map(|sidecar| sidecar.host.clone()),
            left: sidecar.map(|sidecar| sidecar.state.name()),
            journal,
        })
    }

    fn of_journal(&self, path: &Path, found: &Repaired) -> Result<JournalReport> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path)?;
        let doubt = match found.windows {
            0 => None,
            _ => self.doubt(metadata.modified()?)?,
        };
        Ok(JournalReport {
            path: path.to_owned(),
            allocated_bytes: metadata.blocks() * 512,
            windows: found.windows,
            bytes: found.bytes,
            torn: found.ignored,
            as_of: found.last.map(|head| head.date),
            doubt,
        })
    }

    /// Why the image may not be the one that the journal is of.
    fn doubt(&self, journal: SystemTime) -> Result<Option<String>> {
        let Some((seconds, _)) = self.probe.look()?.modified else { return Ok(None) };
        let seconds = u64::try_from(seconds);
        ensure!(seconds.is_ok(), "the image was modified before 1970");
        let image = UNIX_EPOCH + Duration::from_secs(seconds.unwrap_or_default());
        let (apart, which) = match image.duration_since(journal) {
            Ok(later) => (later, "later"),
            Err(error) => (error.duration(), "earlier"),
        };
        Ok((apart > APART_MAX).then(|| {
            format!(
                "the image was written {} {which} than its journal: it may be a copy from another time, such as a backup",
                humantime::format_duration(Duration::from_secs(apart.as_secs()))
            )
        }))
    }
}
