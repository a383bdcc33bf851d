use crate::config::file::parse;

const POOL: &str = "[[pool]]\nname = 'fast'\ndevices = ['/dev/a', '/dev/b']\n";

fn disk(flash: &str) -> String {
    format!(
        "[[disk]]\nname = 'db'\nbackend = 'mem:1MiB'\nflash = '{flash}'\nnbd = ['unix:/run/db']\n"
    )
}

#[test]
fn a_pool_has_devices_with_names_of_their_own() {
    let spec = parse(&(disk("fast:1GiB") + POOL), "a".parse().unwrap()).unwrap();
    assert_eq!(spec.pools[0].devices.len(), 2);
    assert!(spec.pools[0].is_asked_for(spec.disks[0].flash.as_ref().unwrap()));
    let wrong = [
        (POOL.repeat(2), "is there twice"),
        ("[[pool]]\nname = 'fast'\ndevices = []\n".to_owned(), "has no device"),
        ("[[pool]]\nname = 'fast'\ndevices = ['a']\n".to_owned(), "absolute path"),
        ("[[pool]]\nname = 'fast'\ndevices = ['/a', '/a']\n".to_owned(), "is there twice"),
        (POOL.replace("devices", "device"), "unknown field `device`"),
    ];
    for (text, expected) in wrong {
        let error = parse(&(disk("fast:1GiB") + &text), "a".parse().unwrap()).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
}

#[test]
fn a_pool_that_is_not_there_is_no_file() {
    let named = |flash: &str| parse(&(disk(flash) + POOL), "a".parse().unwrap());
    let error = named("fsat:1GiB").unwrap_err().to_string();
    assert!(error.contains("there is no pool 'fsat'; pools: fast"), "{error}");
    for path in ["./fast:1GiB", "/fast:1GiB", "flash/fast:1GiB"] {
        let spec = named(path).unwrap();
        assert!(!spec.pools[0].is_asked_for(spec.disks[0].flash.as_ref().unwrap()), "{path}");
    }
    // Without a pool there is nothing that it could be meant for.
    assert!(parse(&disk("fast:1GiB"), "a".parse().unwrap()).is_ok());
}
