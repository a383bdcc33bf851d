use super::*;

/// What the parser makes of a file. The schema must take what it takes.
fn read(text: &str) -> Result<DaemonSpec, String> {
    let read = parse(text, Name("test".to_owned())).map_err(|error| format!("{error:#}"));
    if read.is_ok() {
        let file = toml::from_str(text).unwrap();
        let seen =
            crate::config::schema::violations(crate::config::schema::schema().as_value(), &file);
        assert!(seen.is_empty(), "{seen:?}\n{text}");
    }
    read
}

#[test]
fn disks_listeners_and_shards_are_read() {
    let spec = read(
        r#"
        shards = 2
        [[disk]]
        name = "db"
        backend = "file:/san/db.raw"
        ram = "256MiB"
        flash = "/nvme/pool:4GiB"
        mode = "write-around"
        nbd = ["unix:/run/db.sock"]
        [[disk]]
        backend = "file:/san/web.raw"
        read-only = true
        [[nbd]]
        listen = "127.0.0.1:0"
        "#,
    )
    .unwrap();
    assert_eq!(spec.shards, 2);
    assert_eq!(spec.disks[0].ram_bytes, 256 << 20);
    assert_eq!(spec.disks[1].name.0, "web");
    assert!(spec.disks[1].read_only);
    assert_eq!(spec.listeners.len(), 2);
    assert_eq!(spec.listeners[0].disks, [Name("db".into())]);
    assert_eq!(spec.listeners[1].disks.len(), 2);
}

#[test]
fn the_http_port_is_on_unless_it_is_switched_off_or_nobody_serves_clients() {
    let disk = "[[disk]]\nbackend = \"mem:1MiB\"\nnbd = [\"h:0\"]\n";
    let http = |line: &str| read(&format!("{line}\n{disk}")).unwrap().http;
    assert_eq!(http(""), Some("127.0.0.1:7480".to_owned()));
    assert_eq!(http("http = \"[::]:9000\""), Some("[::]:9000".to_owned()));
    assert_eq!(http("http = \"off\""), None);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(&path, disk).unwrap();
    assert_eq!(load_unattached(&path).unwrap().http, None);
}

#[test]
fn mistakes_are_named() {
    let disk = "[[disk]]\nbackend = \"mem:1MiB\"\n";
    let at = "nbd = [\"h:0\"]";
    let cases = [
        ("[[disk]]\nname = \"x\"".to_owned(), "'backend' is missing"),
        (format!("{disk}ramm = \"1MiB\""), "no key `ramm`; is `ram` meant?"),
        (format!("bogus = 1\n{disk}"), "unknown field `bogus`"),
        (format!("http = \"on\"\n{disk}{at}"), "or off"),
        (
            format!("{disk}ram = 64"),
            "(ram): invalid type: integer `64`, expected a string in quotes, such as \"1.5GiB\"",
        ),
        (format!("{disk}backend-timeout = 30"), "expected a string in quotes, such as \"2min\""),
        (format!("{disk}flash-admission = true"), "expected a string in quotes, such as \""),
        (format!("{disk}ram = \"5 apples\""), "apples"),
        (disk.to_owned(), "nobody could attach"),
        ("[[disk]]\nbackend = \"http://x\"".to_owned(), "http"),
        (format!("{disk}{at}\nblock-size = \"5KiB\""), "power of two"),
        (format!("{disk}{at}\ngrid-offset = \"100\""), "multiple of 512"),
        (format!("{disk}{at}\nphysical-block = \"1KiB\""), "512B or 4KiB"),
        (format!("{disk}{at}\nunit-id = \"5\""), "unit-id"),
        (format!("{disk}{disk}"), "two disks are called"),
        (format!("shards = 0\n{disk}"), "1 to 64"),
        (format!("{disk}[[nbd]]\nlisten = \"h:1\"\ndisks = [\"y\"]"), "not configured"),
        (format!("{disk}nbd = [\"h:1\", \"h:1\"]"), "addresses must differ"),
        (format!("{disk}nbd = [\"h:0\", \"h:0\"]"), "addresses must differ"),
        (format!("{disk}nbd = [\"unix:/x:0\", \"unix:/x:0\"]"), "addresses must differ"),
        (
            format!("{disk}{at}\nram = \"18446744073709551615\""),
            "--ram 18446744073709551615 cannot",
        ),
        (format!("{disk}{at}\nflash = \"/p:16383PiB\""), "1PiB at most is allowed"),
        (format!("{disk}nbd = [\"unix:/x\", \"unix:/x?mode=0660\"]"), "addresses must differ"),
        ("[[disk]\n".to_owned(), "line 1, column 8: "),
        (format!("{disk}\nramm = \"geheim\""), "line 4, column 1: a disk has no key"),
    ];
    for (text, expect) in cases {
        let error = read(&text).unwrap_err();
        assert!(error.contains(expect), "{text}\n{error}");
        assert!(!error.contains("geheim"), "the line may have a secret: {error}");
    }
}

