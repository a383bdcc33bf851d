//! Whether primary storage belongs to another disk, as a sidecar beside it or beside a former name says.

use std::path::Path;

use anyhow::Result;
use forebay_backends::Probe;
use forebay_core::flash_pool::fence::is_claimed;
use forebay_core::flash_pool::sidecar::Sidecar;
use forebay_core::ids::Uuid;

use super::journal_named::check_torn;
use super::sidecar::{self, Found, SidecarPlace};
use super::{names, words};

/// Refuses primary storage that belongs to another disk, whose log may hold newer data. For a disk without flash; what was
/// found, otherwise.
///
/// # Errors
/// It does, and the administrator has not said that this disk takes it over.
pub(super) fn check_claim(
    probe: Option<&Probe>,
    place: &SidecarPlace,
    takes_over: Option<Uuid>,
    state: Option<&Path>,
) -> Result<Found> {
    check_left_behind(probe, takes_over, state, |there| is_claimed(there, None))?;
    let found = sidecar::read(place.path());
    match &found {
        Found::There(sidecar) if is_claimed(sidecar, None) && takes_over != Some(sidecar.disk) => {
            Err(words::claimed(sidecar, place, state).into())
        }
        Found::There(sidecar) => {
            check_torn(sidecar, probe, place)?;
            Ok(found)
        }
        Found::NoPlace | Found::Missing | Found::Unreadable(_) => {
            check_readable(&found, place)?;
            Ok(found)
        }
    }
}

/// Refuses primary storage whose sidecar cannot be read, for a disk that knows nothing of it: that may be the sidecar of
/// another disk, whose log may hold newer data.
///
/// # Errors
/// It cannot be read.
pub(super) fn check_readable(found: &Found, place: &SidecarPlace) -> Result<()> {
    match found {
        Found::Unreadable(why) => Err(words::unreadable(place, why).into()),
        Found::NoPlace | Found::Missing | Found::There(_) => Ok(()),
    }
}

/// Refuses an image that was renamed away from a sidecar of another disk, whose log may hold newer data.
///
/// # Errors
/// It was, and the administrator has not said that this disk takes it over.
pub(super) fn check_left_behind(
    probe: Option<&Probe>,
    takes_over: Option<Uuid>,
    state: Option<&Path>,
    is_claimed: impl Fn(&Sidecar) -> bool,
) -> Result<()> {
    let left = probe.and_then(|probe| names::left_behind(probe, state));
    match left {
        Some((name, there)) if is_claimed(&there) && takes_over != Some(there.disk) => {
            Err(words::left_behind(&name, &there, state).into())
        }
        _ => Ok(()),
    }
}
