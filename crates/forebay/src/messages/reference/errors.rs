//! `docs/reference/errors.md`: exit codes, and the errors that an operator meets, by where they come from.
//!
//! Kinds come from the types of the errors. Examples are what the program says of wrong input.

use std::fmt::Write as _;

use forebay_backends::ErrorKind as PrimaryError;
use forebay_backends::ImageFormat;
use forebay_core::status::IoStatus;
use forebay_frontends::nbd::errno::result_of;
use forebay_frontends::scsi::{Response, Status as ScsiStatus};
use forebay_frontends::vhost_user::request::Status as VirtioStatus;
use forebay_io::file::FileErrorKind;
use forebay_trace::ErrorKind as TraceError;

use super::markdown::{list, paragraph, table};
use super::tree::{Tree, description};
use crate::config::file;
use crate::config::values::{Name, Size, Span};

pub(super) fn page() -> String {
    let mut page = String::from("# Errors\n");
    paragraph(
        &mut page,
        "A command that fails prints one message to standard error. It begins with `forebay:` and says what failed, where, \
         why, and what to do. The words may change from version to version. Scripts use exit codes, and the codes that \
         commands print as JSON.",
    );
    exit_codes(&mut page);
    usage(&mut page);
    refused(&mut page);
    primary_storage(&mut page);
    files(&mut page);
    control(&mut page);
    traces(&mut page);
    requests(&mut page);
    page
}

fn exit_codes(page: &mut String) {
    page.push_str("\n## Exit codes\n");
    let rows = [
        ["`0`", "Done. Also when the reader of the output closes it early, as `head` does.", ""],
        [
            "`1`",
            "Failed. The reason is on standard error.",
            "Do what the message says, then try again.",
        ],
        [
            "`2`",
            "The command line or the configuration file is wrong.",
            "Change it. Trying again is no use, so a service manager must not restart it.",
        ],
        [
            "`130`",
            "A second signal ended a replay or `disk advise` at once.",
            "Nothing: the first signal would have ended it with its results.",
        ],
    ];
    table(page, ["code", "meaning", "what to do"], &rows.map(|row| row.map(str::to_owned)));
}

/// What was typed, or stands in a file.
fn usage(page: &mut String) {
    page.push_str("\n## The command line and the configuration file\n");
    paragraph(
        page,
        "Exit code 2. Each message names the option or key, the value and what is allowed. `forebay serve --config FILE \
         --check` finds these errors without serving anything. The messages have no codes. These are the kinds:",
    );
    let disk = "[[disk]]\nbackend = 'mem:1MiB'\nnbd = ['127.0.0.1:0']\n";
    let in_file = |text: &str| match file::parse(text, Name("forebay".to_owned())) {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}").lines().last().unwrap_or_default().to_owned(),
    };
    let of = |what: &str, example: String| [what.to_owned(), example];
    let said = |error: Option<String>| error.unwrap_or_default();
    let rows = [
        of(
            "a value of the wrong form",
            said("5 apples".parse::<Size>().err().map(|it| it.to_string())),
        ),
        of("a time without unit", said("30".parse::<Span>().err().map(|it| it.to_string()))),
        of("an unknown key", in_file(&format!("{disk}ramm = '1GiB'"))),
        of("a value out of bounds", in_file(&format!("{disk}block-size = '5KiB'"))),
        of("a setting that needs another one", in_file(&format!("{disk}destage-order = 'window'"))),
        of(
            "a risk that needs consent",
            in_file(&format!(
                "{disk}mode = 'write-back'\nflash = '/x:1GiB'\nflush-semantics = 'deferred'"
            )),
        ),
        of(
            "two things with one name or address",
            in_file(&format!("{disk}[[nbd]]\nlisten = 'h:1'\n[[nbd]]\nlisten = 'h:1'")),
        ),
        of("a disk without an address", in_file("[[disk]]\nbackend = 'mem:1MiB'")),
    ];
    table(page, ["kind", "example"], &rows);
}

fn refused(page: &mut String) {
    page.push_str("\n## A disk that is not served\n");
    paragraph(
        page,
        "A daemon can serve some disks and refuse others. `forebay disk list` shows a refused disk as NOT SERVED, with the \
         reason. `forebay disk list --json` has the reason in `reason`. An event says it, too. The reason is a sentence \
         without a code. `forebay disk open DISK` tries again. These are the kinds:",
    );
    let rows = [
        [
            "Another process has primary storage or the flash.",
            "End that process, then `forebay disk open DISK`.",
        ],
        [
            "Primary storage changed while the write log holds data that it does not have.",
            "Copy both sides, then [decide](cli.md#forebay-disk-resolve): `forebay disk resolve DISK`.",
        ],
        [
            "The write log cannot be used: a part is gone, damaged, or of another version.",
            "Copy the flash, then `forebay disk resolve DISK`.",
        ],
        [
            "Primary storage belongs to a disk of another pool or name, whose write log may hold newer data.",
            "Start that disk and detach it. If its log is gone for ever: `--take-over UUID`.",
        ],
        [
            "Primary storage was renamed, and the log of its disk may hold newer data.",
            "Give the image the name back that the message shows.",
        ],
        [
            "The flash holds writes of a disk with this name for other primary storage, or for this one under another name.",
            "Start that disk and flush it, or use its name.",
        ],
        [
            "The flash holds persistent reservations that this start would pass by, or that cannot be read.",
            "When no initiator relies on them: `forebay disk resolve DISK --discard-reservations`.",
        ],
        [
            "Primary storage is an image of another format, or a flash pool.",
            "Serve an image through `qemu-nbd`, as the message shows. If it is a raw disk after all: `--raw-anyway`.",
        ],
        [
            "The shard could not take the disk, or the disk was not detached as it should be.",
            "Read the reason. Put it right, then `forebay disk open DISK`.",
        ],
    ];
    table(page, ["reason", "what to do"], &rows.map(|row| row.map(str::to_owned)));
    paragraph(page, "A start for which all disks are refused ends with exit code 1.");
}

