//! `forebay support-bundle`: what support needs, in one file.
//!
//! ```text
//!   versions, doctor, configuration ──┐
//!   each daemon: disks, statistics,   ├──► texts ──► secrets struck out ──► tar.gz
//!   events, limits; events of others ─┘
//! ```
//! **Invariants.** No byte of a guest is in it: nothing here reads an image, a pool or a recorder. No secret is: secret files are
//! read only to strike out what they hold wherever it shows up; comments of the configuration are left out; so are values
//! whose key says that they are secret.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_host::date::{now_ms, utc};
use forebay_host::events::EventLine;
use forebay_host::folders;
use serde_json::Value;

use super::output::{self, Output};
use super::{client, doctor};
use crate::cli::BundleArgs;
use crate::config;
use crate::daemon::api::DaemonInfo;

/// The configuration of the service.
const CONFIG: &str = "/etc/forebay/forebay.toml";
/// A text has no more bytes.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// What stands where a secret was.
const STRUCK: &str = "(secret)";
/// Time for all answers of a daemon about one of its disks.
const DISK_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for all disks of a daemon.
const DAEMON_TIME_MAX: Duration = Duration::from_secs(60);
/// Time for what the doctor looks at.
const DOCTOR_TIME_MAX: Duration = Duration::from_secs(20);

const ABOUT: &str = "\
What 'forebay support-bundle' found. It holds no data of a guest, and no secrets.

versions.txt          Forebay, kernel, distribution
doctor.json           what 'forebay doctor' found
configuration.json    the configuration, without comments and secrets
changes.json          what was changed while Forebay ran, without secrets
memory.txt            memory of the host
events/               the files in which daemons keep their events
daemons/NAME/         what each daemon answered: itself, changes, pools, disks, events; limits of its process;
                      its configuration
errors.txt            what could not be had
";

/// Texts by their names.
#[derive(Default)]
struct Bundle {
    texts: Vec<(String, String)>,
    errors: String,
    secrets: Vec<String>,
}