#[test]
fn two_listeners_at_any_free_port_are_refused_with_the_reason() {
    let disk = |name: &str| {
        format!("[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nnbd = [\"h:0\"]\n")
    };
    let error = read(&(disk("a") + &disk("b"))).unwrap_err();
    let why = "two listeners use the address h:0; addresses must differ: port 0 is any that is free, and Forebay tells \
               listeners apart by the address of the configuration. Give each a port, or all disks one listener";
    assert!(error.contains(why), "{error}");
}

#[test]
fn a_setting_that_nobody_gave_says_what_that_means() {
    let disk = "[[disk]]\nbackend = \"file:/db.raw\"\nmode = \"write-back\"\nflash = \"/p:1GiB\"\nnbd = [\"h:0\"]\n";
    let settings = read(disk).unwrap().disks[0].settings();
    let said = |key: &str| &settings.iter().find(|(known, _)| *known == key).unwrap().1;
    assert_eq!(said("destage-order"), "journaled if the journal has a place, else strict");
    assert_eq!(said("destage-journal"), "beside an image file, else none");
}

#[test]
fn a_pool_has_room_for_so_many_disks() {
    let disks = |count: u32| -> String {
        let disk = |n| {
            format!("[[disk]]\nname = \"d{n}\"\nbackend = \"mem:1MiB\"\nflash = \"/pool:1MiB\"\n")
        };
        (0..count).map(disk).collect::<String>() + "[[nbd]]\nlisten = \"unix:/x\"\n"
    };
    assert_eq!(read(&disks(1024)).unwrap().disks.len(), 1024);
    let error = read(&disks(1025)).unwrap_err();
    assert!(
        error.contains("1025 disks are to be on the flash /pool, which can have 1024"),
        "{error}"
    );
}

#[test]
fn a_disk_is_named_after_its_backend() {
    let check =
        |uri: &str, expect: &str| assert_eq!(super::super::name_from_backend(uri).0, expect);
    check("file:/san/db.raw", "db");
    check("block:/dev/sdb", "sdb");
    check("mem:1GiB", "mem");
    check("nbd://host:10809/web", "web");
    check("nbd+unix:///?socket=/run/slow.sock", "disk");
    check("model:san?iops=900&inner=file:/san/erp.raw", "erp");
    check("", "disk");
}

#[test]
fn iscsi_targets_are_read() {
    let spec = read(
        r#"
        shards = 2
        [[disk]]
        name = "db"
        backend = "mem:1MiB"
        [[disk]]
        name = "log"
        backend = "mem:1MiB"
        write-cache = "on"
        [[iscsi]]
        listen = ["127.0.0.1:3260", "[::1]:3260"]
        target = "iqn.2026-01.org.example:a"
        luns = { 1 = "db" }
        [[iscsi]]
        listen = ["127.0.0.1:3260"]
        target = "iqn.2026-01.org.example:b"
        disks = ["log"]
        initiators = ["iqn.2026-01.org.example:host"]
        chap-user = "u"
        chap-secret-file = "/x"
        "#,
    )
    .unwrap();
    let units = |at: usize| spec.targets[at].luns.iter().map(|(n, d)| (*n, d.0.as_str())).collect();
    let check = |at, expect: Vec<(u16, &str)>| {
        let units: Vec<(u16, &str)> = units(at);
        assert_eq!(units, expect);
    };
    check(0, vec![(1, "db")]);
    check(1, vec![(0, "log")]);
    assert_eq!(spec.targets[0].portals.len(), 2);
    assert_eq!(spec.targets[1].chap.as_ref().unwrap().user, "u");
    assert!(!spec.disks[0].write_cache_of_units && spec.disks[1].write_cache_of_units);
}

