//! A disk that was refused, with what its shard says when it is tried again.

use std::sync::Arc;

use forebay_host::events::EventLog;
use forebay_host::pool;
use forebay_host::population::Population;
use forebay_shard::ShardHandle;
use forebay_shard::testing::FailingShard;

use super::*;
use crate::config::values::Name;
use crate::daemon::about;
use crate::daemon::change;
use crate::daemon::flash::{Flash, OpenPool};
use crate::daemon::frontends::Frontends;
use crate::daemon::watch::Watch;

/// A disk with a write log, in a folder.
fn config(folder: &std::path::Path) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("db.raw"), vec![1; 8 << 20]).unwrap();
    format!(
        "shards = 1\nstate-dir = '{}'\n[[disk]]\nname = 'db'\nbackend = 'file:{}'\nmode = 'write-back'\n\
         flash = '{}:16MiB'\nwrite-log = '4MiB'\nram = '1MiB'\nnbd = ['unix:{}']\n",
        path("state"),
        path("db.raw"),
        path("pool"),
        path("db.sock")
    )
}

/// A daemon in a folder whose disk is refused, and whose shard cannot take it so many times.
pub(in crate::daemon) struct Refused {
    pub(in crate::daemon) state: Arc<ControlState>,
    flash: Arc<Flash>,
    shard: ShardHandle,
    failing: FailingShard,
}

impl Refused {
    pub(in crate::daemon) async fn start(folder: &std::path::Path, failures: usize) -> Refused {
        let spec = crate::config::file::parse(&config(folder), Name("test".into())).unwrap();
        let spec = Arc::new(spec);
        let (log, events) = EventLog::start(None).unwrap();
        let flash = Arc::new(Flash::new(events.clone()).0);
        flash.open(&spec, Duration::from_secs(60)).await;
        let shard = ShardHandle::start(0, 1, spec.reactor.0, events.clone()).unwrap();
        let failing = FailingShard::start(shard.sender(), failures);
        let shards = vec![failing.sender.clone()];
        let population = Population::start(events.clone()).unwrap();
        let state = spec.state_dir.clone();
        let opener =
            Opener::new(spec.clone(), flash.clone(), state, shards, population, events.clone());
        let frontends = Arc::new(Frontends::new(Arc::default(), events.clone()));
        let about = about(&spec, folder, std::slice::from_ref(&shard));
        let watch = Watch::start(events.clone()).unwrap();
        let state = ControlState::new(about, Arc::new(opener), frontends, watch, (log, events));
        state.refuse(&spec.disks[0], &anyhow::anyhow!("something else"));
        Refused { state: Arc::new(state), flash, shard, failing }
    }

    /// Waits until the storage of the disk has answered who asked for it.
    async fn answers(&self) {
        let spec = self.state.opener.spec();
        tokio::task::yield_now().await;
        while self.state.opener.questions.is_out(&Opener::about_storage(&spec.disks[0])) {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
    }

    pub(in crate::daemon) async fn end(self) {
        let Refused { state, flash, shard, failing: _ } = self;
        let drained = shard.drain().unwrap().await.unwrap();
        state.find("db").unwrap().leave(&drained[0]).unwrap();
        drop(shard);
        for OpenPool { pool, .. } in flash.pools() {
            let pool = pool::lock(&pool).snapshot();
            pool::staging::remove_of(pool.disk_uuid(pool.find("db").unwrap()));
        }
        flash.end();
    }
}

#[tokio::test]
async fn a_disk_that_its_shard_cannot_take_is_refused_with_that_reason_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Refused::start(folder.path(), 2).await;
    let (state, failing) = (&refused.state, &refused.failing);
    // While both sides are looked at, nobody else is let in.
    let opening = state.turns.opening.lock().await;
    tokio::spawn(sides(State(state.clone()), Path("db".to_owned())));
    refused.answers().await;
    drop(opening);
    assert!(state.turns.opening.try_lock().is_err());