pub(super) fn bundle(args: &BundleArgs) -> Result<()> {
    let stamp = utc(now_ms())[..19].replace(':', "");
    let path =
        args.output.clone().unwrap_or_else(|| format!("forebay-support-{stamp}.tar.gz").into());
    // Before the work: whether it can be written.
    let out = Output::create(&path)?;
    let config =
        args.config.clone().or_else(|| Some(PathBuf::from(CONFIG)).filter(|it| it.exists()));
    let mut bundle = Bundle::default();
    bundle.add("README.txt", ABOUT);
    bundle.add("versions.txt", versions());
    bundle.add("memory.txt", fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let heard = client::block_on(async { Ok(client::daemons(args.control.as_deref()).await) })?;
    let answered = heard.iter().filter_map(|(_, heard)| heard.as_ref().ok());
    let files: Vec<_> = answered.filter_map(|daemon| daemon.file.clone()).collect();
    bundle.add_checks(config.clone().or_else(|| files.first().map(PathBuf::from)))?;
    let configured = match &config {
        Some(config) => bundle.add_configuration(config, ""),
        None => {
            if files.is_empty() {
                bundle.errors +=
                    &format!("{CONFIG}: it is not there; --config PATH names another file\n");
            }
            None
        }
    };
    if let Some(state) = configured.or_else(folders::state_folder) {
        bundle.add_event_files(&state);
    }
    client::block_on(async {
        for (socket, heard) in heard {
            match heard {
                Ok(daemon) => bundle.add_daemon(&socket, &daemon).await,
                Err(error) => bundle.note(&socket, &error),
            }
        }
        Ok(())
    })?;
    let archive = bundle.into_archive(&format!("forebay-support-{stamp}"))?;
    let mut file = out.file()?;
    if file.metadata()?.is_file() {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    file.write_all(&archive).with_context(|| format!("cannot write {}", path.display()))?;
    out.commit()?;
    output::show(format!(
        "{}: no data of a guest and no secrets are in it, but names, paths and addresses are\n",
        path.display()
    ))
}

fn versions() -> String {
    let system = rustix::system::uname();
    let words = [system.sysname(), system.release(), system.version(), system.machine()];
    let kernel: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let distribution = fs::read_to_string("/etc/os-release").unwrap_or_default();
    format!(
        "forebay {}\n{}\nuser {}\n{distribution}",
        env!("CARGO_PKG_VERSION"),
        kernel.join(" "),
        rustix::process::geteuid().as_raw()
    )
}

impl Bundle {
    fn add(&mut self, name: &str, text: impl Into<String>) {
        self.texts.push((name.to_owned(), text.into()));
    }

    /// Something could not be had.
    fn note(&mut self, what: &Path, error: &dyn std::fmt::Debug) {
        self.errors += &format!("{}: {error:?}\n", what.display());
    }

    /// What the doctor finds, unless the storage that it looks at hangs.
    fn add_checks(&mut self, config: Option<PathBuf>) -> Result<()> {
        // An error in the configuration quotes it: a secret may be in it.
        let is_right = |config: &PathBuf| config::file::load(config).is_ok();
        if let Some(wrong) = config.as_ref().filter(|config| !is_right(config)) {
            self.errors += &format!(
                "{}: it cannot be loaded; 'forebay doctor --config PATH' says why\n",
                wrong.display()
            );
        }
        let config = config.filter(is_right);
        let (answer, answered) = mpsc::channel();
        let work = move || answer.send(doctor::checks(config.as_deref()));
        std::thread::Builder::new().name("doctor".to_owned()).spawn(work)?;
        match answered.recv_timeout(DOCTOR_TIME_MAX) {
            Ok(checks) => self.add("doctor.json", serde_json::to_string_pretty(&checks)?),
            Err(_) => self.errors += "doctor: storage did not answer in time\n",
        }
        Ok(())
    }

    /// The configuration, and what was changed of it, in this folder; the state folder that it names.
    fn add_configuration(&mut self, path: &Path, folder: &str) -> Option<PathBuf> {
        let text = fs::read_to_string(path).map_err(|error| self.note(path, &error)).ok()?;
        // What is not understood is not shown either: a secret may be in it.
        let value = toml::from_str::<Value>(&text)
            .map_err(|error| self.note(path, &error.message()))
            .ok()?;
        secrets(&value, &mut self.secrets, &mut self.errors);
        self.add_struck(&format!("{folder}configuration.json"), value);
        let spec = config::file::load(path).ok()?;
        let kept = spec.sources.as_ref().and_then(|sources| sources.kept.as_ref());
        // A daemon that runs says itself what was changed.
        if let Some(kept) = kept.filter(|kept| folder.is_empty() && kept.exists()) {
            let read = fs::read_to_string(kept).map_err(anyhow::Error::from);
            match read.and_then(|text| Ok(toml::from_str::<Value>(&text)?)) {
                Ok(changes) => self.add_struck("changes.json", changes),
                Err(_) => self.errors += &format!("{}: it cannot be read\n", kept.display()),
            }
        }
        spec.state_dir
    }

    fn add_struck(&mut self, name: &str, mut value: Value) {
        strike_keys(&mut value);
        self.add(name, format!("{value:#}"));
    }

    /// The events of daemons that may not run.
    fn add_event_files(&mut self, state: &Path) {
        for entry in fs::read_dir(state).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && (name.ends_with(".events") || name.ends_with(".events.1")) {
                match fs::read(entry.path()) {
                    Ok(bytes) => {
                        self.add(&format!("events/{name}"), String::from_utf8_lossy(&bytes))
                    }
                    Err(error) => self.note(&entry.path(), &error),
                }
            }
        }
    }

    async fn add_daemon(&mut self, socket: &Path, daemon: &DaemonInfo) {
        let folder = format!("daemons/{}", daemon.name);
        for file in ["limits", "status"] {
            let path = format!("/proc/{}/{file}", daemon.pid);
            match fs::read_to_string(&path) {
                Ok(text) => self.add(&format!("{folder}/{file}.txt"), text),
                Err(error) => self.note(Path::new(&path), &error),
            }
        }
        if let Some(file) = &daemon.file {
            self.add_configuration(Path::new(file), &format!("{folder}/"));
        }
        match client::ask::<Value>(socket, "/v1/config").await {
            Ok(changes) => self.add_struck(&format!("{folder}/changes.json"), changes),
            Err(error) => self.note(&socket.join("v1/config"), &error),
        }
        self.add_answer(socket, "/v1/daemon", &format!("{folder}/daemon.json")).await;
        self.add_answer(socket, "/v1/pools", &format!("{folder}/pools.json")).await;
        let until = Instant::now() + DAEMON_TIME_MAX;
        for disk in &daemon.disks {
            let name = &disk.name;
            if Instant::now() >= until {
                self.errors += &format!("{name} and those after it: too many did not answer\n");
                break;
            }
            let path = format!("/v1/disks/{name}/stats");
            self.add_answer(socket, &path, &format!("{folder}/disks/{name}.json")).await;
        }
        match client::ask::<Vec<EventLine>>(socket, "/v1/events").await {
            Ok(lines) => {
                let lines = lines.iter().filter_map(|line| serde_json::to_string(line).ok());
                let text = lines.map(|line| line + "\n").collect::<String>();
                self.add(&format!("{folder}/events.jsonl"), text);
            }
            Err(error) => self.note(socket, &error),
        }
    }

    /// What a daemon answers; one that hangs is not waited for long.
    async fn add_answer(&mut self, socket: &Path, path: &str, name: &str) {
        let asked = tokio::time::timeout(DISK_TIME_MAX, client::ask::<Value>(socket, path)).await;
        match asked.context("no answer").flatten() {
            Ok(answer) => self.add(name, format!("{answer:#}")),
            Err(error) => self.note(&socket.join(path.trim_start_matches('/')), &error),
        }
    }

    /// All texts, without secrets, in a folder of this name.
    fn into_archive(mut self, folder: &str) -> Result<Vec<u8>> {
        let errors = std::mem::take(&mut self.errors);
        self.add("errors.txt", errors);
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, text) in &self.texts {
            let mut text =
                self.secrets.iter().fold(text.clone(), |text, secret| text.replace(secret, STRUCK));
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now_ms() / 1000);
            archive.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
        }
        let mut packed = archive.into_inner()?;
        packed.flush()?;
        Ok(packed.finish()?)
    }
}