#[test]
fn what_initiators_take_a_disk_for_can_be_said() {
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let disk = |name: &str, more: &str| {
        format!(
            "[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nnbd = [\"unix:/{name}\"]\n{more}\n"
        )
    };
    let named = format!("unit-id = \"{id}\"");
    let spec = read(&format!("{}{}", disk("a", &named), disk("b", "physical-block = \"512B\"")));
    let disks = spec.unwrap().disks;
    assert_eq!(disks[0].unit_id.unwrap().to_string(), id);
    assert_eq!((disks[0].physical_block, disks[1].physical_block), (4096, 512));
    let error = read(&format!("{}{}", disk("a", &named), disk("b", &named))).unwrap_err();
    assert!(error.contains("would take them for one"), "{error}");
}

#[test]
fn mistakes_of_iscsi_targets_are_named() {
    let disk = "[[disk]]\nname = \"db\"\nbackend = \"mem:1MiB\"\n";
    let check = |tables: &str, expect: &str| {
        let error = read(&format!("{disk}{tables}")).unwrap_err();
        assert!(error.contains(expect), "{tables}\n{error}");
    };
    let table = |listen: &str, name: &str, more: &str| {
        format!("[[iscsi]]\nlisten = [{listen}]\ntarget = \"iqn.2026-01.x:{name}\"\n{more}\n")
    };
    let at = "\"h:3260\"";
    check(&table("", "a", ""), "listens nowhere");
    check(&table("\"h\"", "a", ""), "no address of a portal");
    check("[[iscsi]]\nlisten = []\ntarget = \"db\"", "no iSCSI name");
    check(&table(at, "a", "disks = [\"web\"]"), "not configured");
    check(&table(at, "a", "disks = []"), "it has no disk");
    check(&table(at, "a", "initiators = []"), "lets nobody log in");
    for number in ["256", "01", "'+1'"] {
        let luns = format!("luns = {{ {number} = \"db\" }}");
        check(&table(at, "a", &luns), "no number of a unit");
    }
    check(&table(at, "a", "luns = { 0 = \"db\" }\ndisks = [\"db\"]"), "not both");
    check(&table(at, "a", "chap-user = \"u\""), "go together");
    let mutual = "mutual-chap-user = \"u\"\nmutual-chap-secret-file = \"/x\"";
    check(&table(at, "a", mutual), "mutual-chap needs chap");
    let twice = [table(at, "a", ""), table(at, "A", "")].concat();
    check(&twice, "are called");
    let twice = [table(at, "a", ""), table(at, "b", "")].concat();
    check(&twice, "a logical unit twice");
    check(&format!("nbd = [\"h:3260\"]\n{}", table(at, "a", "")), "addresses must differ");
}

#[test]
fn a_wrong_key_or_value_of_a_disk_is_told_with_its_line_and_the_nearest_key() {
    let check = |line: &str, expect: &[&str]| {
        let text = format!("[[disk]]\nname = \"a\"\nbackend = \"mem:1MiB\"\n{line}\n");
        let error = read(&text).unwrap_err();
        let key = line.split(' ').next().unwrap();
        for expect in ["line 4", key].iter().chain(expect) {
            assert!(error.contains(expect), "{line}\n{error}");
        }
    };
    check("ramm = \"1MiB\"", &["no key `ramm`; is `ram` meant?"]);
    check("block_size = \"8KiB\"", &["is `block-size` meant?"]);
    check("quite-another = 3", &["its keys: mode, block-size"]);
    check("block-size = \"lots\"", &["lots"]);
    check("read-only = 3", &["boolean"]);
}

#[test]
fn a_secret_that_is_a_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
    assert!(made.unwrap().success());
    let chap = crate::config::iscsi::ChapSpec { user: "u".to_owned(), secret_file: path };
    let error = chap.load().unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn only_what_the_kernel_fails_to_read_is_no_wrong_configuration() {
    let is_wrong = |error: anyhow::Error| as_wrong(error.context("in")).is::<ValueError>();
    let of = |error: rustix::io::Errno| io::Error::from(error).into();
    for passes in [rustix::io::Errno::IO, rustix::io::Errno::NFILE, rustix::io::Errno::STALE] {
        assert!(!is_wrong(of(passes)), "{passes}");
    }
    for stays in [rustix::io::Errno::NOENT, rustix::io::Errno::ACCESS] {
        assert!(is_wrong(of(stays)), "{stays}");
    }
    assert!(is_wrong(anyhow::anyhow!("no such key")));
    let none = load(Path::new("/nowhere/forebay.toml")).unwrap_err();
    assert!(none.is::<ValueError>() && none.to_string().contains("/nowhere/"), "{none:#}");
}
