//! What the write logs of disks keep that are not served: writes that primary storage does not have.

use std::sync::Arc;
use std::time::Duration;

use forebay_backends::size::rounded;
use forebay_host::fence::resolve;
use forebay_host::pool::Dirty;
use tokio::task::JoinSet;

use super::control::ControlState;
use super::refused::{about, find};
use crate::config::DiskSpec;
use crate::config::values::Name;

/// Time that flash has to tell what a log has.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// What the log of a disk that goes from the configuration `kept`, and how to have it.
pub(super) fn left_in_log(kept: &str, disk: &Name) -> String {
    format!(
        "its write log {kept}. To have them, add disk '{disk}' again as it was, by 'forebay disk reset {disk}' or in the \
         configuration file"
    )
}

/// What the log of a disk that is not served keeps, in words. Nobody waits long for flash, and no pool is opened for that.
pub(super) async fn in_log(state: &ControlState, disk: &DiskSpec) -> Option<String> {
    disk.flash.as_ref().filter(|_| !has_left_nothing(state, &disk.name))?;
    let may_hold = |why: &str| {
        // Otherwise nothing says that there is one.
        disk.write_log.as_ref()?;
        Some(format!("may hold writes that primary storage does not have: {why}"))
    };
    let Some(pool) = state.opener.flash.open_pool_of(disk) else {
        return may_hold("its flash is not in use");
    };
    let (name, about) = (disk.name.0.clone(), about(disk));
    let is_asked = state.opener.questions.is_out(&about);
    let look = move || resolve::undestaged(&pool, &name);
    match state.opener.questions.ask(about, LOOK_MAX, look).await {
        Ok(None) => None,
        Ok(Some(Dirty { error: None, bytes, .. })) => {
            Some(format!("still holds {} that primary storage does not have", rounded(bytes)))
        }
        Ok(Some(Dirty { error: Some(error), .. })) => Some(format!("cannot be read: {error}")),
        Err(_) if is_asked => may_hold("somebody is just opening it"),
        Err(why) => may_hold(&why.of("its flash").to_string()),
    }
}

/// The same of all that are refused, by their names.
pub(super) fn in_logs(state: Arc<ControlState>) -> JoinSet<Option<(String, String)>> {
    let mut looks = JoinSet::new();
    for refused in state.may_be_tried() {
        let state = state.clone();
        looks.spawn(async move {
            let disk = find(&state, &refused.name).ok()?;
            Some((refused.name, in_log(&state, &disk).await?))
        });
    }
    looks
}

/// True of a disk that was detached: primary storage has everything, unless it could not be opened again.
fn has_left_nothing(state: &ControlState, name: &Name) -> bool {
    let disks = state.disks();
    let disk = disks.iter().find(|disk| disk.name() == name.0);
    disk.is_some_and(|disk| disk.ended() == Some(&None) && disk.given_up().is_none())
}
