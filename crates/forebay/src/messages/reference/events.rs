//! `docs/reference/events.md`: what a daemon reports.
//!
//! The engine's events are types: severity, code and an example come from the functions that report them. The control
//! plane's events are sentences so far, and are listed by hand.

mod sentences;

use forebay_core::action::{DestageFault, Event, PrimaryOp};
use forebay_core::config::Mode;
use forebay_core::geometry::ByteRange;
use forebay_core::status::IoStatus;
use forebay_host::events::{EventCode, EventLine, KEPT, Severity};
use forebay_shard::event::describe;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::markdown::{block, paragraph, prose, sentence, table};
use super::tree::{Tree, description};
use sentences::SENTENCES;

pub(super) fn page() -> String {
    let mut page = String::from("# Events\n");
    paragraph(
        &mut page,
        &format!(
            "A daemon writes events to standard error, and keeps the last {KEPT} over a restart. `forebay events` shows them, \
             oldest first. `forebay events --json` prints each event as a line of JSON:"
        ),
    );
    let line = EventLine {
        number: 12,
        time_ms: 1_790_000_000_000,
        disk: Some("db".to_owned()),
        severity: Severity::Info,
        code: Some(EventCode::LogHasRoom),
        text: describe(Event::LogHasRoom).1,
        count: 1,
        last_ms: None,
    };
    block(&mut page, "json", &serde_json::to_string_pretty(&line).expect("an event is JSON"));
    let settings = SchemaSettings::draft07().for_serialize();
    let tree = Tree::new(settings.into_generator().into_root_schema_for::<EventLine>());
    let rows: Vec<_> = Tree::properties(tree.root())
        .map(|(key, about)| [format!("`{key}`"), sentence(&description(about))])
        .collect();
    table(&mut page, ["key", "meaning"], &rows);
    paragraph(
        &mut page,
        "`severity` is `info`, `warning` or `error`. An error means that something does not work. A warning means that it \
         works less well than it should. Events tell of changes: for alarms on a state that lasts, use the codes of the \
         [states](states.md).",
    );

    page.push_str("\n## Events with a code\n");
    paragraph(&mut page, "A code keeps its meaning from version to version. The words may change.");
    let known = &tree.root()["definitions"]["EventCode"]["oneOf"];
    let known = known.as_array().expect("a code is one of several words");
    let reported = EXAMPLES.map(|event| (describe(event), to_do(event)));
    let row = |word: &Value| {
        let code: EventCode =
            serde_json::from_value(word["const"].clone()).expect("a code is a word");
        let found = reported.iter().find(|((kind, _), _)| kind.code == Some(code));
        let ((kind, text), to_do) = found.expect("an event has this code");
        [
            format!("`{}`", word["const"].as_str().unwrap_or_default()),
            severity(kind.severity),
            description(word),
            to_do.to_string(),
            prose(text),
        ]
    };
    let rows: Vec<_> = known.iter().map(row).collect();
    table(&mut page, ["code", "severity", "when", "what to do", "example"], &rows);

    page.push_str("\n## Events without a code\n");
    paragraph(
        &mut page,
        "These events of the daemon are sentences. `…` stands for a name, a figure or a reason.",
    );
    for (heading, events) in SENTENCES {
        page.push_str(&format!("\n**{heading}**\n"));
        let row = |(how_much, text, to_do): &(Severity, &str, &str)| {
            [severity(*how_much), (*text).to_owned(), (*to_do).to_owned()]
        };
        table(
            &mut page,
            ["severity", "event", "what to do"],
            &events.iter().map(row).collect::<Vec<_>>(),
        );
    }
    page
}

fn severity(severity: Severity) -> String {
    format!("{severity:?}").to_lowercase()
}

