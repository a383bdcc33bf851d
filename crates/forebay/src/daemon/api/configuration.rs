//! What the control socket says of the configuration: settings, and what changes of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::changes::Changes;
pub use crate::config::sources::Overridden;
use crate::config::values::Name;

/// What came of a configuration that was changed or read again, or would come of it.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Reloaded {
    /// The configuration file. Null: there is none.
    pub file: Option<String>,
    /// Nothing was changed.
    pub dry_run: bool,
    /// What changes of what was in force. What only a restart can change is told each time.
    pub changes: Vec<Change>,
    /// What was changed while Forebay ran, and counts more than the file.
    #[serde(default)]
    pub overridden: Vec<Overridden>,
}

/// A disk was removed from the configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Removed {
    /// It was.
    pub removed: bool,
    /// What the log of a disk that was not served keeps, or may keep. Null: nothing.
    pub left: Option<String>,
}

/// A change of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Change {
    /// The disk that it is about. Null: the daemon.
    pub disk: Option<String>,
    /// `added`, `removed`, `changed`, `opened-again`, `listeners`, `secrets`, `devices` or `at-next-start`.
    pub kind: String,
    /// The same in words.
    pub text: String,
    /// Why it could not be made. Null: it was made, or is under way.
    pub error: Option<String>,
}

/// A pool of several devices is to have another one, or one less.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceChange {
    /// A pool gets a device.
    Add {
        /// The pool.
        pool: Name,
        /// The device.
        device: PathBuf,
    },
    /// The disks on a device leave it, and its pool loses it.
    Drain {
        /// The device.
        device: PathBuf,
    },
}

/// A setting of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SettingInfo {
    /// Its key in the configuration file.
    pub key: String,
    /// What is in force.
    pub value: String,
    /// What was asked for and is in force after a restart. Null: that is in force.
    pub requested: Option<String>,
    /// Where what was asked for comes from.
    pub origin: Origin,
    /// What the configuration file or the command line says, where a change counts more. Null: nothing.
    pub replaces: Option<String>,
}

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File,
    /// The command line of `forebay run`.
    CommandLine,
    /// A change that was made while Forebay ran.
    Online,
}

/// The configuration file, and what was changed since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigInfo {
    /// The file; `None`: a command line.
    pub file: Option<String>,
    /// Where changes are kept over a restart; `None`: nowhere.
    pub kept: Option<String>,
    /// Them.
    pub changes: Changes,
}
