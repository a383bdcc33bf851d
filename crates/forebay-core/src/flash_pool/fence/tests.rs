use super::super::sidecar::SidecarState;
use super::*;

const DISK: Uuid = Uuid([1; 16]);
const POOL: Uuid = Uuid([2; 16]);
const OTHER: Uuid = Uuid([3; 16]);
/// The disk was served under generation 7, and a start under 8 was given up.
const KNOWN: Known = Known {
    disk: DISK,
    pool: POOL,
    is_new: false,
    sidecar: Generation(7),
    pending: Generation(8),
    ended: Generation(7),
    size: 4096,
    times: STOPPED,
    is_detached: false,
    is_modified: false,
};
const STOPPED: Times = Times::Final { modified: Some(AT), changed: Some(AT) };
const KILLED: Times = Times::Between { from: AT, to: LATER };
const HOST_LOST: Times = Times::NotBefore(Some(AT));
const EARLIER: Timestamp = (99, 999_999_999);
const AT: Timestamp = (100, 5);
const BETWEEN: Timestamp = (100, 700);
const LATER: Timestamp = (101, 5);
const TOO_LATE: Timestamp = (101, 6);

fn sidecar(disk: Uuid, pool: Uuid, generation: u64) -> Sidecar {
    Sidecar {
        disk,
        pool,
        generation: Generation(generation),
        state: SidecarState::OpenWithLog,
        date: 0,
        host: String::new(),
        name: String::new(),
        journal: None,
    }
}

/// The verdict where all is as it was, but for what `change` does.
fn check(times: Times, change: impl FnOnce(&mut Known, &mut Found<'_>), expect: Verdict) {
    check_with(&sidecar(DISK, POOL, 7), times, change, expect);
}

fn check_with<'a>(
    sidecar: &'a Sidecar,
    times: Times,
    change: impl FnOnce(&mut Known, &mut Found<'a>),
    expect: Verdict,
) {
    let mut known = Known { times, ..KNOWN };
    let mut found = Found {
        size: 4096,
        modified: Some(AT),
        changed: Some(AT),
        sidecar: SidecarFound::There(sidecar),
        samples: Samples::Agree,
        is_elsewhere: false,
    };
    change(&mut known, &mut found);
    assert_eq!(judge(&known, &found), expect, "{known:?} {found:?}");
}

#[test]
fn a_pool_with_a_disk_that_was_detached_is_an_old_copy() {
    for times in [STOPPED, KILLED, HOST_LOST] {
        let expect = Verdict::Mismatch(Change::Detached);
        check(times, |known, _| known.is_detached = true, expect);
    }
}

#[test]
fn a_change_that_the_session_saw_counts_whatever_primary_storage_looks_like() {
    for times in [STOPPED, KILLED, HOST_LOST, Times::NotBefore(None)] {
        let expect = Verdict::Mismatch(Change::WhileServed);
        check(times, |known, _| known.is_modified = true, expect);
    }
}

#[test]
fn what_is_as_it_was_is_strong_as_far_as_times_tell() {
    check(STOPPED, |_, _| {}, Verdict::Strong);
    check(STOPPED, |_, found| found.samples = Samples::Unknown, Verdict::Strong);
    check(KILLED, |_, _| {}, Verdict::Strong);
    check(KILLED, |_, found| found.modified = Some(BETWEEN), Verdict::Strong);
    check(KILLED, |_, found| found.modified = Some(LATER), Verdict::Strong);
    check(HOST_LOST, |_, _| {}, Verdict::Weak(Doubt::Unseen));
    check(HOST_LOST, |_, found| found.modified = Some(TOO_LATE), Verdict::Weak(Doubt::Unseen));
    check(Times::NotBefore(None), |_, _| {}, Verdict::Weak(Doubt::Unseen));
    check(STOPPED, |known, _| known.is_new = true, Verdict::New);
}

#[test]
fn a_time_that_does_not_fit_is_a_mismatch() {
    let later = |was, is| Verdict::Mismatch(Change::Modified { was, is });
    let earlier = |was, is| Verdict::Mismatch(Change::RolledBack { was, is });
    check(STOPPED, |_, found| found.modified = Some(BETWEEN), later(AT, BETWEEN));
    check(STOPPED, |_, found| found.modified = Some(EARLIER), earlier(AT, EARLIER));
    check(KILLED, |_, found| found.modified = Some(TOO_LATE), later(LATER, TOO_LATE));
    check(KILLED, |_, found| found.modified = Some(EARLIER), earlier(AT, EARLIER));
    check(HOST_LOST, |_, found| found.modified = Some(EARLIER), earlier(AT, EARLIER));
}

#[test]
fn another_size_or_content_is_a_mismatch_whatever_the_time_says() {
    for times in [STOPPED, KILLED, HOST_LOST, Times::NotBefore(None)] {
        let size = Change::Size { was: 4096, is: 8192 };
        check(times, |_, found| found.size = 8192, Verdict::Mismatch(size));
        let content = Verdict::Mismatch(Change::Content);
        check(times, |_, found| found.samples = Samples::Differ, content);
    }
}

#[test]
fn a_sidecar_is_ours_from_the_last_one_of_a_session_to_pending() {
    for times in [STOPPED, KILLED, HOST_LOST] {
        let with = |disk, pool, generation, expect| {
            check_with(&sidecar(disk, pool, generation), times, |_, _| {}, expect);
        };
        let ours = match times {
            Times::NotBefore(_) => Verdict::Weak(Doubt::Unseen),
            Times::Final { .. } | Times::Between { .. } => Verdict::Strong,
        };
        with(DISK, POOL, 7, ours);
        with(DISK, POOL, 8, ours);
        let (sidecar, pool) = (Generation(9), Generation(8));
        with(DISK, POOL, 9, Verdict::Mismatch(Change::FlashRolledBack { sidecar, pool }));
        let (sidecar, pool) = (Generation(6), Generation(7));
        with(DISK, POOL, 6, Verdict::Mismatch(Change::SidecarRolledBack { sidecar, pool }));
        with(OTHER, POOL, 7, Verdict::Mismatch(Change::OtherDisk));
        with(DISK, OTHER, 7, Verdict::Mismatch(Change::OtherDisk));
    }
}

#[test]
fn a_session_that_ended_is_newer_than_a_pool_that_knows_of_no_end() {
    for (ended, generation) in [(6, 7), (7, 8)] {
        for state in [SidecarState::Clean, SidecarState::Dirty] {
            let there = Sidecar { state, ..sidecar(DISK, POOL, generation) };
            let ended = Generation(ended);
            let change =
                Change::FlashRolledBack { sidecar: Generation(generation), pool: Generation(8) };
            let is_so = |known: &mut Known, _: &mut Found<'_>| known.ended = ended;
            check_with(&there, KILLED, is_so, Verdict::Mismatch(change));
        }
    }
}

#[test]
fn another_image_under_the_same_name_is_no_place_for_the_log_of_a_killed_session() {
    for (times, is_known) in [(STOPPED, true), (KILLED, false), (HOST_LOST, false)] {
        let elsewhere = |_: &mut Known, found: &mut Found<'_>| {
            (found.is_elsewhere, found.sidecar) = (true, SidecarFound::Missing);
        };
        let expect = match is_known {
            true => Verdict::Weak(Doubt::Sidecar),
            false => Verdict::Mismatch(Change::Elsewhere),
        };
        check(times, elsewhere, expect);
    }
    // It was moved with its sidecar.
    check(KILLED, |_, found| found.is_elsewhere = true, Verdict::Strong);
}

