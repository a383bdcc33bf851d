use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_core::config::Mode;
use forebay_core::ids::Nanos;
use forebay_core::stats::Statistics;
use forebay_host::events::EventLog;
use forebay_host::population::Population;
use forebay_shard::{Gone, ShardHandle, testing};
use forebay_trace::advise::{Configuration, Latencies, Latency, Prediction, Reads};

use tokio::task::JoinSet;

use super::{Cooling, Follower, Keeper, Seen, State, all_ended, file, settle_one};
use crate::config::values::Name;
use crate::daemon::api::AdviceStage;
use crate::daemon::flash::Flash;
use crate::daemon::opener::Opener;

fn prediction() -> Prediction {
    let [ram, flash, backend] = [1e4, 1e5, 5e6].map(Latency::of_mean);
    Prediction {
        made_ms: 1_700_000_000_000,
        sentence: "64 MiB of flash".into(),
        configuration: Configuration {
            mode: Mode::WriteThrough,
            ram: 0,
            flash: 64 << 20,
            block_size: 8192,
            grid_offset: 0,
            policy: "auto".into(),
            flash_admission: None,
            bypass_sequential: None,
            write_log: None,
        },
        reads: 100,
        hit_ratio_range: [0.8, 0.9],
        read_mean_range_ns: [590_000.0, 1_080_000.0],
        read_p99_range_ns: [15e6; 2],
        latencies: Latencies {
            ram,
            flash,
            flash_write: flash,
            backend,
            backend_first: backend,
            backend_again: backend,
            backend_far: backend,
            backend_write: backend,
        },
    }
}

#[test]
fn what_is_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/x.advice");
    assert!(file::read(&path).unwrap().is_none());
    let mut counted = Reads { bypassed: 3, ..Reads::default() };
    counted.flash.record(Nanos(90_000), 84);
    counted.backend.record(Nanos(5_000_000), 16);
    let follower = Follower::new(Some(7), counted);
    file::write(&path, &file::bytes(&prediction(), &follower)).unwrap();
    let (kept, again) = file::read(&path).unwrap().unwrap();
    assert_eq!((kept, again.since_ms), (prediction(), Some(7)));
    assert_eq!((again.counted.hit_ratio(), again.counted.bypassed), (Some(0.84), 3));
    assert_eq!(again.counted.all().mean_ns(), follower.counted.all().mean_ns());
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    file::remove(&path).unwrap();
    file::remove(&path).unwrap();
    assert!(file::read(&path).unwrap().is_none());
}

#[test]
fn counts_that_would_overflow_later_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.advice");
    let of = |ram: u64, flash: u64, bypassed: u64| {
        let mut counted = Reads { bypassed, ..Reads::default() };
        counted.ram.record(Nanos(10_000), ram);
        counted.flash.record(Nanos(10_000), flash);
        let follower = Follower::new(Some(7), counted);
        fs::write(&path, file::bytes(&prediction(), &follower)).unwrap();
        file::read(&path).map(|kept| kept.unwrap().1.counted)
    };
    const MOST: u64 = 1 << 53;
    for (ram, flash, bypassed) in
        [(u64::MAX, 0, 0), (MOST, 1, 0), (1, 1, u64::MAX), (1, 1, MOST + 1)]
    {
        let why = format!("{:#}", of(ram, flash, bypassed).unwrap_err());
        assert!(why.contains("counted what cannot be"), "{why}");
    }
    let mut most = of(MOST - 1, 1, MOST).unwrap();
    most.merge(&most.clone());
    assert_eq!((most.count(), most.bypassed), (2 * MOST, 2 * MOST));
    // A read is counted as bypassed as it begins, and as a read when it has ended.
    assert_eq!(of(1, 0, 2).unwrap().bypassed, 2);
}

