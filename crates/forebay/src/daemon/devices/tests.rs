use std::sync::mpsc::channel;

use forebay_host::pool::{DiskWish, Pool, Share};

use super::*;

#[test]
fn a_device_that_is_busy_for_a_moment_is_waited_for_and_one_that_hangs_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let path = folder.path().join(name);
        let mut pool = Pool::open(&path, &[Share { cache: 1 << 20, ring: 0, log: 0 }]).unwrap();
        let wish = DiskWish {
            name: name.to_owned(),
            uri: format!("file:/{name}"),
            size: 1 << 20,
            block_size: 8192,
            ..DiskWish::default()
        };
        pool.admit(&wish).unwrap();
        let real = path.canonicalize().unwrap();
        OpenPool { path, real, pool: Arc::new(pool.into()), said: Arc::default() }
    };
    let pools = ["a", "b", "c"].map(open);
    let (reached, is_reached) = channel();
    let look = |patience| {
        // Told before each pool is looked at.
        let told = pools.iter().inspect(|open| _ = reached.send(open.path.clone()));
        let others = Others::look(told, patience);
        let names = others.disks.into_iter().map(|disk| disk.name).collect::<Vec<_>>();
        (names, others.silent)
    };
    let (busy, is_busy) = channel();
    let held = pools[1].pool.clone();
    let path = pools[1].path.clone();
    let writer = std::thread::spawn(move || {
        let _written = held.lock();
        busy.send(()).unwrap();
        assert!(is_reached.iter().any(|reached| reached == path));
    });
    is_busy.recv().unwrap();
    let all = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(look(Duration::from_secs(60)), (all, None));
    writer.join().unwrap();
    let _hangs = pools[1].pool.lock();
    let answered = ["a", "c"].map(str::to_owned).to_vec();
    assert_eq!(look(Duration::from_millis(1)), (answered, Some(pools[1].path.clone())));
}
