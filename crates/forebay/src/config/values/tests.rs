use super::*;

/// What a type parses, and that its schema says the same.
fn check<T>(input: &str, expect: Result<&str, &str>)
where
    T: FromStr<Err = ValueError> + fmt::Display + schemars::JsonSchema,
{
    let schema = schemars::schema_for!(T);
    let is_valid = crate::config::schema::violations(schema.as_value(), &input.into()).is_empty();
    assert_eq!(is_valid, expect.is_ok(), "{input}: {schema:?}");
    match (input.parse::<T>(), expect) {
        (Ok(value), Ok(text)) => assert_eq!(value.to_string(), text, "{input}"),
        (Err(error), Err(text)) => assert!(error.0.contains(text), "{input}: {error}"),
        (Ok(value), Err(_)) => panic!("{input} was taken as {value}"),
        (Err(error), Ok(_)) => panic!("{input}: {error}"),
    }
}

#[test]
fn times_need_a_unit() {
    check::<Span>("30s", Ok("30s"));
    check::<Span>("1500ms", Ok("1500ms"));
    check::<Span>("1.5s", Ok("1500ms"));
    check::<Span>("120s", Ok("2min"));
    check::<Span>("30", Err("no unit"));
    check::<Span>("", Err("a number"));
    check::<Span>("s", Err("a number"));
    check::<Span>("-1s", Err("a number"));
}

#[test]
fn words_are_taken_as_they_are_documented() {
    check::<Mode>("write-through", Ok("write-through"));
    check::<Mode>("Write-Through", Err("allowed: write-through"));
    check::<Reactor>("auto", Ok("auto"));
    check::<Switch>("on", Ok("on"));
    check::<Switch>("yes", Err("on, off"));
}

#[test]
fn flash_is_a_path_and_a_size() {
    check::<Flash>("/nvme/pool:4GiB", Ok("/nvme/pool:4GiB"));
    check::<Flash>("/odd:name:4GiB", Ok("/odd:name:4GiB"));
    check::<Flash>("/nvme/pool", Err("PATH:SIZE"));
    check::<Flash>(":4GiB", Err("PATH:SIZE"));
    check::<Flash>("/nvme/pool:big", Err("PATH:SIZE"));
}

#[test]
fn addresses_are_unix_paths_or_hosts_with_ports() {
    check::<Address>("unix:/run/x.sock", Ok("unix:/run/x.sock"));
    check::<Address>("unix:/run/x.sock?mode=0600", Ok("unix:/run/x.sock"));
    check::<Address>("unix:/run/x.sock?mode=660", Ok("unix:/run/x.sock?mode=0660"));
    check::<Address>("unix:/x?mode=0660&group=kvm", Ok("unix:/x?mode=0660&group=kvm"));
    check::<Address>("unix:/x?mode=0888", Err("mode=0660 (octal)"));
    check::<Address>("unix:/x?mode=4755", Err("mode=0660 (octal)"));
    check::<Address>("unix:/x?owner=kvm", Err("'owner=kvm'"));
    check::<Address>("unix:?mode=0660", Err("names no path"));
    check::<Address>("127.0.0.1:0", Ok("127.0.0.1:0"));
    check::<Address>("[::1]:10809", Ok("[::1]:10809"));
    check::<Address>("localhost:10809", Ok("localhost:10809"));
    check::<Address>("unix:", Err("names no path"));
    check::<Address>(&format!("unix:/{}", "x".repeat(120)), Err("107"));
    check::<Address>("127.0.0.1", Err("not an address"));
    check::<Address>("127.0.0.1:70000", Err("not an address"));
    check::<Address>(":10809", Err("not an address"));
}

#[test]
fn the_http_port_has_an_address_or_is_off() {
    check::<HttpAddress>("127.0.0.1:7480", Ok("127.0.0.1:7480"));
    check::<HttpAddress>("[::]:0", Ok("[::]:0"));
    check::<HttpAddress>("off", Ok("off"));
    check::<HttpAddress>("unix:/run/x.sock", Err("such as 127.0.0.1:7480, or off"));
    check::<HttpAddress>("7480", Err("such as 127.0.0.1:7480, or off"));
}

#[test]
fn offsets_and_bypass_have_a_word_for_the_special_case() {
    check::<GridOffset>("auto", Ok("auto"));
    check::<GridOffset>("3584", Ok("3584"));
    check::<GridOffset>("x", Err("'auto' or a number"));
    check::<Bypass>("off", Ok("off"));
    check::<Bypass>("4MiB", Ok("4MiB"));
    check::<Bypass>("never", Err("'off'"));
}

#[test]
fn flash_is_given_with_or_without_its_place_and_its_endurance_as_on_data_sheets() {
    for (text, expect) in
        [("4GiB", Some(4 << 30)), ("/x:4GiB", Some(4 << 30)), (":4GiB", None), ("x", None)]
    {
        assert_eq!(text.parse::<FlashSize>().ok().map(|size| size.0), expect, "{text}");
    }
    let all = [
        ("600TB", Some(600_000_000_000_000)),
        ("1.2PB", Some(1_200_000_000_000_000)),
        ("1TiB", Some(1 << 40)),
        ("600", None),
        ("-1TB", None),
        ("infTB", None),
        ("1e9PB", None),
        ("TB", None),
    ];
    for (text, expect) in all {
        assert_eq!(text.parse::<Endurance>().ok().map(|bytes| bytes.0), expect, "{text}");
    }
}

#[test]
fn names_are_fit_for_file_names() {
    check::<Name>("db-1.raw", Ok("db-1.raw"));
    check::<Name>("", Err("not a name"));
    check::<Name>(".hidden", Err("not a name"));
    check::<Name>("a/b", Err("not a name"));
    check::<Name>(&"x".repeat(65), Err("not a name"));
}
