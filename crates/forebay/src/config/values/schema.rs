//! What a configuration file may say for each value, as JSON schemas: for editors and for the reference.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    Address, Bypass, DiskId, DriveWrites, Flash, GridOffset, HttpAddress, Name, Size, SocketPath,
    Span,
};
use crate::config::iscsi::{IscsiName, Portal};

/// A word of a fixed set.
pub(super) fn words(words: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": words })
}

/// A string of a form, under a name.
macro_rules! form {
    ($($type:ty: $name:literal, $pattern:expr, [$($example:literal),+], $what:literal;)+) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "pattern": format!("^({})$", $pattern),
                    "examples": [$($example),+],
                    "description": $what,
                })
            }
        }
    )+};
}

const SIZE: &str = r"[0-9]+(\.[0-9]+)? *([bB]|[kKmMgGtTpP]([iI][bB])?)?";
const TIME: &str = r"0|[0-9]+(\.[0-9]{1,9})? *(h|min|m|s|ms|us|µs|ns)";
/// Who may come to a socket.
const ACCESS: &str = r"(\?((mode=0*[0-7]{1,3}|group=[^&]+)&?)*)?";
const PORT: &str =
    "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";

form! {
    Size: "size", SIZE, ["512", "8KiB", "1.5GiB"],
        "A number of bytes: digits alone, or with KiB, MiB, GiB, TiB or PiB, powers of 1024. Decimal units (MB) are refused.";
    Span: "time", TIME, ["500ms", "30s", "2min"],
        "A length of time with its unit: ns, us, ms, s, min or h.";
    GridOffset: "grid-offset", format!("auto|{SIZE}"), ["auto", "32256"],
        "A number of bytes, as a size, or auto.";
    Bypass: "bypass", format!("auto|off|{SIZE}"), ["auto", "off", "4MiB"],
        "The word auto or off, or a size.";
    DriveWrites: "drive-writes", r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?", ["1", "0.3"],
        "A number from 0.001 to 1000, in quotes.";
    Flash: "flash", format!(".+:{SIZE}"), ["/nvme/pool:4GiB"],
        "A file, a block device or the name of a pool, and a size: PATH:SIZE.";
    Address: "address", format!("unix:[^?]{{1,107}}{ACCESS}|[^:].*:{PORT}"),
        ["unix:/run/forebay/db.sock?mode=0660&group=kvm", "127.0.0.1:10809", "[::1]:10809"],
        "A unix socket or a TCP port: unix:PATH, with ?mode=0660&group=NAME where others than its owner may connect, or HOST:PORT. Port 0 is any free one.";
    HttpAddress: "http-address", format!("off|[^:].*:{PORT}"), ["127.0.0.1:7480", "[::]:7480", "off"],
        "A TCP port: HOST:PORT, where port 0 is any free one. Or the word off.";
    SocketPath: "socket-path", format!("(unix:)?[^?]{{1,107}}{ACCESS}"),
        ["/run/forebay/db.vhost", "/run/forebay/db.vhost?mode=0660&group=kvm"],
        "The path of a unix socket, with ?mode=0660&group=NAME where others than its owner may connect.";
    Name: "name", "[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}", ["db", "web-1"],
        "1 to 64 letters, digits, '-', '_' or '.'. It does not start with '.'.";
    DiskId: "uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
        "A UUID: 32 hexadecimal digits, with dashes.";
    Portal: "portal", format!("[^:].*:{PORT}"), ["10.0.0.1:3260", "[::]:3260"],
        "A TCP port: HOST:PORT.";
    IscsiName: "iscsi-name", r"([iI][qQ][nN]|[eE][uU][iI]|[nN][aA][aA])\.([A-Za-z0-9.:-]|[^\x00-\x7F]){1,219}",
        ["iqn.2026-01.org.example:db"],
        "The name of an iSCSI target or initiator: iqn.YYYY-MM.DOMAIN:NAME, eui.… or naa.….";
}
