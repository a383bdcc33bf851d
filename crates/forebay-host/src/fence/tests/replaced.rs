//! An image that is replaced while it is served: another disk's sidecar lies in the place of the session's own by then.

use super::*;

/// Sidecars that a session of `own` did not write: another disk's, another pool's, a later session's.
fn strangers(own: &Sidecar) -> [Sidecar; 3] {
    let state = SidecarState::Dirty;
    [
        Sidecar { disk: Uuid([8; 16]), state, ..own.clone() },
        Sidecar { pool: Uuid([9; 16]), state, ..own.clone() },
        Sidecar { generation: Generation(own.generation.0 + 2), state, ..own.clone() },
    ]
}

impl Bed {
    /// Another sidecar is put beside the image, with its journal.
    fn put(&self, sidecar: &Sidecar) {
        sidecar::write(&self.path("db.raw.forebay"), sidecar).unwrap();
        fs::write(self.path("db.raw.forebay-journal"), "another one's").unwrap();
    }

    #[track_caller]
    fn check_untouched(&self, sidecar: &Sidecar) {
        assert_eq!(self.sidecar(), *sidecar);
        let journal = fs::read_to_string(self.path("db.raw.forebay-journal")).unwrap();
        assert_eq!(journal, "another one's");
    }
}

#[test]
fn an_end_leaves_the_sidecar_and_the_journal_that_others_have_put_there() {
    for end in [EndOfSession::Clean, EndOfSession::Dirty, EndOfSession::Detached] {
        for which in 0..3 {
            let bed = Bed::new();
            let Served { mut pool, number, mut fence, log: _log, _staged } = bed.serve();
            let stranger = &strangers(&bed.sidecar())[which];
            bed.put(stranger);
            pool.close(number, end, true, None).unwrap();
            let error = fence.leave(end, true, false).unwrap_err().to_string();
            bed.check_untouched(stranger);
            let path = bed.path("db.raw.forebay").display().to_string();
            for text in [path, stranger.disk.to_string(), "was left as it is".to_owned()] {
                assert!(error.contains(&text), "{error}");
            }
        }
    }
}

#[test]
fn a_disk_that_ends_over_the_sidecar_of_another_one_has_left_with_a_warning() {
    for end in [EndOfSession::Clean, EndOfSession::Dirty, EndOfSession::Detached] {
        let bed = Bed::new();
        let served = bed.serve();
        let [stranger, ..] = strangers(&bed.sidecar());
        bed.put(&stranger);
        let place = DiskPlace::new(None, Some(served.fence), Guard::Itself);
        let warning = place.leave(leaving(end), || false).unwrap().expect("it is told");
        assert!(warning.contains("was replaced"), "{warning}");
        bed.check_untouched(&stranger);
    }
}

#[test]
fn what_is_on_flash_is_not_revoked_in_the_sidecar_of_another_disk() {
    for which in 0..3 {
        let bed = Bed::new();
        let mut served = bed.serve();
        let revoker = served.fence.revoker().unwrap();
        assert!(revoker.revoke_journal());
        let own = bed.sidecar();
        let stranger = &strangers(&own)[which];
        bed.put(stranger);
        assert!(!revoker.revoke() && !revoker.revoke_journal());
        let journal = crate::journal::JournalPlace::beside(&bed.path("db.raw.forebay")).unwrap();
        let named = served.fence.name_journal(&journal, 7);
        assert!(named.is_err(), "nor does it name a journal");
        bed.check_untouched(stranger);
        // Its own, put back, is one that it goes on with.
        bed.put(&own);
        assert!(revoker.revoke() && revoker.revoke_journal());
        served.fence.leave(EndOfSession::Detached, true, false).unwrap();
        assert!(!bed.path("db.raw.forebay-journal").exists());
    }
}

#[test]
fn a_sidecar_that_is_gone_or_spoilt_is_written_again() {
    let bed = Bed::new();
    let path = bed.path("db.raw.forebay");
    let mut served = bed.serve();
    fs::remove_file(&path).unwrap();
    served.fence.leave(EndOfSession::Dirty, true, false).unwrap();
    assert_eq!(bed.sidecar().state, SidecarState::Dirty);
    fs::write(&path, "spoilt").unwrap();
    served.fence.leave(EndOfSession::Clean, true, false).unwrap();
    assert_eq!(bed.sidecar().state, SidecarState::Clean);
}
