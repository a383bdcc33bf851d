use std::os::unix::fs::PermissionsExt;

use forebay_shard::testing;

use super::*;
use crate::config::iscsi::{ChapSpec, IscsiName};

/// One target with one unit, at these addresses.
fn targets(addresses: &[&str]) -> Vec<IscsiSpec> {
    targets_with("db", addresses)
}

fn targets_with(disk: &str, addresses: &[&str]) -> Vec<IscsiSpec> {
    let listen: Vec<String> = addresses.iter().map(|it| format!("'{it}'")).collect();
    let text = format!(
        "[[disk]]\nname = '{disk}'\nbackend = 'mem:1MiB'\nram = '1MiB'\n\
         [[iscsi]]\nlisten = [{}]\ntarget = 'iqn.2026-01.example:t'\nluns = {{ 3 = '{disk}' }}\n",
        listen.join(", ")
    );
    crate::config::file::parse(&text, Name("test".into())).unwrap().targets
}

#[tokio::test]
async fn a_target_takes_no_disk_of_another_shard() {
    let [a, b] = ["a", "b"].map(|name| Name(name.into()));
    let mut targets = targets_with("a", &["127.0.0.1:0"]);
    targets[0].luns.insert(4, b.clone());
    let portals = Portals::new(Arc::default(), Arc::default());
    let (first, _shard) = testing::hung_as(1, 1 << 20);
    let (_kept, errors) = portals.attach(&targets, &a, unit_disk(&first, 1 << 20)).await;
    assert!(errors.is_empty(), "{errors:?}");
    let (second, _other) = testing::hung_as(2, 1 << 20);
    let (_, errors) = portals.attach(&targets, &b, unit_disk(&second, 1 << 20)).await;
    assert!(errors[0].to_string().contains("is on another shard"), "{errors:?}");
    assert_eq!(portals.bound_to(&first).len(), 1);
}

fn unit_disk(handle: &DiskHandle, size: u64) -> UnitDisk {
    let export = scsi::Export {
        name: "db".into(),
        uuid: None,
        size,
        physical_block: 4096,
        read_only: false,
        write_cache: false,
        atomic_write_max: 0,
        store_max: 0,
        ports: Vec::new(),
    };
    UnitDisk { export, kept: None, handle: handle.clone() }
}

#[tokio::test]
async fn an_address_that_cannot_be_had_keeps_a_disk_from_no_other_and_is_tried_again() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (targets, name) = (targets(&[&address, "127.0.0.1:0"]), Name("db".into()));
    // It was opened with half of its size.
    let (handle, _shard) = testing::hung(2 << 20);
    let portals = Portals::new(Arc::default(), Arc::default());
    let mut kept = Vec::new();
    for new in [1, 0] {
        let (portals, errors) = portals.attach(&targets, &name, unit_disk(&handle, 1 << 20)).await;
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.to_string().contains(&address), "{error:#}");
        assert_eq!(portals.len(), new);
        kept.extend(portals);
    }
    drop(taken);
    let (new, errors) = portals.attach(&targets, &name, unit_disk(&handle, 1 << 20)).await;
    assert!(errors.is_empty(), "{errors:?}");
    kept.extend(new);
    assert_eq!(kept.len(), 2);
    for portal in &kept {
        assert_eq!(portal.state.info().disks, ["db"]);
        let served = portal.served.lock().unwrap();
        assert_eq!((served.portal.targets.len(), served.behind.len()), (1, 1));
        let device = served.behind[0].device.lock().unwrap();
        assert_eq!(device.units.len(), 1);
        assert_eq!(device.units[0].logical.export().size, 2 << 20);
        let addresses = kept.iter().map(|portal| portal.listener.local_addr().unwrap());
        let told = &served.portal.targets[0].addresses;
        assert_eq!(told.len(), 2);
        assert!(addresses.into_iter().all(|address| told.contains(&address)), "{told:?}");
    }
}

#[tokio::test]
async fn a_disk_that_has_ended_leaves_its_number_to_the_next_and_nothing_behind() {
    let portals = Portals::new(Arc::default(), Arc::default());
    let mut kept = Vec::new();
    let mut before: Option<(String, DiskHandle)> = None;
    for disk in 0..300 {
        let name = format!("disk-{disk}");
        let targets = targets_with(&name, &["127.0.0.1:0"]);
        let (handle, _shard) = testing::hung_as(disk, 1 << 20);
        let attach = async || {
            let unit = unit_disk(&handle, 1 << 20);
            portals.attach(&targets, &Name(name.clone()), unit).await
        };
        if let Some((name, ended)) = before.take() {
            let (_, errors) = attach().await;
            assert!(errors[0].to_string().contains("has not ended yet"), "{errors:?}");
            portals.detach(&name, &ended);
        }
        let (new, errors) = attach().await;
        assert!(errors.is_empty(), "{errors:?}");
        kept.extend(new);
        before = Some((name, handle));
    }
    let portal = &kept[0];
    assert_eq!((kept.len(), portal.state.info().disks), (1, vec!["disk-299".to_owned()]));
    let served = portal.served.lock().unwrap();
    let (name, last) = before.unwrap();
    let handles = served.behind[0].handles();
    assert!(handles.len() == 1 && handles[0].is(&last), "{name}");
    let device = served.behind[0].device.lock().unwrap();
    assert_eq!((device.units.len(), device.disks()), (1, vec![last.id()]));
}