#[tokio::test]
async fn a_last_look_that_panics_keeps_no_other_disk_from_its_end() {
    let (done, ended) = mpsc::channel();
    let mut looks = JoinSet::new();
    looks.spawn(async { panic!("a look that went wrong") });
    looks.spawn(async move {
        tokio::task::yield_now().await;
        done.send(()).unwrap();
    });
    all_ended(looks).await;
    ended.try_recv().unwrap();
}

#[test]
fn what_is_no_kept_advice_is_an_error_that_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.advice");
    let good = String::from_utf8(file::bytes(&prediction(), &Follower::default())).unwrap();
    let counted = r#""backend":{"sum_ns":0,"buckets":[]}"#;
    assert!(good.contains(counted));
    let table = [
        (String::new(), "no kept advice"),
        ("hello".into(), "no kept advice"),
        ("[1]".into(), "no kept advice"),
        (good.replace("forebay-advice", "other"), "no kept advice"),
        (good.replace("\"version\":1", "\"version\":2"), "version 2, this Forebay knows 1"),
        (good.replace("[0.8,0.9]", "[0.9,0.8]"), "expects what cannot be"),
        (good.replace("[0.8,0.9]", "[1e999,0.8]"), "number out of range"),
        (good.replace("\"mode\"", "\"mood\""), "missing field `mode`"),
        (
            good.replace(counted, r#""backend":{"sum_ns":0,"buckets":[[18446744073709551615,1]]}"#),
            "counted what cannot be",
        ),
        (good[..good.len() / 2].to_owned(), "no kept advice"),
        ("x".repeat(2 << 20), "longer than a kept advice"),
    ];
    for (text, expect) in table {
        fs::write(&path, &text).unwrap();
        let why = format!("{:#}", file::read(&path).unwrap_err());
        assert!(why.contains(expect), "{why} of {}", &text[..text.len().min(300)]);
    }
}

#[tokio::test]
async fn a_state_folder_that_hangs_as_a_disk_is_opened_holds_up_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (state, image) = (folder.path().join("state"), folder.path().join("db.raw"));
    fs::create_dir(&state).unwrap();
    fs::write(&image, vec![1; 1 << 20]).unwrap();
    let text = format!(
        "[[disk]]\nname = 'db'\nbackend = 'file:{}'\nram = '1MiB'\nnbd = ['unix:/x']\n",
        image.display()
    );
    let spec = Arc::new(crate::config::file::parse(&text, Name("test".into())).unwrap());
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, spec.reactor.0, events.clone()).unwrap();
    let population = Population::start(events.clone()).unwrap();
    let shards = vec![shard.sender()];
    let flash = Arc::new(Flash::new(events.clone()).0);
    let disk = spec.disks[0].clone();
    let opener = Opener::new(spec, flash, Some(state), shards, population, events);
    let opened = opener.open(&disk).unwrap();
    let path = file::path(opened.probe().as_ref(), opener.state()).unwrap();
    // Who opens a pipe waits for the one at its other end.
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (goes_on, waits) = mpsc::channel();
    let is_held_up = Arc::new(AtomicBool::new(false));
    let (held_up, other_end) = (is_held_up.clone(), path.clone());
    std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(20)).is_err() {
            held_up.store(true, Ordering::SeqCst);
            let _ = fs::write(other_end, "");
        }
    });
    let handing_over = tokio::spawn(async move { opener.hand_over(&disk, opened).await });
    tokio::task::yield_now().await;
    goes_on.send(()).unwrap();
    assert!(!is_held_up.load(Ordering::SeqCst));
    fs::write(path, "hello").unwrap();
    let ready = handing_over.await.unwrap().unwrap();
    let trouble = ready.disk.advice.trouble().unwrap();
    assert!(trouble.contains("no kept advice"), "{trouble}");
    shard.drain().unwrap().await.unwrap();
}

