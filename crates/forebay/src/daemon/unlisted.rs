//! Disks that the configuration file does not list any more: each is detached and forgotten, unless it is listed again meanwhile.

use std::sync::Arc;

use anyhow::Result;
use forebay_host::events::Severity;

use super::change::{self, Consent};
use super::control::{ControlState, lock};
use super::served::ServedDisk;
use super::{kept, refused};
use crate::config::{DaemonSpec, DiskSpec};

/// Begins to detach a disk that no file lists any more, which was configured like this.
///
/// # Errors
/// It stays; or it is gone, and its write log keeps what primary storage does not have.
pub(super) async fn remove(state: &Arc<ControlState>, disk: &DiskSpec) -> Result<()> {
    let name = disk.name.0.as_str();
    if state.find(name).is_err() {
        let kept = kept::in_log(state, disk).await;
        if state.forget(name).await? {
            let Some(kept) = kept else { return Ok(()) };
            let left = kept::left_in_log(&kept, &disk.name);
            state.report(Some(name), Severity::Warning, &format!("reload: {left}"));
            anyhow::bail!(left);
        }
    }
    let Ok(disk) = state.find(name) else { return Ok(()) };
    if !disk.handle.is_open() {
        // Its detach is under way: that of a reload, or of a command, which forgets nothing.
        if lock(&state.turns.unlisted).contains_key(name) {
            note_listed(state, name, false);
        } else {
            detach(state, disk, Consent::of_another());
        }
        return Ok(());
    }
    let clients = disk.handle.stats().await?.connections;
    if clients > 0 {
        let why = format!(
            "it is not listed any more, and stays as long as clients are attached: {clients}. Detach them, then reload again"
        );
        state.report(Some(name), Severity::Warning, &format!("reload: {why}"));
        anyhow::bail!(why);
    }
    if let Err(why) = Consent::default().check(state, &disk).await {
        state.report(Some(name), Severity::Warning, &format!("reload: {why:#}"));
        return Err(why);
    }
    detach(state, disk, Consent::default());
    Ok(())
}

/// Detaches a disk, and forgets it when that has ended, unless it is listed again by then.
fn detach(state: &Arc<ControlState>, disk: Arc<ServedDisk>, consent: Consent) {
    let (state, name, this) = (state.clone(), disk.name().to_owned(), Arc::new(()));
    lock(&state.turns.unlisted).insert(name.clone(), (this.clone(), true));
    tokio::spawn(async move {
        let ended = change::end(&state, &name, disk, &consent).await;
        loop {
            // A reload that is under way writes what is in force, and may list it again.
            let one = state.turns.reloading.lock().await;
            let Some(is_unlisted) = take_unlisted(&state, &name, &this) else { return };
            match ended {
                Ok(_) if is_unlisted => match state.forget(&name).await {
                    Ok(true) => {
                        drop(one);
                        // It may have been in the way of others, such as the same one by another name.
                        return refused::try_again(&state, |_| true).await;
                    }
                    // It is served again.
                    Ok(false) => {}
                    Err(_) => {
                        // Whoever opens another disk takes long. Changes do not wait for that.
                        lock(&state.turns.unlisted).insert(name.clone(), (this.clone(), true));
                        drop(one);
                        while state.opening_turn().await.is_err() {}
                        continue;
                    }
                },
                // An event tells whether it is served again, or why not.
                Ok(_) => drop(refused::serve(&state, &name, None).await),
                Err(error) if is_unlisted => {
                    let text = format!("reload: it is not listed any more, and stays: {error:#}");
                    state.report(Some(&name), Severity::Warning, &text);
                }
                Err(_) => {}
            }
            return;
        }
    });
}

/// Disks that are listed again while they are being detached stay.
pub(super) async fn keep_listed(state: &ControlState, new: &DaemonSpec) {
    for DiskSpec { name, .. } in &new.disks {
        if note_listed(state, &name.0, true)
            && let Ok(disk) = state.find(&name.0)
        {
            // One that has ended by now comes back.
            let _ = disk.handle.pause(false).await;
        }
    }
}

/// Whether that is new of a disk that is being detached because no file listed it any more.
fn note_listed(state: &ControlState, name: &str, is_listed: bool) -> bool {
    let mut unlisted = lock(&state.turns.unlisted);
    unlisted.get_mut(name).is_some_and(|it| std::mem::replace(&mut it.1, !is_listed) == is_listed)
}

/// Whether no file lists a disk any more that `this` detached, which is over now; `None`: it was forgotten meanwhile.
fn take_unlisted(state: &ControlState, name: &str, this: &Arc<()>) -> Option<bool> {
    let mut unlisted = lock(&state.turns.unlisted);
    let is_its_own = unlisted.get(name).is_some_and(|it| Arc::ptr_eq(&it.0, this));
    if is_its_own { unlisted.remove(name).map(|it| it.1) } else { None }
}
