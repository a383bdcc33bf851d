//! The events of the daemon that are sentences, and what to do about each.

use forebay_host::events::Severity::{self, Error, Info, Warning};

/// A heading, and events: how bad each is, its text, and what to do.
type Sentences = (&'static str, &'static [(Severity, &'static str, &'static str)]);

pub(super) const SENTENCES: [Sentences; 6] = [
    (
        "The daemon",
        &[
            (Info, "SIGTERM: finishing what is in flight; …", "Wait."),
            (Info, "ended: everything acknowledged is on primary storage …", "Nothing."),
            (
                Warning,
                "ended: everything acknowledged of the disks that were served is on primary storage …",
                "Start again. `forebay disk list` says why the others are refused.",
            ),
            (
                Warning,
                "ended: everything acknowledged is on primary storage …; disk … is not listed any more, and was not destaged: …",
                "List the disk again as it was, then start.",
            ),
            (Info, "every disk was detached", "Nothing. The daemon of `forebay run` ends."),
            (Info, "reload: … says what is in force", "Nothing."),
            (Info, "reload: … was read again", "Nothing."),
            (
                Warning,
                "reload: what was changed of this disk while Forebay ran waits: …",
                "Put the disk back into the file, or remove the change: `forebay config changes` shows it.",
            ),
            (Warning, "what is said of … is in force after a restart", "Restart when it suits."),
            (
                Info,
                "what is said of … is in force at once, as the disk is not served …",
                "Nothing.",
            ),
            (
                Warning,
                "reload: it is not listed any more, and stays …",
                "Detach its clients, then reload again.",
            ),
            (Error, "reload: … becomes …: not done: …", "Do what it says, then reload again."),
            (
                Error,
                "reload: nothing changes until this is right: …",
                "Correct the configuration file.",
            ),
            (
                Warning,
                "metrics are not served: …. Disks are. …",
                "Give another address: `http` in the configuration file. `forebay reload` tries again.",
            ),
            (
                Warning,
                "serving, but standard output did not take the start-up summary: …",
                "Check who reads the output.",
            ),
            (
                Warning,
                "systemd passed a socket that …",
                "Write the same address in the socket unit and in the configuration file.",
            ),
            (
                Warning,
                "events are not kept over a restart, … cannot be had: …",
                "Put it right, then restart. The journal has the events meanwhile.",
            ),
            (
                Error,
                "shard … takes no turn: something keeps its thread …",
                "Look at the host. When it lasts, systemd ends Forebay and starts it again.",
            ),
            (
                Error,
                "a part of the daemon panicked, and begins again in a minute: …",
                "Report it: it is a fault of Forebay. Clients are served meanwhile.",
            ),
            (
                Info,
                "this came … times…, first at …, last at …: …",
                "What a warning or an error asks for that came again and again.",
            ),
        ],
    ),
    (
        "A flash pool",
        &[
            (Info, "the flash … was blank, and is a pool of … now", "Nothing."),
            (
                Warning,
                "the flash … was cut short: …, and has its size again; what was cached there is gone",
                "Find out who did that.",
            ),
            (
                Warning,
                "the pool on …, of …, was too small for what is configured and was made anew …",
                "Nothing. Its caches start empty. Give `unit-id` where iSCSI initiators must see the same unit.",
            ),
            (
                Error,
                "the flash … cannot be written: …; nothing more is leased from it",
                "Check the flash device.",
            ),
            (
                Error,
                "segment … of the flash was given back …",
                "Report it: it is a fault of Forebay.",
            ),
        ],
    ),
    (
        "The start of a disk",
        &[
            (
                Error,
                "the disk is not served: …",
                "Read the reason, and see [refused disks](errors.md#a-disk-that-is-not-served).",
            ),
            (Info, "the disk is served now", "Nothing."),
            (
                Error,
                "no configuration lists …, and its write log in the pool …",
                "List the disk again as it was, or give its log up. See [a disk that is not listed any more](../operating/recovery.md#a-disk-that-is-not-listed-any-more).",
            ),
            (
                Error,
                "the disk is served, but not everywhere: …",
                "Put it right: Forebay tries again, and `forebay disk open DISK` at once.",
            ),
            (Info, "the disk is served everywhere now", "Nothing."),
            (
                Warning,
                "an administrator has decided: …",
                "Nothing, unless it says that the image may be torn: check its file systems.",
            ),
            (Info, "primary storage is as it was noted last (strong evidence)", "Nothing."),
            (
                Warning,
                "nothing proves that nobody else wrote to primary storage (…): weak evidence; …",
                "Make sure that nobody else did. Info instead of warning if the log is empty.",
            ),
            (
                Warning,
                "primary storage was changed by somebody else: …; the write log was empty, …",
                "Find out who did.",
            ),
            (
                Info,
                "primary storage was served as disk … before: …",
                "Give `unit-id` where iSCSI initiators must see the same unit.",
            ),
            (Info, "the write log of a former run goes on: …", "Nothing."),
            (
                Warning,
                "… segments of the write log were read whole: …",
                "Check the flash device if flash does not read them.",
            ),
            (
                Error,
                "a former run crashed and its staging file …: writes … may be lost",
                "Check the guest's data.",
            ),
            (
                Error,
                "a former run ended before it could tell that primary storage may have lost writes …",
                "Nothing: the guest's next flush fails. Check its file system.",
            ),
            (
                Warning,
                "a former run ended without an answer to everything that it sent to primary storage …",
                "Wait. Writes go on after that time.",
            ),
            (Info, "the cache on flash is warm: …", "Nothing."),
            (
                Info,
                "the cache on flash starts empty: …",
                "Nothing. A warning if its index is damaged: then check the flash device.",
            ),
            (
                Warning,
                "the cache on flash has … instead of …: …",
                "Destage old logs: `forebay pool show` lists them.",
            ),
            (
                Warning,
                "the flash has no room to record what the cache holds: …",
                "Give the pool more flash.",
            ),
            (
                Warning,
                "the block grid is at byte offset … in this run, …",
                "Let the log be destaged, and start again.",
            ),
            (
                Info,
                "there is no folder on tmpfs for a staging file: …",
                "Mount `/dev/shm`. Writes wait for flash until then.",
            ),
            (
                Warning,
                "no sidecar can be written …",
                "Give a folder that can be written, as it says.",
            ),
            (
                Warning,
                "its sidecar cannot be written (…): nothing acknowledged depends on it; …",
                "Make room beside the image. The next start goes on.",
            ),
            (
                Warning,
                "the state folder cannot be written (…) and goes on to say that this disk was detached: …",
                "Give a state folder that can be written: `--state-dir`.",
            ),
            (
                Warning,
                "… cannot be locked (…): nothing keeps another disk of this host from using the same primary storage …",
                "Give a state folder: `--state-dir`.",
            ),
            (Warning, "… is not a file of this user and cannot be removed: …", "Remove it."),
            (Info, "a persistent reservation of a SCSI initiator is in force: …", "Nothing."),
            (
                Info,
                "the state folder cannot keep that primary storage is raw (…): …",
                "Give a state folder that can be written.",
            ),
        ],
    ),
    (
        "A disk that runs",
        &[
            (Info, "mode … was asked for, instead of …", "Nothing. `mode-changed` follows."),
            (Info, "its settings were changed at work: …", "Nothing."),
            (Info, "the disk was removed from the configuration", "Nothing."),
            (
                Warning,
                "an administrator ends the disk with --force, although …",
                "Put the copy of the image in place, if that was made.",
            ),
            (Warning, "destaging was paused; …", "Resume it before the log is full."),
            (Info, "destaging goes on: it was resumed", "Nothing."),
            (Info, "the cache was dropped: … blocks", "Nothing."),
            (Info, "the disk was resized from … to …", "Let the guest use the new size."),
            (
                Info,
                "it is being detached: …",
                "Wait, or cancel it with `forebay disk resume DISK`.",
            ),
            (
                Warning,
                "its detach was cancelled: …; clients may attach again",
                "Detach again, if wanted.",
            ),
            (Info, "the disk was detached: primary storage has everything", "Nothing."),
            (Info, "the disk was detached with --force: …", "Nothing."),
            (
                Warning,
                "the disk was detached with --force, and its clients ended: …",
                "See that its storage is there, then `forebay disk open DISK`. Its write log goes on.",
            ),
            (Warning, "the detach was cancelled: …", "Copy the image, as the event says."),
            (Error, "the disk was detached, and meanwhile …", "Bring back a copy of the image."),
            (
                Error,
                "it was not detached as it should be, and is not served any more: …",
                "Read the reason. Start the disk again.",
            ),
            (
                Warning,
                "not all is destaged before the end: …; the rest stays in the write log, …",
                "Start the disk again to go on.",
            ),
            (
                Warning,
                "not all is destaged before the end: …; the rest is in the write log, which failed",
                "Do what the last message of the end says.",
            ),
            (Info, "an advice is kept: …", "Configure the disk as advised."),
            (
                Warning,
                "cannot take … for the staging file …: until the next start writes to the log are small",
                "Give tmpfs more room, or the host more memory.",
            ),
        ],
    ),
    (
        "Primary storage",
        &[
            (
                Error,
                "the connection to primary storage was lost; it is being restored",
                "Check the server and the network. I/O waits.",
            ),
            (Info, "the connection to primary storage is restored", "Nothing."),
            (
                Error,
                "primary storage was modified while no write of this disk was under way: …",
                "Find out who writes there. Then `forebay disk drop-cache DISK`.",
            ),
            (
                Error,
                "its flash cannot note that somebody modified primary storage (…) …",
                "`forebay disk drop-cache DISK` before this run ends. See to the flash.",
            ),
            (
                Warning,
                "the flash cannot note that the cache was dropped after somebody modified primary storage (…) …",
                "See to the flash, then `forebay disk drop-cache DISK` again.",
            ),
            (
                Error,
                "another file is at … by now …; the image … was removed: …; the image is not at … any more …",
                "Follow the event: the disk goes on with the file that it has open.",
            ),
            (
                Error,
                "primary storage was cut short by somebody else: …",
                "Stop the guest and bring back a copy.",
            ),
            (Error, "the device of primary storage is gone …", "Bring it back, restart Forebay."),
            (
                Error,
                "the staging file … was removed by somebody else: …",
                "Stop Forebay in good order and start it again. Run it as a system user.",
            ),
            (
                Info,
                "primary storage is again where and as long as it was when the disk was opened",
                "Nothing.",
            ),
            (
                Error,
                "primary storage is as long again as it was, and what was behind its end …",
                "Stop the guest and bring back a copy. Then `forebay disk drop-cache DISK`.",
            ),
        ],
    ),
    (
        "Clients",
        &[
            (Warning, "… cannot accept: …", "Raise the limit of open files, or read the reason."),
            (Warning, "… refused a client …: …", "Read the reason."),
            (Warning, "a client was dropped: …", "Check the client."),
            (Warning, "the connection of a hypervisor was closed: …", "Check the hypervisor."),
            (
                Warning,
                "…: another hypervisor has connected: it waits until the one that is there leaves",
                "Stop one of them.",
            ),
        ],
    ),
];
