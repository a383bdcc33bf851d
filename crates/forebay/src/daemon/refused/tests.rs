//! A disk that was refused, with what its shard says when it is tried again.

use std::sync::Arc;
use std::task::Poll;

use forebay_host::events::EventLog;
use forebay_host::pool;
use forebay_host::population::Population;
use forebay_shard::ShardHandle;
use forebay_shard::testing::FailingShard;

use super::*;
use crate::config::values::Name;
use crate::daemon::about;
use crate::daemon::flash::Flash;
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

#[tokio::test]
async fn a_disk_that_its_shard_cannot_take_is_refused_with_that_reason_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let spec = crate::config::file::parse(&config(folder.path()), Name("test".into())).unwrap();
    let spec = Arc::new(spec);
    let (log, events) = EventLog::start(None).unwrap();
    let (flash, _failed) = Flash::new(events.clone());
    let flash = Arc::new(flash);
    flash.open(&spec.disks);
    let shard = ShardHandle::start(0, 1, spec.reactor.0, events.clone()).unwrap();
    let failing = FailingShard::start(shard.sender(), 2);
    let shards = vec![failing.sender.clone()];
    let population = Population::start(events.clone()).unwrap();
    let state = spec.state_dir.clone();
    let opener =
        Opener::new(spec.clone(), flash.clone(), state, shards, population, events.clone());
    let frontends = Arc::new(Frontends::new(Arc::default(), events.clone()));
    let about = about(&spec, folder.path(), std::slice::from_ref(&shard));
    let watch = Watch::start(events.clone()).unwrap();
    let state = ControlState::new(about, Arc::new(opener), frontends, watch, (log, events));
    let state = Arc::new(state);
    state.refuse(&spec.disks[0], &anyhow::anyhow!("something else"));
    // Who asks for both sides may leave: they are looked at all the same, and nobody else is let in before.
    let opening = state.turns.opening.lock().await;
    let mut asked = Box::pin(sides(State(state.clone()), Path("db".to_owned())));
    std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await;
    drop(asked);
    tokio::task::yield_now().await;
    drop(opening);
    assert!(state.turns.opening.try_lock().is_err());

    for failed in 1..=2 {
        let error = serve(&state, "db", None).await.unwrap_err().to_string();
        let reason = "its shard cannot take it: no threads for the I/O of a file";
        assert_eq!(error, format!("it is not served: {reason}"));
        let [refused] = &state.refused()[..] else { panic!("{:?}", state.refused()) };
        assert_eq!((refused.name.as_str(), refused.reason.as_str()), ("db", reason));
        assert_eq!(failing.failed(), failed);
        assert!(state.disks().is_empty());
    }
    serve(&state, "db", None).await.unwrap();
    assert!(state.refused().is_empty());
    let disk = state.find("db").unwrap();
    assert_eq!(disk.handle.size(), 8 << 20);
    assert!(disk.handle.flush().await.is_ok(), "it works");

    let drained = shard.drain().unwrap().await.unwrap();
    disk.leave(&drained[0]).unwrap();
    drop(shard);
    for (_, shared) in flash.pools() {
        let pool = pool::lock(&shared).snapshot();
        pool::staging::remove_of(pool.disk_uuid(pool::lock(&shared).find("db").unwrap()));
    }
    flash.end();
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
    let (opener, looks) = (Arc::new(opener), Looks::default());
    let soon = Duration::from_millis(10);
    for _ in 0..3 {
        let both = [looks.answers(&opener, &disk, soon), looks.answers(&opener, &disk, soon)];
        for answer in both {
            assert_eq!(answer.await, Some(false));
        }
        assert!(looks.are_under_way(&disk));
        assert_eq!(looks.looks().len(), 1);
    }
    // With so many under way nobody can tell of another one.
    let others: Vec<_> = (1..LOOKS_MAX).map(|_| watch::channel(())).collect();
    for (n, (_, answer)) in others.iter().enumerate() {
        looks.looks().insert((n.to_string(), None), answer.clone());
    }
    let another = DiskSpec { backend: "mem:1MiB".into(), ..disk.clone() };
    assert_eq!(looks.answers(&opener, &another, soon).await, None);
    let error = looks.wait(&opener, &another, soon).await.unwrap_err().to_string();
    assert!(error.contains("too many other disks"), "{error}");
    drop(others);
    assert_eq!(looks.answers(&opener, &another, Duration::from_secs(60)).await, Some(true));
    std::fs::File::options().write(true).open(&path).unwrap();
    while looks.are_under_way(&disk) {
        tokio::task::yield_now().await;
    }
}
