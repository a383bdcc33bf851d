//! Whether primary storage is raw, before it is served as if it were.
//!
//! Forebay refuses a file or device with the bytes of an image of another format, or of a flash pool. A guest may write these bytes to its raw
//! disk. So the state folder of this host keeps a note of each disk that was served as raw, and a sidecar tells the same.
//! Neither holds for a file that was made later, such as a converted image in the old one's place.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_backends::uri::NbdUri;
use forebay_backends::{ErrorKind, ImageFormat, Probe, Uri};
use forebay_core::ids::Uuid;
use forebay_host::events::Severity;
use forebay_host::fence::{self, Refused, SidecarPlace};
use forebay_host::folders;
use forebay_host::shell::quoted;

use crate::config::DiskSpec;

/// Refuses what is not raw; a note where that it is raw cannot be kept for the next start.
///
/// # Errors
/// It is an image of another format, as far as anybody knows. Or it cannot be looked at.
pub(super) fn check(
    spec: &DiskSpec,
    uri: &Uri,
    probe: Option<&Probe>,
    state: Option<&Path>,
) -> Result<Option<(Severity, String)>> {
    // A server knows itself what it serves.
    let (Some(path), Some(probe)) = (uri.path(), probe) else { return Ok(None) };
    let note = Note::of(probe, state);
    let format = probe.image_format().context("cannot look at its primary storage")?;
    let is_known = || note.as_ref().is_some_and(Note::is_kept) || has_sidecar(probe);
    if let Some(format) = format
        && !spec.raw_anyway
        && !is_known()
    {
        return Err(Refused::not_raw(refusal(spec, path, format)).into());
    }
    // Who only reads writes no such bytes.
    let kept = note.filter(|_| !probe.is_read_only()).map_or(Ok(()), |note| note.keep());
    Ok(kept.err().map(|error| {
        let text = format!(
            "the state folder cannot keep that primary storage is raw ({error}): should the guest write the header of an image \
             to its first sector, the next start asks for --raw-anyway"
        );
        (Severity::Info, text)
    }))
}

/// The error of an image that could not be opened, with what serves it.
pub(super) fn explain(spec: &DiskSpec, uri: &Uri, error: forebay_backends::Error) -> anyhow::Error {
    match (error.kind(), uri.path()) {
        (ErrorKind::NotRaw(format), Some(path)) if !spec.raw_anyway => {
            Refused::not_raw(refusal(spec, path, format)).into()
        }
        _ => error.into(),
    }
}

/// What the state folder has of primary storage that was served as raw.
struct Note {
    path: PathBuf,
    /// When the file was made.
    text: String,
}

impl Note {
    fn of(probe: &Probe, state: Option<&Path>) -> Option<Note> {
        let identity = fence::identity(Some(probe));
        let path = state?.join(format!("{identity}.raw"));
        let (seconds, nanos) = probe.born().unwrap_or_default();
        let text = format!("raw, made {seconds}.{nanos:09}\n");
        (identity != Uuid::NIL).then_some(Note { path, text })
    }

    fn is_kept(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|kept| kept == self.text)
    }

    fn keep(&self) -> std::io::Result<()> {
        if self.is_kept() {
            return Ok(());
        }
        fs::create_dir_all(self.path.parent().unwrap_or(Path::new("/")))?;
        fence::replace(&self.path, self.text.as_bytes()).map(drop)
    }
}

/// True when a sidecar beside the image was written after the image was made.
fn has_sidecar(probe: &Probe) -> bool {
    let sidecar = fence::left_beside(&SidecarPlace::of(Some(probe), None)).ok().flatten();
    let made = probe.born().map_or(0, |(seconds, _)| seconds);
    sidecar.is_some_and(|sidecar| i64::try_from(sidecar.date).is_ok_and(|date| made <= date))
}

/// What is there, and what to do.
fn refusal(spec: &DiskSpec, image: &Path, format: ImageFormat) -> String {
    let path = quoted(image);
    let (what, instead) = match format.in_qemu() {
        Some(in_qemu) => served_by_qemu(spec, &path, format, in_qemu),
        None => (
            "a flash pool of Forebay. Its write logs may hold what is nowhere else, and the guest would write over \
             them"
            .to_owned(),
            format!(
                "\n  forebay pool show {path}\nsays whose pool it is. Give the disk its own image or device as primary \
                 storage, and a pool to --flash."
            ),
        ),
    };
    format!(
        "its primary storage {} is {what}.{instead}\nIf it is a raw disk after all, where some bytes only look like \
         that: --raw-anyway (raw-anyway = true in a configuration file)",
        spec.backend
    )
}

/// An image that QEMU can read.
fn served_by_qemu(
    spec: &DiskSpec,
    path: &str,
    format: ImageFormat,
    in_qemu: &str,
) -> (String, String) {
    let socket = folders::folder().join(format!("{}.qemu-nbd.sock", spec.name));
    let uri = NbdUri::at_socket("", &socket);
    let socket = quoted(&socket);
    let read_only = if spec.read_only { " --read-only" } else { "" };
    let what = format!(
        "a {format} image. Forebay serves bytes as they are: the guest would see the tables of the image instead of its disk"
    );
    let instead = format!(
        " Let QEMU read the image:\n  qemu-nbd --fork --persistent --shared=0 --format={in_qemu} --cache=none \
         --discard=unmap{read_only} --socket={socket} {path}\nand make its export primary storage: \
         {uri}"
    );
    (what, instead)
}