fn primary_storage(page: &mut String) {
    const KINDS: [PrimaryError; 10] = [
        PrimaryError::InvalidUri,
        PrimaryError::NotFound,
        PrimaryError::InUse,
        PrimaryError::Locked,
        PrimaryError::Denied,
        PrimaryError::Connect,
        PrimaryError::Protocol,
        PrimaryError::Unsuitable,
        PrimaryError::NotRaw(ImageFormat::Qcow2),
        PrimaryError::Io,
    ];
    let about = |kind: PrimaryError| match kind {
        PrimaryError::InvalidUri => {
            ("The URI, or an option in it, is malformed.", "Correct the URI. Exit code 2.")
        }
        PrimaryError::NotFound => (
            "There is no such file, device or export.",
            "Check the path or the name of the export.",
        ),
        PrimaryError::InUse => {
            ("Another process has it.", "End that process. `fuser -v` and `lslocks` show it.")
        }
        PrimaryError::Locked => (
            "Another process, such as udev, has locked the device.",
            "Nothing: Forebay tries again. If it lasts, end that process.",
        ),
        PrimaryError::Denied => (
            "This user may not use it, or it is read-only.",
            "Give the user the right, or use `--read-only`.",
        ),
        PrimaryError::Connect => {
            ("No NBD server answers at the address.", "Start the server, or correct the address.")
        }
        PrimaryError::Protocol => (
            "The NBD server breaks its protocol or offers what Forebay cannot use.",
            "Check which server it is, and its version.",
        ),
        PrimaryError::Unsuitable => (
            "It exists, but cannot be primary storage.",
            "Read the reason, and choose other storage.",
        ),
        PrimaryError::NotRaw(_) => (
            "It looks like an image of another format, such as qcow2.",
            "Serve it through `qemu-nbd`, as the message shows.",
        ),
        PrimaryError::Io => {
            ("The kernel reports another error.", "Check the device and the log of the kernel.")
        }
    };
    page.push_str("\n## Primary storage cannot be opened\n");
    let rows = KINDS.map(about).map(|(kind, to_do)| [kind.to_owned(), to_do.to_owned()]);
    table(page, ["kind", "what to do"], &rows);
}

fn files(page: &mut String) {
    const KINDS: [FileErrorKind; 7] = [
        FileErrorKind::NotFound,
        FileErrorKind::InUse,
        FileErrorKind::Locked,
        FileErrorKind::Denied,
        FileErrorKind::WrongType,
        FileErrorKind::NoSpace,
        FileErrorKind::Io,
    ];
    let about = |kind: FileErrorKind| match kind {
        FileErrorKind::NotFound => {
            ("Nothing is there.", "Check the path, or create the file first.")
        }
        FileErrorKind::InUse => (
            "Another process has it, or it is mounted.",
            "End that process, or choose another file.",
        ),
        FileErrorKind::Locked => (
            "Another process, such as udev, has locked the device.",
            "Nothing: Forebay tries again. If it lasts, end that process.",
        ),
        FileErrorKind::Denied => {
            ("This user may not use it.", "Run as a user who may read and write it.")
        }
        FileErrorKind::WrongType => {
            ("It is neither a regular file nor a block device.", "Name a file or a block device.")
        }
        FileErrorKind::NoSpace => ("The file system is full.", "Free some space, or ask for less."),
        FileErrorKind::Io => {
            ("The kernel reports another error.", "Check the device and the log of the kernel.")
        }
    };
    page.push_str("\n## Files and flash\n");
    paragraph(
        page,
        "Forebay names the path, and what it tried to do. It does not overwrite flash that carries other data, and it does \
         not use a pool of another version.",
    );
    let rows = KINDS.map(about).map(|(kind, to_do)| [kind.to_owned(), to_do.to_owned()]);
    table(page, ["kind", "what to do"], &rows);
}