/// Finds the secrets in the files that a configuration names, also in one that cannot be loaded.
fn secrets(value: &Value, found: &mut Vec<String>, errors: &mut String) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let file = value.as_str().filter(|_| key.ends_with("secret-file"));
                let read = file.map(|file| (file, config::file::bytes_of(Path::new(file))));
                match read {
                    Some((_, Ok(bytes))) => {
                        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                        found.extend(Some(text).filter(|secret| !secret.is_empty()));
                    }
                    Some((file, Err(error))) => {
                        *errors += &format!(
                            "{file}: it cannot be read, so its secret is struck out nowhere: {error:#}\n"
                        );
                    }
                    None => secrets(value, found, errors),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| secrets(value, found, errors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Strikes out what a key says is secret, and a user's password in a URI. A file that holds a secret is named.
fn strike_keys(value: &mut Value) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let key = key.to_lowercase();
                let is_secret =
                    ["secret", "password", "token"].iter().any(|word| key.contains(word));
                match is_secret && !key.ends_with("-file") {
                    true => *value = Value::String(STRUCK.to_owned()),
                    false => strike_keys(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(strike_keys),
        Value::String(text) => *text = without_password(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `nbd://user:password@host` without what is before the host.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{STRUCK}{}", &rest[at..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_and_its_changes_are_there_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("chap"), "geheim-geheim-1\n").unwrap();
        fs::create_dir(at("state")).unwrap();
        fs::write(at("state/other.changes.toml"), "[[disk]]\nname = \"db\"\npolicy = \"lru\"\n")
            .unwrap();
        let text = format!(
            "state-dir = \"{0}/state\"\n[[disk]]\nname = \"db\"\nbackend = \"mem:1MiB\"\n[[iscsi]]\nlisten = \
             [\"127.0.0.1:0\"]\ntarget = \"iqn.2026-01.x:geheim-geheim-1\"\nchap-user = \"u\"\nchap-secret-file = \
             \"{0}/chap\"\n",
            folder.path().display()
        );
        fs::write(at("other.toml"), &text).unwrap();
        let mut bundle = Bundle::default();
        assert_eq!(bundle.add_configuration(&at("other.toml"), ""), Some(at("state")));
        bundle.add_configuration(&at("missing.toml"), "daemons/x/");
        let errors = bundle.errors.clone();
        assert!(errors.contains("missing.toml"), "{errors}");
        let names: Vec<_> = bundle.texts.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["configuration.json", "changes.json"], "{errors}");
        assert!(bundle.texts[1].1.contains("lru"));
        let packed = bundle.into_archive("x").unwrap();
        let mut unpacked = String::new();
        let mut gz = flate2::read::GzDecoder::new(packed.as_slice());
        std::io::Read::read_to_string(&mut gz, &mut unpacked).unwrap();
        assert!(unpacked.contains("iqn.2026-01.x:(secret)") && !unpacked.contains("geheim"));
    }

    #[test]
    fn secrets_are_struck_out_wherever_they_are() {
        let mut value = serde_json::json!({
            "iscsi": [{"chap-user": "u", "chap-secret-file": "/etc/s", "chap-secret": "geheim"}],
            "disk": [{"backend": "nbd://me:geheim@host:10809/x", "name": "db"}, {"backend": "file:/a@b"}],
            "api": {"Password": ["geheim"]},
        });
        strike_keys(&mut value);
        let text = value.to_string();
        assert!(!text.contains("geheim"), "{text}");
        for kept in ["/etc/s", "@host:10809/x", "file:/a@b", "\"u\""] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }
}
