//! What a change of the configuration would meet, found without making it.

use std::sync::Arc;

use super::api::Change;
use super::control::ControlState;
use super::reopen::Reopening;
use crate::config::DaemonSpec;
use crate::config::difference::Difference;

/// Notes with the changes of a dry run what would keep disks from being opened again, as far as that can be seen before they
/// end.
pub(super) async fn try_out(
    state: &Arc<ControlState>,
    new: &DaemonSpec,
    found: &[Difference],
    changes: &mut [Change],
) {
    let old = state.opener.spec();
    for (difference, change) in found.iter().zip(changes) {
        let Difference::OpenedAgain(name, ..) = difference else { continue };
        let of = |spec: &DaemonSpec| spec.disks.iter().find(|it| it.name == *name).cloned();
        let (Some(before), Some(asked)) = (of(&old), of(new)) else { continue };
        let Ok(served) = state.find(&name.0) else { continue };
        let mut after = before.clone();
        after.take_over_opened_again(&asked);
        let possible = Reopening::of(state, &served).look(&before, (&after, &new.disks)).await;
        change.error = possible.err().map(|why| format!("{why:#}"));
    }
}