#[tokio::test]
async fn a_target_that_comes_back_is_as_its_new_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let secret_file = folder.path().join("secret");
    let portals = Portals::new(Arc::default(), Arc::default());
    let name = Name("db".into());
    let before = targets(&["127.0.0.1:0", "127.0.0.2:0"]);
    let (old, _shard) = testing::hung_as(1, 1 << 20);
    let (mut kept, errors) = portals.attach(&before, &name, unit_disk(&old, 1 << 20)).await;
    assert!(errors.is_empty() && kept.len() == 2, "{errors:?}");
    // Whoever is logging in meanwhile goes on with this.
    let under_way = kept[0].served.lock().unwrap().clone();
    portals.detach("db", &old);

    let mut after = targets(&["127.0.0.2:0", "127.0.0.3:0"]);
    after[0].initiators = vec![IscsiName("iqn.2026-01.example:i".into())];
    after[0].chap = Some(ChapSpec { user: "u".into(), secret_file: secret_file.clone() });
    after[0].log = Some(folder.path().join("pdus"));
    after[0].luns.insert(5, Name("to-come".into()));
    let (new, _other_shard) = testing::hung_as(2, 1 << 20);
    let (none, errors) = portals.attach(&after, &name, unit_disk(&new, 1 << 20)).await;
    assert!(none.is_empty() && errors.len() == 1, "it has no secret yet: {errors:?}");
    assert!(under_way.behind[0].handles().is_empty(), "nobody can log in");
    std::fs::write(&secret_file, "a secret of the new table").unwrap();
    let for_its_owner = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&secret_file, for_its_owner).unwrap();
    let (more, errors) = portals.attach(&after, &name, unit_disk(&new, 1 << 20)).await;
    assert!(errors.is_empty() && more.len() == 1, "{errors:?}");
    kept.extend(more);

    assert!(under_way.behind[0].handles().is_empty(), "with what counted before nobody comes in");
    let shown = |portal: &IscsiPortal| portal.served.lock().unwrap().clone();
    let is_left = shown(&kept[0]);
    assert!(is_left.portal.targets.is_empty() && is_left.behind.is_empty(), "{is_left:?}");
    for portal in &kept[1..] {
        let served = shown(portal);
        let [target] = &served.portal.targets[..] else { panic!("{served:?}") };
        assert_eq!(target.initiators, ["iqn.2026-01.example:i"]);
        let chap = target.chap.as_ref().expect("it is asked for");
        assert_eq!(
            (chap.name.as_str(), &chap.secret[..]),
            ("u", &b"a secret of the new table"[..])
        );
        assert_eq!(target.addresses.len(), 2);
        let [behind] = &served.behind[..] else { panic!("{served:?}") };
        assert!(behind.handles()[0].is(&new) && behind.log.is_some());
        // What initiators have lost is known as before.
        assert!(Arc::ptr_eq(&behind.device, &under_way.behind[0].device));
        let device = behind.device.lock().unwrap();
        let awaits = |number| device.awaits([0, number, 0, 0, 0, 0, 0, 0]);
        assert!(awaits(5) && !awaits(3));
    }
    assert!(!portals.read_secrets(&after[0], true).await.unwrap());
    std::fs::write(&secret_file, "another secret later").unwrap();
    assert!(portals.read_secrets(&after[0], true).await.unwrap());
    for portal in &kept[1..] {
        let chap = shown(portal).portal.targets[0].chap.clone().unwrap();
        assert_eq!(chap.secret, b"another secret later");
    }
}

#[tokio::test]
async fn a_portal_has_room_for_each_target_that_comes_to_it() {
    let listen = ["127.0.0.1:0"];
    let (first, mut second) = (targets_with("a", &listen), targets_with("b", &listen));
    second[0].target = IscsiName("iqn.2026-01.example:u".into());
    second[0].connections_max = 5;
    let portals = Portals::new(Arc::default(), Arc::default());
    let (a, _shard) = testing::hung_as(1, 1 << 20);
    let (kept, _) = portals.attach(&first, &Name("a".into()), unit_disk(&a, 1 << 20)).await;
    assert_eq!(kept[0].state.info().connections_max, 128);
    let both = [first, second].concat();
    let (b, _other_shard) = testing::hung_as(2, 1 << 20);
    let (new, errors) = portals.attach(&both, &Name("b".into()), unit_disk(&b, 1 << 20)).await;
    assert!(new.is_empty() && errors.is_empty(), "{errors:?}");
    assert_eq!(kept[0].state.info().connections_max, 133);
}

#[tokio::test]
async fn a_secret_that_hangs_holds_up_nobody_for_long() {
    let portals = Portals::new(Arc::default(), Arc::default());
    let mut table = targets(&["127.0.0.1:0"]);
    let secret_file = std::path::PathBuf::from("/hung/secret");
    table[0].chap = Some(ChapSpec { user: "u".into(), secret_file: secret_file.clone() });
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let hung = portals.questions.begin(About::Path(secret_file), move || wait.recv());
    let (name, (disk, _shard)) = (Name("db".into()), testing::hung_as(1, 1 << 20));
    let (none, errors) = portals.attach(&table, &name, unit_disk(&disk, 1 << 20)).await;
    assert!(
        none.is_empty() && format!("{:#}", errors[0]).contains("does not answer"),
        "{errors:?}"
    );
    let second = portals.attach(&table, &name, unit_disk(&disk, 1 << 20));
    let second = tokio::time::timeout(Duration::ZERO, second).await;
    assert_eq!(second.expect("none waits once more").1.len(), 1);
    let again = portals.read_secrets(&table[0], true).await.unwrap_err();
    assert!(again.to_string().contains("does not answer"), "{again}");
    drop((answer, hung));
}