/// A keeper for the file at `path` that has something to write.
fn changed(path: std::path::PathBuf) -> Arc<Keeper> {
    let kept = Some((prediction(), Follower::default()));
    let state = State { kept, is_changed: true, ..State::default() }.into();
    Arc::new(Keeper { path: Ok(path), state, turn: tokio::sync::Mutex::default() })
}

#[tokio::test]
async fn the_end_of_a_disk_waits_neither_for_its_shard_nor_for_the_state_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, _shard) = testing::hung(1 << 20);
    let limit = Duration::from_secs(30);
    // Somebody has asked, and waits for the shard.
    let advice = changed(folder.path().join("x.advice"));
    let (asked, of) = (advice.clone(), disk.clone());
    tokio::spawn(async move { asked.told(&of).await.is_some() });
    tokio::task::yield_now().await;
    assert!(advice.turn.try_lock().is_err());
    tokio::time::timeout(limit, settle_one(&advice, &disk)).await.unwrap();

    // The state folder hangs: a write to it has its turn still.
    let path = folder.path().join("y.advice");
    let advice = changed(path.clone());
    let hangs = advice.turn.lock().await;
    tokio::time::timeout(limit, settle_one(&advice, &disk)).await.unwrap();
    assert!(!path.exists());
    drop(hangs);
    let _turn = advice.turn.lock().await;
    assert!(path.exists(), "it was kept when its turn came");
}

fn stage(keeper: &Keeper) -> AdviceStage {
    let state = keeper.state();
    let (prediction, follower) = state.kept.as_ref().unwrap();
    follower.stage(prediction)
}

#[test]
fn a_look_from_before_the_cache_was_dropped_does_not_count_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = changed(folder.path().join("x.advice"));
    let fresh = stage(&keeper);
    drop(Cooling::begin(keeper.clone()));
    keeper.count(0, &Statistics::default(), Reads::default());
    assert_eq!(stage(&keeper), fresh, "it was seen before");
    keeper.count(1, &Statistics::default(), Reads::default());
    assert_ne!(stage(&keeper), fresh);
}

#[test]
fn nothing_is_said_to_count_while_the_cache_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = changed(folder.path().join("x.advice"));
    let fresh = stage(&keeper);
    let (difference, reads) = (None, Reads::default());
    let warm = Seen { now_ms: 1, difference, is_full: true, reads };
    keeper.state().kept.as_mut().unwrap().1.look(&prediction(), warm);
    assert_eq!(stage(&keeper), AdviceStage::Counting);
    let cooling = Cooling::begin(keeper.clone());
    assert_eq!(stage(&keeper), fresh, "the drop has begun");
    drop(cooling);
    assert_eq!(stage(&keeper), fresh, "it is warm later");
}

#[tokio::test]
async fn nothing_counts_while_the_cache_is_dropped_whoever_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = changed(folder.path().join("x.advice"));
    let fresh = stage(&keeper);
    let (disk, shard) = testing::hung(1 << 20);
    let look = |coolings| keeper.count(coolings, &Statistics::default(), Reads::default());
    let (of, asked) = (keeper.clone(), disk.clone());
    let dropping = tokio::spawn(async move { of.drop_cache(&asked).await });
    tokio::task::yield_now().await;
    look(0);
    assert_eq!(stage(&keeper), fresh, "the drop has begun");
    dropping.abort();
    assert!(dropping.await.unwrap_err().is_cancelled());
    look(0);
    assert_eq!(stage(&keeper), fresh, "nobody waits for the drop, and it goes on");
    keeper.keep(prediction()).await.unwrap();
    look(0);
    assert_eq!(stage(&keeper), fresh, "nor does it count for another advice");

    drop(shard);
    assert_eq!(keeper.drop_cache(&disk).await.map(|dropped| dropped.blocks), Err(Gone));
    let all_ended = async {
        while keeper.state().cooling > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_ended).await.unwrap();
    look(0);
    assert_eq!(stage(&keeper), fresh, "it was seen before the end");
    look(2);
    assert_ne!(stage(&keeper), fresh);
}