/// One of each.
const EXAMPLES: [Event; 26] = {
    let status = IoStatus::IoError;
    let range = ByteRange { start: 1 << 20, end: (1 << 20) + 4096 };
    [
        Event::GridMoved { offset: 3584 },
        Event::GridAdvice { offset: 3584 },
        Event::FlashFailed { status },
        Event::RingFailed { status },
        Event::LogRevoked,
        Event::LogNotRevoked,
        Event::JournalRevoked,
        Event::JournalNotRevoked,
        Event::RingNotVoided,
        Event::SlotQuarantined { offset: 1 << 20 },
        Event::ChecksumMismatch { offset: 1 << 20 },
        Event::PrimaryFails {
            op: PrimaryOp::Write,
            status: IoStatus::NoSpace,
            offset: 1 << 20,
            is_destaging: false,
        },
        Event::PrimaryWorks { op: PrimaryOp::Write, failed: 5 },
        Event::BackendTimedOut { range },
        Event::LogFailed { status },
        Event::LogCorrupt { range },
        Event::DestageFailed { fault: DestageFault::LogRead, status },
        Event::DestagingResumed,
        Event::LogThrottles,
        Event::LogFull,
        Event::LogHasRoom,
        Event::ModeChanged { mode: Mode::WriteThrough },
        Event::RamShrunk { end: 1 << 30 },
        Event::FlashShrunk { end: 1 << 30 },
        Event::UnflushedWritesAtRisk { bytes: 65536 },
        Event::FormerWritesAtRisk,
    ]
};

fn to_do(event: Event) -> &'static str {
    match event {
        Event::GridMoved { .. } => {
            "Nothing. Set `grid-offset` to this value to keep the cache at the next start."
        }
        Event::GridAdvice { .. } => "Set `grid-offset` as it says, and start the disk again.",
        Event::FlashFailed { .. } => {
            "Run `forebay disk flush` for each disk of the pool. Stop the daemon, replace the flash device, and start."
        }
        Event::RingFailed { .. } => "Check the flash device.",
        Event::LogRevoked => {
            "When the disk is in another mode, flush the other disks of the pool, and replace the flash device."
        }
        Event::LogNotRevoked => {
            "Keep the daemon running. Make the folder of primary storage, or the state folder, writable. If it has the sidecar of another disk, the image was replaced: `forebay disk show` says so."
        }
        Event::JournalRevoked => {
            "Make space in the folder of the image, and start the disk again at the next occasion."
        }
        Event::JournalNotRevoked => {
            "Make space in the folder of the image, and make the folder writable. If it has the sidecar of another disk, the image was replaced: `forebay disk show` says so."
        }
        Event::RingNotVoided => {
            "Before the next start run `forebay disk flush` for each disk that `forebay pool show PATH` names. Stop the daemon. Then remove the file, or run `blkdiscard --zeroout` for the device."
        }
        Event::SlotQuarantined { .. } => {
            "If it repeats, flush each disk of the pool, and replace the flash device."
        }
        Event::ChecksumMismatch { .. } => {
            "If it repeats, flush each disk of the pool, and replace the flash device. The guest got the right bytes."
        }
        Event::PrimaryFails { .. } => {
            "Check primary storage. `forebay disk show` counts the failures."
        }
        Event::PrimaryWorks { .. } => "Nothing.",
        Event::BackendTimedOut { .. } => "Check primary storage and its network.",
        Event::LogFailed { .. } => {
            "Wait until the log is destaged, and flush the other disks of the pool. Then replace the flash device."
        }
        Event::LogCorrupt { .. } => {
            "Stop the guest. Copy the flash and primary storage. Restore what is lost from a backup."
        }
        Event::DestageFailed { .. } => "Check primary storage, or the flash, as it says.",
        Event::DestagingResumed => "Nothing. Pause again after the change, if wanted.",
        Event::LogThrottles => "Look at `limited by` in `forebay disk show`.",
        Event::LogFull => {
            "Look at `limited by` in `forebay disk show`. Make primary storage faster, or the log larger."
        }
        Event::LogHasRoom => "Nothing.",
        Event::ModeChanged { .. } => "Nothing.",
        Event::RamShrunk { .. } => "Nothing.",
        Event::FlashShrunk { .. } => "Nothing.",
        Event::FormerWritesAtRisk => "Check primary storage and the guest's data.",
        Event::UnflushedWritesAtRisk { .. } => {
            "Check the guest: its next flush fails, and its file system may need a check."
        }
    }
}

#[cfg(test)]
mod tests;