    for failed in 1..=2 {
        let error = serve(state, "db", None).await.unwrap_err().to_string();
        let reason = "its shard cannot take it: no threads for the I/O of a file";
        assert_eq!(error, format!("it is not served: {reason}"));
        let [refused] = &state.refused()[..] else { panic!("{:?}", state.refused()) };
        assert_eq!((refused.name.as_str(), refused.reason.as_str()), ("db", reason));
        assert_eq!(failing.failed(), failed);
        assert!(state.disks().is_empty());
    }
    serve(state, "db", None).await.unwrap();
    assert!(state.refused().is_empty());
    let disk = state.find("db").unwrap();
    assert_eq!(disk.handle.size(), 8 << 20);
    assert!(disk.handle.flush().await.is_ok(), "it works");

    refused.end().await;
}

#[tokio::test]
async fn who_waited_for_the_end_of_a_disk_takes_nothing_from_the_next_one_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Refused::start(folder.path(), 0).await;
    let state = &refused.state;
    serve(state, "db", None).await.unwrap();
    state.frontends.open();
    let before = state.find("db").unwrap();
    let consent = change::Consent::default();
    assert_eq!(change::end(state, "db", before.clone(), &consent).await.unwrap(), None);
    serve(state, "db", None).await.unwrap();
    let found = || state.info().listeners.iter().map(|it| it.disks.clone()).collect::<Vec<_>>();
    assert_eq!(found(), [["db"]]);
    state.note_ended(&before, None);
    assert_eq!(found(), [["db"]]);
    assert!(state.find("db").unwrap().ended().is_none());
    refused.end().await;
}

#[tokio::test]
async fn an_opening_that_takes_long_keeps_its_disk_and_not_the_turn() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Refused::start(folder.path(), 0).await;
    let state = &refused.state;
    let turn = state.turns.opening.lock().await;
    let asking = state.clone();
    let asking = tokio::spawn(async move { serve(&asking, "db", None).await });
    refused.answers().await;
    // Its flash hangs from now on.
    let pool = refused.flash.pools().remove(0).pool;
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let hangs = std::thread::spawn(move || {
        let _locked = pool::lock(&pool);
        locked.send(()).unwrap();
        let _ = ends.recv();
    });
    is_locked.await.unwrap();
    drop(turn);
    let error = asking.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, format!("it is not served: {TAKES_LONG}"));
    assert!(state.turns.opening.try_lock().is_ok() && state.is_at_work("db"));
    let again = serve_in_turn(state, "db", None).await.unwrap_err().to_string();
    assert_eq!(again, TAKES_LONG);
    drop(end);
    hangs.join().unwrap();
    while state.find("db").is_err() || state.is_at_work("db") {
        tokio::task::yield_now().await;
    }
    assert!(state.refused().is_empty());
    refused.end().await;
}

#[tokio::test]
async fn storage_that_hangs_is_waited_for_once_and_in_nobodys_turn() {
    let folder = tempfile::tempdir().unwrap();
    // To open it for reading waits for somebody who writes.
    let path = folder.path().join("hangs");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let text = format!(
        "shards = 1\n[[disk]]\nname = 'db'\nbackend = 'file:{}'\nram = '1MiB'\nnbd = ['unix:/x']\n",
        path.display()
    );
    let spec = crate::config::file::parse(&text, Name("test".into())).unwrap();
    let (_log, events) = EventLog::start(None).unwrap();
    let (flash, _failed) = Flash::new(events.clone());
    let population = Population::start(events.clone()).unwrap();
    let disk = spec.disks[0].clone();
    let opener = Opener::new(Arc::new(spec), Arc::new(flash), None, Vec::new(), population, events);
    let opener = Arc::new(opener);
    let about = Opener::about_storage(&disk);
    let soon = Duration::from_millis(10);
    for _ in 0..3 {
        let both = [opener.wait_for_answers(&disk, soon), opener.wait_for_answers(&disk, soon)];
        for answer in both {
            assert_eq!(answer.await, Err(Silence::Late));
        }
        assert!(opener.questions.is_out(&about));
    }
    let another = DiskSpec { backend: "mem:1MiB".into(), ..disk.clone() };
    assert_eq!(opener.wait_for_answers(&another, Duration::from_secs(60)).await, Ok(()));
    std::fs::File::options().write(true).open(&path).unwrap();
    while opener.questions.is_out(&about) {
        tokio::task::yield_now().await;
    }
}
