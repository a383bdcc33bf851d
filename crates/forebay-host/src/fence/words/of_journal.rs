//! What the fence tells an operator of a destage journal.

use std::path::Path;

use forebay_backends::size::rounded;

use super::Refused;
use crate::events::Severity;
use crate::journal::{Journal, JournalPlace};
use crate::shell::quoted;

/// What to do about a journal that cannot be put in place.
pub(in crate::fence) fn journal_unusable(sidecar: &Path, journal: &JournalPlace) -> String {
    let what = "what the last run wrote to its destage journal cannot be put in place. The write log has all of it: to start \
                without the journal, remove";
    match journal.path() {
        Some(path) => format!("{what} {}", quoted(path.display().to_string())),
        None => format!(
            "{what} the sidecar {}, start the disk, and decide with 'forebay disk resolve'",
            quoted(sidecar.display().to_string())
        ),
    }
}

/// An image that was left torn, and is to be used without the log.
pub(in crate::fence) fn torn(sidecar: &Path, journal: &JournalPlace) -> Refused {
    Refused(format!(
        "primary storage is torn: a window of the log is in place in part, and {journal} has the rest. Put it in place \
         first: forebay image repair {}. If somebody else has changed or replaced the image since, remove the sidecar {} \
         instead",
        image_of(sidecar),
        quoted(sidecar)
    ))
}

/// Nobody knows whether an image is torn that is to be used without the log; `journal`: which one its sidecar names, and
/// what is wrong with that.
pub(in crate::fence) fn may_be_torn(sidecar: &Path, journal: &str) -> String {
    let sidecar = quoted(sidecar);
    format!(
        "the sidecar {sidecar} names a destage journal, {journal}: primary storage may be torn, and only that journal has \
         the rest. Mount it, or put it back. If it is gone for good, remove the sidecar {sidecar}: from then on the image is \
         used as it is, torn or not"
    )
}

/// A disk finds the journal of another image than its own.
pub(in crate::fence) fn journal_of_another(sidecar: &Path, journal: &JournalPlace) -> Refused {
    Refused(format!(
        "the destage journal {journal} belongs to another image than this one, which was copied, moved or renamed since. \
         Its windows would tear a copy, and a disk that is served from the other image may need them. If this image \
         was moved or renamed, put them in place: forebay image repair {} --force. If it is a copy, remove its sidecar \
         {}",
        image_of(sidecar),
        quoted(sidecar)
    ))
}

/// What the sidecar is of, for a command; a placeholder where its name does not say that.
fn image_of(sidecar: &Path) -> String {
    // In the state folder it has the name of an identity, which is no file.
    let image = sidecar.with_extension("");
    match sidecar.extension().is_some_and(|end| end == "forebay") && image.exists() {
        true => quoted(image),
        false => "URI".to_owned(),
    }
}

/// What came of the destage journal that a former session left.
pub(in crate::fence) fn journal(
    place: &JournalPlace,
    came: &Journal,
) -> Option<(Severity, String)> {
    match came {
        Journal::Found(found) if found.windows > 0 => Some((
            Severity::Info,
            format!(
                "{} windows ({}) of the destage journal were put in place on primary storage",
                found.windows,
                rounded(found.bytes)
            ),
        )),
        Journal::Found(_) => None,
        Journal::None | Journal::Foreign(_) => Some((
            Severity::Warning,
            format!(
                "the destage journal {place} that the sidecar names is not there: primary storage alone may be torn until \
                 the write log is destaged"
            ),
        )),
    }
}
