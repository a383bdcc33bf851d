use super::*;

fn check(text: &str, prints: &str) -> Uri {
    let uri: Uri = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(uri.to_string(), prints);
    assert_eq!(prints.parse::<Uri>().expect("prints what parses"), uri);
    uri
}

#[test]
fn every_scheme_parses_and_prints_back() {
    for (text, prints) in [
        ("file:/san/db.raw", "file:/san/db.raw"),
        ("file:///san/db.raw", "file:/san/db.raw"),
        ("file:db.raw?direct=off", "file:db.raw?direct=off"),
        ("file:/a%20b%3f?read-only=on&direct=on", "file:/a%20b%3F?read-only=on"),
        ("file:////x", "file:////x"),
        ("block:/dev/sdb", "block:/dev/sdb"),
        ("nbd://host/disk", "nbd://host:10809/disk"),
        ("nbd://host", "nbd://host:10809/"),
        ("nbd://[::1]:99/a%2Fb", "nbd://[::1]:99/a/b"),
        ("nbd://h/x?connections=2&timeout=500ms", "nbd://h:10809/x?connections=2&timeout=500ms"),
        ("nbd+unix:///?socket=/run/slow.sock", "nbd+unix:///?socket=/run/slow.sock"),
        (
            "nbd+unix:///a b?socket=/x%26y&read-only=on",
            "nbd+unix:///a%20b?socket=/x%26y&read-only=on",
        ),
        ("mem:64M", "mem:64MiB"),
        ("mem:1G?block=4K", "mem:1GiB?block=4KiB"),
        ("model:san?inner=mem:1MiB", "model:san?inner=mem:1MiB"),
        (
            "model:san?iops=500&latency=5ms&inner=file:/x?direct=off&read-only=on",
            "model:san?iops=500&latency=5ms&inner=file:/x?direct=off&read-only=on",
        ),
        (
            "model:san?flush-latency=0s&latency=1ms&write-latency=500us&inner=mem:1MiB",
            "model:san?latency=1ms&write-latency=500us&flush-latency=0s&inner=mem:1MiB",
        ),
        ("fault:inner=mem:1MiB", "fault:inner=mem:1MiB"),
        (
            "fault:seed=7&rule=error,op=read,p=0.5&inner=model:san?inner=mem:1MiB",
            "fault:seed=7&rule=error,op=read,p=0.5&inner=model:san?inner=mem:1MiB",
        ),
    ] {
        check(text, prints);
    }
}

#[test]
fn inner_takes_the_rest_as_it_is() {
    let uri = check(
        "fault:inner=nbd+unix:///e?socket=/s&timeout=1s",
        "fault:inner=nbd+unix:///e?socket=/s&timeout=1s",
    );
    let Uri::Fault { inner, .. } = uri else { panic!("a fault backend") };
    let Uri::Nbd(nbd) = *inner else { panic!("around an NBD client") };
    assert_eq!(nbd.timeout, Nanos::from_millis(1000));
    assert_eq!(nbd.address, NbdAddress::Unix("/s".into()));
}

#[test]
fn a_bad_uri_is_refused_with_what_is_allowed() {
    for (text, says) in [
        ("/san/db.raw", "file:PATH"),
        ("ftp://x", "allowed: file:, block:"),
        ("file:", "the path is missing"),
        ("file://host/x", "file:///path"),
        ("file:/x?direct=maybe", "allowed: on, off"),
        ("file:/x?direct=off&direct=on", "given twice"),
        ("file:/x?speed=9", "allowed: direct, read-only"),
        ("file:/x?direct", "key=value"),
        ("file:/x%2", "%25"),
        ("file:/x%00", "zero byte"),
        ("nbd:host", "nbd://host"),
        ("nbd:///x", "host is missing"),
        ("nbd://h:0/x", "1 to 65535"),
        ("nbd://h:99999/x", "1 to 65535"),
        ("nbd://[::1/x", "`]`"),
        ("nbd://h/x?connections=0", "1 to 16"),
        ("nbd://h/x?timeout=5", "no unit"),
        ("nbd://h/x?fence=soon", "fence=soon"),
        ("nbd+unix:///x", "`socket` is missing"),
        ("nbd+unix://host/x?socket=/s", "nbd+unix:///export"),
        ("mem:", "does not begin with a number"),
        ("mem:0", "multiple of 512"),
        ("mem:1000", "multiple of 512"),
        ("mem:1M?block=8K", "4KiB"),
        ("model:nas?inner=mem:1M", "allowed: san"),
        ("model:san?iops=5", "inner=URI"),
        ("model:san?iops=0&inner=mem:1M", "iops=0"),
        ("fault:rule=explode&inner=mem:1M", "explode"),
        ("fault:rule=error,op=chew&inner=mem:1M", "chew"),
    ] {
        let error = text.parse::<Uri>().expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_model_may_stand_alone() {
    let simple: ModelConfig = "model:san?iops=900&latency=3ms".parse().expect("a model");
    assert_eq!((simple.iops, simple.latency), (Some(900), Some(Nanos::from_millis(3))));
    assert_eq!("model:san".parse::<ModelConfig>().expect("a model"), ModelConfig::default());
    for (text, says) in [
        ("mem:1M", "it is no model"),
        ("model:nas", "allowed: san"),
        ("model:san?inner=mem:1M", "`inner` is not known"),
    ] {
        let error = text.parse::<ModelConfig>().expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn wrappers_nest_only_so_deep() {
    let text = "fault:inner=".repeat(1000) + "mem:1MiB";
    assert!(text.parse::<Uri>().expect_err("too deep").to_string().contains("wrappers"));
    let text = "x".repeat(1 << 20);
    assert!(text.parse::<Uri>().expect_err("too long").to_string().contains("longer"));
}

mod fuzzed {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics_and_what_parses_prints_back(
            text in "(file|block|nbd|nbd\\+unix|mem|model|fault):[ -~]{0,40}(inner=(mem:1M|file:/x))?"
        ) {
            if let Ok(uri) = text.parse::<Uri>() {
                prop_assert_eq!(uri.to_string().parse::<Uri>().expect("prints what parses"), uri);
            }
        }

        #[test]
        fn every_path_survives(path in proptest::collection::vec(1u8.., 1..40)) {
            let path = PathBuf::from(std::ffi::OsString::from_vec(path));
            let uri = Uri::File(FileUri { path, direct: true, read_only: false });
            prop_assert_eq!(uri.to_string().parse::<Uri>().expect("prints what parses"), uri);
        }
    }
}
