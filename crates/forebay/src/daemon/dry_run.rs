//! What a change of the configuration would meet, found without making it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::api::Change;
use super::control::ControlState;
use super::opener::Opener;
use super::preflight;
use super::questions::FLASH_MAX;
use super::reopen::Reopening;
use crate::config::difference::{self, Difference};
use crate::config::values::Name;
use crate::config::{DaemonSpec, DiskSpec};

/// Notes with the changes of a dry run what would keep disks from being opened, or opened again, as far as that can be seen
/// before they end.
pub(super) async fn try_out(
    state: &Arc<ControlState>,
    new: &DaemonSpec,
    found: &[Difference],
    changes: &mut [Change],
) {
    let old = state.opener.spec();
    let mut disks = difference::in_force(&old, new).disks;
    let images = look_at_images(state, new, found).await;
    // What each pool would be opened for, by the first disk that comes to it.
    let mut opened = BTreeMap::<PathBuf, Vec<DiskSpec>>::new();
    for (difference, change) in found.iter().zip(changes) {
        if let Difference::Added(name) | Difference::Unserved(name, _) = difference {
            change.error = images.get(name).cloned();
        }
        let Difference::OpenedAgain(name, ..) = difference else { continue };
        let at = disks.iter().position(|it| it.name == *name);
        let asked = new.disks.iter().find(|it| it.name == *name);
        let (Some(at), Some(asked)) = (at, asked) else { continue };
        let Ok(served) = state.find(&name.0) else { continue };
        let before = disks[at].clone();
        disks[at].take_over_opened_again(asked);
        let flash = disks[at].flash.as_ref().map(|flash| flash.path.clone());
        let known = flash.as_ref().and_then(|path| opened.get(path));
        let first = known.unwrap_or(&disks).clone();
        let look = Reopening::of(state, &served).look(&before, (&disks[at], &disks), &first).await;
        match (look, flash) {
            (Ok(_), Some(path)) => drop(opened.entry(path).or_insert(first)),
            (Ok(_), None) => {}
            (Err(why), _) => {
                change.error = Some(format!("{why:#}"));
                disks[at] = before;
            }
        }
    }
}

/// Finds what is wrong with primary storage of disks that are to be opened, where it is a file or a device.
async fn look_at_images(
    state: &Arc<ControlState>,
    new: &DaemonSpec,
    found: &[Difference],
) -> BTreeMap<Name, String> {
    let to_open = found.iter().filter_map(|difference| match difference {
        Difference::Added(name) | Difference::Unserved(name, _) => {
            new.disks.iter().find(|it| it.name == *name)
        }
        _ => None,
    });
    let of = to_open.map(|disk| (disk, Opener::about_storage(disk)));
    let look = |disk: &&DiskSpec| {
        let (of, opener) = ((*disk).clone(), state.opener.clone());
        move || preflight::image(&of, opener.state(), true)
    };
    let looked = state.opener.questions.ask_each(of, FLASH_MAX, look).await;
    let wrong = looked.into_iter().filter_map(|(disk, found)| {
        let found = found.unwrap_or_else(|why| Err(why.of("its primary storage")));
        Some((disk.name.clone(), format!("{:#}", found.err()?)))
    });
    wrong.collect()
}