fn control(page: &mut String) {
    page.push_str("\n## A daemon that runs\n");
    paragraph(
        page,
        "`forebay stats`, `forebay events` and `forebay disk` ask a daemon over its control socket. They fail with exit \
         code 1:",
    );
    list(
        page,
        [
            "No daemon listens there. Start it, or give its `--control PATH`.",
            "Only the owner of the socket and root may use it. Run the command as one of them.",
            "The daemon does not answer in time. Look at its log.",
            "The daemon refuses. The message has its reason.",
        ],
    );
    paragraph(
        page,
        "On the socket itself a refusal is JSON, `{\"error\":\"…\"}`, with one of these HTTP statuses:",
    );
    let rows = [
        ["400", "The request makes no sense."],
        ["404", "There is no such path, or no such disk."],
        [
            "409",
            "The disk cannot do it now: it is refused, is being detached, or has no write log, for example.",
        ],
        ["502", "Primary storage failed the flush."],
        ["503", "The disk or its shard has ended, or the daemon is still starting."],
        ["500", "A fault of Forebay."],
    ];
    table(page, ["status", "meaning"], &rows.map(|row| row.map(str::to_owned)));
}

fn traces(page: &mut String) {
    const KINDS: [TraceError; 8] = [
        TraceError::Io,
        TraceError::UnknownFormat,
        TraceError::BadRecord,
        TraceError::Empty,
        TraceError::Invalid,
        TraceError::TargetTooSmall,
        TraceError::HoldsData,
        TraceError::Target,
    ];
    let about = |kind: TraceError| match kind {
        TraceError::Io => ("The file cannot be read.", "1", "Check the path and the rights."),
        TraceError::UnknownFormat => {
            ("Forebay reads no such format.", "1", "Name it with `--format`, or convert the file.")
        }
        TraceError::BadRecord => {
            ("A record makes no sense.", "1", "Use `--skip-bad` to pass over such records.")
        }
        TraceError::Empty => {
            ("The trace has no read and no write.", "1", "Use another trace or another `--device`.")
        }
        TraceError::Invalid => (
            "A setting cannot work with this trace.",
            "2",
            "Change the option that the message names.",
        ),
        TraceError::TargetTooSmall => (
            "The target of a replay is smaller than the trace.",
            "1",
            "Use a larger target, or `--wrap`.",
        ),
        TraceError::HoldsData => (
            "The target of a replay may hold data.",
            "1",
            "Use an empty target, or agree with `--overwrite`.",
        ),
        TraceError::Target => ("The target of a replay failed.", "1", "Check the target."),
    };
    page.push_str("\n## Traces\n");
    let rows = KINDS
        .map(about)
        .map(|(kind, code, to_do)| [kind.to_owned(), code.to_owned(), to_do.to_owned()]);
    table(page, ["kind", "exit code", "what to do"], &rows);
}

/// What a guest gets, for each status: from the functions that answer it.
fn requests(page: &mut String) {
    page.push_str("\n## Requests of a guest\n");
    paragraph(
        page,
        "A request that fails has a status. `last_failed_request.status` and `primary_errors` in the \
         [statistics](statistics.md) have it as a code. Clients get it as their protocol knows it:",
    );
    let tree = Tree::new(schemars::schema_for!(IoStatus));
    let words = tree.root()["oneOf"].as_array().expect("a status is one of several words");
    let rows: Vec<_> = words
        .iter()
        .filter_map(|word| {
            let code = word["const"].as_str().expect("a code is a word");
            let status: IoStatus =
                serde_json::from_value(code.into()).expect("a status has a code");
            (!status.is_ok()).then(|| {
                [format!("`{code}`"), description(word), nbd(status), scsi(status), virtio(status)]
            })
        })
        .collect();
    table(page, ["status", "meaning", "NBD", "iSCSI", "vhost-user"], &rows);
}

fn nbd(status: IoStatus) -> String {
    if status == IoStatus::ShuttingDown {
        return "no answer: the connection closes".to_owned();
    }
    result_of(status).map_or_else(
        |errno| format!("E{}", format!("{errno:?}").to_uppercase()),
        |()| "success".to_owned(),
    )
}

fn scsi(status: IoStatus) -> String {
    let [read, write] = [false, true].map(|writes| Response::from_status(status, writes));
    let Some(sense) = read.sense.filter(|_| read.status == ScsiStatus::CheckCondition) else {
        return spaced(&format!("{:?}", read.status));
    };
    let codes = [read.sense, write.sense].map(|it| it.map_or((0, 0), |it| (it.code.0, it.code.1)));
    let mut text =
        format!("{}, {:02X}h/{:02X}h", spaced(&format!("{:?}", sense.key)), codes[0].0, codes[0].1);
    if codes[0] != codes[1] {
        let _ = write!(text, " (read), {:02X}h/{:02X}h (write)", codes[1].0, codes[1].1);
    }
    text
}

fn virtio(status: IoStatus) -> String {
    match VirtioStatus::from(status) {
        VirtioStatus::Ok => "OK",
        VirtioStatus::Error => "IOERR",
        VirtioStatus::Unsupported => "UNSUPP",
    }
    .to_owned()
}

/// `MediumError` as `MEDIUM ERROR`.
fn spaced(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(letter.to_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_wrong_configuration_of_the_page_is_refused() {
        let mut section = String::new();
        super::usage(&mut section);
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(rows.len(), 9, "{section}");
        assert!(rows.iter().all(|row| !row.ends_with("|  |")), "{section}");
    }
}