#[test]
fn without_sidecar_or_time_nothing_is_strong() {
    for gone in [SidecarFound::NoPlace, SidecarFound::Missing, SidecarFound::Unreadable] {
        for times in [STOPPED, KILLED] {
            check(times, |_, found| found.sidecar = gone, Verdict::Weak(Doubt::Sidecar));
        }
        check(HOST_LOST, |_, found| found.sidecar = gone, Verdict::Weak(Doubt::Unseen));
    }
    let nobody_noted = Times::Final { modified: None, changed: None };
    check(nobody_noted, |_, _| {}, Verdict::Weak(Doubt::NoTime));
    for times in [STOPPED, KILLED, HOST_LOST, Times::NotBefore(None)] {
        let tells_nothing = |found: &mut Found<'_>| found.modified = None;
        check(times, |_, found| tells_nothing(found), Verdict::Weak(Doubt::NoTime));
    }
}

#[test]
fn a_time_that_was_set_back_is_no_proof() {
    check(STOPPED, |_, found| found.changed = Some(LATER), Verdict::Weak(Doubt::Touched));
    check(KILLED, |_, found| found.changed = Some(BETWEEN), Verdict::Strong);
    check(KILLED, |_, found| found.changed = Some(TOO_LATE), Verdict::Weak(Doubt::Touched));
}

#[test]
fn what_follows() {
    let serve = |keeps_cache, is_weak| Follows::Serve { keeps_cache, is_weak };
    let refuse = || Follows::Refuse;
    let weak = Verdict::Weak(Doubt::Sidecar);
    let mismatch = Verdict::Mismatch(Change::Content);
    // The verdict, then what follows: clean; dirty; clean and exclusive; dirty and exclusive.
    let table = [
        (Verdict::New, [serve(false, false); 4]),
        (Verdict::Strong, [serve(true, false); 4]),
        (weak, [serve(false, false), serve(false, true), serve(true, false), serve(true, true)]),
        (mismatch, [serve(false, false), refuse(), serve(false, false), refuse()]),
    ];
    for (verdict, expect) in table {
        let cases = [(false, false), (true, false), (false, true), (true, true)];
        for ((is_dirty, is_exclusive), expect) in cases.into_iter().zip(expect) {
            let holdings = Holdings { is_dirty, is_unresolved: false, is_exclusive };
            assert_eq!(verdict.follows(holdings), expect, "{verdict:?} {holdings:?}");
            // What was refused stays refused, whatever primary storage looks like by now.
            let unresolved = Holdings { is_unresolved: true, ..holdings };
            let expect = if is_dirty { Follows::Refuse } else { expect };
            assert_eq!(verdict.follows(unresolved), expect, "{verdict:?} {unresolved:?}");
        }
    }
}

#[test]
fn a_log_that_may_be_dirty_claims_primary_storage_for_its_disk_in_whichever_pool() {
    for (state, claims) in [
        (SidecarState::Open, false),
        (SidecarState::OpenWithLog, true),
        (SidecarState::Dirty, true),
        (SidecarState::Clean, false),
    ] {
        for pool in [OTHER, POOL] {
            let other = Sidecar { state, ..sidecar(OTHER, pool, 1) };
            assert_eq!(is_claimed(&other, Some(DISK)), claims, "{state:?}");
        }
        let own = Sidecar { state, ..sidecar(DISK, POOL, 1) };
        assert!(!is_claimed(&own, Some(DISK)));
        assert_eq!(is_claimed(&own, None), claims, "for a disk without flash");
    }
}
